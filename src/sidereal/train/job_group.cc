#include "sidereal/train/job_group.h"

#include <algorithm>
#include <thread>

#include "sidereal/app/control.pb.h"

namespace sidereal::train {

namespace v1 = control::v1;

namespace {

constexpr auto kLookEvery = std::chrono::milliseconds(100);
// How often progress is told, so that people can read it.
constexpr auto kShowEvery = std::chrono::milliseconds(250);
// "Lately" in Progress.
constexpr double kWindowS = 3;
// After a job has failed because a peer vanished: how long to wait for the system to say which.
constexpr auto kRootCauseWait = std::chrono::seconds(2);

}  // namespace

JobGroup::JobGroup(app::Cluster* cluster, std::vector<std::shared_ptr<app::ControlClient>> workers,
                   FitOptions options)
    : cluster_(cluster),
      clients_(std::move(workers)),
      options_(std::move(options)),
      workers_(clients_.size()) {
  for (size_t i = 0; i < clients_.size(); ++i) workers_[i].now.task = clients_[i]->task();
}

Status JobGroup::run(const v1::RunJobRequest& request, int64_t epoch, int64_t epochs) {
  for (Worker& worker : workers_) {
    worker.ended = false;
    worker.status = {};
    worker.loss_sum = 0;
    worker.loss_steps = 0;
    worker.rows_skipped = 0;
    worker.first_skipped.clear();
    worker.elapsed_s = 0;
    worker.fraction = 0;
    worker.auc = 0;
  }
  began_ = false;
  marks_.clear();
  std::vector<std::thread> threads;
  for (size_t i = 0; i < clients_.size(); ++i) {
    v1::RunJobRequest part = request;
    part.set_part_index(static_cast<int64_t>(i));
    part.set_part_count(static_cast<int64_t>(clients_.size()));
    threads.emplace_back([this, i, part = std::move(part)] { run_worker(i, part); });
  }
  Status status;
  Clock::time_point shown;
  do {
    status = wait_for_all();
    const Clock::time_point now = Clock::now();
    if (now - shown >= kShowEvery || status.code() != StatusCode::kDeadlineExceeded) {
      show_progress(epoch, epochs);
      shown = now;
    }
  } while (status.code() == StatusCode::kDeadlineExceeded);
  if (!status.ok()) {
    for (auto& client : clients_) client->cancel_job();
  }
  for (std::thread& thread : threads) thread.join();
  if (!status.ok()) return root_cause(status);
  close_run();
  return {};
}

void JobGroup::run_worker(size_t index, const v1::RunJobRequest& request) {
  const Status status = clients_[index]->run_job(
      request, [this, index](const v1::JobEvent& event) { return take(index, event); });
  const std::lock_guard lock(mutex_);
  workers_[index].ended = true;
  workers_[index].status = status;
  changed_.notify_all();
}

Status JobGroup::take(size_t index, const v1::JobEvent& event) {
  const std::lock_guard lock(mutex_);
  if (!event.trace().empty()) {
    traces_.push_back(event.trace());
    return {};
  }
  Worker& worker = workers_[index];
  worker.now.steps = event.steps();
  worker.now.rows = event.rows();
  worker.now.bytes_in = event.bytes_in();
  worker.now.bytes_out = event.bytes_out();
  worker.now.compute_s = event.compute_s();
  worker.now.wait_s = event.wait_s();
  worker.now.data_wait_s = event.data_wait_s();
  worker.loss_sum = event.loss_sum();
  worker.loss_steps = event.loss_steps();
  worker.rows_skipped = event.rows_skipped();
  worker.first_skipped = event.first_skipped();
  worker.elapsed_s = event.elapsed_s();
  worker.fraction = event.fraction();
  worker.auc = event.auc();
  if (index == 0) losses_.insert(losses_.end(), event.losses().begin(), event.losses().end());
  scores_.scores.insert(scores_.scores.end(), event.scores().begin(), event.scores().end());
  scores_.labels.insert(scores_.labels.end(), event.labels().begin(), event.labels().end());
  scores_.truths.insert(scores_.truths.end(), event.truths().begin(), event.truths().end());
  if (!began_ && event.steps() > 0) {
    began_ = true;
    run_began_ = Clock::now();
  }
  return {};
}

/// Ok when all have ended well, an error as soon as there is one, kDeadlineExceeded to be asked
/// again.
Status JobGroup::wait_for_all() {
  {
    std::unique_lock lock(mutex_);
    const auto settled = [this] {
      return std::all_of(workers_.begin(), workers_.end(),
                         [](const Worker& w) { return w.ended; }) ||
             std::any_of(workers_.begin(), workers_.end(),
                         [](const Worker& w) { return w.ended && !w.status.ok(); });
    };
    const bool all = changed_.wait_for(lock, kLookEvery, settled);
    for (const Worker& worker : workers_) {
      // Codes of workers are kept, but this one means "ask again" here.
      if (worker.status.code() == StatusCode::kDeadlineExceeded) {
        return base::unavailable("{}", base::message_of(worker.status));
      }
      SR_RETURN_IF_ERROR(worker.status);
    }
    if (all) return {};
  }
  SR_RETURN_IF_ERROR(cluster_->check_alive());
  if (options_.cancelled && options_.cancelled()) return base::cancelled("interrupted");
  return base::deadline_exceeded("still running");
}

Status JobGroup::root_cause(const Status& seen) {
  if (seen.code() != StatusCode::kUnavailable && seen.code() != StatusCode::kAborted) return seen;
  const auto until = Clock::now() + kRootCauseWait;
  std::unique_lock lock(mutex_);
  while (Clock::now() < until) {
    const Status lost = cluster_->check_alive();
    if (!lost.ok()) {
      if (base::message_of(lost) == base::message_of(seen)) return seen;
      return base::with_context(seen, base::message_of(lost));
    }
    changed_.wait_for(lock, kLookEvery);
  }
  return seen;
}

uint64_t JobGroup::steps_max_of_worker() const {
  int64_t steps = 0;
  for (const Worker& worker : workers_) steps = std::max(steps, worker.before.steps);
  return static_cast<uint64_t>(steps);
}

void JobGroup::close_run() {
  double longest = 0;
  for (const Worker& worker : workers_) longest = std::max(longest, worker.elapsed_s);
  seconds_ += longest;
  for (Worker& worker : workers_) {
    worker.before.steps += worker.now.steps;
    worker.before.rows += worker.now.rows;
    worker.before.compute_s += worker.now.compute_s;
    worker.before.wait_s += worker.now.wait_s;
    worker.before.data_wait_s += worker.now.data_wait_s;
    // The lanes of a worker count bytes for as long as they live.
    worker.before.bytes_in = worker.now.bytes_in;
    worker.before.bytes_out = worker.now.bytes_out;
    worker.before.task = worker.now.task;
    rows_skipped_ += worker.rows_skipped;
    if (first_skipped_.empty()) first_skipped_ = worker.first_skipped;
    const std::string task = worker.now.task;
    worker.now = TaskStats();
    worker.now.task = task;
  }
}

void JobGroup::show_progress(int64_t epoch, int64_t epochs) {
  Progress progress;
  {
    const std::lock_guard lock(mutex_);
    if (!began_) return;
    const double now = std::chrono::duration<double>(Clock::now() - run_began_).count();
    Mark mark{now, 0, 0, 0};
    double fraction = 0;
    double auc = 0;
    int workers_with_auc = 0;
    double elapsed = 0;
    for (const Worker& worker : workers_) {
      elapsed = std::max(elapsed, worker.elapsed_s);
      progress.steps += worker.before.steps + worker.now.steps;
      progress.rows += worker.before.rows + worker.now.rows;
      mark.rows += worker.now.rows;
      mark.loss_sum += worker.loss_sum;
      mark.loss_steps += worker.loss_steps;
      fraction += worker.fraction / static_cast<double>(workers_.size());
      auc += worker.auc;
      workers_with_auc += worker.auc > 0 ? 1 : 0;
    }
    if (workers_with_auc > 0) auc /= workers_with_auc;
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
    progress.seconds_left =
        progress.fraction > 0.01 ? progress.seconds * (1 / progress.fraction - 1) : -1;
  }
  if (options_.on_progress) options_.on_progress(progress);
}

void JobGroup::report(FitResult* result) const {
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
  result->loss = last_loss_;
  result->losses = losses_;
  result->traces.insert(result->traces.end(), traces_.begin(), traces_.end());
}

}  // namespace sidereal::train
