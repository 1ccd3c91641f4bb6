#include "sidereal/task/task_lane.h"

#include <algorithm>
#include <chrono>
#include <iterator>

#include "sidereal/base/log.h"
#include "sidereal/cluster/task_name.h"
#include "sidereal/exec/trace.h"
#include "sidereal/resources/pushed_by.h"
#include "sidereal/sys/clock.h"
#include "sidereal/sys/posix/process.h"
#include "sidereal/task/origin.h"

namespace sidereal::task {

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kTraceBytes = size_t{16} << 20;
/// Steps whose numbers are remembered, so that none runs twice.
constexpr size_t kRecentSteps = 32'768;
/// How often lanes look for what no step has used since they last looked.
constexpr int64_t kLookForUnused = 2 * sys::kSecond;
/// Bytes that a lane without work gives back to the system.
constexpr size_t kWorthReleasing = size_t{1} << 20;
/// After so long without a step, channels have closed and left what they had read into.
constexpr int64_t kChannelsClosed = (2 * kChannelIdleMs + 1000) * sys::kMillisecond;
/// How long steps run before answers leave.
constexpr int64_t kTurn = 100 * sys::kMicrosecond;

int64_t nanoseconds(Clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

/// What is to be added to the steady clock to get nanoseconds since 1970.
int64_t unix_offset_ns() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count() -
         nanoseconds(Clock::now());
}

/// "ps:1/0": what the system's tools show of the lane's thread.
std::string thread_name(const std::string& task, int lane) {
  const std::optional<cluster::TaskName> name = cluster::parse_task_name(task);
  if (!name) return task;
  return fmt::format("{:.8}:{}/{}", name->job, name->index, lane);
}

/// Whether `call` may run `program`, as far as that was found.
Status check_call(const ProgramCall& call, const Result<base::RefPtr<SessionProgram>>& program) {
  SR_RETURN_IF_ERROR(program.status());
  return check_feeds(*(*program)->loaded, static_cast<int64_t>(call.feeds.size()));
}

/// Adds to what only this thread writes.
void add(std::atomic<int64_t>* figure, int64_t change) {
  figure->store(figure->load(std::memory_order_relaxed) + change, std::memory_order_relaxed);
}

}  // namespace

TaskLane::TaskLane(const TaskOptions* options, int index, TaskPrograms* programs,
                   std::function<void()> on_change)
    : options_(*options),
      index_(index),
      programs_(programs),
      on_change_(std::move(on_change)),
      pool_(options->pool_bytes / static_cast<size_t>(options->lanes)),
      recent_steps_(kRecentSteps) {
  if (options_.intra_op_threads > 1) {
    workers_ = std::make_unique<exec::Workers>(options_.intra_op_threads);
  }
}

Status TaskLane::create(const LaneSystem& on) {
  std::string name = options_.name;
  if (options_.lanes > 1) name += fmt::format("/lane:{}", index_);
  const bool is_pinned = !options_.cpus.empty();
  const auto cpu = static_cast<size_t>(index_) % std::max<size_t>(options_.cpus.size(), 1);
  SR_ASSIGN_OR_RETURN(lane_, lane::Lane::create({.name = std::move(name),
                                                 .thread_name = thread_name(options_.name, index_),
                                                 .index = index_,
                                                 .spin_us = options_.spin_us,
                                                 .cpu = is_pinned ? options_.cpus[cpu] : -1,
                                                 .inbox_slots = options_.inbox_slots,
                                                 .network = on.network,
                                                 .clock = on.clock}));
  lane_->add_driver(this);
  return {};
}

void TaskLane::start(Peers* peers) {
  peers_ = peers;
  async_pushes_ = std::make_unique<AsyncPushes>(peers, [this](uint64_t session) {
    // Not from within: steps end by it.
    post([this, session] { tell_drivers(session); });
  });
  ahead_ = std::make_unique<PrefetchedPulls>(
      peers, lane_.get(), &pool_, [this](std::function<void()> fn) { return post(std::move(fn)); });
  // Hooks run last added first: what steps still have to say goes before connections close.
  lane_->add_stop_hook(this);
  if (options_.stepped.empty()) lane_->start();
}

void TaskLane::refuse() {
  {
    const std::lock_guard lock(posted_mutex_);
    stopping_ = true;
  }
  const std::lock_guard lock(signals_mutex_);
  for (const auto& [step, signal] : signals_) signal->raise(exec::StopSignal::Reason::kCancelled);
}

