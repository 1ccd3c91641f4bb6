#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "sidereal/app/cluster.h"
#include "sidereal/base/status.h"
#include "sidereal/config/consistency.h"
#include "sidereal/data/data_spec.h"
#include "sidereal/train/autoscale.h"
#include "sidereal/train/loop_group.h"
#include "sidereal/train/trainer.h"
#include "sidereal/train/training_state.h"

/// A fit, as it counts. Internal to train.
namespace sidereal::train {

/// A fit from its first step to its last, through losses of tasks: what was learned since the
/// checkpoint that it goes back to then does not count.
/// Thread: core-local. Borrows what it is made with.
struct Fit {
  Fit(app::Cluster* cluster, const data::DataSpec& data, const FitOptions& options,
      const data::DataSpec* validation);
  Fit(const Fit&) = delete;
  Fit& operator=(const Fit&) = delete;

  /// How far the training is, or was when it failed, as far as workers have told.
  [[nodiscard]] int64_t steps() const { return steps_offset_ + group.steps(); }
  [[nodiscard]] int64_t rows() const { return rows_offset_ + group.rows(); }
  /// It is where `state` is, from now on.
  void stands_at(const TrainingState& state);
  /// Of epochs from `epoch` on nothing is known, nor of those before that others have trained.
  void stands_at_epoch(int64_t epoch);
  /// A checkpoint is saved now: to go back to what is counted beside it.
  void mark();
  /// After a loss, when variables are as in `to` again, the checkpoint `from` ("": as they began):
  /// so is all that is counted. Says so; `replaced` are the tasks that were lost.
  void go_back(const TrainingState& to, const std::string& from,
               const std::vector<std::string>& replaced);
  /// Tasks were lost, and the training goes on with the variables as they are.
  struct Loss {
    Status why;
    std::vector<std::string> lost;  ///< All parameter servers, or all workers.
    bool has_lost_ps = false;       ///< They have what they had from their standbys.
    int64_t workers = 0;            ///< That there are now.
    int64_t rows_twice = 0;         ///< Rows, at most, that are trained twice.
    std::chrono::duration<double> lasted;
  };
  /// Counts that, and says so.
  void goes_on(const Loss& loss);
  /// Workers that were lost train again: there are `living` now.
  void found_workers(int64_t living) const;
  /// Counts a loss. Ok when it is one that may be made good; else `failure`, with the reason.
  Status count_loss(const Status& failure);
  /// An evaluation of the validation data after `epoch`, from 0, when `ended` of all epochs are
  /// done.
  void evaluated(const EvalResult& evaluated, int64_t epoch, int64_t ended);
  /// All steps of `epoch`, from 0, are done; `loss` is the mean of theirs.
  void epoch_ended(int64_t epoch, double loss);
  /// What came of it.
  FitResult end();

  void tell(const std::string& text, base::LogLevel level = base::LogLevel::kWarning) const;

  const data::DataSpec& data;
  const FitOptions& options;
  const data::DataSpec* const validation;
  CheckpointOptions checkpoints;  ///< After a loss it goes on from its own.
  FitResult result;
  LoopGroup group;                  ///< Counts all that is done, in vain too.
  config::Consistency consistency;  ///< FitOptions::consistency, read.
  AutoscaleOptions autoscale;       ///< Likewise.
  /// The loss is one of probabilities: of a fair coin 0.69, whatever the data.
  bool is_binary = false;
  bool may_begin_anew = false;  ///< The model has its first values when the fit begins.
  bool is_begun = false;
  int64_t first_steps = 0;  ///< Of the training, when the fit began.
  int64_t first_rows = 0;
  std::chrono::steady_clock::time_point lost_at;  ///< The latest loss.

 private:
  struct Mark {
    size_t losses = 0;
    int64_t updates = 0;
    int64_t rows_skipped = 0;
  };

  /// The options, with progress that knows the latest validation.
  FitOptions watched();
  /// Tells of first losses that are absurd which column has the largest numbers.
  void look_at_first(double loss);
  [[nodiscard]] int64_t rows_skipped() const { return group.rows_skipped() - skipped_in_vain_; }

  int64_t steps_offset_ = 0;  // Of the training, from what the group has counted.
  int64_t rows_offset_ = 0;
  int64_t skipped_in_vain_ = 0;
  std::map<int64_t, Mark> marks_;  // By steps of a checkpoint.
  Progress shown_;                 // Last.
  std::chrono::steady_clock::time_point epoch_shown_ = std::chrono::steady_clock::now();
  bool is_first_ = true;  // No loss has been looked at.
  int64_t losses_in_a_row_ = 0;
  int64_t saved_at_loss_ = 0;
};

/// kInvalidArgument and kFailedPrecondition for what cannot be recovered from.
Status check_recovery(const FitOptions& options, const app::Cluster& cluster);

}  // namespace sidereal::train
