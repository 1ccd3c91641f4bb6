#pragma once

#include <functional>

#include "sidereal/base/status.h"
#include "sidereal/ir/function.h"
#include "sidereal/ir/schema.h"
#include "sidereal/passes/step_graph.h"

namespace sidereal::passes {

/// A pass over one graph or body.
using StepPass = std::function<Result<StepGraph>(const StepGraph&)>;

/// Applies `pass` to the body of every function that `step` holds, directly or not, innermost
/// first and each once, then to the graph itself. A body's fetches are the function's outputs; its
/// targets are the function's. Where shapes of outputs changed, those of callers are inferred
/// again.
Result<StepGraph> apply_everywhere(StepGraph step, const StepPass& pass,
                                   const ir::OpRegistry& registry);

/// Puts functions in the place of the nodes that call them: of a FunctionCall when nothing else in
/// the graph calls the function; of an If whose predicate is a constant. Names get the node's name
/// and a slash in front. Nodes that ask for no device get that of the node.
Result<StepGraph> inline_calls(const StepGraph& step, const ir::OpRegistry& registry);

}  // namespace sidereal::passes
