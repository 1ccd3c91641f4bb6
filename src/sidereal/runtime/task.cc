#include "sidereal/runtime/task.h"

#include <chrono>
#include <deque>
#include <map>
#include <mutex>
#include <utility>

#include "sidereal/base/check.h"
#include "sidereal/base/log.h"
#include "sidereal/exec/executor.h"
#include "sidereal/exec/workers.h"
#include "sidereal/program/program.h"
#include "sidereal/resources/manager.h"
#include "sidereal/runtime/recent_ids.h"
#include "sidereal/runtime/step_state.h"
#include "sidereal/sys/posix/posix.h"

namespace sidereal::runtime {

using tensor::Tensor;

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kTraceBytes = size_t{16} << 20;
/// Steps of one program that are kept, with their buffers, for the next runs of it.
constexpr size_t kIdleSteps = 16;
/// Steps whose numbers are remembered, so that none runs twice.
constexpr size_t kRecentSteps = 100'000;

int64_t nanoseconds(Clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

/// What is to be added to the steady clock to get nanoseconds since 1970.
int64_t unix_offset_ns() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count() -
         nanoseconds(Clock::now());
}

}  // namespace

/// What the programs of a session, or of all that share, use by name.
struct Space {
  resources::Manager manager;
  exec::Environment environment;
};

struct LoadedProgram {
  std::shared_ptr<Space> space;
  std::unique_ptr<exec::BoundProgram> bound;
  std::vector<std::unique_ptr<CallingStep>> idle;
  std::vector<Receive> receives;
};

namespace {

/// The Recv instructions that run in every step, whatever its branches and loops do.
Result<std::vector<Receive>> receives_of(const program::Program& program) {
  std::vector<Receive> out;
  for (const program::Instruction& instruction : program.instructions) {
    if (instruction.op != "Recv") continue;
    Receive& one = out.emplace_back();
    SR_ASSIGN_OR_RETURN(one.edge, ir::get_attr<int64_t>(instruction.attrs, "edge"));
    SR_ASSIGN_OR_RETURN(one.source.device,
                        ir::get_attr<std::string>(instruction.attrs, "send_device"));
    one.source.incarnation = static_cast<uint64_t>(
        ir::attr_or<int64_t>(instruction.attrs, "send_device_incarnation", 0));
    one.count = instruction.outputs.size();
  }
  return out;
}

}  // namespace

