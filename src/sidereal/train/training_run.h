#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sidereal/app/cluster.h"
#include "sidereal/base/status.h"
#include "sidereal/tensor/tensor.h"
#include "sidereal/train/best_weights.h"
#include "sidereal/train/checkpointing.h"
#include "sidereal/train/data_position.h"
#include "sidereal/train/epoch_losses.h"
#include "sidereal/train/fit.h"
#include "sidereal/train/placed_model.h"
#include "sidereal/train/replicas.h"
#include "sidereal/train/resharding.h"

namespace sidereal::train {

/// A fit from where it is, at its begin or at a checkpoint, to its end, or until something is lost
/// that it cannot go on without. Workers that are lost, with FitOptions::continues, are none of
/// that: all loops end, what they have not read is dealt to the workers that are left, and loops
/// begin again, with the variables as they are. So do they when parts of the model move to other
/// parameter servers. Internal to train.
/// Thread: core-local (blocking calls). Borrows what it is made with.
class TrainingRun {
 public:
  TrainingRun(app::Cluster* cluster, PlacedModel* placed, Replicas* replicas, Fit* fit);
  TrainingRun(const TrainingRun&) = delete;
  TrainingRun& operator=(const TrainingRun&) = delete;

  Status run();

 private:
  Status open();
  Status open_sessions();
  Status open_directory();
  Status open_checkpoints();
  Status open_best();
  [[nodiscard]] Checkpointing::Context context_of(CheckpointReport* report) const;
  [[nodiscard]] task::LoopOptions training_loop() const;

  Status train_below(int64_t end, const std::pair<std::string, tensor::Tensor>& rate);
  Status run_loops(int64_t end, int64_t steps);
  void number_steps(size_t index, task::LoopOptions* loop) const;
  void tell_losses(int64_t end);
  Status evaluate_epoch(int64_t epoch, int64_t ended);
  Status restore_best();

  Status go_on(const Status& failure);
  void take_in_workers();
  Status take_moved_parts();
  Status deal_again();
  [[nodiscard]] int64_t rows_untold() const;

  [[nodiscard]] TrainingState state();
  [[nodiscard]] bool is_over() const;
  [[nodiscard]] int64_t steps_left() const;
  [[nodiscard]] int64_t steps_at_once() const;
  [[nodiscard]] int64_t since_best() const;

  app::Cluster* const cluster_;
  PlacedModel* const placed_;
  Replicas* const replicas_;
  Fit* const fit_;
  const FitOptions& options_;
  const CompiledModel& model_;
  LoopGroup& group_;
  FitResult& result_;

  const std::vector<WorkerSession>* workers_ = nullptr;
  std::unique_ptr<Checkpointing> saver_;  // nullptr: nothing is saved.
  std::unique_ptr<BestWeights> best_;     // nullptr without restore_best.
  TrainingState before_;                  // Where it began.
  DataSchedule schedule_{{}, {}};
  task::LoopOptions loop_;
  int64_t loop_steps_ = 0;   // That each lane may have had of FitOptions::steps_max.
  EpochLosses losses_;       // Of steps that were made here.
  int64_t rows_untold_ = 0;  // Of the loops that ended last: trained, perhaps, and not told of.
  int64_t lost_at_steps_ = -1;
  int64_t losses_in_a_row_ = 0;  // Of tasks, without a step between them.
  Resharding resharding_;
};

}  // namespace sidereal::train
