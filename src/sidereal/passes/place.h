#pragma once

#include "sidereal/base/status.h"
#include "sidereal/ir/graph.h"
#include "sidereal/ir/schema.h"
#include "sidereal/passes/layout.h"

namespace sidereal::passes {

/// Sets Node::location of every node, in bodies of functions too: an op that runs on a ps goes
/// where its variable (attribute "var", and "shard" for embeddings) lives, everything else to the
/// worker. Devices are not looked at: place_devices() is for sessions.
Status place(ir::Graph* graph, const Placement& placement, const ir::OpRegistry& registry);

}  // namespace sidereal::passes
