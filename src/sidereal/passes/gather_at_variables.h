#pragma once

#include "sidereal/base/status.h"
#include "sidereal/ir/schema.h"
#include "sidereal/passes/step_graph.h"

namespace sidereal::passes {

/// Takes rows of variables without reading the rest, so that nobody holds a table while others
/// change it:
///
///   Gather(VariableRead, ids)           -> VariableGather
///   SparseSegmentSum(VariableRead, ids) -> SparseSegmentSum of a VariableGather; Mean and SqrtN
///   too
///
/// Where both run in one place and the first dimension is indexed. A change of the variable that is
/// not ordered before the read is ordered behind the gather, where there is another reader or the
/// read is ordered before it; where that cannot be, the read stays. To be run after
/// expand_lookups() and absorb_casts(), before lay_out_lookups(). Results are the same to the last
/// bit.
/// Source: TensorFlow's ResourceGather.
Result<StepGraph> gather_at_variables(const StepGraph& step, const ir::OpRegistry& registry);

}  // namespace sidereal::passes
