#include "sidereal/passes/simplify.h"

#include <vector>

#include "sidereal/passes/internal/rewrite.h"
#include "sidereal/passes/prune.h"

namespace sidereal::passes {
namespace {

using ir::Node;
using ir::Output;

/// True when `value` is a scalar constant equal to `number`.
bool is_scalar(const ir::Graph& graph, Output value, double number) {
  const Node& node = graph.node(value.node);
  const ir::Tensor* t = ir::find_attr<ir::Tensor>(node.attrs, "value");
  if (node.op != "Const" || t == nullptr || t->shape().rank() != 0) return false;
  if (t->dtype() == ir::DType::kFloat32) {
    return static_cast<double>(t->data<const float>()[0]) == number;
  }
  return t->dtype() == ir::DType::kFloat64 && t->data<const double>()[0] == number;
}

/// The value that stands for `node`'s only output, or none.
Output stands_for(const ir::Graph& graph, const Node& node) {
  if (node.outputs.size() != 1 || node.inputs.empty()) return {};
  const Output x = node.inputs[0];
  const ir::TensorSpec& from = graph.spec(x);
  const ir::TensorSpec& to = node.outputs[0];
  if (node.op == "Identity" || node.op == "StopGradient") return x;
  if (node.op == "AddN" && node.inputs.size() == 1) return x;
  if (node.op == "Cast" && from.dtype == to.dtype) return x;
  if (node.op == "Reshape" || node.op == "ReshapeLike") {
    return from == to && to.shape.is_fully_defined() ? x : Output();
  }
  if (node.op == "Neg") {
    const Node& inner = graph.node(x.node);
    return inner.op == "Neg" ? inner.inputs[0] : Output();
  }
  if (node.op == "Mul") {
    if (is_scalar(graph, node.inputs[1], 1)) return x;
    return is_scalar(graph, x, 1) ? node.inputs[1] : Output();
  }
  if (node.op == "Div") return is_scalar(graph, node.inputs[1], 1) ? x : Output();
  // Not x + 0: that makes 0 of -0. Nor 0 * x, which may be NaN.
  if (node.op == "Sub") return is_scalar(graph, node.inputs[1], 0) ? x : Output();
  return {};
}

}  // namespace

Result<StepGraph> simplify(const StepGraph& step) {
  const std::vector<bool> pinned = pinned_nodes(step);
  Rewriter rewriter(step.graph);
  for (const Node& node : step.graph.nodes()) {
    const Output same = pinned[node.id.value] ? Output() : stands_for(step.graph, node);
    if (same.valid()) {
      rewriter.replace(Output{node.id, 0}, rewriter.map(same));
    } else {
      rewriter.copy(node);
    }
  }
  return prune(rewriter.finish(step));
}

}  // namespace sidereal::passes
