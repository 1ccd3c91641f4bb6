#pragma once

#include <map>
#include <string>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/ir/schema.h"
#include "sidereal/train/model.h"
#include "sidereal/train/saving.h"

namespace sidereal::train {

/// The parameter servers that a model is spread over. Value type.
struct Topology {
  std::vector<int> ps_lanes;  ///< Lanes of each task of the job ps.
};

/// Where one variable of a distributed model is. Value type.
struct PlacedVariable {
  std::vector<std::string> reads;  ///< Values of its parts: row r of all is in part r % parts.
};

/// A model cut for a cluster: what lives on parameter servers has their devices, what follows it
/// is left for placing, the rest is a worker's. Value type.
struct DistributedModel {
  ir::Graph graph;
  std::map<std::string, PlacedVariable> variables;
  std::string initializer;             ///< The node that gives all variables their first values.
  std::vector<std::string> has_value;  ///< By variable or slot, part of it: bool.
  std::string prediction;              ///< As the model's, without dropout.
  std::string loss;                    ///< Likewise.
  SavingNodes saving;                  ///< Of all variables and their slots.
};

/// The device of a parameter server; what a model has once is on that of task 0.
std::string ps_device(size_t task);

/// Spreads the variables of `model`: tables in parts over all lanes of all tasks, round robin, so
/// that part k of NAME is the variable "NAME/part_k" on task k % tasks; the others whole, the
/// largest first on the task that has least. Slots are where their variables are.
/// Values do not depend on the topology, to the last bit.
/// Errors: kFailedPrecondition without a parameter server.
Result<DistributedModel> distribute(const CompiledModel& model, const Topology& topology,
                                    const ir::OpRegistry& registry);

/// `graph` as worker `index` runs it: what is not on parameter servers is there.
ir::Graph on_worker(const ir::Graph& graph, int index, const ir::OpRegistry& registry);

}  // namespace sidereal::train
