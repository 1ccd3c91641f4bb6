#pragma once

#include <map>
#include <string>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/ir/schema.h"
#include "sidereal/train/model.h"
#include "sidereal/train/placement.h"
#include "sidereal/train/saving.h"

namespace sidereal::train {

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

/// Spreads the variables of `model` as `placement` says: part k of table NAME is the variable
/// "NAME/part_k". Slots are where their variables are. Values do not depend on the placement, to
/// the last bit.
Result<DistributedModel> distribute(const CompiledModel& model, const Placement& placement,
                                    const ir::OpRegistry& registry);

/// `graph` as worker `index` runs it: what is not on parameter servers is there.
ir::Graph on_worker(const ir::Graph& graph, int index, const ir::OpRegistry& registry);

}  // namespace sidereal::train
