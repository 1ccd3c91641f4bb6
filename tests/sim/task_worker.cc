#include "tests/sim/task_worker.h"

#include <algorithm>
#include <map>
#include <optional>

namespace sidereal::sim {

using sys::kMillisecond;
using sys::kSecond;
using task::DataChannels;
using task::ProgramCall;
using task::ProgramResult;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

namespace {

/// What cancelled parts get to say what they were waiting for, as in master::StepRun.
constexpr int64_t kGrace = 1500 * kMillisecond;
constexpr int64_t kRowsSmall = 4;
constexpr int64_t kRowsLarge = 64;

}  // namespace

/// A step on all tasks that take part, as master::StepRun runs one, but on the lane alone. When a
/// part fails the others are cancelled.
class TaskWorker::Step final : public std::enable_shared_from_this<Step> {
 public:
  Step(TaskWorker* worker, Track* track, size_t plan)
      : plan_number(plan),
        worker_(worker),
        track_(track),
        session_(worker->session_),
        number_(task::step_number(session_, worker->random().next())) {}

  void start() {
    const std::shared_ptr<Step> self = shared_from_this();
    const Scenario& scenario = worker_->scenario();
    const bool is_cut = scenario.cut == Cut::kParts;
    ends_.resize(1 + (is_cut ? plan().remotes.size() : 0));
    missing_ = ends_.size();
    deadline = worker_->own_lane()->now() +
               worker_->random().between(scenario.deadline_ns_min, scenario.deadline_ns_max);
    cancel_at(deadline, base::deadline_exceeded("the step did not end in time"));
    if (worker_->random().chance(scenario.cancelled)) {
      cancel_at(worker_->own_lane()->now() + worker_->random().around(20 * kMillisecond),
                base::cancelled("nobody wants the step any more"));
    }
    ProgramCall call = this->call(worker_->own_programs_[plan_number]);
    call.feeds = std::move(feeds);
    if (scenario.cut == Cut::kLite) call.pull_prefetch_ms = task::kPullPrefetchMs;
    worker_->task()->run(&call, [self](ProgramResult& result) { self->part_ended(0, &result); });
    std::map<int, size_t> next;  // by ps
    for (size_t i = 1; i < ends_.size(); ++i) {
      const int ps = plan().remotes[i - 1].ps;
      const Attached& at = worker_->attached_[static_cast<size_t>(ps)];
      parts_.push_back(worker_->channels(0)->run(
          task_of_ps(ps), at.life, this->call(at.programs[plan_number][next[ps]++]),
          [self, i](ProgramResult result) { self->part_ended(i, &result); }));
    }
    is_started_ = true;
    if (missing_ == 0) return complete();
    if (is_failed_) cancel_parts();
  }

  void cancel(const Status& why) {
    if (is_done_ || is_cancelled_) return;
    reason_ = why;
    cancel_parts();
  }

  [[nodiscard]] const StepPlan& plan() const { return worker_->plans_[plan_number]; }
  [[nodiscard]] uint64_t session() const { return session_; }
  /// How it ended.
  [[nodiscard]] Status status() const {
    for (const End& end : ends_) {
      if (!end.status.ok() && !end.derived) return end.status;
    }
    if (!reason_.ok()) return reason_;
    for (const End& end : ends_) SR_RETURN_IF_ERROR(end.status);
    return {};
  }
  [[nodiscard]] const std::vector<Tensor>& fetches() const { return ends_[0].fetches; }

  const size_t plan_number;
  std::vector<Tensor> feeds;
  std::vector<int64_t> pulled;  // by place of the plan: the first row, of how many
  std::vector<int64_t> pulled_rows;
  std::vector<std::optional<float>> wanted;  // what these are, where that is known
  std::vector<size_t> pushes;                // by place of the plan
  int64_t deadline = 0;
  bool is_wrong = false;  // asks for what is not there

 private:
  struct End {
    bool has_come = false;
    Status status;
    bool derived = false;
    std::vector<Tensor> fetches;
  };

