#pragma once

#include "sidereal/base/status.h"
#include "sidereal/ir/schema.h"
#include "sidereal/train/distribute.h"
#include "sidereal/train/synchronize.h"

/// Training on copies whose differences are sent every k steps (GEO-SGD, as PaddlePaddle has it).
/// Internal to train.
namespace sidereal::train {

/// Fed to each step of a replica, int64: steps between two exchanges, from 1.
inline constexpr const char* kWindow = "geo/window";
/// Fed to each step of a replica, and to `leave` and `keep`, int64: the number of its loop. In
/// another loop than before a replica begins with what the parameter servers have.
inline constexpr const char* kLoop = "geo/loop";

/// A distributed model whose replicas have copies of dense variables. Value type.
struct CopiesModel {
  /// `leave` has a value for each lane of a worker's task, fetched in the worker's own session when
  /// its loop has had its last step: what has not been sent yet is in the parameter servers then.
  ReplicaModel replica;
  /// A value, fetched likewise: the slots of lane 0 are in the parameter servers then.
  std::string keep;
};

/// Makes of `model`, spread as `distributed`, one whose replicas train copies of the dense
/// variables, which are the lane's own. In its first step of a loop a replica copies variables,
/// slots and the count of steps from the parameter servers. Its optimizer then changes the copies
/// alone. When it has made kWindow steps, it adds what each variable has become less what it began
/// from, to that of the parameter server, and begins from the sum: one call to each of them. The
/// count of steps is such a variable too, so that it is that of all replicas. Slots stay with the
/// replica.
///
/// Tables, and variables that are not trained, stay where they are, as with async.
/// kInvalidArgument for a model that has no dense variable to train. `lanes`: most of a worker.
Result<CopiesModel> train_on_copies(const CompiledModel& model, const DistributedModel& distributed,
                                    int lanes, const ir::OpRegistry& registry);

}  // namespace sidereal::train
