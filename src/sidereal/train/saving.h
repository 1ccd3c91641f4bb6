#pragma once

#include <string>
#include <utility>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/ir/builder.h"

/// The nodes by which a distributed model is saved and restored. Internal to train.
namespace sidereal::train {

/// A variable of a cluster, and what it is in a checkpoint. Value type.
struct SavedVariable {
  ir::Output handle = {};
  std::string name = {};  ///< Of the tensor.
  std::string slice =
      {};  ///< Which part of it: as the attribute `slices` of SaveVariables; "": all.
  ir::DType dtype = ir::DType::kFloat32;
  ir::Shape shape = {};  ///< Of the whole tensor.
};

/// Names in the graph of a model by which it is saved. Value type.
struct SavingNodes {
  std::string prefix;   ///< Fed: prefix of the checkpoint.
  std::string base;     ///< Fed when saving: the prefix of what it stands on; "": nothing.
  std::string since;    ///< Fed when saving: the cut of that, as SaveVariables takes it.
  std::string commit;   ///< Run to save; feeds of `state` are needed.
  std::string restore;  ///< Run to restore variables.
  /// Fed when saving: what is saved beside variables, by its name in the checkpoint.
  std::vector<std::pair<std::string, std::string>> state;
  std::vector<SavedVariable> variables;
  int64_t shards = 0;  ///< Data files of a checkpoint.
};

/// What all names of tensors begin with that are saved beside variables.
inline constexpr const char* kStatePrefix = "sidereal_training/";

/// A tensor that is saved beside variables. Value type.
struct StateTensor {
  const char* name;
  ir::DType dtype;
};
/// All of them: what training_state.h makes and reads.
const std::vector<StateTensor>& state_tensors();

/// Adds nodes that save and restore `variables`: each task writes what is on it, the ps task 0 the
/// state and the index.
SavingNodes add_saving(ir::Builder* b, std::vector<SavedVariable> variables);

}  // namespace sidereal::train