  [[nodiscard]] ProgramCall call(uint64_t program) const {
    return {
        .session = session_, .program = program, .step = number_, .feeds = {}, .number = number_};
  }
  void cancel_at(int64_t ns, const Status& why) {
    timers_.push_back(worker_->own_lane()->run_at(ns, [weak = weak_from_this(), why] {
      if (const std::shared_ptr<Step> step = weak.lock()) step->cancel(why);
    }));
  }
  void part_ended(size_t part, ProgramResult* result) {
    End& end = ends_[part];
    if (std::exchange(end.has_come, true)) {
      return worker_->ledger()->complain("a part of step {:x} ended twice", number_);
    }
    end.status = result->status;
    end.derived = result->derived;
    end.fetches = std::move(result->fetches);
    is_failed_ = is_failed_ || !end.status.ok();
    --missing_;
    if (!is_started_) return;
    if (missing_ == 0) return complete();
    if (is_failed_) cancel_parts();
  }
  void cancel_parts() {
    if (!is_started_ || std::exchange(is_cancelled_, true)) return;
    timers_.push_back(worker_->own_lane()->run_after(kGrace, [weak = weak_from_this()] {
      const std::shared_ptr<Step> step = weak.lock();
      if (step != nullptr && !step->is_done_) step->end_parts(true);
    }));
    if (!ends_[0].has_come) worker_->task()->cancel(number_);
    for (size_t i = 1; i < ends_.size(); ++i) {
      if (!ends_[i].has_come) parts_[i - 1]->cancel();
    }
  }
  /// All that is left of it, or of those parts only whose ends have not come.
  void end_parts(bool only_late) {
    const std::shared_ptr<Step> self = shared_from_this();
    for (size_t i = 1; i < ends_.size(); ++i) {
      if (!only_late || !ends_[i].has_come) parts_[i - 1]->end();
    }
    if (!only_late || !ends_[0].has_come) worker_->task()->end_step(number_);
  }
  void complete() {
    if (std::exchange(is_done_, true) || worker_->is_ending_) return;
    for (const lane::TimerId timer : timers_) {
      static_cast<void>(worker_->own_lane()->cancel_timer(timer));
    }
    end_parts(false);
    worker_->ended(track_, this);
  }

