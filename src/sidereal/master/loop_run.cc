#include "sidereal/master/loop_run.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "sidereal/data/data_spec.h"
#include "sidereal/master/alarm.h"
#include "sidereal/master/master_session.h"
#include "sidereal/task/origin.h"

namespace sidereal::master {

using base::invalid_argument;

namespace {

/// Fetches, columns and constants of a loop.
constexpr size_t kNamesMax = size_t{1} << 16;
/// Rows of a batch, for which memory is taken at once.
constexpr int64_t kBatchMax = int64_t{1} << 24;
/// Shares of the data: lanes of all workers are counted with them.
constexpr int64_t kPartsMax = int64_t{1} << 20;
constexpr int64_t kEpochsMax = int64_t{1} << 40;
constexpr int64_t kStepsInFlightMax = 64;

Status in_range(const char* what, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return {};
  return invalid_argument("a loop with {} {}; it must be from {} to {}", what, value, low, high);
}

}  // namespace

Status check_loop(const task::LoopOptions& options) {
  constexpr int64_t kMost = int64_t{1} << 40;
  constexpr int64_t kReplicaMost = int64_t{1} << 60;
  SR_RETURN_IF_ERROR(in_range("batch_size", options.batch_size, 1, kBatchMax));
  SR_RETURN_IF_ERROR(in_range("first_epoch", options.first_epoch, 0, kEpochsMax));
  SR_RETURN_IF_ERROR(
      in_range("epochs", options.epochs, options.started.empty() ? 1 : 0, kEpochsMax));
  for (const task::LoopPass& pass : options.started) {
    SR_RETURN_IF_ERROR(in_range("lane of a pass", pass.lane, 0, task::Task::kLanesMax - 1));
    SR_RETURN_IF_ERROR(in_range("epoch of a pass", pass.epoch, 0, kEpochsMax));
    SR_RETURN_IF_ERROR(in_range("part_count of a pass", pass.part_count, 1, kPartsMax));
    SR_RETURN_IF_ERROR(in_range("part_index of a pass", pass.part_index, 0, pass.part_count - 1));
    SR_RETURN_IF_ERROR(in_range("rows_done of a pass", pass.rows_done, 0, kMost));
  }
  SR_RETURN_IF_ERROR(in_range("part_count", options.part_count, 1, kPartsMax));
  SR_RETURN_IF_ERROR(in_range("part_index", options.part_index, 0, options.part_count - 1));
  SR_RETURN_IF_ERROR(in_range("steps", options.steps, 0, kMost));
  SR_RETURN_IF_ERROR(in_range("ahead_max", options.ahead_max, 0, kMost));
  SR_RETURN_IF_ERROR(in_range("steps_in_flight", options.steps_in_flight, 1, kStepsInFlightMax));
  SR_RETURN_IF_ERROR(in_range("lanes", options.lanes, 0, task::Task::kLanesMax));
  SR_RETURN_IF_ERROR(in_range("first_step", static_cast<int64_t>(options.first_step), 0, kMost));
  SR_RETURN_IF_ERROR(in_range("first_replica", options.first_replica, 0, kReplicaMost));
  SR_RETURN_IF_ERROR(in_range("trace_process", options.trace_process, 1, 1 << 30));
  SR_RETURN_IF_ERROR(in_range("auc_fetch", options.auc_fetch, -1,
                              static_cast<int64_t>(options.fetches.size()) - 1));
  SR_RETURN_IF_ERROR(in_range("step_timeout_ms", options.step_timeout.count(), 0, kMost));
  SR_RETURN_IF_ERROR(in_range("data_timeout_ms", options.data_timeout.count(), 1, kMost));
  for (const size_t names :
       {options.fetches.size(), options.targets.size(), options.columns.size(),
        options.constants.size(), options.kept_columns.size(), options.started.size()}) {
    if (names > kNamesMax) {
      return invalid_argument("a loop with {} names of a kind; it takes {}", names, kNamesMax);
    }
  }
  if (options.fetches.empty() && options.targets.empty()) {
    return invalid_argument("a loop without fetches and targets has nothing to run");
  }
  if (options.source.empty()) {
    if (options.steps == 0) {
      return invalid_argument("a loop without data must say how many steps it has");
    }
    if (!options.columns.empty() || !options.kept_columns.empty() || options.auc_fetch >= 0) {
      return invalid_argument("a loop without data has no columns");
    }
  }
  return {};
}

namespace {

/// Steps that have parts on several tasks.
class ClusterSteps final : public task::LoopSteps {
 public:
  ClusterSteps(MasterContext* context, task::TaskLoop* loop, LoopLane plan, size_t fetches,
               uint64_t first_step, std::chrono::milliseconds timeout)
      : task_(context->task),
        new_alarm_(context->new_alarm),
        loop_(loop),
        plan_(std::move(plan)),
        num_fetches_(fetches),
        timeout_(timeout),
        next_step_(task::step_number(static_cast<uint64_t>(plan_.lane), first_step)),
        flights_(loop->flights()),
        here_(std::make_shared<Here>(Here{this})) {}
  ~ClusterSteps() override { here_->steps = nullptr; }

