#include "sidereal/autodiff/internal/body_gradient.h"

#include <algorithm>
#include <array>
#include <memory>
#include <set>
#include <string_view>
#include <utility>

#include "sidereal/autodiff/autodiff.h"
#include "sidereal/autodiff/internal/control_flow.h"
#include "sidereal/ops/ops.h"

namespace sidereal::autodiff {

using ir::CutInput;
using ir::FunctionPtr;
using ir::Node;
using ir::NodeId;
using ir::Output;

std::vector<bool> reached_outputs(const ir::Function& function, const std::vector<bool>& from) {
  const ir::Graph& body = function.body();
  std::vector<bool> reached(body.size(), false);
  for (size_t i = 0; i < function.num_inputs(); ++i) {
    reached[i] = from[i] && is_differentiable(function.input(i).dtype);
  }
  for (const Node& node : body.nodes()) {
    for (const Output& input : node.inputs) {
      if (reached[input.node.value] && is_differentiable(body.spec(input).dtype)) {
        reached[node.id.value] = true;
      }
    }
  }
  std::vector<bool> out;
  for (const Output& output : function.outputs()) {
    out.push_back(reached[output.node.value] && is_differentiable(body.spec(output).dtype));
  }
  return out;
}

Status BodyGradient::run(const std::vector<bool>& wanted, const std::vector<bool>& given) {
  std::vector<Output> args;
  for (size_t i = 0; i < function_->num_inputs(); ++i) {
    SR_ASSIGN_OR_RETURN(args.emplace_back(), ir::add_arg(&graph_, registry_, function_->input(i),
                                                         function_->body().nodes()[i].name));
  }
  SR_ASSIGN_OR_RETURN(forward_, ir::inline_function(*function_, args, registry_, "", &graph_));
  forward_end_ = static_cast<int32_t>(graph_.size());
  for (const Node& node : graph_.nodes()) {
    if (is_control_flow(node.op)) control_nodes_.push_back(node);
  }
  builder_ = std::make_unique<ir::Builder>(&graph_, &registry_);
  output_grads_.resize(function_->num_outputs());
  std::vector<Output> ys;
  std::vector<Output> grad_ys;
  for (size_t i = 0; i < output_grads_.size(); ++i) {
    if (!given[i]) continue;
    SR_ASSIGN_OR_RETURN(output_grads_[i], add_input(graph_.spec(forward_.outputs[i])));
    ys.push_back(forward_.outputs[i]);
    grad_ys.push_back(output_grads_[i]);
  }
  std::vector<Output> xs;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i]) xs.push_back(args[i]);
  }
  SR_ASSIGN_OR_RETURN(const std::vector<Output> grads, gradients(*builder_, ys, grad_ys, xs));
  input_grads_.resize(wanted.size());
  size_t at = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i]) input_grads_[i] = grads[at++];
  }
  return {};
}

Output BodyGradient::zeros_like_input(size_t i) {
  const ir::TensorSpec& spec = graph_.spec(input(i));
  if (spec.shape.is_fully_defined()) {
    return ops::constant(*builder_, ir::Tensor::zeros(spec.dtype, spec.shape), "zeros");
  }
  return ops::zeros_like(*builder_, input(i));
}

Result<Output> BodyGradient::add_input(const ir::TensorSpec& spec) {
  return ir::add_arg(&graph_, registry_, spec, "grad");
}

bool BodyGradient::is_record(const Node& node) const {
  constexpr std::array<std::string_view, 3> kDear = {"MatMul", "Conv2D", "DepthwiseConv2D"};
  if (std::find(kDear.begin(), kDear.end(), node.op) != kDear.end()) return true;
  return ir::is_stateful(graph_, node, registry_);
}

BodyGradient::Needs BodyGradient::needs_of(const std::vector<Output>& of) const {
  Needs needs;
  needs.inputs.resize(forward_.inputs.size(), false);
  std::set<Output> records;
  std::vector<bool> seen(graph_.size(), false);
  std::vector<Output> open = of;
  while (!open.empty()) {
    const Output value = open.back();
    open.pop_back();
    const Node& node = graph_.node(value.node);
    if (node.op == ir::kArgOp) {
      const auto at = static_cast<size_t>(value.node.value);
      if (at < needs.inputs.size()) needs.inputs[at] = true;
      continue;
    }
    if (node.id.value < forward_end_ && is_record(node)) {
      records.insert(value);
      continue;
    }
    if (seen[node.id.value]) continue;
    seen[node.id.value] = true;
    open.insert(open.end(), node.inputs.begin(), node.inputs.end());
  }
  needs.records.assign(records.begin(), records.end());
  return needs;
}

Result<FunctionPtr> BodyGradient::cut_reverse(const std::vector<CutInput>& inputs,
                                              const std::vector<Output>& outputs) const {
  return ir::cut_function(graph_, {.inputs = inputs, .outputs = outputs, .with_controls = false},
                          registry_);
}

int32_t BodyGradient::find_output(Output value, size_t first) const {
  for (size_t i = first; i < forward_.outputs.size(); ++i) {
    if (forward_.outputs[i] == value) return static_cast<int32_t>(i);
  }
  return -1;
}

Result<FunctionPtr> BodyGradient::cut_forward(const std::vector<Output>& more) const {
  // What loops inside were made to keep is needed where they run again, not here.
  ir::Graph graph = graph_;
  for (const Node& node : control_nodes_) {
    const auto kept = [&](Output o) {
      return o.node == node.id && static_cast<size_t>(o.index) >= node.outputs.size();
    };
    if (std::none_of(more.begin(), more.end(), kept)) graph.mutable_node(node.id) = node;
  }
  ir::Cut cut;
  for (const Output& input : forward_.inputs) cut.inputs.push_back(cut_input(input));
  cut.outputs = forward_.outputs;
  cut.outputs.insert(cut.outputs.end(), more.begin(), more.end());
  cut.targets = forward_.targets;
  return ir::cut_function(graph, cut, registry_);
}

}  // namespace sidereal::autodiff