class Task::Impl : public std::enable_shared_from_this<Impl>,
                   private lane::Driver,
                   private lane::StopHook {
 public:
  explicit Impl(TaskOptions options) : options_(std::move(options)), pool_(options_.pool_bytes) {
    exec::register_kernels(&kernels_);
    kernels_.allow_control();
    if (options_.intra_op_threads > 1) {
      workers_ = std::make_unique<exec::Workers>(options_.intra_op_threads);
    }
    set_environment(shared_.get());
  }

  [[nodiscard]] const TaskOptions& options() const { return options_; }

  Status create_lane() {
    SR_ASSIGN_OR_RETURN(lane_,
                        lane::Lane::create({.name = options_.name,
                                            .spin_us = options_.spin_us,
                                            .cpu = options_.cpus.empty() ? -1 : options_.cpus[0],
                                            .network = network_.get(),
                                            .clock = clock_.get()}));
    lane_->add_driver(this);
    return {};
  }
  [[nodiscard]] lane::Lane* lane() const { return lane_.get(); }

  void start(Peers* peers) {
    peers_ = peers;
    // Hooks run last added first: what steps still have to say goes before connections close.
    lane_->add_stop_hook(this);
    lane_->start();
  }

  bool post(std::function<void()> fn) {
    if (lane_->on_lane()) {
      if (stopping_) return false;
      own_mail_.push_back(std::move(fn));
      return true;
    }
    bool is_first = false;
    {
      const std::lock_guard lock(mail_mutex_);
      if (stopping_) return false;
      is_first = mail_.empty();
      mail_.push_back(std::move(fn));
      has_mail_.store(true, std::memory_order_release);
    }
    // Only to wake the lane; with a full inbox it is awake.
    if (is_first) static_cast<void>(lane_->post([] {}));
    return true;
  }

  Status open_session(uint64_t id, bool isolated) {
    std::shared_ptr<Space> space = shared_;
    if (isolated) {
      space = std::make_shared<Space>();
      set_environment(space.get());
    }
    return add_session(id, {.space = std::move(space), .isolated = isolated});
  }

  void close_session(uint64_t id) {
    Session closed;
    {
      const std::lock_guard lock(sessions_mutex_);
      const auto found = sessions_.find(id);
      if (found == sessions_.end()) return;
      closed = std::move(found->second);
      sessions_.erase(found);
    }
    {
      // So that a long step ends, as raise().
      const std::lock_guard lock(signals_mutex_);
      for (auto& [step, signal] : signals_) {
        if (signal.session == id) signal.stop->raise(exec::StopSignal::Reason::kCancelled);
      }
    }
    // Programs and their steps belong to the lane.
    post([this, id, closed = std::move(closed)]() mutable {
      for (const auto& [number, step] : std::map(steps_.begin(), steps_.end())) {
        if (step->session != id || !step->running()) continue;
        finish(step, base::cancelled("the session was closed"), true);
      }
      if (closed.isolated) closed.space->manager.clear();
      closed = {};
      forget_unused_programs();
    });
  }

  Result<uint64_t> register_program(uint64_t id, const std::string& bytes) {
    const uint64_t hash = program::content_hash(bytes);
    std::shared_ptr<Space> space;
    {
      const std::lock_guard lock(sessions_mutex_);
      const auto found = sessions_.find(id);
      if (found == sessions_.end()) return unknown_session();
      space = found->second.space;
      std::shared_ptr<LoadedProgram> known = programs_[{space.get(), hash}].lock();
      SR_RETURN_IF_ERROR(check_room(found->second, hash, bytes.size()));
      if (known != nullptr) {
        keep(&found->second, hash, std::move(known), bytes.size());
        return hash;
      }
    }
    SR_ASSIGN_OR_RETURN(std::shared_ptr<LoadedProgram> loaded, load(bytes, std::move(space)));
    const std::lock_guard lock(sessions_mutex_);
    const auto found = sessions_.find(id);
    if (found == sessions_.end()) return unknown_session();
    programs_[{loaded->space.get(), hash}] = loaded;
    keep(&found->second, hash, std::move(loaded), bytes.size());
    return hash;
  }

  Status check(uint64_t session, uint64_t program, int64_t feeds) {
    const std::lock_guard lock(sessions_mutex_);
    SR_ASSIGN_OR_RETURN(const LoadedProgram* const loaded, find_program(session, program));
    const auto wanted = static_cast<int64_t>(loaded->bound->program().feeds.size());
    if (feeds == wanted) return {};
    return base::invalid_argument("{} feeds for a program that takes {}", feeds, wanted);
  }

  void run(ProgramCall call, std::function<void(ProgramResult)> done) {
    Status ready = check(call.session, call.program, static_cast<int64_t>(call.feeds.size()));
    // Before the lane hears of it, so that whoever ends the step always finds it.
    const auto stop = std::make_shared<exec::StopSignal>();
    const uint64_t step = call.step;
    if (ready.ok()) {
      const std::lock_guard lock(signals_mutex_);
      const bool is_new = signals_.try_emplace(step, Signal{call.session, stop}).second;
      if (!is_new) ready = is_here(step);
    }
    if (!ready.ok()) return done({.status = std::move(ready)});
    auto shared = std::make_shared<std::pair<ProgramCall, std::function<void(ProgramResult)>>>(
        std::move(call), std::move(done));
    const bool posted = post([this, shared, stop] {
      Status started = begin(&shared->first, stop, shared->second);
      if (started.ok()) return;
      forget_signal(shared->first.step);
      shared->second({.status = std::move(started), .derived = stop->raised()});
    });
    if (posted) return;
    forget_signal(step);
    shared->second({.status = stopping()});
  }

  void cancel(uint64_t step) {
    raise(step);
    post([this, step] {
      const auto found = steps_.find(step);
      if (found == steps_.end()) return;
      const std::shared_ptr<StepState> state = found->second;
      if (!state->is_blocked()) return;
      if (state->calls()->any_open()) {
        state->calls()->cancel();
      } else {
        finish(state, base::cancelled("the step was cancelled"), true);
      }
    });
  }

  void end_step(uint64_t step) {
    raise(step);
    post([this, step] {
      const auto found = steps_.find(step);
      if (found == steps_.end()) return;
      const std::shared_ptr<StepState> state = found->second;
      if (state->running()) finish(state, base::cancelled("the step was ended"), true);
      state->refuse_questions(base::aborted("{}: the step has ended", options_.name));
      steps_.erase(step);
    });
  }

  void ask(uint64_t step, const std::vector<ports::RendezvousKey>& keys,
           const std::shared_ptr<Taker>& taker) {
    const bool posted = post([this, step, keys, taker] {
      state_of(step)->answer(keys, taker);
      forget_if_idle(step);
    });
    if (!posted) taker->end(stopping());
  }

  void withdraw(uint64_t step, const std::shared_ptr<Taker>& taker) {
    post([this, step, taker] {
      const auto found = steps_.find(step);
      if (found == steps_.end()) return;
      found->second->withdraw(taker);
      forget_if_idle(step);
    });
  }

  void release(ports::Parcel values) {
    auto held = std::make_shared<ports::Parcel>(std::move(values));
    post([held = std::move(held)]() mutable { held = nullptr; });
  }

  Status reset(const std::vector<std::string>& containers) {
    for (const std::string& container : containers) shared_->manager.erase_container(container);
    shared_->manager.changed();
    return post([this] { wake_all(); }) ? Status() : stopping();
  }

  TaskFigures figures() {
    TaskFigures out;
    {
      const std::lock_guard lock(sessions_mutex_);
      out.sessions = static_cast<int64_t>(sessions_.size());
      out.programs = static_cast<int64_t>(programs_.size());
    }
    out.steps = steps_begun_;
    out.steps_failed = steps_failed_;
    out.steps_running = running_;
    out.steps_blocked = blocked_;
    out.resources = static_cast<int64_t>(shared_->manager.names().size());
    out.resource_bytes = shared_->manager.bytes();
    out.busy_s = static_cast<double>(busy_ns_) * 1e-9;
    return out;
  }

  void stop() {
    {
      const std::lock_guard lock(mail_mutex_);
      if (stopping_) return;
      stopping_ = true;
    }
    {
      const std::lock_guard lock(signals_mutex_);
      for (auto& [step, signal] : signals_) {
        signal.stop->raise(exec::StopSignal::Reason::kCancelled);
      }
    }
    while (!lane_->stop().ok()) {
      base::log_warning("an op does not end, and the task waits for it task={}", options_.name);
    }
  }

 private:
  void set_environment(Space* space) const {
    space->environment.resources = &space->manager;
    space->environment.host_functions = options_.host_functions.get();
  }

  struct Session {
    std::shared_ptr<Space> space;
    bool isolated = false;
    std::map<uint64_t, std::shared_ptr<LoadedProgram>> programs = {};
    size_t program_bytes = 0;
  };

  struct Signal {
    uint64_t session = 0;
    std::shared_ptr<exec::StopSignal> stop;
  };

  [[nodiscard]] Status stopping() const {
    return base::unavailable("{} is stopping", options_.name);
  }
  [[nodiscard]] Status unknown_session() const {
    return base::aborted("{} does not know the session: it was closed, or the task was restarted",
                         options_.name);
  }

  [[nodiscard]] static Status is_here(uint64_t step) {
    return base::make_status(StatusCode::kAlreadyExists,
                             fmt::format("step {:016x} is here already", step));
  }

  Status add_session(uint64_t id, Session session) {
    const std::lock_guard lock(sessions_mutex_);
    if (sessions_.contains(id)) {
      return base::make_status(StatusCode::kAlreadyExists, "the session is open");
    }
    if (sessions_.size() >= options_.sessions_max) {
      return base::resource_exhausted("{} has {} sessions open, as many as it takes; close some",
                                      options_.name, sessions_.size());
    }
    sessions_[id] = std::move(session);
    return {};
  }

  /// With sessions_mutex_.
  [[nodiscard]] Status check_room(const Session& session, uint64_t hash, size_t bytes) const {
    if (session.programs.contains(hash)) return {};
    if (session.programs.size() < options_.programs_max &&
        session.program_bytes + bytes <= options_.program_bytes_max) {
      return {};
    }
    return base::resource_exhausted(
        "the session has {} programs of {} bytes on {}, one for each set of feeds, fetches and "
        "targets; {} programs of {} bytes are allowed: make a new session",
        session.programs.size(), session.program_bytes, options_.name, options_.programs_max,
        options_.program_bytes_max);
  }

  /// With sessions_mutex_.
  static void keep(Session* session, uint64_t hash, std::shared_ptr<LoadedProgram> program,
                   size_t bytes) {
    if (session->programs.try_emplace(hash, std::move(program)).second) {
      session->program_bytes += bytes;
    }
  }

  void raise(uint64_t step) {
    // So that a long step sees it before the lane comes to the mail.
    const std::lock_guard lock(signals_mutex_);
    const auto found = signals_.find(step);
    if (found != signals_.end()) found->second.stop->raise(exec::StopSignal::Reason::kCancelled);
  }
  void forget_signal(uint64_t step) {
    const std::lock_guard lock(signals_mutex_);
    signals_.erase(step);
  }
  /// Known from questions only, and none is open: its own part never began.
  void forget_if_idle(uint64_t step) {
    const auto found = steps_.find(step);
    if (found != steps_.end() && found->second->is_idle()) steps_.erase(found);
  }

  bool poll() override {
    if (ready_.empty() && own_mail_.empty() && !has_mail_.load(std::memory_order_acquire)) {
      return false;
    }
    const Clock::time_point began = Clock::now();
    run_mail();
    if (!ready_.empty()) {
      const std::shared_ptr<StepState> step = std::move(ready_.front());
      ready_.pop_front();
      advance(step);
    }
    busy_ns_ += nanoseconds(Clock::now()) - nanoseconds(began);
    return true;
  }

  bool run_mail() {
    std::vector<std::function<void()>> mail;
    if (has_mail_.load(std::memory_order_acquire)) {
      const std::lock_guard lock(mail_mutex_);
      mail.swap(mail_);
      has_mail_.store(false, std::memory_order_relaxed);
    }
    for (auto& fn : mail) fn();
    bool progress = !mail.empty();
    while (!own_mail_.empty()) {
      const std::function<void()> fn = std::move(own_mail_.front());
      own_mail_.pop_front();
      fn();
      progress = true;
    }
    return progress;
  }

  void on_lane_stop() override {
    {
      const std::lock_guard lock(mail_mutex_);
      stopping_ = true;
    }
    while (run_mail()) {
    }
    for (const auto& [number, step] : std::map(steps_.begin(), steps_.end())) {
      const Status status = base::cancelled("{} is stopping", options_.name);
      if (step->running()) finish(step, status, false);
      step->refuse_questions(status);
    }
    steps_.clear();
    ready_.clear();
  }

  Result<std::shared_ptr<LoadedProgram>> load(const std::string& bytes,
                                              std::shared_ptr<Space> space) {
    auto out = std::make_shared<LoadedProgram>();
    SR_ASSIGN_OR_RETURN(program::Program program, program::decode(bytes));
    SR_ASSIGN_OR_RETURN(out->receives, receives_of(program));
    if (!program::all_calls(program).empty() && !peers_->can_run()) {
      return base::failed_precondition(
          "{}: a program calls other tasks, which this protocol cannot", options_.name);
    }
    out->space = std::move(space);
    SR_ASSIGN_OR_RETURN(out->bound, exec::BoundProgram::bind(std::move(program), kernels_,
                                                             out->space->environment));
    return out;
  }

  void forget_unused_programs() {
    const std::lock_guard lock(sessions_mutex_);
    std::erase_if(programs_, [](const auto& one) { return one.second.expired(); });
  }

  /// With sessions_mutex_.
  Result<const LoadedProgram*> find_program(uint64_t session, uint64_t program) const {
    const auto found = sessions_.find(session);
    if (found == sessions_.end()) return unknown_session();
    const auto loaded = found->second.programs.find(program);
    if (loaded != found->second.programs.end()) return loaded->second.get();
    return base::not_found("{} has no program {:016x}", options_.name, program);
  }

  std::shared_ptr<StepState> state_of(uint64_t step) {
    std::shared_ptr<StepState>& state = steps_[step];
    if (state == nullptr) {
      state = std::make_shared<StepState>(step, peers_,
                                          StepState::Post([weak = weak_from_this(), step](auto fn) {
                                            const std::shared_ptr<Impl> self = weak.lock();
                                            if (self != nullptr)
                                              self->post_to_step(step, std::move(fn));
                                          }));
    }
    return state;
  }

  /// Tells a step that still runs something that came from outside.
  void post_to_step(uint64_t number, StepState::News news) {
    post([this, number, news = std::move(news)] {
      const auto found = steps_.find(number);
      if (found == steps_.end() || !found->second->running()) return;
      const std::shared_ptr<StepState> step = found->second;
      const Status status = news(step.get());
      if (!status.ok()) return finish(step, status, true);
      wake(step);
    });
  }

  Status begin(ProgramCall* call, const std::shared_ptr<exec::StopSignal>& stop,
               std::function<void(ProgramResult)> done) {
    std::shared_ptr<LoadedProgram> program;
    {
      const std::lock_guard lock(sessions_mutex_);
      SR_RETURN_IF_ERROR(find_program(call->session, call->program).status());
      program = sessions_[call->session].programs[call->program];
    }
    if (stop->raised()) return base::cancelled("the step was cancelled");
    const std::shared_ptr<StepState> state = state_of(call->step);
    if (state->begun()) return is_here(call->step);
    if (!recent_steps_.add(call->step)) {
      forget_if_idle(call->step);
      return base::aborted("{} has seen step {:016x} before", options_.name, call->step);
    }
    std::unique_ptr<CallingStep> calling;
    if (program->idle.empty()) {
      calling = std::make_unique<CallingStep>(program->bound.get(), &pool_, peers_, lane_.get());
    } else {
      calling = std::move(program->idle.back());
      program->idle.pop_back();
    }
    exec::Step* const step = &calling->step;
    calling->calls.begin(call->session, call->trace, [this, weak = std::weak_ptr(state)] {
      const std::shared_ptr<StepState> waits = weak.lock();
      if (waits != nullptr) wake(waits);
    });
    if (call->trace != 0) {
      state->trace =
          std::make_unique<exec::Trace>(kTraceBytes, [] { return nanoseconds(Clock::now()); });
    }
    step->set_trace(state->trace.get(), 0, call->trace != 0 ? options_.name : std::string_view());
    state->trace_process = call->trace;
    step->set_workers(workers_.get());
    step->set_rendezvous(state.get());
    state->stop = stop;
    step->set_stop_signal(stop.get());
    step->begin(call->number != 0 ? call->number : call->step);
    for (size_t i = 0; i < call->feeds.size(); ++i) {
      Status fed = step->feed(static_cast<int>(i), std::move(call->feeds[i]));
      if (fed.ok()) continue;
      step->end();
      forget_if_idle(call->step);
      return fed;
    }
    state->session = call->session;
    state->whole = call->whole;
    ++steps_begun_;
    ++running_;
    state->start(std::move(program), std::move(calling), std::move(done));
    state->ask_ahead(state->program()->receives);
    ready_.push_back(state);
    return {};
  }

  void wake(const std::shared_ptr<StepState>& step) {
    if (!step->is_blocked()) return;
    step->blocked = false;
    --blocked_;
    ready_.push_back(step);
  }

  void wake_all() {
    for (const auto& [number, step] : steps_) {
      if (!step->waits_for_tensor) wake(step);
    }
  }

  void advance(const std::shared_ptr<StepState>& state) {
    // It may have been ended by mail since it became ready.
    if (!state->running()) return;
    const Status called = state->calls()->failure();
    if (!called.ok()) {
      const bool derived = state->stop->raised();
      return finish(state, derived ? base::cancelled("the step was cancelled") : called, derived);
    }
    resources::Manager& manager = state->program()->space->manager;
    const uint64_t changes = manager.changes();
    state->waits_for_tensor = false;
    const Result<exec::Step::Progress> progress = state->step()->advance();
    if (!progress.ok()) {
      finish(state, progress.status(), state->stop->raised());
    } else if (*progress == exec::Step::Progress::kDone) {
      finish(state, {}, false);
    } else if (state->stop->raised()) {
      finish(state, base::cancelled("the step was cancelled"), true);
    } else {
      state->blocked = true;
      ++blocked_;
    }
    if (manager.changes() != changes) wake_all();
  }

  /// Ends this task's part of a step.
  void finish(const std::shared_ptr<StepState>& state, const Status& status, bool derived) {
    ProgramResult result;
    result.status = status;
    result.derived = derived && !status.ok();
    exec::Step* const step = state->step();
    if (status.ok()) {
      const size_t fetches = state->program()->bound->program().fetches.size();
      for (size_t i = 0; i < fetches; ++i)
        result.fetches.push_back(step->fetch(static_cast<int>(i)));
    } else {
      if (state->blocked) result.waits_for = step->waits_for();
      if (result.waits_for.empty()) result.waits_for = state->calls()->waits_for();
    }
    if (state->blocked) --blocked_;
    if (!status.ok()) ++steps_failed_;
    --running_;
    step->end();
    step->set_trace(nullptr);
    if (state->trace != nullptr) {
      result.trace = exec::to_chrome(state->trace->events(), {.process = state->trace_process,
                                                              .process_name = options_.name,
                                                              .offset_ns = unix_offset_ns()});
      const std::string others = state->calls()->take_trace();
      if (!others.empty()) result.trace += ",\n" + others;
    }
    forget_signal(state->number());
    if (state->whole) steps_.erase(state->number());
    auto [program, finished] = state->finish(status);
    if (finished.step->calls.any_open()) {
      finished.step->calls.drop();
      ending_.emplace_back(std::move(program), std::move(finished.step));
    } else if (program->idle.size() < kIdleSteps) {
      program->idle.push_back(std::move(finished.step));
    }
    finished.done(std::move(result));
    std::erase_if(ending_, [](const auto& one) { return !one.second->calls.any_open(); });
  }

  const TaskOptions options_;
  Peers* peers_ = nullptr;
  exec::KernelTable kernels_;
  std::shared_ptr<Space> shared_ = std::make_shared<Space>();

  std::mutex mail_mutex_;
  std::vector<std::function<void()>> mail_;
  std::atomic<bool> has_mail_ = false;
  std::atomic<bool> stopping_ = false;  // Changed with mail_mutex_.

  std::mutex sessions_mutex_;
  std::map<uint64_t, Session> sessions_;
  std::map<std::pair<Space*, uint64_t>, std::weak_ptr<LoadedProgram>> programs_;

  std::mutex signals_mutex_;
  std::map<uint64_t, Signal> signals_;  // By step.

  std::atomic<int64_t> steps_begun_ = 0;
  std::atomic<int64_t> steps_failed_ = 0;
  std::atomic<int64_t> running_ = 0;
  std::atomic<int64_t> blocked_ = 0;
  std::atomic<int64_t> busy_ns_ = 0;

  // Of the lane.
  std::deque<std::function<void()>> own_mail_;  // From itself, without a lock.
  exec::BufferPool pool_;
  std::unique_ptr<exec::Workers> workers_;
  std::map<uint64_t, std::shared_ptr<StepState>> steps_;
  RecentIds recent_steps_{kRecentSteps};
  std::deque<std::shared_ptr<StepState>> ready_;
  /// Steps that have ended before the answers of their calls have come.
  std::vector<std::pair<std::shared_ptr<LoadedProgram>, std::unique_ptr<CallingStep>>> ending_;

  const std::unique_ptr<sys::Clock> clock_ = sys::posix::create_clock();
  const std::unique_ptr<sys::Network> network_ = sys::posix::create_network();
  std::unique_ptr<lane::Lane> lane_;
};