void TaskLane::depose(const Status& why) {
  post_urgent([this, why] {
    deposed_ = why;
    for (const auto& step : steps_in_order()) {
      if (step->running()) finish(step, why, false);
    }
    held_.refuse_all(why);
  });
}

void TaskLane::answer_held() {
  post_urgent([this] { held_.look_again(); });
}

void TaskLane::stop() {
  while (!lane_->stop().ok()) {
    base::log_warning("an op does not end, and the task waits for it lane={}", lane_->name());
  }
}

Status TaskLane::stopping() const { return is_stopping(options_.name); }

Status TaskLane::is_here(uint64_t step) {
  return base::make_status(StatusCode::kAlreadyExists,
                           fmt::format("step {:016x} is here already", step));
}

bool TaskLane::post(std::function<void()> fn) {
  if (lane_->on_lane()) {
    if (stopping_.load(std::memory_order_relaxed)) return false;
    own_posted_.push_back(std::move(fn));
    return true;
  }
  return put(&posted_, &has_posted_, std::move(fn));
}

bool TaskLane::post_urgent(std::function<void()> fn) {
  if (lane_->on_lane()) {
    if (stopping_.load(std::memory_order_relaxed)) return false;
    own_urgent_posted_.push_back(std::move(fn));
    return true;
  }
  return put(&urgent_posted_, &has_urgent_posted_, std::move(fn));
}

bool TaskLane::answer(uint64_t step, int changed, std::function<void()> fn) {
  return post([this, step, changed, fn = std::move(fn)] {
    handed_over_.add(1);
    fn();
    const auto found = steps_.find(step);
    if (found == steps_.end()) return;
    found->second->was_handed_over = true;
    if (changed != kNoLane) found->second->note_changed(changed);
    wake(found->second);
  });
}

bool TaskLane::put(std::vector<std::function<void()>>* posted, std::atomic<bool>* has_posted,
                   std::function<void()> fn) {
  bool is_first = false;
  {
    const std::lock_guard lock(posted_mutex_);
    if (stopping_) return false;
    is_first = posted_.empty() && urgent_posted_.empty();
    posted->push_back(std::move(fn));
    has_posted->store(true, std::memory_order_release);
  }
  // Only to wake the lane; with a full inbox it is awake.
  if (is_first) static_cast<void>(lane_->post([] {}));
  return true;
}

bool TaskLane::run_posted() {
  std::vector<std::function<void()>> urgent;
  std::vector<std::function<void()>> posted;
  if (has_posted_.load(std::memory_order_acquire) ||
      has_urgent_posted_.load(std::memory_order_acquire)) {
    // At once, so that what takes back a receive request comes behind it.
    const std::lock_guard lock(posted_mutex_);
    urgent.swap(urgent_posted_);
    posted.swap(posted_);
    has_urgent_posted_.store(false, std::memory_order_relaxed);
    has_posted_.store(false, std::memory_order_relaxed);
  }
  for (auto& fn : urgent) fn();
  for (auto& fn : posted) {
    changes_.mark();
    fn();
  }
  bool progress = !posted.empty() || !urgent.empty();
  while (!own_posted_.empty() || !own_urgent_posted_.empty()) {
    changes_.mark();
    (own_urgent_posted_.empty() ? own_posted_ : own_urgent_posted_).pop_front()();
    progress = true;
  }
  return progress;
}

/// In the middle of a step.
void TaskLane::run_urgent_posted() {
  std::vector<std::function<void()>> urgent;
  if (has_urgent_posted_.load(std::memory_order_acquire)) {
    const std::lock_guard lock(posted_mutex_);
    urgent.swap(urgent_posted_);
    has_urgent_posted_.store(false, std::memory_order_relaxed);
  }
  for (auto& fn : urgent) fn();
  while (!own_urgent_posted_.empty()) own_urgent_posted_.pop_front()();
}

bool TaskLane::poll() {
  if (ready_.empty() && own_posted_.empty() && own_urgent_posted_.empty() &&
      !has_posted_.load(std::memory_order_acquire) &&
      !has_urgent_posted_.load(std::memory_order_acquire)) {
    return false;
  }
  const int64_t began = lane_->now();
  const resources::PushCounts::OnLane here(programs_->push_counts(), index_);
  run_posted();
  run_ready();
  changes_.end_round();
  reuse_retired();
  release_ended();
  busy_ns_.add(lane_->now() - began);
  return true;
}

