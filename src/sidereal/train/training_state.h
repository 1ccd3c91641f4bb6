#pragma once

#include <string>
#include <utility>
#include <vector>

#include "sidereal/ckpt/checkpoint_reader.h"
#include "sidereal/data/data_spec.h"
#include "sidereal/tensor/tensor.h"
#include "sidereal/train/data_position.h"
#include "sidereal/train/saving.h"
#include "sidereal/train/trainer.h"

/// How far a training has come, beside what it has learned. Internal to train.
namespace sidereal::train {

/// As a checkpoint has it. Value type.
struct TrainingState {
  int64_t steps = 0;                  ///< Of all workers.
  int64_t rows = 0;                   ///< Likewise.
  int64_t loop_steps = 0;             ///< That each lane may have had of FitOptions::steps_max.
  std::vector<int64_t> worker_steps;  ///< Decide the random numbers of steps to come.
  DataPosition position;
  std::vector<EvalResult> validation;  ///< One per epoch.
  std::string data;                    ///< data_identity().
};

/// What of the data the order of its rows follows from: positions in other data mean nothing.
std::string data_identity(const data::DataSpec& data);

/// What is fed to save it: by names of `nodes`.
std::vector<std::pair<std::string, tensor::Tensor>> feeds_of(const TrainingState& state,
                                                             const SavingNodes& nodes);
/// The same of a checkpoint. kInvalidArgument for one that was not made by a training.
Result<TrainingState> read_state(ckpt::CheckpointReader* reader, const std::string& prefix);

/// kInvalidArgument, naming file and tensor, when the checkpoint is not one of these variables.
Status check_variables(const ckpt::CheckpointReader& reader, const std::string& prefix,
                       const std::vector<SavedVariable>& variables);

}  // namespace sidereal::train
