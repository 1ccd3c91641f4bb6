#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/ir/graph.h"

namespace sidereal::passes {

/// The places a plan may use, in numbers only: the plan does not know the cluster.
struct Topology {
  std::vector<int32_t> lanes;  ///< Lanes of each ps task; its size is the number of ps tasks.
  [[nodiscard]] int32_t num_shards() const;
  /// Location of shard `shard`: task-major, lane-minor.
  [[nodiscard]] ir::Location location_of(int32_t shard) const;
  friend bool operator==(const Topology&, const Topology&) = default;
};

/// The rows of an embedding that one shard owns: global row g of task-local index r (g = first + r)
/// lies here iff r % step == phase, at local row r / step.
struct ShardRows {
  ir::Location location;
  int32_t shard = 0;
  int64_t task_first = 0;  ///< First global row of the task ('div' split).
  int64_t task_rows = 0;   ///< Rows of the task.
  int32_t phase = 0;       ///< Lane index within the task.
  int32_t step = 1;        ///< Lanes of the task.
  /// Rows this shard holds.
  [[nodiscard]] int64_t rows() const;
  /// Global row of local row `local`.
  [[nodiscard]] int64_t global_row(int64_t local) const {
    return task_first + local * step + phase;
  }
};

/// Where one variable lives.
struct VariablePlacement {
  std::string variable;
  ir::Location location;          ///< Dense variables.
  std::vector<ShardRows> shards;  ///< Embeddings: one per ps lane, in shard order.
};

/// Where every variable of a graph lives; by variable name.
using Placement = std::map<std::string, VariablePlacement>;

/// The 'div' split of `rows` rows over the tasks, then by lane inside each task: the first
/// rows % tasks tasks hold one row more (TensorFlow's ShardedVariable).
std::vector<ShardRows> split_rows(int64_t rows, const Topology& topology);

/// Places variables: embeddings over all lanes, dense ones greedily by bytes (largest first, ties
/// by name) on the least loaded lane. The same for every caller with equal variables and topology.
Result<Placement> place_variables(const std::vector<ir::VariableDef>& variables,
                                  const Topology& topology);

}  // namespace sidereal::passes
