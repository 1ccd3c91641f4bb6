#pragma once

#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/ir/graph.h"
#include "sidereal/ir/schema.h"
#include "sidereal/passes/layout.h"
#include "sidereal/passes/step_graph.h"

namespace sidereal::passes {

/// A graph ready to be partitioned, and where its variables live.
struct Plan : StepGraph {
  Placement placement;
};

/// Prune, inline, place, expand, merge; bodies of functions too. The result is verified; `graph` is
/// left as it is. The same inputs give the same plan on every machine.
Result<Plan> run_passes(const ir::Graph& graph, const std::vector<ir::Output>& fetches,
                        const std::vector<ir::NodeId>& targets, const Topology& topology,
                        const ir::OpRegistry& registry);

}  // namespace sidereal::passes
