#include "sidereal/passes/simplify.h"

#include <cstddef>
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
  if (node.op == "SliceAxis") return from == to && to.shape.is_fully_defined() ? x : Output();
  // Not x + 0: that makes 0 of -0. Nor 0 * x, which may be NaN.
  if (node.op == "Sub") return is_scalar(graph, node.inputs[1], 0) ? x : Output();
  return {};
}

/// Takes pieces of pieces from the whole, and joins what is in a joined value at once.
class Merger {
 public:
  Merger(const StepGraph& step, const std::vector<bool>& pinned)
      : graph_(step.graph), pinned_(pinned), readers_(readers_of(step.graph)) {}

  /// `node`, or what does the same with inputs of its inputs.
  [[nodiscard]] Node merged(const Node& node) const {
    if (node.op == "SliceAxis") return merged_slice(node);
    return node.op == "Concat" ? merged_concat(node) : node;
  }

 private:
  /// The dimension that a node is about, from the front; -1 when the rank is not known.
  [[nodiscard]] static int64_t axis_of(const Node& node) {
    const ir::Shape& shape = node.outputs[0].shape;
    if (!shape.has_rank()) return -1;
    const auto axis = ir::attr_or<int64_t>(node.attrs, "axis", 0);
    return axis < 0 ? axis + shape.rank() : axis;
  }

  /// The node that makes `value` when it does the same as `node` along the same axis.
  [[nodiscard]] const Node* same_below(const Node& node, Output value) const {
    const Node& made = graph_.node(value.node);
    const bool same = made.op == node.op && same_place(made, node) && axis_of(made) >= 0 &&
                      axis_of(made) == axis_of(node);
    return same && !pinned_[made.id.value] ? &made : nullptr;
  }

  [[nodiscard]] Node merged_slice(Node node) const {
    while (const Node* below = same_below(node, node.inputs[0])) {
      // A piece that is not there stays an error.
      const int64_t extent =
          graph_.spec(below->inputs[0]).shape.dim(static_cast<int>(axis_of(node)));
      if (extent < 0) break;
      node.attrs["begin"] = ir::attr_or<int64_t>(node.attrs, "begin", 0) +
                            ir::attr_or<int64_t>(below->attrs, "begin", 0);
      node.inputs = below->inputs;
    }
    return node;
  }

  [[nodiscard]] Node merged_concat(Node node) const {
    for (size_t i = 0; i < node.inputs.size();) {
      const Node* below = same_below(node, node.inputs[i]);
      if (below == nullptr || readers_[below->id.value].size() != 1) {
        ++i;
        continue;
      }
      node.inputs.erase(node.inputs.begin() + static_cast<std::ptrdiff_t>(i));
      node.inputs.insert(node.inputs.begin() + static_cast<std::ptrdiff_t>(i),
                         below->inputs.begin(), below->inputs.end());
    }
    return node;
  }

  const ir::Graph& graph_;
  const std::vector<bool>& pinned_;
  std::vector<std::vector<ir::NodeId>> readers_;
};

}  // namespace

Result<StepGraph> simplify(const StepGraph& step) {
  const std::vector<bool> pinned = pinned_nodes(step);
  const Merger merger(step, pinned);
  Rewriter rewriter(step.graph);
  for (const Node& node : step.graph.nodes()) {
    const Output same = pinned[node.id.value] ? Output() : stands_for(step.graph, node);
    if (same.valid()) {
      rewriter.replace(Output{node.id, 0}, rewriter.map(same));
    } else {
      rewriter.copy(merger.merged(node));
    }
  }
  return prune(rewriter.finish(step));
}

}  // namespace sidereal::passes
