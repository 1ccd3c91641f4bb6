#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "sidereal/app/cluster.h"
#include "sidereal/app/control_client.h"
#include "sidereal/train/trainer.h"

namespace sidereal::train {

/// Runs one job after another on all workers at once and adds up what they report.
///
/// Every wait looks at the cluster several times a second: a lost task ends the jobs, and the error
/// names it. Internal to train.
/// Thread: core-local; has threads of its own while run() runs.
class JobGroup {
 public:
  struct Scores {
    std::vector<float> scores;
    std::vector<float> labels;
    std::vector<float> truths;
  };

  /// `cluster` is borrowed. Of `options` the callbacks, epochs and record_losses are used.
  JobGroup(app::Cluster* cluster, std::vector<std::shared_ptr<app::ControlClient>> workers,
           FitOptions options);

  /// Runs `request` on every worker, each with its part of the data, to the end of the slowest.
  /// `epoch` is the first epoch of the job, `epochs` how many it has.
  Status run(const control::v1::RunJobRequest& request, int64_t epoch, int64_t epochs);

  /// Steps of the worker that did the most so far.
  [[nodiscard]] uint64_t steps_max_of_worker() const;
  /// Adds the totals of all runs so far.
  void report(FitResult* result) const;
  Scores take_scores() { return std::move(scores_); }

 private:
  using Clock = std::chrono::steady_clock;

  /// What one worker said last in the present run, and what it did in runs before.
  struct Worker {
    TaskStats before;
    TaskStats now;
    double loss_sum = 0;
    int64_t loss_steps = 0;
    int64_t rows_skipped = 0;
    std::string first_skipped;
    double elapsed_s = 0;
    double fraction = 0;
    double auc = 0;
    bool ended = false;
    Status status;
  };

  void run_worker(size_t index, const control::v1::RunJobRequest& request);
  Status take(size_t index, const control::v1::JobEvent& event);
  Status wait_for_all();
  Status root_cause(const Status& seen);
  void show_progress(int64_t epoch, int64_t epochs);
  void close_run();

  app::Cluster* cluster_;
  std::vector<std::shared_ptr<app::ControlClient>> clients_;
  FitOptions options_;
  mutable std::mutex mutex_;  // Guards workers_, scores_, losses_ and traces_ while jobs run.
  std::condition_variable changed_;
  std::vector<Worker> workers_;
  Scores scores_;
  std::vector<float> losses_;
  std::vector<std::string> traces_;
  int64_t rows_skipped_ = 0;
  std::string first_skipped_;
  double seconds_ = 0;
  double last_loss_ = 0;
  Clock::time_point run_began_;  // About; for "lately" only.
  bool began_ = false;
  struct Mark {
    double seconds;
    int64_t rows;
    double loss_sum;
    int64_t loss_steps;
  };
  std::deque<Mark> marks_;
};

}  // namespace sidereal::train
