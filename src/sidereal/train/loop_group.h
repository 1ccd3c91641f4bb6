#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sidereal/app/cluster.h"
#include "sidereal/service/session.h"
#include "sidereal/train/trainer.h"

namespace sidereal::train {

/// A worker as a trainer has it. Value type.
struct WorkerSession {
  std::string task;  ///< "/job:worker/task:0".
  int lanes = 1;     ///< 0, and no session: it was lost, and others train without it.
  std::shared_ptr<service::Session> session;
};
/// The first that is not lost: there is one.
const WorkerSession& first_of(const std::vector<WorkerSession>& workers);

/// What goes on beside the loops of a group, on one session: the loop of a chief, which ends with
/// kOutOfRange when all replicas, the lanes of workers, have left. Value type.
struct ChiefLoop {
  std::shared_ptr<service::Session> session;
  task::LoopOptions loop;
  int64_t replicas = 0;
};

/// What one step gave back besides its totals. Value type.
struct StepOutputs {
  size_t worker = 0;  ///< Index among those of the group.
  task::LoopValues values;
};

/// An error because a peer vanished, with which task ended and how, once the system has said it;
/// waits two seconds for that. Other errors as they are.
Status root_cause(app::Cluster* cluster, const Status& seen);
/// Whether an error says that a task, or a connection to it, was lost.
bool is_loss(const Status& status);
/// What became of a step or loop that nobody here has cancelled: if it was, its task was told to
/// stop, which is a loss: kUnavailable.
Status uncancelled(const Status& status);

/// Runs one loop after another on all workers at once and adds up what they report. The first fetch
/// of each loop is its loss.
///
/// Every wait looks at the cluster several times a second: a lost task ends the loops, and the
/// error names it. Where a fit may go on after that the others are stopped, and tell what they have
/// done. Internal to train.
/// Thread: core-local; has threads of its own while run() runs.
class LoopGroup {
 public:
  /// Gets what steps give back, one call at a time, from the group's threads.
  using OnOutputs = std::function<void(StepOutputs)>;

  /// Gets the passes of a worker that have ended since it was last called, and how far its lanes
  /// are. Called by run(), on its thread.
  using OnPasses = std::function<void(size_t worker, const std::vector<task::LoopPassMean>&,
                                      const std::vector<task::LoopPosition>&)>;

  /// Tells those that may wait for a replica, a lane of a worker, that it has had its last step;
  /// `steps` of the run. From the group's threads.
  using Leave = std::function<Status(size_t worker, size_t lane, int64_t steps)>;

  /// `cluster` is borrowed. Of `options` the callbacks and epochs are used.
  LoopGroup(app::Cluster* cluster, std::vector<WorkerSession> workers, FitOptions options,
            OnOutputs on_outputs = nullptr);

  /// Runs `loop` on every worker, each with its part of the data, to the end of the slowest.
  /// `epoch` is the first epoch of the loop, `epochs` how many it has. `for_worker` may change what
  /// one worker is told.
  Status run(const task::LoopOptions& loop, int64_t epoch, int64_t epochs,
             const std::function<void(size_t, task::LoopOptions*)>& for_worker = nullptr,
             const OnPasses& on_passes = nullptr);