void TaskLane::run_ready() {
  // Those that are ready now, in their order, before more is read: what they make ready comes after
  // what has arrived.
  int64_t flush_at = lane_->now() + kTurn;
  for (size_t left = ready_.size(); left > 0; --left) {
    advance(ready_.pop_front());
    if (ready_.empty()) return;
    const int64_t now = lane_->now();
    if (now < flush_at) continue;
    lane_->flush();
    flush_at = now + kTurn;
  }
}

void TaskLane::on_lane_stop() {
  {
    const std::lock_guard lock(posted_mutex_);
    stopping_ = true;
  }
  while (run_posted()) {
  }
  const Status status = base::cancelled("{} is stopping", options_.name);
  while (!waiting_.empty()) {
    const WaitingCall call = waiting_.take();
    refuse(call.call.step, call.stop, call.done, status, false);
  }
  for (const auto& step : steps_in_order()) {
    if (step->running()) finish(step, status, false);
    step->refuse_receive_requests(status);
  }
  held_.refuse_all(status);
  async_pushes_->drop();
  ahead_->throw_all_away();
  changes_.stop(status);
  steps_.clear();
  retired_.clear();
  spare_.clear();
  ready_.clear();
  known_.clear();
}

/// By number: the order of the map is another one in each run.
std::vector<base::RefPtr<StepState>> TaskLane::steps_in_order() const {
  std::vector<base::RefPtr<StepState>> out;
  for (const auto& [number, step] : steps_) out.push_back(step);
  std::sort(out.begin(), out.end(),
            [](const auto& one, const auto& other) { return one->number() < other->number(); });
  return out;
}

void TaskLane::close_session(uint64_t id, std::vector<std::shared_ptr<LoadedProgram>> programs,
                             std::shared_ptr<Container> ended) {
  // Programs and their steps belong to the lane.
  post([this, id, programs = std::move(programs), ended = std::move(ended)]() mutable {
    for (const WaitingCall& call : waiting_.take_all(id)) {
      refuse(call.call.step, call.stop, call.done, base::cancelled("the session was closed"), true);
    }
    for (const auto& step : steps_in_order()) {
      if (step->session != id || !step->running()) continue;
      finish(step, base::cancelled("the session was closed"), true);
    }
    held_.refuse(base::cancelled("the session was closed"),
                 [id](const HeldAnswers::Answer& held) { return held.session == id; });
    ahead_->forget(id);
    if (ended != nullptr) {
      ended->manager.clear();
      changes_.end(*ended);
    }
    absl::erase_if(known_, [id](const auto& one) { return one.first.first == id; });
    programs.clear();
    programs_->forget_unused();
  });
}

void TaskLane::when_async_pushes_done(uint64_t session,
                                      const std::function<void(const Status&)>& done) {
  const bool posted = post([this, session, done] {
    ahead_->forget(session);
    async_pushes_->when_done(session, done);
  });
  if (!posted) done({});
}

void TaskLane::lose_async_pushes(uint64_t session, const std::string& task, const Status& why) {
  post([this, session, task, why] {
    ahead_->lose(session, task);
    async_pushes_->lose(session, task, why);
  });
}

bool TaskLane::look_again() {
  return post([this] { wake_all(); });
}

bool TaskLane::reset() {
  return post([this] {
    ahead_->throw_all_away();
    wake_all();
  });
}

void TaskLane::read_figures(metrics::Readings* into) const {
  figures_.read(into);
  into->add(metrics::gauge("sidereal_task_steps_blocked", metrics::Unit::kCount,
                           "Parts of steps that wait for another task or a resource."),
            blocked_);
  lane_->metrics().figures.read(into);
  into->add(metrics::lane_busy(index_), lane_->metrics().busy_ns.value());
  if (ahead_ != nullptr) ahead_->figures().read(into);
  changes_.figures().read(into);
}

Result<base::RefPtr<SessionProgram>> TaskLane::known(uint64_t session, uint64_t program) {
  const auto found = known_.find({session, program});
  if (found != known_.end()) return found->second;
  SR_ASSIGN_OR_RETURN(base::RefPtr<SessionProgram> made, programs_->find(session, program, index_));
  return known_[{session, program}] = std::move(made);
}

void TaskLane::run(ProgramCall* call, Done done) {
  if (!lane_->on_lane()) return run_from_elsewhere(call, done);
  if (stopping_.load(std::memory_order_relaxed)) return fail(done, stopping());
  const auto program = known(call->session, call->program);
  const Status ready = check_call(*call, program);
  if (!ready.ok()) return fail(done, ready);
  // Who begins it here ends it here too, so nobody else needs to find its signal.
  take(call, *program, nullptr, &done);
}

