#pragma once

#include "sidereal/base/status.h"
#include "sidereal/ir/graph.h"
#include "sidereal/ir/schema.h"
#include "sidereal/passes/layout.h"

namespace sidereal::passes {

/// Sets Node::location of every node: an op that runs on a ps goes where its variable (attribute
/// "var", and "shard" for embeddings) lives, everything else to the worker. Understands the devices
/// "", "/job:worker..." and "/job:ps..."; another device is kInvalidArgument naming the node and
/// it. A node whose function uses a variable of a ps is kUnimplemented, naming both. A device never
/// moves a node away from its variable (TensorFlow's soft placement).
Status place(ir::Graph* graph, const Placement& placement, const ir::OpRegistry& registry);

}  // namespace sidereal::passes