  void start(const Begin& step) override {
    Flight& flight = flights_[step.flight];
    flight.step = std::exchange(next_step_, next_step_ + 0x100);
    flight.turns = step.turns;
    flight.turns->add(flight.step);
    flight.run = std::make_shared<StepRun>(
        plan_.parts, num_fetches_, new_alarm_,
        [task = task_, lane = plan_.lane, here = here_, index = step.flight](StepResult result) {
          // On the loop's lane; when that is stopping, it does not wait for this any more.
          static_cast<void>(task->post(
              lane, [here, index, held = std::make_shared<StepResult>(std::move(result))] {
                if (here->steps != nullptr) here->steps->ended(index, held.get());
              }));
        });
    const std::shared_ptr<StepRun> run = flight.run;
    run->start(flight.step, step.number, *step.feeds, step.trace, timeout_, step.turns);
  }
  void cancel(size_t flight, const Status& why) override {
    const std::shared_ptr<StepRun> run = flights_[flight].run;
    if (run != nullptr) run->cancel(why);
  }
  /// A step that was cancelled looks after that itself.
  void drop(size_t /*flight*/) override {}
  size_t abandon(const Status& why) override {
    here_->steps = nullptr;
    size_t abandoned = 0;
    for (Flight& flight : flights_) {
      const std::shared_ptr<StepRun> run = std::move(flight.run);
      if (run == nullptr) continue;
      ++abandoned;
      run->cancel(why);
    }
    return abandoned;
  }

 private:
  /// Of the lane's thread.
  struct Here {
    ClusterSteps* steps = nullptr;
  };
  struct Flight {
    uint64_t step = 0;
    base::RefPtr<task::StepTurns> turns;
    std::shared_ptr<StepRun> run;
  };

  void ended(size_t index, StepResult* result) {
    Flight& flight = flights_[index];
    flight.run = nullptr;
    flight.turns->pass(flight.step);
    loop_->ended(index, result->status, result->fetches, "", std::move(result->trace));
  }