void TaskLane::fail(const Done& done, const Status& status, bool derived) {
  ProgramResult result{.status = status, .derived = derived};
  done(result);
}

void TaskLane::run_from_elsewhere(ProgramCall* call, const Done& done) {
  auto program = programs_->find(call->session, call->program, index_);
  Status ready = check_call(*call, program);
  if (!ready.ok()) return fail(done, ready);
  // Before the lane hears of it, so that whoever ends the step always finds it.
  const auto stop = std::make_shared<exec::StopSignal>((*program)->stop.get());
  {
    const std::lock_guard lock(signals_mutex_);
    const bool is_new = signals_.try_emplace(call->step, stop).second;
    any_signals_.store(true, std::memory_order_release);
    if (!is_new) ready = is_here(call->step);
  }
  if (!ready.ok()) return fail(done, ready);
  const uint64_t step = call->step;
  auto shared =
      std::make_shared<WaitingCall>(WaitingCall{std::move(*call), *std::move(program), stop, done});
  const bool posted = post([this, shared] {
    // What stays behind may be destroyed by another thread, and the session's signal with it.
    WaitingCall mine = std::exchange(*shared, {});
    take(&mine.call, mine.program, mine.stop, &mine.done);
  });
  if (posted) return;
  forget_signal(step);
  fail(done, stopping());
}

/// Begins it, at once or when the lane has nothing else to do.
void TaskLane::take(ProgramCall* call, const base::RefPtr<SessionProgram>& program,
                    const std::shared_ptr<exec::StopSignal>& stop, Done* done) {
  running_.add(1);
  if (call->goes_on && !waiting_.has(call->session)) return begin(call, program, stop, done);
  waiting_.add(call, program, stop, std::move(*done));
}

bool TaskLane::poll_idle() {
  if (waiting_.empty()) return false;
  const int64_t began = lane_->now();
  const resources::PushCounts::OnLane here(programs_->push_counts(), index_);
  begin_waiting();
  run_ready();
  changes_.end_round();
  reuse_retired();
  busy_ns_.add(lane_->now() - began);
  return true;
}

void TaskLane::begin_waiting() {
  WaitingCall next = waiting_.take();
  if (next.cancelled) {
    refuse(next.call.step, next.stop, next.done, base::cancelled("the step was cancelled"), true);
  } else {
    begin(&next.call, next.program, next.stop, &next.done);
  }
  waiting_.give_back(std::move(next.call.feeds));
}

void TaskLane::begin(ProgramCall* call, const base::RefPtr<SessionProgram>& program,
                     const std::shared_ptr<exec::StopSignal>& stop, Done* done) {
  const Status begun = try_begin(call, program, stop, done);
  if (begun.ok()) return;
  refuse(call->step, stop, *done, begun, stop != nullptr && stop->raised());
}

/// Ends what take() took and what does not begin.
void TaskLane::refuse(uint64_t step, const std::shared_ptr<exec::StopSignal>& stop,
                      const Done& done, const Status& why, bool derived) {
  running_.add(-1);
  if (stop != nullptr) forget_signal(step);
  fail(done, why, derived);
}

/// A step that has not begun is not going to.
void TaskLane::cancel_waiting(uint64_t step) {
  if (waiting_.empty()) return;
  const auto found = steps_.find(step);
  if (found == steps_.end() || !found->second->begun()) waiting_.cancel(step);
}

void TaskLane::raise(uint64_t step) {
  if (lane_->on_lane()) {
    const auto found = steps_.find(step);
    if (found != steps_.end() && found->second->running()) {
      found->second->stop()->raise(exec::StopSignal::Reason::kCancelled);
    }
  }
  if (!any_signals_.load(std::memory_order_acquire)) return;
  // So that a long step sees it before the lane comes to what was posted.
  const std::lock_guard lock(signals_mutex_);
  const auto found = signals_.find(step);
  if (found != signals_.end()) found->second->raise(exec::StopSignal::Reason::kCancelled);
}

void TaskLane::forget_signal(uint64_t step) {
  const std::lock_guard lock(signals_mutex_);
  signals_.erase(step);
  any_signals_.store(!signals_.empty(), std::memory_order_release);
}

void TaskLane::cancel(uint64_t step) {
  raise(step);
  post([this, step] {
    cancel_waiting(step);
    held_.refuse(base::cancelled("the step was cancelled"),
                 [step](const HeldAnswers::Answer& held) { return held.step == step; });
    const auto found = steps_.find(step);
    if (found == steps_.end()) return;
    const base::RefPtr<StepState> state = found->second;
    if (!state->is_blocked()) return;
    if (state->calls()->any_open()) {
      state->calls()->cancel();
    } else {
      finish(state, base::cancelled("the step was cancelled"), true);
    }
  });
}

