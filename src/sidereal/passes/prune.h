#pragma once

#include "sidereal/base/status.h"
#include "sidereal/passes/step_graph.h"

namespace sidereal::passes {

/// Keeps the nodes that the fetches and targets need, through data and control edges, in their old
/// order; in a function's body, its inputs stay too. All variables stay: where one lives must not
/// depend on what a step fetches. kInvalidArgument names a fetch or target that is not in the
/// graph.
Result<StepGraph> prune(const StepGraph& step);

}  // namespace sidereal::passes
