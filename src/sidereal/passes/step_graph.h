#pragma once

#include <vector>

#include "sidereal/ir/graph.h"

namespace sidereal::passes {

/// A graph and what one step takes from it. Value type.
struct StepGraph {
  ir::Graph graph;
  std::vector<ir::Output> fetches;  ///< Values to give back, in the caller's order.
  std::vector<ir::NodeId> targets;  ///< Nodes to run for what they do.
};

}  // namespace sidereal::passes