  /// Asked several times a second while loops run; true: no step begins any more, and run() ends
  /// well when those have ended that have begun.
  void set_drains(std::function<bool()> drains) { drains_asked_ = std::move(drains); }
  /// When the first step of the present run, or of the latest, began; nothing before it has been
  /// told of.
  [[nodiscard]] std::optional<std::chrono::steady_clock::time_point> first_step() const {
    return began_ ? std::optional(first_step_) : std::nullopt;
  }
  /// Whether the latest run ended early for that.
  [[nodiscard]] bool was_drained() const { return is_draining_; }
  /// The same workers, with other sessions, or the first ones. What was counted stays.
  void set_sessions(std::vector<WorkerSession> workers);
  /// Before run(): `chief`'s loop goes on beside those of the workers. Its steps are not counted.
  void set_chief(ChiefLoop chief) { chief_ = std::move(chief); }
  /// Before run().
  void set_leave(Leave leave) { leave_ = std::move(leave); }
  /// How far the lanes of a worker came in the latest run.
  [[nodiscard]] const std::vector<task::LoopPosition>& positions_of(size_t worker) const {
    return workers_[worker].positions;
  }
  /// Whether positions_of() is all that it did; of one that was lost it is what it had told.
  [[nodiscard]] bool has_told_all(size_t worker) const {
    return workers_[worker].lanes_ended == sessions_[worker].lanes;
  }
  /// Steps, rows and seconds of all runs so far, with what failed ones had told when they ended.
  [[nodiscard]] int64_t steps() const;
  [[nodiscard]] int64_t rows() const;
  [[nodiscard]] int64_t rows_skipped() const { return rows_skipped_; }
  [[nodiscard]] double seconds() const { return seconds_; }
  /// Steps that a worker has done.
  [[nodiscard]] int64_t steps_of(size_t worker) const { return workers_[worker].before.steps; }
  /// Adds the totals of all runs so far.
  void report(FitResult* result) const;

 private:
  using Clock = std::chrono::steady_clock;

  /// What one worker said last in the present run, and what it did in runs before.
  struct Worker {
    TaskStats before;
    TaskStats now;
    double loss_sum = 0;
    int64_t loss_steps = 0;
    task::LoopScalar latest;  ///< Losses, of this run; `latest_before` of the run before.
    task::LoopScalar latest_before;
    int64_t rows_skipped = 0;
    std::string first_skipped;
    std::vector<task::LoopPosition> positions;
    std::vector<task::LoopPassMean> passes;  ///< That have ended and were not told.
    double elapsed_s = 0;
    double fraction = 0;
    double auc = 0;
    bool ended = false;
    int lanes_ended = 0;
    Status status = {};
  };

  void run_worker(size_t index, const task::LoopOptions& loop);
  void run_chief();
  void lane_ended(size_t worker, size_t lane);
  void take(size_t index, const task::LoopProgress& progress);
  void stop_all();
  std::optional<Status> wait_for_all();
  void tell_passes(const OnPasses& on_passes);
  void show_progress(int64_t epoch, int64_t epochs);
  void close_run();
  [[nodiscard]] double latest_loss() const;

  app::Cluster* cluster_;
  std::vector<WorkerSession> sessions_;
  FitOptions options_;
  OnOutputs on_outputs_;
  mutable std::mutex mutex_;  // Guards workers_ and traces_ while loops run.
  std::mutex outputs_mutex_;  // Held while on_outputs_ runs.
  std::function<bool()> drains_asked_;
  std::atomic<bool> is_draining_ = false;
  std::atomic<bool> is_stopped_ = false;  // Loops are to end, and tell what they have done.
  std::atomic<bool> is_cancelled_ = false;
  std::optional<ChiefLoop> chief_;
  Leave leave_;
  // Guarded as workers_.
  int64_t replicas_left_ = 0;
  bool chief_ended_ = false;
  Status beside_;  // Of what goes on beside the loops.
  std::condition_variable changed_;
  std::vector<Worker> workers_;
  std::vector<std::string> traces_;
  int64_t rows_skipped_ = 0;
  std::string first_skipped_;
  double seconds_ = 0;
  double last_loss_ = 0;
  Clock::time_point run_began_;  // About; for "lately" only.
  Clock::time_point first_step_;
  std::atomic<bool> began_ = false;  // Both of these are known.
  // Fraction of the fit and seconds of this group when progress was first shown.
  std::optional<std::pair<double, double>> first_shown_;
  struct Mark {
    double seconds;
    int64_t rows;
    double loss_sum;
    int64_t loss_steps;
  };
  std::deque<Mark> marks_;
};

}  // namespace sidereal::train
