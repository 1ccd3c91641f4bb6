#pragma once

#include "sidereal/base/status.h"
#include "sidereal/ir/schema.h"
#include "sidereal/passes/step_graph.h"

namespace sidereal::passes {

/// Makes one FusedElementwise node of element-wise nodes and sums that only read one another and
/// have one device and shape, as far as shapes are known; and one FusedMatMul node of MatMul,
/// BiasAdd and, if it follows, Relu. A value that is fetched, read twice over, or ordered by
/// control edges is left as it is. Results are the same to the last bit. To be run after gradients
/// were taken.
Result<StepGraph> fuse(const StepGraph& step, const ir::OpRegistry& registry);

}  // namespace sidereal::passes
