#pragma once

#include "sidereal/base/status.h"
#include "sidereal/ir/schema.h"
#include "sidereal/passes/step_graph.h"

namespace sidereal::passes {

/// Makes rows of a table travel once: where one device has the ids and another one the variable,
/// ids are made unique and routed on the first, rows are gathered and updated by distinct ids on
/// the second, and the first puts rows in their places and sums the gradients of equal ids.
///
///   Gather(VariableRead, ids) -> Unique, Route on the device of the ids; Gather at the table;
///                                GatherParts on the device of the ids
///   VariableUpdateRows(ids, values) -> the same Unique and Route; SumParts on the device of the
///                                ids; VariableUpdateRows by distinct ids at the table
///
/// All look-ups and updates by one value of ids, under whatever shape, share its Unique and, for
/// tables of equally many rows, its Route; unite_routes() makes one node of them. Takes part: a
/// float32 table [rows, dim] of known extents whose ids are made on another device, for a Gather
/// where that device alone reads the rows, for an update where it makes the gradients. To be run
/// after gather_at_tables(). Of up to 128 ids, as far as that is known, all are sent: that is
/// cheaper. Results are the same to the last bit; an id outside the table is
/// kInvalidArgument on the device of the ids, and then nothing was sent.
/// Source: TensorFlow's embedding_lookup_sparse, which looks up unique ids.
Result<StepGraph> expand_lookups(const StepGraph& step, const ir::OpRegistry& registry);

}  // namespace sidereal::passes