void TaskLane::end_step(uint64_t step) {
  raise(step);
  post([this, step] {
    cancel_waiting(step);
    const auto found = steps_.find(step);
    if (found == steps_.end()) return;
    const base::RefPtr<StepState> state = found->second;
    if (state->running()) finish(state, base::cancelled("the step was ended"), true);
    if (state->is_asked()) {
      state->refuse_receive_requests(base::aborted("{}: the step has ended", options_.name));
    }
    forget(step);
  });
}

void TaskLane::ask(uint64_t step, std::span<const ports::RendezvousKey> keys,
                   const base::RefPtr<Task::Receiver>& receiver) {
  bool taken = !stopping_.load(std::memory_order_relaxed);
  if (taken && lane_->on_lane()) return answer(step, keys, receiver);
  taken = taken && post_urgent([this, step, held = std::vector(keys.begin(), keys.end()),
                                receiver] { answer(step, held, receiver); });
  if (!taken) receiver->end(stopping());
}

void TaskLane::answer(uint64_t step, std::span<const ports::RendezvousKey> keys,
                      const base::RefPtr<Task::Receiver>& receiver) {
  state_of(step)->answer(keys, receiver);
  forget_if_idle(step);
}

void TaskLane::withdraw(uint64_t step, const base::RefPtr<Task::Receiver>& receiver) {
  post([this, step, receiver] {
    const auto found = steps_.find(step);
    if (found == steps_.end()) return;
    found->second->withdraw(receiver);
    forget_if_idle(step);
  });
}

/// Known from receive requests only, and none is open: its own part never began.
void TaskLane::forget_if_idle(uint64_t step) {
  const auto found = steps_.find(step);
  if (found != steps_.end() && found->second->is_idle()) forget(step);
}

base::RefPtr<StepState> TaskLane::state_of(uint64_t step) {
  base::RefPtr<StepState>& state = steps_[step];
  if (state != nullptr) return state;
  state = spare_.take();
  if (state == nullptr) {
    state = base::RefPtr<StepState>::make(step, peers_, this);
  } else {
    state->renew(step);
  }
  return state;
}

void TaskLane::forget(uint64_t step) {
  const auto found = steps_.find(step);
  if (found == steps_.end()) return;
  retired_.push_back(std::move(found->second));
  steps_.erase(found);
}

/// What is known of steps that have gone serves for others, where nobody else knows it any more.
void TaskLane::reuse_retired() {
  for (base::RefPtr<StepState>& state : retired_) {
    if (!state->has_one_holder()) continue;
    state->clear();
    spare_.put(std::move(state));
  }
  retired_.clear();
}

Result<tensor::Tensor> TaskLane::allocate(tensor::DType dtype, const tensor::Shape& shape) {
  return pool_.try_tensor(dtype, shape);
}

/// Tells a step that still runs something that came from outside, and lets it go on.
template <class Tell>
void TaskLane::tell_step(uint64_t number, Tell tell) {
  const auto found = steps_.find(number);
  if (found == steps_.end() || !found->second->running()) return;
  const base::RefPtr<StepState> step = found->second;
  tell(step.get());
  stop_if_failed(step.get());
  wake(step);
}

/// Ends a step that computes where nothing can come of it any more.
void TaskLane::stop_if_failed(StepState* state) {
  if (!state->running() || state->blocked || state->stop()->raised()) return;
  if (state->failure().ok() && state->calls()->failure().ok()) return;
  state->failed_within = true;
  state->stop()->raise(exec::StopSignal::Reason::kCancelled);
}

void TaskLane::arrived(uint64_t step, const ports::RendezvousKey& key,
                       std::span<tensor::Tensor> values) {
  if (stopping_.load(std::memory_order_relaxed)) return;
  if (lane_->on_lane()) {
    return tell_step(step, [&](StepState* state) { state->arrived(key, values); });
  }
  auto held = std::make_shared<ports::TensorGroup>(std::make_move_iterator(values.begin()),
                                                   std::make_move_iterator(values.end()));
  post_urgent([this, step, key, held] {
    tell_step(step, [&](StepState* state) { state->arrived(key, *held); });
  });
}

