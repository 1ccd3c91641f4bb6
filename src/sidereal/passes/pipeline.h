#pragma once

#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/ir/graph.h"
#include "sidereal/ir/schema.h"
#include "sidereal/passes/fold.h"
#include "sidereal/passes/layout.h"
#include "sidereal/passes/step_graph.h"

namespace sidereal::passes {

/// A graph ready to be partitioned, and where its variables live.
struct Plan : StepGraph {
  Placement placement;
};

/// What the passes may do.
struct PassOptions {
  bool fuse = true;             ///< Make one node of several; off to see a graph as it was made.
  Evaluate evaluate = nullptr;  ///< Folds constants; without it they are left alone.
};

/// Prune, inline, place, expand, simplify, fold, merge, fuse; bodies of functions too. The result
/// is verified; `graph` is left as it is. The same inputs give the same plan on every machine.
Result<Plan> run_passes(const ir::Graph& graph, const std::vector<ir::Output>& fetches,
                        const std::vector<ir::NodeId>& targets, const Topology& topology,
                        const ir::OpRegistry& registry, const PassOptions& options = {});

}  // namespace sidereal::passes
