#include "sidereal/passes/fold.h"

#include <optional>
#include <utility>

#include "sidereal/passes/internal/rewrite.h"
#include "sidereal/passes/prune.h"
#include "sidereal/tensor/strings.h"

namespace sidereal::passes {
namespace {

using ir::Node;
using ir::Output;
using ir::Tensor;

const Tensor* constant_of(const ir::Graph& graph, Output value) {
  const Node& node = graph.node(value.node);
  return node.op == "Const" ? ir::find_attr<Tensor>(node.attrs, "value") : nullptr;
}

/// What the graph would hold, the bytes of strings included.
size_t bytes_of(const Tensor& t) {
  return t.nbytes() + (t.dtype() == ir::DType::kString ? tensor::string_bytes(t) : 0);
}

/// The constant that `node` is, or nothing. `inputs` are those of the new graph.
std::optional<Tensor> value_of(const Node& node, const std::vector<Output>& inputs,
                               const ir::Graph& graph, const Evaluate& evaluate) {
  std::vector<Tensor> values;
  for (const Output& input : inputs) {
    const Tensor* value = constant_of(graph, input);
    if (value == nullptr) return std::nullopt;
    values.push_back(*value);
  }
  Result<std::vector<Tensor>> made = evaluate(node, values);
  if (!made.ok() || made->size() != 1) return std::nullopt;
  Tensor& result = made->front();
  const bool good = result.defined() && bytes_of(result) <= kFoldedBytesMax &&
                    result.dtype() == node.outputs[0].dtype &&
                    node.outputs[0].shape.accepts(result.shape());
  return good ? std::optional(std::move(result)) : std::nullopt;
}

bool is_candidate(const Node& node, const ir::OpSchema& schema) {
  if (schema.stateful || node.inputs.empty()) return false;
  if (node.outputs.size() != 1 || !node.control_inputs.empty()) return false;
  // Taking memory for a large result to find that it is too large would be a poor bargain.
  const ir::TensorSpec& out = node.outputs[0];
  return out.shape.is_fully_defined() &&
         static_cast<size_t>(out.shape.num_elements()) * tensor::size_of(out.dtype) <=
             kFoldedBytesMax;
}

}  // namespace

Result<StepGraph> fold_constants(const StepGraph& step, const ir::OpRegistry& registry,
                                 const Evaluate& evaluate) {
  Rewriter rewriter(step.graph);
  for (const Node& node : step.graph.nodes()) {
    const ir::OpSchema* schema = registry.find(node.op);
    if (schema == nullptr) {
      return base::not_found("node '{}': there is no op named '{}'", node.name, node.op);
    }
    std::optional<Tensor> value;
    if (is_candidate(node, *schema)) {
      value = value_of(node, rewriter.map(node.inputs), rewriter.graph(), evaluate);
    }
    if (!value.has_value()) {
      rewriter.copy(node);
      continue;
    }
    Node constant;
    constant.op = "Const";
    constant.name = node.name;
    put_beside(node, &constant);
    constant.attrs = {{"value", *std::move(value)}};
    SR_ASSIGN_OR_RETURN(const ir::NodeId id, rewriter.add_as(std::move(constant), registry));
    rewriter.replace(node.id, id);
  }
  return prune(rewriter.finish(step));
}

}  // namespace sidereal::passes
