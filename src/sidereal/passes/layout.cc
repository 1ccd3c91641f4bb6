#include "sidereal/passes/layout.h"

#include <algorithm>

#include "sidereal/base/check.h"
#include "sidereal/tensor/dtype.h"

namespace sidereal::passes {
namespace {

Status check_topology(const Topology& topology) {
  for (size_t task = 0; task < topology.lanes.size(); ++task) {
    if (topology.lanes[task] < 1) {
      return base::invalid_argument("ps task {} has {} lanes; it must have at least one", task,
                                    topology.lanes[task]);
    }
  }
  return {};
}

int64_t bytes_of(const ir::VariableDef& variable) {
  return variable.shape.num_elements() * static_cast<int64_t>(tensor::size_of(variable.dtype));
}

Status check_variable(const ir::VariableDef& variable) {
  if (!variable.shape.is_fully_defined()) {
    return base::invalid_argument("variable '{}' has shape {}; every extent must be known",
                                  variable.name, variable.shape.to_string());
  }
  if (variable.embedding && variable.shape.rank() != 2) {
    return base::invalid_argument("embedding '{}' has shape {}; it must be [rows, dim]",
                                  variable.name, variable.shape.to_string());
  }
  return {};
}

}  // namespace

int32_t Topology::num_shards() const {
  int32_t shards = 0;
  for (const int32_t count : lanes) shards += count;
  return shards;
}

ir::Location Topology::location_of(int32_t shard) const {
  SR_CHECK(shard >= 0);
  for (size_t task = 0; task < lanes.size(); ++task) {
    if (shard < lanes[task]) return {static_cast<int32_t>(task), shard};
    shard -= lanes[task];
  }
  SR_CHECK(false, "shard is not below {}", num_shards());
  return {};
}

int64_t ShardRows::rows() const {
  return task_rows > phase ? (task_rows - phase + step - 1) / step : 0;
}

std::vector<ShardRows> split_rows(int64_t rows, const Topology& topology) {
  std::vector<ShardRows> out;
  const auto tasks = static_cast<int64_t>(topology.lanes.size());
  int64_t first = 0;
  for (int64_t task = 0; task < tasks; ++task) {
    const int64_t task_rows = rows / tasks + (task < rows % tasks ? 1 : 0);
    const int32_t lanes = topology.lanes[task];
    for (int32_t lane = 0; lane < lanes; ++lane) {
      ShardRows shard;
      shard.location = {static_cast<int32_t>(task), lane};
      shard.shard = static_cast<int32_t>(out.size());
      shard.task_first = first;
      shard.task_rows = task_rows;
      shard.phase = lane;
      shard.step = lanes;
      out.push_back(shard);
    }
    first += task_rows;
  }
  return out;
}

Result<Placement> place_variables(const std::vector<ir::VariableDef>& variables,
                                  const Topology& topology) {
  SR_RETURN_IF_ERROR(check_topology(topology));
  Placement placement;
  if (variables.empty()) return placement;
  if (topology.lanes.empty()) {
    return base::failed_precondition(
        "the graph has {} variables but the cluster has no ps task to hold them", variables.size());
  }
  std::vector<const ir::VariableDef*> dense;
  for (const ir::VariableDef& variable : variables) {
    SR_RETURN_IF_ERROR(check_variable(variable));
    VariablePlacement place;
    place.variable = variable.name;
    if (variable.embedding) {
      place.shards = split_rows(variable.shape.dim(0), topology);
      place.location = place.shards[0].location;
    } else {
      dense.push_back(&variable);
    }
    if (!placement.emplace(variable.name, std::move(place)).second) {
      return base::already_exists("variable '{}' is declared twice", variable.name);
    }
  }
  std::sort(dense.begin(), dense.end(), [](const auto* a, const auto* b) {
    if (bytes_of(*a) != bytes_of(*b)) return bytes_of(*a) > bytes_of(*b);
    return a->name < b->name;
  });
  std::vector<int64_t> load(topology.num_shards(), 0);
  for (const ir::VariableDef* variable : dense) {
    const auto least = std::min_element(load.begin(), load.end());
    *least += std::max<int64_t>(bytes_of(*variable), 1);
    placement[variable->name].location =
        topology.location_of(static_cast<int32_t>(least - load.begin()));
  }
  return placement;
}

}  // namespace sidereal::passes
