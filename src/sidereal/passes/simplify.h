#pragma once

#include "sidereal/base/status.h"
#include "sidereal/passes/step_graph.h"

namespace sidereal::passes {

/// Lets readers of a node that changes nothing read its input: Identity, StopGradient, x * 1,
/// x / 1, x - 0, -(-x), a cast to the same dtype, a reshape to the same shape, a slice of all, AddN
/// of one; takes slices of slices from the whole, and joins at once what is joined twice. Only
/// where the result is the same to the last bit. Nodes that are fetched or ordered by control edges
/// stay. To be run after gradients were taken.
Result<StepGraph> simplify(const StepGraph& step);

}  // namespace sidereal::passes