void TaskLane::ended(uint64_t step, const Peers::ReceiveRequest* receive_request,
                     const Status& status) {
  if (stopping_.load(std::memory_order_relaxed)) return;
  if (lane_->on_lane()) {
    return tell_step(step, [&](StepState* state) { state->ended(receive_request, status); });
  }
  post_urgent([this, step, receive_request, status] {
    tell_step(step, [&](StepState* state) { state->ended(receive_request, status); });
  });
}

Status TaskLane::try_begin(ProgramCall* call, const base::RefPtr<SessionProgram>& program,
                           const std::shared_ptr<exec::StopSignal>& stop, Done* done) {
  if (stop != nullptr ? stop->raised() : program->stop->raised()) {
    return base::cancelled("the step was cancelled");
  }
  // What comes from elsewhere to run here alone is no step of those who drive.
  if (Status lost = call->whole ? Status() : async_pushes_->take_failure(call->session);
      !lost.ok()) {
    ahead_->throw_away(call->session);
    return lost;
  }
  const base::RefPtr<StepState> state = state_of(call->step);
  if (state->begun()) return is_here(call->step);
  if (!call->whole && !recent_steps_.add(call->step)) {
    forget_if_idle(call->step);
    return base::aborted("{} has seen step {:016x} before", options_.name, call->step);
  }
  state->set_program(program, stop, call->stop);
  std::unique_ptr<CallingStep> calling;
  if (call->number == 0) call->number = call->step;
  Status fed = feed(call, state.get(), &calling);
  if (!fed.ok()) {
    forget_if_idle(call->step);
    return fed;
  }
  state->session = call->session;
  state->whole = call->whole;
  state->pushes_before = programs_->push_counts()->read(index_).number;
  state->was_handed_over = false;
  state->changed_on.clear();
  state->pull_prefetch_ms = call->pull_prefetch_ms;
  state->turns = std::move(call->turns);
  if (call->pull_prefetch_ms > 0)
    ahead_->begin(call->session, call->program, call->pull_prefetch_ms);
  steps_begun_.add(1);
  give_back_later();
  state->start(std::move(calling), std::move(*done));
  state->ask_ahead(program->loaded->receives, call->number);
  ready_.push_back(state);
  return {};
}

/// A step of its program, with its feeds.
Status TaskLane::feed(ProgramCall* call, StepState* state, std::unique_ptr<CallingStep>* out) {
  LoadedProgram& loaded = *state->program()->loaded;
  std::unique_ptr<CallingStep> calling = loaded.idle.take();
  if (calling == nullptr) {
    calling = std::make_unique<CallingStep>(loaded.bound.get(), &pool_, peers_, lane_.get(),
                                            async_pushes_.get(), ahead_.get(),
                                            [this] { run_urgent_posted(); });
  }
  exec::Step* const step = &calling->step;
  // A call that has come to its place makes none.
  if (!loaded.bound->program().calls.empty() || !loaded.bound->program().bodies.empty()) {
    const auto on_answer = [this, number = state->number()] {
      const auto found = steps_.find(number);
      if (found == steps_.end()) return;
      const base::RefPtr<StepState> step = found->second;
      stop_if_failed(step.get());
      wake(step);
    };
    calling->calls.begin(call->session, call->trace, on_answer,
                         call->pull_prefetch_ms > 0 && !call->waits_for_pushes, call->closure);
  }
  if (call->trace != 0) {
    state->trace =
        std::make_unique<exec::Trace>(kTraceBytes, [] { return nanoseconds(Clock::now()); });
  }
  step->set_trace(state->trace.get(), 0, call->trace != 0 ? options_.name : std::string_view());
  state->trace_process = call->trace;
  step->set_workers(workers_.get());
  step->set_rendezvous(state, true);
  step->set_number(state->number());
  step->set_peers(*state->program()->peers);
  step->set_pusher(resources::pushed_by(*state->program()->pusher, call->session));
  step->set_stop_signal(state->stop());
  step->begin(call->number, call->closure);
  for (size_t i = 0; i < call->feeds.size(); ++i) {
    Status fed = step->feed(static_cast<int>(i), std::move(call->feeds[i]));
    if (fed.ok()) continue;
    step->end();
    return fed;
  }
  *out = std::move(calling);
  return {};
}

void TaskLane::wake(const base::RefPtr<StepState>& step) {
  if (!step->is_blocked()) return;
  step->blocked = false;
  add(&blocked_, -1);
  ready_.push_back(step);
}

void TaskLane::wake_all() {
  for (const auto& [number, step] : steps_) {
    if (step->is_blocked() && !step->step()->waits_for_messages()) wake(step);
  }
}

