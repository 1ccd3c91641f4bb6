#pragma once

#include "sidereal/base/status.h"
#include "sidereal/ir/schema.h"
#include "sidereal/passes/step_graph.h"

namespace sidereal::passes {

/// Lays out lookups in tables, of this process or of an expanded graph: rows go from their tables,
/// or from the answers of the ps, to where they are read, and back, without copies on the way.
///
///   Concat or Stack of Gathers of whole rows -> GatherConcat
///   Concat or Stack of GatherParts           -> GatherPartsConcat
///   UpdateRows of a SliceAxis or Unstack, or of a Concat of several -> UpdateJoinedRows
///   SumParts of a SliceAxis or Unstack       -> SumParts with a column
///
/// A Gather takes part when nothing else reads it, it indexes dimension 0, and the joined axis is
/// one of its indices' or the one behind them; extents from that axis on must be known. What is not
/// such a Gather is copied to its place. A gradient is read where it is when its rows are parts of
/// rows of a larger value that are as long as a row of the table. A value that is fetched or
/// ordered by control edges is left as it is. Results are the same to the last bit. To be run after
/// the fuse pass.
Result<StepGraph> lay_out_lookups(const StepGraph& step, const ir::OpRegistry& registry);

}  // namespace sidereal::passes