  task::Task* const task_;
  const NewAlarm new_alarm_;
  task::TaskLoop* const loop_;
  const LoopLane plan_;
  const size_t num_fetches_;
  const std::chrono::milliseconds timeout_;
  uint64_t next_step_;
  std::vector<Flight> flights_;
  const std::shared_ptr<Here> here_;
};

}  // namespace

struct LoopRun::Lane {
  int lane = 0;
  bool has_ended = false;
  std::unique_ptr<task::TaskLoop> loop;
  std::unique_ptr<task::LoopSteps> steps;
};

LoopRun::LoopRun(MasterContext* context, uint64_t session, task::LoopOptions options,
                 std::shared_ptr<LoopSink> sink, std::shared_ptr<data::ReaderShelf> shelf,
                 OnEnd on_end)
    : context_(context),
      session_(session),
      options_(std::move(options)),
      sink_(std::move(sink)),
      shelf_(std::move(shelf)),
      on_end_(std::move(on_end)) {}
LoopRun::~LoopRun() = default;

task::TaskLoopOptions LoopRun::options_of(size_t index, size_t count, bool in_order) const {
  task::TaskLoopOptions out;
  const auto i = static_cast<int64_t>(index);
  const auto n = static_cast<int64_t>(count);
  out.index = static_cast<int>(index);
  out.fetches = options_.fetches;
  for (const auto& [feed, column] : options_.columns) out.columns.push_back(column);
  for (const auto& [feed, value] : options_.constants) out.constants.push_back(value);
  if (!options_.replica.empty()) {
    out.constants.push_back(tensor::Tensor::scalar(options_.first_replica + i));
  }
  out.kept_columns = options_.kept_columns;
  out.ahead_max = options_.ahead_max;
  out.steps_in_flight = options_.steps_in_flight;
  out.in_order = in_order;
  if (options_.steps > 0) out.steps_max = options_.steps / n + (i < options_.steps % n ? 1 : 0);
  out.first_number = first_number_ + index;
  out.number_stride = count;
  out.trace_first = options_.trace_first;
  out.trace_end = options_.trace_end;
  out.trace_process = options_.trace_process;
  out.auc_fetch = options_.auc_fetch;
  out.auc_labels = options_.auc_labels;
  out.auc_window_rows = options_.auc_window_rows;
  out.data_timeout = options_.data_timeout;
  return out;
}

Result<std::unique_ptr<LoopRun::Lane>> LoopRun::open_lane(size_t index, size_t count,
                                                          LoopLane plan) {
  const auto i = static_cast<int64_t>(index);
  const auto n = static_cast<int64_t>(count);
  std::unique_ptr<data::PrefetchingReader> reader;
  if (!options_.source.empty()) {
    SR_ASSIGN_OR_RETURN(const data::DataSpec spec, data::spec_from_json(options_.source));
    data::PrefetchOptions prefetch;
    if (options_.part_each_lane) {
      SR_RETURN_IF_ERROR(
          in_range("part_index of a lane", options_.part_index + i, 0, options_.part_count - 1));
      prefetch.read.part = {.index = options_.part_index + i, .count = options_.part_count};
    } else {
      prefetch.read.part = {.index = options_.part_index * n + i, .count = options_.part_count * n};
    }
    prefetch.read.epoch = options_.first_epoch;
    prefetch.read.batch_size = options_.batch_size;
    prefetch.read.drop_partial = options_.drop_partial;
    prefetch.epochs = options_.epochs;
    for (const task::LoopPass& pass : options_.started) {
      if (pass.lane != i) continue;
      prefetch.started.push_back({.part = {.index = pass.part_index, .count = pass.part_count},
                                  .epoch = pass.epoch,
                                  .rows_before = pass.rows_done});
    }
    reader = shelf_->take(spec, prefetch);
    if (reader == nullptr) {
      SR_ASSIGN_OR_RETURN(auto stopped, begin_opening());
      SR_ASSIGN_OR_RETURN(reader,
                          data::PrefetchingReader::open(spec, prefetch, std::move(stopped)));
    }
  }
  task::Task* const task = context_->task;
  const bool is_own = plan.parts.size() == 1 && plan.parts[0].link->is_local();
  task::TaskLoopOptions options = options_of(index, count, is_own && !plan.calls_wait);
  if (is_own) options.step_timeout = options_.step_timeout;
  auto lane = std::make_unique<Lane>();
  lane->lane = plan.lane;
  lane->loop = std::make_unique<task::TaskLoop>(task, plan.lane % task->lanes(), std::move(options),
                                                std::move(reader), this);
  const uint64_t first_step = context_->random();
  if (is_own) {
    PartPlan& part = plan.parts[0];
    lane->steps = std::make_unique<task::OwnSteps>(
        task, lane->loop.get(),
        task::OwnSteps::Options{.session = session_,
                                .program = part.program,
                                .lane = plan.lane,
                                .first_step = first_step,
                                .feeds = std::move(part.feeds),
                                .fetches = std::move(part.fetches),
                                .pull_prefetch_ms = part.pull_prefetch_ms,
                                .stop = &stop_});
  } else {
    lane->steps =
        std::make_unique<ClusterSteps>(context_, lane->loop.get(), std::move(plan),
                                       options_.fetches.size(), first_step, options_.step_timeout);
  }
  return lane;
}

/// What ends the opening of the data of one lane, which may lie on a slow server.
Result<std::shared_ptr<std::atomic<bool>>> LoopRun::begin_opening() {
  const std::lock_guard lock(mutex_);
  SR_RETURN_IF_ERROR(cancelled_);
  opening_ = std::make_shared<std::atomic<bool>>(false);
  return opening_;
}

Status LoopRun::start(std::vector<LoopLane> lanes) {
  for (const task::LoopPass& pass : options_.started) {
    if (pass.lane < static_cast<int64_t>(lanes.size())) continue;
    return invalid_argument("a pass of lane {} in a loop of {} lanes", pass.lane, lanes.size());
  }
  std::vector<std::unique_ptr<Lane>> opened;
  for (size_t i = 0; i < lanes.size(); ++i) {
    Result<std::unique_ptr<Lane>> lane = open_lane(i, lanes.size(), std::move(lanes[i]));
    if (!lane.ok()) {
      SR_RETURN_IF_ERROR(cancelled());
      return lane.status();
    }
    opened.push_back(*std::move(lane));
  }
  // Whoever they were kept for did not come.
  shelf_->clear();
  bool drains = false;
  {
    const std::lock_guard lock(mutex_);
    SR_RETURN_IF_ERROR(cancelled_);
    lanes_ = std::move(opened);
    missing_ = lanes_.size();
    started_ = true;
    drains = drains_;
  }
  for (size_t i = 0; i < lanes_.size(); ++i) {
    const bool posted = context_->task->post(lanes_[i]->lane, [self = shared_from_this(), i] {
      self->lanes_[i]->loop->start(self->lanes_[i]->steps.get(), self);
    });
    if (drains) tell(i, [](task::TaskLoop* loop) { loop->drain(); });
    if (!posted) {
      lane_ended(static_cast<int>(i), task::is_stopping(context_->task->name()));
    }
  }
  return {};
}

void LoopRun::refuse(const Status& why) { give_end(why); }

/// Does something with the loop of a lane, there; a lane that is stopping ends its loop itself.
void LoopRun::tell(size_t lane, const std::function<void(task::TaskLoop*)>& what) {
  static_cast<void>(context_->task->post(
      lanes_[lane]->lane,
      [self = shared_from_this(), lane, what] { what(self->lanes_[lane]->loop.get()); }));
}

void LoopRun::tell_all(const std::function<void(task::TaskLoop*)>& what) {
  for (size_t i = 0; i < lanes_.size(); ++i) tell(i, what);
}

void LoopRun::cancel(const Status& why) {
  {
    const std::lock_guard lock(mutex_);
    if (!cancelled_.ok()) return;
    cancelled_ = why;
    if (!started_) {
      // Relaxed: nothing but the wish to stop travels with the flag.
      if (opening_ != nullptr) opening_->store(true, std::memory_order_relaxed);
      return;
    }
  }
  // Lanes that compute see it before they come to what is posted.
  stop_.raise(exec::StopSignal::Reason::kCancelled);
  tell_all([why](task::TaskLoop* loop) { loop->cancel(why); });
}

Status LoopRun::heard(const std::vector<int64_t>& steps) {
  if (steps.empty()) return {};
  {
    const std::lock_guard lock(mutex_);
    if (!started_ || steps.size() > lanes_.size()) {
      return invalid_argument("steps of {} lanes of a loop that has fewer", steps.size());
    }
    if (missing_ == 0) return {};
  }
  for (size_t i = 0; i < steps.size(); ++i) {
    tell(i, [heard = steps[i]](task::TaskLoop* loop) { loop->heard(heard); });
  }
  return {};
}

void LoopRun::drain() {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(drains_, true) || !started_ || missing_ == 0) return;
  }
  tell_all([](task::TaskLoop* loop) { loop->drain(); });
}

