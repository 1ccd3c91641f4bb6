#include "sidereal/train/loop_group.h"

#include <algorithm>
#include <thread>
#include <utility>

namespace sidereal::train {

namespace {

constexpr auto kLookEvery = std::chrono::milliseconds(100);
// How often progress is told, so that people can read it.
constexpr auto kShowEvery = std::chrono::milliseconds(250);
// "Lately" in Progress.
constexpr double kWindowS = 3;
// After a job has failed because a peer vanished: how long to wait for the system to say which.
constexpr auto kRootCauseWait = std::chrono::seconds(2);
// For loops that are stopped: one that has not ended by then is lost.
constexpr auto kStopWait = std::chrono::seconds(5);

/// What a task did in runs before and in the present one.
TaskStats sum_of(const TaskStats& before, const TaskStats& now) {
  return {.task = now.task,
          .steps = before.steps + now.steps,
          .rows = before.rows + now.rows,
          .bytes_in = before.bytes_in + now.bytes_in,
          .bytes_out = before.bytes_out + now.bytes_out,
          .compute_s = before.compute_s + now.compute_s,
          .wait_s = before.wait_s + now.wait_s,
          .data_wait_s = before.data_wait_s + now.data_wait_s};
}

}  // namespace

bool is_loss(const Status& status) {
  return status.code() == StatusCode::kUnavailable || status.code() == StatusCode::kAborted;
}

Status uncancelled(const Status& status) {
  if (status.code() != StatusCode::kCancelled) return status;
  return base::unavailable("{}", base::message_of(status));
}

const WorkerSession& first_of(const std::vector<WorkerSession>& workers) {
  return *std::ranges::find_if(workers, [](const auto& one) { return one.session != nullptr; });
}

Status root_cause(app::Cluster* cluster, const Status& seen) {
  if (!is_loss(seen)) return seen;
  const auto until = std::chrono::steady_clock::now() + kRootCauseWait;
  while (std::chrono::steady_clock::now() < until) {
    const Status lost = cluster->check_alive();
    if (!lost.ok()) {
      if (base::message_of(lost) == base::message_of(seen)) return seen;
      return base::with_context(seen, base::message_of(lost));
    }
    std::this_thread::sleep_for(kLookEvery);
  }
  return seen;
}

LoopGroup::LoopGroup(app::Cluster* cluster, std::vector<WorkerSession> workers, FitOptions options,
                     OnOutputs on_outputs)
    : cluster_(cluster), options_(std::move(options)), on_outputs_(std::move(on_outputs)) {
  set_sessions(std::move(workers));
}

void LoopGroup::set_sessions(std::vector<WorkerSession> workers) {
  sessions_ = std::move(workers);
  workers_.resize(sessions_.size());
  for (size_t i = 0; i < sessions_.size(); ++i) workers_[i].now.task = sessions_[i].task;
}

Status LoopGroup::run(const task::LoopOptions& loop, int64_t epoch, int64_t epochs,
                      const std::function<void(size_t, task::LoopOptions*)>& for_worker,
                      const OnPasses& on_passes) {
  for (Worker& worker : workers_) {
    Worker next;
    next.before = worker.before;
    next.now.task = worker.now.task;
    next.latest_before = worker.latest.steps > 0 ? worker.latest : worker.latest_before;
    worker = std::move(next);
  }
  began_ = false;
  is_draining_ = false;
  is_stopped_ = false;
  is_cancelled_ = false;
  replicas_left_ = 0;
  chief_ended_ = !chief_.has_value();
  beside_ = {};
  marks_.clear();
  std::vector<std::thread> threads;
  const auto lanes_of = [&](const WorkerSession& worker) {
    return loop.lanes > 0 && worker.lanes > 0 ? loop.lanes : worker.lanes;
  };
  int64_t lanes = 0;
  for (const WorkerSession& session : sessions_) lanes += lanes_of(session);
  int64_t first_lane = 0;
  for (size_t i = 0; i < sessions_.size(); ++i) {
    if (sessions_[i].session == nullptr) {
      workers_[i].ended = true;
      continue;
    }
    task::LoopOptions part = loop;
    part.first_epoch = epoch;
    part.epochs = epochs;
    part.part_index = first_lane;
    part.part_count = lanes;
    part.part_each_lane = true;
    first_lane += lanes_of(sessions_[i]);
    if (for_worker) for_worker(i, &part);
    threads.emplace_back([this, i, part = std::move(part)] { run_worker(i, part); });
  }
  std::thread chief;
  if (chief_.has_value()) chief = std::thread([this] { run_chief(); });
  std::optional<Status> ended;
  Clock::time_point shown;
  while (!ended.has_value()) {
    ended = wait_for_all();
    if (on_passes) tell_passes(on_passes);
    const Clock::time_point now = Clock::now();
    if (now - shown >= kShowEvery || ended.has_value()) {
      show_progress(epoch, epochs);
      shown = now;
    }
  }
  if (options_.may_go_on() && is_loss(*ended)) stop_all();
  is_cancelled_ = true;
  for (std::thread& thread : threads) thread.join();
  if (chief.joinable()) chief.join();
  if (on_passes) tell_passes(on_passes);
  // A fit that may go on finds out what was lost.
  const bool is_known = ended->ok() || options_.may_go_on();
  Status status = is_known ? *ended : root_cause(cluster_, *ended);
  close_run();
  return status;
}

/// Lets loops end that can, so that they tell what they have done.
void LoopGroup::stop_all() {
  is_stopped_ = true;
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kStopWait, [this] {
    return std::ranges::all_of(workers_, [](const Worker& worker) { return worker.ended; });
  });
}