Task::Task(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Task::~Task() { stop(); }

std::shared_ptr<Peers::Run> Peers::run(const std::string& /*task*/, const Call& /*call*/,
                                       std::span<const Tensor> /*feeds*/, RunDone* /*done*/) {
  SR_CHECK(can_run(), "a program that calls was loaded where nothing carries calls");
  return nullptr;
}

Result<std::unique_ptr<Task>> Task::create(TaskOptions options) {
  if (options.intra_op_threads < 1 || options.intra_op_threads > exec::Workers::kThreadsMax) {
    return base::invalid_argument("intra_op_threads is {}; it must be from 1 to {}",
                                  options.intra_op_threads, exec::Workers::kThreadsMax);
  }
  auto impl = std::make_shared<Impl>(std::move(options));
  SR_RETURN_IF_ERROR(impl->create_lane());
  return std::unique_ptr<Task>(new Task(std::move(impl)));
}

void Task::start(Peers* peers) { impl_->start(peers); }
bool Task::post(std::function<void()> fn) { return impl_->post(std::move(fn)); }
lane::Lane* Task::lane() const { return impl_->lane(); }
const std::string& Task::name() const { return impl_->options().name; }
uint64_t Task::incarnation() const { return impl_->options().incarnation; }
Status Task::open_session(uint64_t session, bool isolated) {
  return impl_->open_session(session, isolated);
}
void Task::close_session(uint64_t session) { impl_->close_session(session); }
Result<uint64_t> Task::register_program(uint64_t session, const std::string& bytes) {
  return impl_->register_program(session, bytes);
}
Status Task::check(uint64_t session, uint64_t program, int64_t feeds) const {
  return impl_->check(session, program, feeds);
}
void Task::run(ProgramCall call, std::function<void(ProgramResult)> done) {
  impl_->run(std::move(call), std::move(done));
}
void Task::cancel(uint64_t step) { impl_->cancel(step); }
void Task::end_step(uint64_t step) { impl_->end_step(step); }
void Task::ask(uint64_t step, const std::vector<ports::RendezvousKey>& keys,
               std::shared_ptr<Taker> taker) {
  impl_->ask(step, keys, taker);
}
void Task::withdraw(uint64_t step, const std::shared_ptr<Taker>& taker) {
  impl_->withdraw(step, taker);
}
void Task::release(ports::Parcel values) { impl_->release(std::move(values)); }
Status Task::reset(const std::vector<std::string>& containers) { return impl_->reset(containers); }
TaskFigures Task::figures() const { return impl_->figures(); }
void Task::stop() { impl_->stop(); }

}  // namespace sidereal::runtime