/// A push that a step of `session` did not wait for has failed: a step that waits may wait for what
/// does not come now.
void TaskLane::tell_drivers(uint64_t session) {
  if (!async_pushes_->any_failure()) return;
  for (const auto& step : steps_in_order()) {
    if (step->session == session && !step->whole) wake(step);
  }
}

void TaskLane::advance(const base::RefPtr<StepState>& state) {
  // It may have been ended by a posted function since it became ready.
  if (!state->running()) return;
  if (async_pushes_->any_failure() && !state->whole) {
    const Status lost = async_pushes_->take_failure(state->session);
    if (!lost.ok()) {
      ahead_->throw_away(state->session);
      return finish(state, lost, false);
    }
  }
  if (!state->failure().ok()) return finish(state, state->failure(), true);
  const Status called = state->calls()->failure();
  if (!called.ok()) {
    const bool derived = state->stop()->raised() && !state->failed_within;
    return finish(state, derived ? base::cancelled("the step was cancelled") : called, derived);
  }
  // What lasts is looked at when the step may have gone.
  const base::RefPtr<SessionProgram> program = state->program();
  changes_.will_change(program->loaded->container);
  const resources::Manager& manager = program->loaded->container->manager;
  const uint64_t changes = manager.changes();
  const base::RefPtr<StepTurns> turns = state->turns;
  const bool has_turn = turns == nullptr || turns->is_turn_of(state->number());
  const int64_t began = turns == nullptr ? 0 : lane_->now();
  changes_.mark();
  const Result<exec::Step::Progress> progress =
      has_turn ? state->step()->advance() : state->step()->advance_to_wait();
  if (changes_.has_changed()) state->note_changed(index_);
  if (turns != nullptr) turns->add_computed(lane_->now() - began);
  if (!progress.ok() && state->failed_within &&
      progress.status().code() == StatusCode::kCancelled) {
    const bool is_call = state->failure().ok();
    finish(state, is_call ? state->calls()->failure() : state->failure(), !is_call);
  } else if (!progress.ok()) {
    finish(state, progress.status(), state->stop()->raised());
  } else if (*progress == exec::Step::Progress::kDone) {
    finish(state, {}, false);
  } else if (!state->failure().ok()) {
    finish(state, state->failure(), true);
  } else if (state->stop()->raised()) {
    finish(state, base::cancelled("the step was cancelled"), true);
  } else {
    state->blocked = true;
    // In the one order of all that lanes see: either this lane sees the change of another one
    // below, or the other one sees here that somebody waits.
    blocked_.store(blocked_.load() + 1);
    // All its calls are on their way: what the next step sends comes after them.
    if (turns != nullptr && has_turn && state->step()->at_tail()) pass_turn(state.get());
    if (turns != nullptr) note_wait(turns.get(), state->number());
  }
  if (manager.changes() == changes) return;
  wake_all();
  on_change_();
}

/// Lets the next step of the same loop compute.
void TaskLane::pass_turn(StepState* state) {
  if (state->turns->in_order()) state->turns->pass(state->number());
}

void TaskLane::note_wait(StepTurns* turns, uint64_t step) {
  turns->blocked(step, [this](uint64_t next) {
    const auto found = steps_.find(next);
    if (found != steps_.end()) wake(found->second);
  });
}

void TaskLane::give_back_later() {
  if (std::exchange(is_going_to_give_back_, true)) return;
  lane_->run_after(kLookForUnused, [this] { give_back_unused(); });
}

/// Lets go of steps and buffers that nobody has used since this was last done: as many steps as
/// there are at once make some, and that may be rare.
void TaskLane::give_back_unused() {
  is_going_to_give_back_ = false;
  ++trims_;
  for (const auto& [key, registered] : known_) {
    // Many sessions have the same one.
    LoadedProgram& program = *registered->loaded;
    if (std::exchange(program.trimmed, trims_) != trims_) program.idle.trim();
  }
  spare_.trim();
  bytes_given_back_ += pool_.trim() + peers_->give_back_unused();
  const int64_t begun = steps_begun_.value();
  if (std::exchange(begun_at_last_give_back_, begun) != begun) {
    // Once more after the last step.
    give_back_later();
    return;
  }
  if (std::exchange(bytes_given_back_, 0) >= kWorthReleasing) {
    // What is free lies between what is not, where the allocator keeps it.
    sys::posix::release_free_memory();
  }
  lane_->run_after(kChannelsClosed, [this, begun] {
    if (steps_begun_.value() == begun) sys::posix::release_free_memory();
  });
}

