#include "sidereal/eager/gradient_plan.h"

#include <map>
#include <string>
#include <utility>

#include "sidereal/ir/builder.h"

namespace sidereal::eager {
namespace {

using ir::Node;
using ir::NodeId;
using ir::Output;

/// A node of a value from outside.
Output source(ir::Graph* graph, const std::string& name, const ir::TensorSpec& spec) {
  Node node;
  node.op = "Placeholder";
  node.name = name;
  node.outputs = {spec};
  return {graph->append(std::move(node)), 0};
}

/// Builds one plan: the op between placeholders, its rule's nodes after it, then the list of those.
/// Thread: core-local.
class Planner {
 public:
  Planner(const ir::OpRegistry& registry, GradientPlan* plan) : registry_(registry), plan_(*plan) {}

  Status run(const std::vector<ir::TensorSpec>& outputs, const std::vector<bool>& reached,
             const std::vector<bool>& wanted, std::string_view named) {
    SR_RETURN_IF_ERROR(add_forward(outputs));
    for (size_t i = 0; i < outputs.size(); ++i) {
      const Output dy = source(&graph_, "dy" + std::to_string(i), outputs[i]);
      value_[dy] = plan_.num_values++;
      output_grads_.push_back(reached[i] ? dy : Output{});
    }
    const auto first = static_cast<int32_t>(graph_.size());
    SR_RETURN_IF_ERROR(apply_rule(named));
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (!wanted[i]) input_grads_[i] = {};
    }
    find_sparse();
    mark_needed(first);
    for (int32_t i = first; i < static_cast<int32_t>(graph_.size()); ++i) {
      if (needed_[i]) list(graph_.node(NodeId(i)));
    }
    for (size_t i = 0; i < input_grads_.size(); ++i) {
      const Output grad = input_grads_[i];
      plan_.grads.push_back(grad.valid() && plan_.sparse[i].to_dense == nullptr ? value_.at(grad)
                                                                                : -1);
      if (plan_.sparse[i].to_dense == nullptr) continue;
      const Node& scatter = graph_.node(grad.node);
      plan_.sparse[i].values = value_.at(scatter.inputs[0]);
      plan_.sparse[i].indices = value_.at(scatter.inputs[1]);
    }
    return {};
  }

 private:
  Status add_forward(const std::vector<ir::TensorSpec>& outputs) {
    Node node;
    for (size_t i = 0; i < plan_.key.inputs.size(); ++i) {
      node.inputs.push_back(source(&graph_, "x" + std::to_string(i), plan_.key.inputs[i]));
      value_[node.inputs.back()] = plan_.num_values++;
    }
    node.op = plan_.key.schema->name;
    node.name = "op";
    node.attrs = plan_.key.attrs;
    SR_RETURN_IF_ERROR(ir::infer_node(graph_, *plan_.key.schema, &node));
    for (const ir::TensorSpec& inferred : node.outputs) {
      if (!inferred.shape.is_fully_defined()) plan_.reusable = false;
    }
    // What came out is known better than what was inferred.
    node.outputs = outputs;
    forward_ = graph_.append(std::move(node));
    for (size_t i = 0; i < outputs.size(); ++i) {
      value_[{forward_, static_cast<int32_t>(i)}] = plan_.num_values++;
    }
    return {};
  }

  Status apply_rule(std::string_view named) {
    const ir::OpSchema& schema = *plan_.key.schema;
    if (!schema.differentiable || schema.gradient == nullptr) {
      return base::unimplemented(
          "{} lies between the target and what it is differentiated by, and {} has no gradient; "
          "use sidereal.stop_gradient before or after it if none should flow",
          named, schema.name);
    }
    ir::Builder builder(&graph_, &registry_);
    const Node node = graph_.node(forward_);
    input_grads_.assign(node.inputs.size(), {});
    ir::GradContext context{builder, node, output_grads_, &input_grads_};
    Status status = schema.gradient(context);
    if (status.ok()) status = builder.status();
    return base::with_context(status, fmt::format("gradient of {}", named));
  }

  /// Gradients that are rows scattered into zeros stay rows.
  void find_sparse() {
    plan_.sparse.resize(input_grads_.size());
    for (size_t i = 0; i < input_grads_.size(); ++i) {
      if (!input_grads_[i].valid()) continue;
      const Node& node = graph_.node(input_grads_[i].node);
      if (!is_row_scatter(node) || node.inputs[2] != graph_.node(forward_).inputs[i]) continue;
      plan_.sparse[i].to_dense = registry_.find(node.op);
      plan_.sparse[i].attrs = node.attrs;
    }
  }

  /// GatherGrad(dy, indices, like) along dimension 0.
  static bool is_row_scatter(const Node& node) {
    return node.op == "GatherGrad" && node.inputs.size() == 3 &&
           ir::attr_or<int64_t>(node.attrs, "axis", 0) == 0 &&
           ir::attr_or<int64_t>(node.attrs, "batch_dims", 0) == 0;
  }

  void mark_needed(int32_t first) {
    needed_.assign(graph_.size(), false);
    for (size_t i = 0; i < input_grads_.size(); ++i) {
      if (!input_grads_[i].valid()) continue;
      const Node& node = graph_.node(input_grads_[i].node);
      if (plan_.sparse[i].to_dense == nullptr) {
        needed_[node.id.value] = true;
      } else {
        needed_[node.inputs[0].node.value] = true;
        needed_[node.inputs[1].node.value] = true;
      }
    }
    for (auto i = static_cast<int32_t>(graph_.size()) - 1; i >= first; --i) {
      if (!needed_[i]) continue;
      for (const Output& input : graph_.node(NodeId(i)).inputs) needed_[input.node.value] = true;
    }
  }

  void list(const Node& node) {
    const int32_t at = plan_.num_values;
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      value_[{node.id, static_cast<int32_t>(o)}] = plan_.num_values++;
    }
    if (const auto* tensor = ir::find_attr<ir::Tensor>(node.attrs, "value");
        node.op == "Const" && tensor != nullptr) {
      plan_.constants.push_back({at, *tensor});
      return;
    }
    GradientPlan::Op op{.schema = registry_.find(node.op),
                        .attrs = node.attrs,
                        .inputs = {},
                        .first_output = at,
                        .num_outputs = static_cast<int32_t>(node.outputs.size())};
    for (const Output& input : node.inputs) op.inputs.push_back(value_.at(input));
    plan_.ops.push_back(std::move(op));
  }

  const ir::OpRegistry& registry_;
  GradientPlan& plan_;
  ir::Graph graph_;
  NodeId forward_;
  std::vector<Output> output_grads_;
  std::vector<Output> input_grads_;
  std::vector<bool> needed_;
  std::map<Output, int32_t> value_;
};

}  // namespace

Result<std::unique_ptr<GradientPlan>> make_gradient_plan(
    const ir::OpRegistry& registry, CallKey key, const std::vector<ir::TensorSpec>& outputs,
    const std::vector<bool>& reached, const std::vector<bool>& wanted, std::string_view named) {
  auto plan = std::make_unique<GradientPlan>();
  plan->key = std::move(key);
  SR_RETURN_IF_ERROR(Planner(registry, plan.get()).run(outputs, reached, wanted, named));
  return plan;
}

}  // namespace sidereal::eager
