#include "sidereal/ir/needed.h"

namespace sidereal::ir {

std::vector<bool> needed_for(const Graph& graph, std::span<const Output> outputs,
                             std::span<const NodeId> targets, Edges edges) {
  std::vector<bool> needed(graph.size(), false);
  for (const Output& output : outputs) needed[output.node.value] = true;
  for (const NodeId target : targets) needed[target.value] = true;
  // Every node follows what it depends on, so one walk from the end finds all.
  for (size_t i = graph.size(); i-- > 0;) {
    if (!needed[i]) continue;
    const Node& node = graph.nodes()[i];
    for (const Output& input : node.inputs) needed[input.node.value] = true;
    if (edges == Edges::kData) continue;
    for (const NodeId control : node.control_inputs) needed[control.value] = true;
  }
  return needed;
}

}  // namespace sidereal::ir
