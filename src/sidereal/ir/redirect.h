#pragma once

#include <map>
#include <string>
#include <vector>

#include "sidereal/ir/graph.h"

namespace sidereal::ir {

/// Nodes that are to use other variables than those they were built with: copies on a worker, say,
/// in the places of what lies on parameter servers.
struct Redirect {
  std::vector<NodeId> nodes;  ///< Of handles among them nothing changes.
  /// By the node of a variable's handle, the node of that which `nodes` use instead. These have no
  /// inputs, and wait for nothing.
  std::map<NodeId, NodeId> handles;
  /// Where those of `nodes` run that were to run beside one of `handles`.
  std::string device;
};

/// The graph with nodes redirected. All keep their names; the handles used instead come first, so
/// that numbers change. A graph that has grown since has the same beginning.
/// Errors: kInvalidArgument for a number that the graph has not, a handle that cannot come first,
/// and for a node that gives a handle to a body, which is not redirected.
Result<Graph> redirected(const Graph& graph, const Redirect& redirect);

}  // namespace sidereal::ir
