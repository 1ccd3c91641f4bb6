#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/train/checkpointing.h"
#include "sidereal/train/trainer.h"
#include "sidereal/train/training_state.h"

namespace sidereal::train {

/// Index of the best of these, which are not empty: the first with the largest AUC, of models of
/// probabilities of which all have one, or the least loss.
size_t best_of(const std::vector<EvalResult>& validation, bool is_binary);

/// Keeps what a training was like after its best epoch, and puts it back: checkpoints in a
/// directory of their own. Internal to train.
/// Thread: core-local. Borrows what the context has.
class BestWeights {
 public:
  /// `is_new`: what is kept there is of another training.
  static Result<std::unique_ptr<BestWeights>> open(const std::string& directory, bool is_new,
                                                   Checkpointing::Context context);

  /// The epoch that was evaluated last is the best so far. What fails is told, and training goes
  /// on.
  void keep(const TrainingState& state);
  /// Variables are as they were kept when there were `points` evaluations; false when that is not
  /// there.
  Result<bool> restore(size_t points, const std::string& data);

 private:
  BestWeights() = default;

  CheckpointReport report_;
  std::unique_ptr<Checkpointing> files_;
};

}  // namespace sidereal::train
