#pragma once

#include <string>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/config/consistency.h"
#include "sidereal/ir/schema.h"
#include "sidereal/train/distribute.h"

/// Training in step, within a bound of steps, and in both ways. Internal to train.
namespace sidereal::train {

/// Fed to ReplicaModel::begin when in step: int64 scalars.
inline constexpr const char* kReplicas = "synchronous/replicas";
inline constexpr const char* kFirstStep = "synchronous/first_step";
/// Fed to each step of the chief, int64: gradients in a mean.
inline constexpr const char* kReplicasToAggregate = "synchronous/replicas_to_aggregate";

/// Fed to ReplicaModel::begin of a bound: int64 scalars, and a name for each replica.
inline constexpr const char* kFirstReplica = "bounded/first_replica";
inline constexpr const char* kBound = "bounded/bound";
inline constexpr const char* kReplicaNames = "bounded/names";
/// Fed to each step of a replica with a bound, and to `leave`, int64: its number.
inline constexpr const char* kReplica = "bounded/replica";
/// Fed to `leave` of a replica with a bound, int64: steps that it has had.
inline constexpr const char* kSteps = "bounded/steps";

/// A distributed model whose replicas wait for each other. Value type.
struct ReplicaModel {
  ir::Graph graph;
  std::vector<std::string> targets;  ///< Of a replica's step, for the model's own.
  std::vector<std::string> chief;    ///< Targets of the chief's step; none: there is no chief.
  /// Values, fetched so that each place answers when it has done its part: before all of these, and
  /// when a replica has had its last step.
  std::vector<std::string> begin;
  std::vector<std::string> leave;
  std::string step = {};  ///< Value, int64: steps of the chief, from kFirstStep on.
};

/// Adds to `model`, spread as `distributed`, what training in step takes
/// (TensorFlow's SyncReplicasOptimizer). Beside each variable, or part of a table, is an
/// accumulator. A replica adds its gradients to these, with the step that it has read, and waits
/// until that step is over; the gradients of a step that is over are dropped. The chief takes the
/// means when there are enough, updates by them, counts the step and ends it. The mean of a row is
/// over all replicas of the step, those without the row too: n replicas with a batch each make the
/// update of one with all their rows. Rows of no replica stay as they are. Means are clipped, not
/// what they are of.
///
/// With spares a step may be over while a replica reads, so that it reads the number of its step
/// before anything else.
/// Hybrid: tables have no accumulators. Each replica updates its rows as in the model, with its own
/// gradients, and waits for these updates too before its step ends; it clips its gradients, of all
/// variables, as those of tables have no means. So no replica has begun step c before all have
/// ended step c - 2: a read of a table sees all updates up to that, and its own.
/// kInvalidArgument for a model that has tables alone, as nothing would hold its replicas in step.
Result<ReplicaModel> synchronize(const CompiledModel& model, const DistributedModel& distributed,
                                 const config::Consistency& consistency,
                                 const ir::OpRegistry& registry);

/// Adds to `model`, spread as `distributed`, a barrier that holds back replicas which are ahead of
/// others (resources::StepBarrier): a step waits there before it reads a variable, and says there,
/// when all its updates are done, that it has ended. So a read sees all updates of steps that every
/// replica has behind it, and the replica's own.
Result<ReplicaModel> bound_staleness(const CompiledModel& model,
                                     const DistributedModel& distributed,
                                     const ir::OpRegistry& registry);

}  // namespace sidereal::train
