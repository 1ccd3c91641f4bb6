#pragma once

#include <span>
#include <vector>

#include "sidereal/ir/graph.h"

namespace sidereal::ir {

/// Which edges of a graph are followed.
enum class Edges : uint8_t { kAll, kData };

/// By node: whether it is among `outputs` and `targets`, which are nodes of the graph, or one of
/// them depends on it.
std::vector<bool> needed_for(const Graph& graph, std::span<const Output> outputs,
                             std::span<const NodeId> targets = {}, Edges edges = Edges::kAll);

}  // namespace sidereal::ir