void LoopGroup::run_worker(size_t index, const task::LoopOptions& loop) {
  task::LoopObserver observer;
  observer.on_progress = [this, index](const task::LoopProgress& progress) {
    take(index, progress);
  };
  observer.is_cancelled = [this] { return is_cancelled_.load(); };
  observer.stops = [this] { return is_stopped_.load(); };
  observer.drains = [this] { return is_draining_.load(); };
  observer.on_lane_end = [this, index](int32_t lane) {
    lane_ended(index, static_cast<size_t>(lane));
  };
  if (on_outputs_) {
    observer.on_values = [this, index](task::LoopValues values) {
      const std::lock_guard lock(outputs_mutex_);
      on_outputs_({.worker = index, .values = std::move(values)});
    };
  }
  const Result<task::LoopResult> result = sessions_[index].session->run_loop(loop, observer);
  if (result.ok()) take(index, result->progress);
  const std::lock_guard lock(mutex_);
  if (result.ok()) {
    traces_.insert(traces_.end(), result->traces.begin(), result->traces.end());
  }
  workers_[index].ended = true;
  Status& status = workers_[index].status = result.status();
  if (!is_stopped_ && !is_cancelled_) status = uncancelled(status);
  // Of a connection that ended only the address is known.
  if (status.code() == StatusCode::kUnavailable && base::message_of(status)[0] != '/') {
    status = base::with_context(status, sessions_[index].task);
  }
  changed_.notify_all();
}

void LoopGroup::run_chief() {
  task::LoopObserver observer;
  observer.is_cancelled = [this] { return is_stopped_ || is_cancelled_; };
  const Result<task::LoopResult> result = chief_->session->run_loop(chief_->loop, observer);
  const std::lock_guard lock(mutex_);
  const bool is_end =
      result.status().code() == StatusCode::kOutOfRange && replicas_left_ == chief_->replicas;
  if (!is_end && beside_.ok()) {
    beside_ = result.ok() ? base::internal("the chief's loop ended before those of workers")
                          : uncancelled(result.status());
  }
  chief_ended_ = true;
  changed_.notify_all();
}

void LoopGroup::lane_ended(size_t worker, size_t lane) {
  int64_t steps = 0;
  {
    const std::lock_guard lock(mutex_);
    ++replicas_left_;
    ++workers_[worker].lanes_ended;
    const std::vector<task::LoopPosition>& positions = workers_[worker].positions;
    if (lane < positions.size()) steps = positions[lane].steps;
  }
  // No replica waits for it any more, and what it would be told through may be what was lost.
  if (!leave_ || is_stopped_) return;
  const Status left = uncancelled(leave_(worker, lane, steps));
  if (left.ok()) return;
  const std::lock_guard lock(mutex_);
  if (beside_.ok()) beside_ = left;
  changed_.notify_all();
}

