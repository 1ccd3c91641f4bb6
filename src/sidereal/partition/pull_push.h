#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/ir/graph.h"
#include "sidereal/ir/schema.h"

namespace sidereal::partition {

/// What one call runs on one ps lane. Its inputs are the `Arg` nodes, its results the `Ret` nodes,
/// both numbered by their "index" attribute from 0 on without gaps.
struct RemoteGraph {
  ir::Location location;
  int32_t level = 0;  ///< Round of the step in which it runs, from 1.
  ir::Graph graph;
};

/// One step cut into the worker's graph and the graphs it calls.
struct PartitionedGraph {
  ir::Graph worker;                      ///< Holds one `Call` node per remote graph.
  std::vector<RemoteGraph> remotes;      ///< By the "call" attribute of the `Call` nodes.
  std::vector<ir::Output> fetches;       ///< In the worker's graph, in the caller's order.
  std::vector<ir::NodeId> targets;       ///< In the worker's graph.
  std::vector<std::string> fetch_names;  ///< What the caller called the fetches.
};

/// Cuts a placed, expanded graph for a worker that drives every ps by calls, by layers.
///
/// The level of a ps node is the number of worker-to-ps alternations on the longest path to it, at
/// least 1; control edges count like data edges. All nodes of one location and one level form one
/// call, so calls cannot wait for each other in a circle and the number of rounds is the least
/// possible. What one ps makes and another, or a later level of the same one, needs goes through
/// the worker: nothing is kept on a ps between calls.
///
/// Order promised: along data and control edges only. Within a call, nodes run in the order of the
/// graph. Equal graphs give equal remote graphs on every worker.
/// kInvalidArgument names a fetch, target or node that cannot be partitioned.
Result<PartitionedGraph> pull_push_by_layers(const ir::Graph& placed,
                                             const std::vector<ir::Output>& fetches,
                                             const std::vector<ir::NodeId>& targets,
                                             const ir::OpRegistry& registry);

/// For people: rounds, and for each location its calls with their nodes, feeds and fetches.
std::string summary(const PartitionedGraph& partitioned);

}  // namespace sidereal::partition