Status LoopRun::cancelled() {
  const std::lock_guard lock(mutex_);
  return cancelled_;
}

void LoopRun::go_on() {
  {
    const std::lock_guard lock(mutex_);
    if (!started_ || missing_ == 0) return;
  }
  tell_all([](task::TaskLoop* loop) { loop->go_on(); });
}

uint64_t LoopRun::last_number() {
  const std::lock_guard lock(mutex_);
  return first_number_ + static_cast<uint64_t>(steps_max_) * std::max<size_t>(1, lanes_.size()) - 1;
}

bool LoopRun::take_progress(int lane, const task::LoopProgress& progress,
                            const std::vector<std::vector<double>>& series, bool is_last) {
  if (is_last) {
    const std::lock_guard lock(mutex_);
    steps_max_ = std::max(steps_max_, progress.steps);
  }
  return sink_->take_progress(lane, progress, series, is_last);
}

void LoopRun::lane_ended(int lane, const Status& status) {
  bool was_last = false;
  bool is_first_failure = false;
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(lanes_[static_cast<size_t>(lane)]->has_ended, true)) return;
    is_first_failure = status_.ok() && !status.ok();
    // Steps that see the signal end before their lane hears why, and tasks that the session has
    // left do not know it any more.
    const bool is_echo = !cancelled_.ok() && (status.code() == StatusCode::kCancelled ||
                                              status.code() == StatusCode::kAborted);
    if (is_first_failure) status_ = is_echo ? cancelled_ : status;
    was_last = --missing_ == 0;
  }
  if (is_first_failure) {
    cancel(base::cancelled("another lane of the loop failed: {}", base::message_of(status)));
  }
  if (was_last) {
    context_->threads->run([self = shared_from_this()] { self->finish(); });
  }
}

/// On a thread that may wait.
void LoopRun::finish() {
  bool goes_on = options_.goes_on;
  {
    const std::lock_guard lock(mutex_);
    goes_on = goes_on && status_.ok();
  }
  for (const auto& lane : lanes_) {
    auto reader = goes_on ? lane->loop->take_reader() : nullptr;
    if (reader != nullptr) shelf_->put(std::move(reader));
    lane->loop->close_reader();
  }
  context_->task->when_async_pushes_done(session_,
                                         [self = shared_from_this()](const Status& untold) {
                                           Status status;
                                           {
                                             const std::lock_guard lock(self->mutex_);
                                             status = self->status_;
                                           }
                                           self->give_end(status.ok() ? untold : status);
                                         });
}

void LoopRun::give_end(const Status& status) {
  const OnEnd on_end = std::move(on_end_);
  on_end(shared_from_this());
  sink_->ended(status);
}

}  // namespace sidereal::master
