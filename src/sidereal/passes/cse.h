#pragma once

#include "sidereal/base/status.h"
#include "sidereal/ir/schema.h"
#include "sidereal/passes/step_graph.h"

namespace sidereal::passes {

/// Keeps the first of all stateless nodes with the same op, attributes but for notes, inputs,
/// control inputs and device; the others' readers read it. Placeholders stay: their names are the
/// caller's.
Result<StepGraph> merge_common_subexpressions(const StepGraph& step,
                                              const ir::OpRegistry& registry);

}  // namespace sidereal::passes
