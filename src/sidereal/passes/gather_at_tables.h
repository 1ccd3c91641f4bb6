#pragma once

#include "sidereal/base/status.h"
#include "sidereal/passes/step_graph.h"

namespace sidereal::passes {

/// Puts nodes that take rows of a variable (Gather, SparseSegmentSum, ...) on the device where it
/// is read, when all that other devices want of the value is rows: rows travel then, not tables.
/// Of tables up to 4 KiB it is left to the placement. What is fetched stays.
/// Source: TensorFlow's embedding_lookup, which is colocated with its table.
Result<StepGraph> gather_at_tables(const StepGraph& step);

}  // namespace sidereal::passes
