#pragma once

#include "sidereal/base/status.h"
#include "sidereal/ir/schema.h"
#include "sidereal/passes/layout.h"
#include "sidereal/passes/step_graph.h"

namespace sidereal::passes {

/// Rewrites a placed graph so that embeddings are read and updated shard by shard:
///
///   Lookup(ids)             -> Unique, Route, one ShardGather per shard, GatherParts
///   ApplySparse(ids, grads) -> Unique, Route, SumParts, one ShardApply per shard, NoOp
///
/// There is one Unique per ids tensor and one Route per (ids tensor, number of rows), so a Lookup
/// and its ApplySparse share them, and so do tables of one size. The last node of each rewrite
/// keeps the name of the node it stands for. kInvalidArgument names a node whose variable is not
/// an embedding.
Result<StepGraph> expand(const StepGraph& step, const Topology& topology,
                         const Placement& placement, const ir::OpRegistry& registry);

}  // namespace sidereal::passes
