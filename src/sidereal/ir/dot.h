#pragma once

#include <string>

#include "sidereal/ir/graph.h"

namespace sidereal::ir {

/// How a graph is drawn. Value type.
struct DotOptions {
  std::string title = {};   ///< Above the picture; "" for none.
  bool constants = true;    ///< Draw Const nodes.
  bool functions = true;    ///< Draw the functions that the graph holds, each in a box beside it.
  size_t nodes_max = 5000;  ///< Larger graphs are refused: their picture would be of no use.
};

/// The graph in the DOT language, for Graphviz: nodes with op, name and outputs, filled with the
/// colour of the device they run on (a legend says which is which), edges with dtype and shape,
/// control edges dashed. Variables are named by the nodes that make their handles. The same bytes
/// for equal graphs. kInvalidArgument for a graph of more than `nodes_max` nodes.
Result<std::string> to_dot(const Graph& graph, const DotOptions& options = {});

}  // namespace sidereal::ir