void LoopGroup::take(size_t index, const task::LoopProgress& progress) {
  const auto seconds = [](int64_t ns) { return static_cast<double>(ns) * 1e-9; };
  const std::lock_guard lock(mutex_);
  Worker& worker = workers_[index];
  worker.now.steps = progress.steps;
  worker.now.rows = progress.rows;
  worker.now.bytes_in = progress.bytes_in;
  worker.now.bytes_out = progress.bytes_out;
  worker.now.compute_s = seconds(progress.computed_ns);
  worker.now.wait_s = seconds(progress.waited_ns);
  worker.now.data_wait_s = seconds(progress.waited_for_data_ns);
  if (!progress.scalars.empty()) {
    worker.loss_sum = progress.scalars[0].sum;
    worker.loss_steps = progress.scalars[0].steps;
    worker.latest = progress.scalars[0];
  }
  worker.rows_skipped = progress.rows_skipped;
  worker.first_skipped = progress.first_skipped;
  worker.positions = progress.positions;
  worker.passes.insert(worker.passes.end(), progress.passes.begin(), progress.passes.end());
  worker.elapsed_s = seconds(progress.elapsed_ns);
  worker.fraction = progress.fraction;
  worker.auc = progress.auc;
  if (!began_ && progress.steps > 0) {
    run_began_ = Clock::now();
    first_step_ = run_began_ - std::chrono::nanoseconds(progress.elapsed_ns);
    began_ = true;
  }
}

/// Ok when all have ended well, an error as soon as there is one; nothing while they run.
std::optional<Status> LoopGroup::wait_for_all() {
  {
    std::unique_lock lock(mutex_);
    const auto settled = [this] {
      return !beside_.ok() ||
             (chief_ended_ && std::all_of(workers_.begin(), workers_.end(),
                                          [](const Worker& w) { return w.ended; })) ||
             std::any_of(workers_.begin(), workers_.end(),
                         [](const Worker& w) { return w.ended && !w.status.ok(); });
    };
    const bool all = changed_.wait_for(lock, kLookEvery, settled);
    for (const Worker& worker : workers_) {
      if (!worker.status.ok()) return worker.status;
    }
    if (!beside_.ok()) return beside_;
    if (all) return Status();
  }
  Status lost = cluster_->check_alive();
  if (!lost.ok()) return lost;
  if (options_.cancelled && options_.cancelled()) return base::cancelled("interrupted");
  if (!is_draining_ && drains_asked_ && drains_asked_()) is_draining_ = true;
  return std::nullopt;
}

void LoopGroup::tell_passes(const OnPasses& on_passes) {
  for (size_t i = 0; i < workers_.size(); ++i) {
    std::vector<task::LoopPassMean> passes;
    std::vector<task::LoopPosition> positions;
    {
      const std::lock_guard lock(mutex_);
      passes.swap(workers_[i].passes);
      positions = workers_[i].positions;
    }
    if (!passes.empty()) on_passes(i, passes, positions);
  }
}

void LoopGroup::close_run() {
  double longest = 0;
  for (const Worker& worker : workers_) longest = std::max(longest, worker.elapsed_s);
  seconds_ += longest;
  for (Worker& worker : workers_) {
    worker.before = sum_of(worker.before, worker.now);
    rows_skipped_ += worker.rows_skipped;
    if (first_skipped_.empty()) first_skipped_ = worker.first_skipped;
    const std::string task = worker.now.task;
    worker.now = TaskStats();
    worker.now.task = task;
  }
}

