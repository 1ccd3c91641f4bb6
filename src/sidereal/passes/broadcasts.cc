#include "sidereal/passes/broadcasts.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "sidereal/passes/internal/rewrite.h"
#include "sidereal/passes/prune.h"

namespace sidereal::passes {
namespace {

using ir::Node;
using ir::NodeId;
using ir::Output;

bool is_broadcasting(const Node& node) {
  constexpr std::array<std::string_view, 6> kOps = {"Add", "Sub",     "Mul",
                                                    "Div", "Maximum", "Minimum"};
  return node.inputs.size() == 2 && std::find(kOps.begin(), kOps.end(), node.op) != kOps.end();
}

/// What `value` was before it was broadcast to the shape that `other` is sure to have; or `value`.
Output before_broadcast(const ir::Graph& graph, Output value, Output other) {
  const Node& made = graph.node(value.node);
  const bool is_like = made.op == "BroadcastLike";
  if (!is_like && made.op != "BroadcastTo") return value;
  const Node& beside = graph.node(other.node);
  if (beside.op == "BroadcastTo" || beside.op == "BroadcastLike") return value;
  bool is_same =
      graph.spec(other).shape == made.outputs[0].shape && made.outputs[0].shape.is_fully_defined();
  if (is_like) is_same = is_same || made.inputs[1] == other;
  if (!is_like && made.inputs.size() == 2) {
    const Node& shape = graph.node(made.inputs[1].node);
    is_same = is_same || (shape.op == "Shape" && shape.inputs[0] == other);
  }
  return is_same ? made.inputs[0] : value;
}

}  // namespace

Result<StepGraph> drop_broadcasts(const StepGraph& step, const ir::OpRegistry& registry) {
  const ir::Graph& graph = step.graph;
  Rewriter rewriter(graph);
  for (const Node& node : graph.nodes()) {
    const bool looks = is_broadcasting(node);
    const Output a = looks ? before_broadcast(graph, node.inputs[0], node.inputs[1]) : Output();
    const Output b = looks ? before_broadcast(graph, node.inputs[1], node.inputs[0]) : Output();
    if (!looks || (a == node.inputs[0] && b == node.inputs[1])) {
      rewriter.copy(node);
      continue;
    }
    Node made = node;
    made.outputs.clear();
    made.inputs = rewriter.map({a, b});
    made.control_inputs = rewriter.map(node.control_inputs);
    SR_ASSIGN_OR_RETURN(const NodeId id, rewriter.add_as(std::move(made), registry));
    rewriter.replace(node.id, id);
  }
  return prune(rewriter.finish(step));
}

}  // namespace sidereal::passes