/// Ends this task's part of a step.
void TaskLane::finish(const base::RefPtr<StepState>& state, const Status& ended, bool derived) {
  const Status& status = deposed_.ok() ? ended : deposed_;
  ProgramResult result;
  result.status = status;
  result.derived = derived && !status.ok() && deposed_.ok();
  exec::Step* const step = state->step();
  if (status.ok()) {
    const size_t fetches = state->program()->loaded->bound->program().fetches.size();
    result.fetches = std::move(spare_fetches_);
    result.fetches.reserve(fetches);
    for (size_t i = 0; i < fetches; ++i) result.fetches.push_back(step->fetch(static_cast<int>(i)));
  } else {
    if (state->blocked) result.waits_for = step->waits_for();
    if (result.waits_for.empty()) result.waits_for = state->calls()->waits_for();
  }
  say_pushed(*state, &result.pushed);
  if (state->blocked) add(&blocked_, -1);
  if (!status.ok()) steps_failed_.add(1);
  running_.add(-1);
  if (state->turns != nullptr) pass_turn(state.get());
  step->end();
  step->set_trace(nullptr);
  if (state->trace != nullptr) {
    result.trace = exec::to_chrome(state->trace->events(), {.process = state->trace_process,
                                                            .process_name = options_.name,
                                                            .offset_ns = unix_offset_ns()});
    const std::string others = state->calls()->take_trace();
    if (!others.empty()) result.trace += ",\n" + others;
  }
  if (state->from_elsewhere()) forget_signal(state->number());
  StepState::Finished finished = state->finish(status);
  const base::RefPtr<SessionProgram> program = finished.program;
  if (state->whole) forget(state->number());
  if (finished.step->calls.any_open()) {
    finished.step->calls.drop();
    ending_.emplace_back(program, std::move(finished.step));
  } else {
    program->loaded->idle.put(std::move(finished.step));
  }
  if (state->pull_prefetch_ms > 0) {
    const bool is_plain = status.ok() && state->trace == nullptr;
    ahead_->end(state->session, is_plain ? program->loaded->ahead : nullptr,
                state->pull_prefetch_ms);
  }
  const bool waits = status.ok() && !state->changed_on.empty() &&
                     changes_.has_standby(*program->loaded->container);
  if (waits || (status.ok() && !may_answer())) {
    const std::shared_ptr<HeldAnswers::Answer> held = held_.hold({.session = state->session,
                                                                  .step = state->number(),
                                                                  .result = std::move(result),
                                                                  .done = std::move(finished.done),
                                                                  .is_acknowledged = !waits});
    if (waits) {
      // What the step has changed is not lost once it is answered: standbys must have it first.
      changes_.when_acknowledged(*program->loaded->container, state->changed_on,
                                 [this, held] { held_.acknowledged(held); });
    }
    return release_ended();
  }
  finished.done(result);
  result.fetches.clear();
  if (result.fetches.capacity() > spare_fetches_.capacity()) {
    spare_fetches_ = std::move(result.fetches);
  }
  release_ended();
}

/// Whether this start of the task counts, as far as anybody has to say so.
bool TaskLane::may_answer() {
  return !programs_->may_have_to_wait() || programs_->may_answer(lane_->now());
}

/// Of this lane, if anything was pushed to it since the step began; of others, if these did
/// something for the step. With standbys only of those that the answer waits for: what others have
/// pushed standbys may not have yet.
void TaskLane::say_pushed(const StepState& state, Pushed* pushed) const {
  const resources::PushCounts& counts = *programs_->push_counts();
  const bool has_standby = changes_.has_standby(*state.program()->loaded->container);
  const auto say = [&](int lane, int64_t before) {
    if (has_standby && std::ranges::find(state.changed_on, lane) == state.changed_on.end()) return;
    const resources::PushedSoFar now = counts.read(lane);
    if (now.number > before) pushed->push_back(now);
  };
  say(index_, state.pushes_before);
  if (!state.was_handed_over) return;
  for (int lane = 0; lane < options_.lanes; ++lane) {
    if (lane != index_) say(lane, 0);
  }
}

void TaskLane::release_ended() {
  if (ending_.empty()) return;
  bool was_last = false;
  std::erase_if(ending_, [&was_last](const auto& one) {
    if (one.second->calls.any_open()) return false;
    was_last |= one.first->has_one_holder();
    return true;
  });
  // The session was closed before, and maybe nobody else has the program.
  if (was_last) programs_->forget_unused();
}

}  // namespace sidereal::task