void LoopGroup::show_progress(int64_t epoch, int64_t epochs) {
  Progress progress;
  {
    const std::lock_guard lock(mutex_);
    if (!began_) return;
    const double now = std::chrono::duration<double>(Clock::now() - run_began_).count();
    Mark mark{now, 0, 0, 0};
    double fraction = 0;
    double auc = 0;
    int workers_with_auc = 0;
    const auto living = std::ranges::count_if(
        sessions_, [](const WorkerSession& worker) { return worker.session != nullptr; });
    double elapsed = 0;
    for (const Worker& worker : workers_) {
      elapsed = std::max(elapsed, worker.elapsed_s);
      progress.steps += worker.before.steps + worker.now.steps;
      progress.rows += worker.before.rows + worker.now.rows;
      progress.workers.push_back(sum_of(worker.before, worker.now));
      mark.rows += worker.now.rows;
      mark.loss_sum += worker.loss_sum;
      mark.loss_steps += worker.loss_steps;
      fraction += worker.fraction;
      auc += worker.auc;
      workers_with_auc += worker.auc > 0 ? 1 : 0;
    }
    if (workers_with_auc > 0) auc /= workers_with_auc;
    fraction /= static_cast<double>(std::max<int64_t>(1, living));
    marks_.push_back(mark);
    while (marks_.size() > 2 && now - marks_[1].seconds > kWindowS) marks_.pop_front();
    const Mark& from = marks_.front();
    const double span = mark.seconds - from.seconds;
    progress.samples_per_s = span > 0 ? static_cast<double>(mark.rows - from.rows) / span : 0;
    const int64_t loss_steps = mark.loss_steps - from.loss_steps;
    if (loss_steps > 0) {
      last_loss_ = (mark.loss_sum - from.loss_sum) / static_cast<double>(loss_steps);
    } else if (mark.loss_steps > 0 && last_loss_ == 0) {
      last_loss_ = mark.loss_sum / static_cast<double>(mark.loss_steps);
    }
    progress.loss = last_loss_;
    progress.auc = auc;
    progress.seconds = seconds_ + elapsed;
    const auto total = static_cast<double>(std::max<int64_t>(1, options_.epochs));
    progress.fraction = std::min(
        1.0, (static_cast<double>(epoch) + fraction * static_cast<double>(epochs)) / total);
    progress.epoch =
        std::min<int64_t>(options_.epochs - 1, static_cast<int64_t>(progress.fraction * total));
    if (!first_shown_.has_value()) first_shown_ = {progress.fraction, progress.seconds};
    const double done = progress.fraction - first_shown_->first;
    const double taken = progress.seconds - first_shown_->second;
    progress.seconds_left = done > 0.01 ? taken * (1 - progress.fraction) / done : -1;
  }
  if (options_.on_progress) options_.on_progress(progress);
}

int64_t LoopGroup::steps() const {
  int64_t out = 0;
  for (const Worker& worker : workers_) out += worker.before.steps;
  return out;
}

int64_t LoopGroup::rows() const {
  int64_t out = 0;
  for (const Worker& worker : workers_) out += worker.before.rows;
  return out;
}

/// Mean of the latest steps: as many whatever the machine, where progress goes by its time.
double LoopGroup::latest_loss() const {
  double sum = 0;
  int64_t steps = 0;
  for (const Worker& worker : workers_) {
    // A run may be the few steps behind a checkpoint.
    for (const task::LoopScalar& part : {worker.latest, worker.latest_before}) {
      sum += part.latest_sum;
      steps += part.latest_steps;
      if (part.latest_steps >= static_cast<int64_t>(task::LoopScalar::kLatest)) break;
    }
  }
  return steps > 0 ? sum / static_cast<double>(steps) : 0;
}

void LoopGroup::report(FitResult* result) const {
  for (const Worker& worker : workers_) {
    result->steps += worker.before.steps;
    result->rows += worker.before.rows;
    result->tasks.push_back(worker.before);
  }
  result->rows_skipped += rows_skipped_;
  if (result->first_skipped.empty()) result->first_skipped = first_skipped_;
  result->seconds += seconds_;
  result->samples_per_s =
      result->seconds > 0 ? static_cast<double>(result->rows) / result->seconds : 0;
  result->loss = latest_loss();
  result->traces.insert(result->traces.end(), traces_.begin(), traces_.end());
}

}  // namespace sidereal::train
