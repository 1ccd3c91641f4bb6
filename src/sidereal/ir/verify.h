#pragma once

#include "sidereal/ir/graph.h"
#include "sidereal/ir/schema.h"

namespace sidereal::ir {

/// Checks a whole graph: names legal and unique, ops known, edges to earlier nodes and existing
/// outputs, attributes and shapes as the schemas say, variables named by "var" declared.
/// The message names the node and prints it. Ok for every graph a Builder made.
Status verify(const Graph& graph, const OpRegistry& registry);

}  // namespace sidereal::ir
