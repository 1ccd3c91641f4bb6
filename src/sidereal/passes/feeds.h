#pragma once

#include <vector>

#include "sidereal/ir/graph.h"

namespace sidereal::passes {

/// A graph whose feeds are Placeholders, and what is asked of it. Value type.
struct FedGraph {
  ir::Graph graph;
  std::vector<ir::Output> feeds;  ///< Outputs of Placeholder nodes, in the order they were given.
  std::vector<ir::Output> fetches;
  std::vector<ir::NodeId> targets;
};

/// Puts a Placeholder in the place of each of `feeds` that is none: what reads it, `fetches` too,
/// reads what is fed. Nodes that wait for its node by a control edge still do, as in TensorFlow's
/// direct sessions (core/graph/subgraph.cc). kInvalidArgument when a value is fed twice.
Result<FedGraph> cut_at_feeds(const ir::Graph& graph, const std::vector<ir::Output>& feeds,
                              const std::vector<ir::Output>& fetches,
                              const std::vector<ir::NodeId>& targets);

}  // namespace sidereal::passes