  TaskWorker* const worker_;
  Track* const track_;
  const uint64_t session_;
  const uint64_t number_;
  std::vector<std::shared_ptr<DataChannels::Part>> parts_;  // but the worker's own
  std::vector<End> ends_;                                   // the worker's own first
  std::vector<lane::TimerId> timers_;
  size_t missing_ = 0;
  Status reason_;  // why it was cancelled from outside
  bool is_started_ = false;
  bool is_failed_ = false;
  bool is_cancelled_ = false;
  bool is_done_ = false;
};

/// Runs steps, one after another.
struct TaskWorker::Track {
  uint64_t number = 0;
  size_t plan = 0;
  bool waits = false;  // for a session
  std::shared_ptr<Step> step;
  std::map<size_t, size_t> pushed;  // by place: the last push
};

TaskWorker::TaskWorker(const Context& context, sys::sim::Host* host, int index, uint64_t number,
                       Control* control, const std::vector<StepPlan>& plans, PushTable* pushes)
    : TaskLife(context, host,
               {.name = task_of_worker(index), .incarnation = context.world->random().next()},
               control),
      number_(number),
      control_(control),
      plans_(plans),
      pushes_(pushes) {
  std::ranges::fill(all_weights_.data<float>(), kWeight);
  TaskLife::begin();
  control_->worker_began(this);
  open();
  for (int i = 0; i < scenario().tracks; ++i) {
    tracks_.push_back(std::make_unique<Track>());
    tracks_.back()->number = number * 8 + static_cast<uint64_t>(i);
    later(tracks_.back().get(), random().around(scenario().think_ns));
  }
}

TaskWorker::~TaskWorker() {
  is_ending_ = true;
  control_->worker_ends(this);
  end();
}

// ---- The session -----------------------------------------------------------------------------

void TaskWorker::open() {
  state_ = State::kAttaching;
  // Its first byte is the lane.
  session_ =
      (random().next() & ~uint64_t{0xff}) | random().below(static_cast<uint64_t>(scenario().lanes));
  attached_.assign(static_cast<size_t>(scenario().ps), {});
  SR_CHECK(task()->open_session(session_).ok());
  control_->attach(this, session_);
}

void TaskWorker::attached(uint64_t session, const Attached& at) {
  if (session != session_ || state_ != State::kAttaching) return;
  attached_[static_cast<size_t>(at.ps)] = at;
  const bool is_attached = std::all_of(attached_.begin(), attached_.end(),
                                       [](const Attached& one) { return one.life != 0; });
  if (is_attached) become_ready();
}

void TaskWorker::become_ready() {
  own_programs_.clear();
  for (const StepPlan& plan : plans_) {
    task::NewProgram own = {.bytes = plan.own.bytes, .lane = task::lane_hint(session_)};
    for (const std::string& peer : plan.own.peers) {
      uint64_t life = 0;
      for (const Attached& at : attached_) {
        if (peer.starts_with(task_of_ps(at.ps) + "/")) life = at.life;
      }
      own.peers.push_back({.device = peer, .incarnation = life});
    }
    own_programs_.push_back(task()->register_program(session_, std::move(own)).value());
  }
  state_ = State::kReady;
  for (const auto& track : tracks_) {
    if (std::exchange(track->waits, false)) begin(track.get());
  }
  close_if_done();
}

void TaskWorker::lost(uint64_t session, int ps) {
  if (session != session_ || state_ == State::kNone) return;
  const Status why = base::unavailable("{} has ended", task_of_ps(ps));
  // One that is closing still waits for pushes, as in master::MasterSession::note_lost().
  if (state_ != State::kClosing) state_ = State::kEnding;
  for (const auto& track : tracks_) {
    if (track->step != nullptr) track->step->cancel(why);
  }
  task()->lose_async_pushes(session, task_of_ps(ps), why);
  close_if_done();
}

/// A session that has lost a ps, or that nobody needs any more, goes when its steps have ended.
void TaskWorker::close_if_done() {
  if (running_ > 0 || is_ending_) return;
  if (state_ != State::kEnding && !(state_ == State::kReady && is_quiet_)) return;
  state_ = State::kClosing;
  task()->when_async_pushes_done(session_, [this, session = session_](const Status& /*untold*/) {
    if (is_ending_) return;
    task()->close_session(session);
    control_->close(session);
    state_ = State::kNone;
    if (!is_quiet_) open();
  });
}

// ---- Steps -----------------------------------------------------------------------------------

void TaskWorker::later(Track* track, int64_t ns) {
  own_lane()->run_after(ns, [this, track] { begin(track); });
}

void TaskWorker::begin(Track* track) {
  if (is_quiet_) return close_if_done();
  if (state_ != State::kReady) {
    track->waits = true;
    return;
  }
  choose(track);
  track->step = std::make_shared<Step>(this, track, track->plan);
  draw_feeds(track, track->step.get());
  ++running_;
  track->step->start();
}

/// Often the same again: what comes is then asked for before the step.
void TaskWorker::choose(Track* track) {
  if (random().chance(0.5)) return;
  const size_t places = plans_.size() / kWorks;
  // Pulls, pushes or both; rarely all weights.
  const auto work = static_cast<Work>(random().chance(scenario().large) ? 3 + random().below(2)
                                                                        : random().below(3));
  track->plan = static_cast<size_t>(work) * places + random().below(places);
}

void TaskWorker::draw_feeds(Track* track, Step* step) {
  const StepPlan& plan = step->plan();
  const int64_t width = scenario().width;
  const bool pushes = plan.work == Work::kPush || plan.work == Work::kTrain;
  step->is_wrong = plan.work == Work::kPull && random().chance(scenario().refused);
  const int64_t most = random().chance(scenario().large) ? kRowsLarge : kRowsSmall;
  for (const size_t place : plan.places) {
    int64_t first = 0;  // Nobody has pushed there.
    int64_t rows = 1;
    std::optional<float> wanted = 0.0F;
    if (pushes && pushes_->rows_left(place) > kRowsLarge) {
      rows = random().between(1, most);
      const size_t push = pushes_->begin(place, rows, life_of(place));
      first = pushes_->push(push).first_row;
      step->pushes.push_back(push);
    } else if (const auto last = track->pushed.find(place);
               !pushes && last != track->pushed.end()) {
      const PushTable::Push& push = pushes_->push(last->second);
      first = push.first_row;
      rows = push.rows;
      if (push.life == life_of(place)) wanted = std::nullopt;
      if (push.life == life_of(place) && push.acknowledged) wanted = 1.0F;
    } else if (pushes) {
      rows = 0;
    }
    step->pulled.push_back(step->is_wrong ? PushTable::kRows : first);
    step->pulled_rows.push_back(rows);
    step->wanted.push_back(wanted);
  }
  for (const std::string& name : plan.feeds) {
    const auto at = static_cast<size_t>(std::stoi(name.substr(name.find('_') + 1)));
    const int64_t rows = step->pulled_rows[at];
    if (name.starts_with("weights_")) {
      step->feeds.push_back(all_weights_);
    } else if (name.starts_with("ids_")) {
      Tensor ids = Tensor::empty(DType::kInt64, Shape{rows});
      for (int64_t i = 0; i < rows; ++i) ids.data<int64_t>()[i] = step->pulled[at] + i;
      step->feeds.push_back(std::move(ids));
    } else {
      Tensor updates = Tensor::empty(DType::kFloat32, Shape{rows, width});
      std::ranges::fill(updates.data<float>(), 1.0F);
      step->feeds.push_back(std::move(updates));
    }
  }
  if (!pushes) return;
  for (const size_t push : step->pushes) track->pushed[pushes_->push(push).place] = push;
}

void TaskWorker::ended(Track* track, Step* step) {
  const std::shared_ptr<Step> keep = std::move(track->step);
  --running_;
  count(*step);
  const int64_t late_by = own_lane()->now() - step->deadline - kGrace - slack_ns_;
  if (late_by > 100 * kMillisecond) {
    ledger()->complain("a step of {} ended {} ms after its deadline", task()->name(),
                       late_by / kMillisecond);
  }
  const bool is_well = step->status().ok();
  if (is_well) {
    check(track, *step);
    ++done_;
  }
  const int64_t think = random().around(scenario().think_ns);
  later(track, is_well ? think : 10 * kMillisecond + think);
  close_if_done();
}

void TaskWorker::count(const Step& step) {
  const Status status = step.status();
  switch (status.code()) {
    case StatusCode::kOk:
      return void(++outcomes_.ok);
    case StatusCode::kDeadlineExceeded:
      return void(++outcomes_.late);
    case StatusCode::kCancelled:
      return void(++outcomes_.cancelled);
    case StatusCode::kUnavailable:
      return void(++outcomes_.lost);
    case StatusCode::kAborted:
      return void(++outcomes_.unknown);
    case StatusCode::kResourceExhausted:
      return void(++outcomes_.no_room);
    default:
      if (step.is_wrong) return void(++outcomes_.refused);
      ledger()->complain("a step of {} ended with {}", task()->name(), base::message_of(status));
  }
}

void TaskWorker::check(Track* track, const Step& step) {
  const StepPlan& plan = step.plan();
  if (step.is_wrong) ledger()->complain("a pull of rows that are not there went well");
  // Of asynchronous pushes nobody is told that they are done.
  if (scenario().cut != Cut::kLite) {
    for (const size_t push : step.pushes) pushes_->acknowledge(push);
  }
  if (!plan.fetches) return;
  const auto is_all = [](const Tensor& value, float wanted) {
    const std::span<const float> values = value.data<const float>();
    return std::ranges::all_of(values, [wanted](float one) { return one == wanted; });
  };
  if (step.fetches().size() != plan.places.size()) {
    return ledger()->complain("a step got {} values of {} places", step.fetches().size(),
                              plan.places.size());
  }
  for (size_t i = 0; i < plan.places.size(); ++i) {
    const Tensor& got = step.fetches()[i];
    if (plan.work == Work::kRead) {
      const bool is_right = got.num_elements() == weights(scenario()) && is_all(got, kWeight);
      if (!is_right) ledger()->complain("weights of place {} are others", plan.places[i]);
      continue;
    }
    const int64_t wanted = step.pulled_rows[i] * scenario().width;
    if (got.num_elements() != wanted) {
      ledger()->complain("a step got {} numbers of place {} instead of {}", got.num_elements(),
                         plan.places[i], wanted);
      continue;
    }
    const float value = step.wanted[i].value_or(wanted > 0 ? got.data<const float>()[0] : 0.0F);
    if (!is_all(got, value) || (value != 0 && value != 1)) {
      ledger()->complain("track {} got rows from {} of place {} that are {}, not {}", track->number,
                         step.pulled[i], plan.places[i], got.data<const float>()[0], value);
    }
  }
}

void TaskWorker::check_idle() {
  if (state_ != State::kNone) {
    ledger()->complain("a session of {} does not end; {} steps run", task()->name(), running_);
  }
  const std::string goes_on = activity();
  if (!goes_on.empty()) ledger()->complain("though it calls nobody{}", goes_on);
}

}  // namespace sidereal::sim
