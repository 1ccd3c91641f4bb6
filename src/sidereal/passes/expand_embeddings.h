#pragma once

#include "sidereal/base/status.h"
#include "sidereal/ir/schema.h"
#include "sidereal/passes/step_graph.h"

namespace sidereal::passes {

/// Makes ids of tables that lie in parts unique once and sends each row once, where the parts are:
///
///   EmbeddingLookup(ids)            -> Unique, Route where the look-up is; Gather at each part;
///                                      GatherParts where the look-up is
///   EmbeddingUpdate(ids, gradients) -> the same Unique and Route; SumParts; VariableUpdateRows at
///                                      each part; NoOp
///   EmbeddingAccumulate(ids, gradients) -> the same, with AccumulatorApply at each part
///
/// There is one Unique for a value of ids and one Route for it and a number of rows and parts, so a
/// look-up and its update share them, and so do tables of one size. The last node of each rewrite
/// keeps the name of the node it stands for. An id outside the table is kInvalidArgument where
/// the look-up is, and then nothing was sent. Of a step whose devices are known.
Result<StepGraph> expand_embeddings(const StepGraph& step, const ir::OpRegistry& registry);

}  // namespace sidereal::passes
