#pragma once

#include "sidereal/base/status.h"
#include "sidereal/ir/schema.h"
#include "sidereal/passes/step_graph.h"

namespace sidereal::passes {

/// Lets ops that broadcast by themselves (Add, Sub, Mul, Div, Maximum, Minimum) read what a
/// BroadcastTo or BroadcastLike read, where the other input is sure to have the broadcast shape.
/// Results are the same to the last bit. To be run after gradients were taken, and before fuse.
Result<StepGraph> drop_broadcasts(const StepGraph& step, const ir::OpRegistry& registry);

}  // namespace sidereal::passes
