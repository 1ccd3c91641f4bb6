#include "sidereal/train/updates.h"

#include <utility>

#include "sidereal/ops/ops.h"
#include "sidereal/train/clip.h"

namespace sidereal::train {

using ir::DType;
using ir::Output;

namespace {

/// What an update says of its rule: the kind, and all parameters but the learning rate.
ir::AttrMap rule_attrs(const kernels::UpdateRule& rule) {
  ir::AttrMap attrs = {{"kind", std::string(rule.rule().name)}};
  for (const kernels::RuleParameter& parameter : rule.rule().parameters) {
    if (parameter.name == "learning_rate") continue;
    const double value = rule[parameter.name];
    if (parameter.range == kernels::Range::kFlag) {
      attrs[std::string(parameter.name)] = value != 0;
    } else {
      attrs[std::string(parameter.name)] = value;
    }
  }
  return attrs;
}

/// The gradient of a table with each of its rows once.
void sum_rows(ir::Builder& b, autodiff::VariableGradient* gradient) {
  const ir::TensorSpec spec = b.spec(gradient->grad);
  if (!b.status().ok()) return;
  const int64_t dim = spec.shape.dim(spec.shape.rank() - 1);
  const ir::NodeId unique = b.add_node("Unique", {gradient->ids});
  const Output rows = {unique, 0};
  const Output places = ops::reshape(b, {unique, 1}, {-1});
  const Output count = b.add("Size", {rows}, {{"out_type", DType::kInt64}});
  gradient->grad =
      b.add("UnsortedSegmentSum", {ops::reshape(b, gradient->grad, {-1, dim}), places, count}, {},
            "summed_gradient");
  gradient->ids = rows;
}

}  // namespace

Output count_steps(ir::Builder& b, StepCount* steps) {
  if (!steps->handle.valid()) {
    steps->handle = ops::variable(b, kGlobalStep, DType::kInt64, {});
    steps->done = ops::variable_read(b, steps->handle, "steps_done");
  }
  return steps->done;
}

std::vector<autodiff::VariableGradient> clipped(
    ir::Builder& b, const Clipping& how, const std::vector<autodiff::VariableGradient>& gradients) {
  std::vector<autodiff::VariableGradient> out = gradients;
  std::vector<std::vector<GradientPart>> parts;
  for (autodiff::VariableGradient& gradient : out) {
    if (gradient.sparse) sum_rows(b, &gradient);
    parts.push_back({{.value = gradient.grad, .device = {}}});
  }
  if (!b.status().ok()) return out;
  clip(b, how, &parts);
  for (size_t i = 0; i < out.size(); ++i) out[i].grad = parts[i][0].value;
  return out;
}

Output Updates::step(bool is_used) {
  if (!is_used) {
    if (!first_step_.valid()) first_step_ = ops::scalar(b_, DType::kFloat64, 1, "step");
    return first_step_;
  }
  if (step_.valid()) return step_;
  const Output done = count_steps(b_, &steps_);
  const Output one = ops::scalar(b_, DType::kInt64, 1, "one");
  step_ = b_.add("Cast", {ops::add(b_, done, one, "step_number")}, {{"dtype", DType::kFloat64}},
                 "step_as_float");
  return step_;
}

void Updates::finish() {
  if (!steps_.handle.valid()) return;
  const Output one = ops::scalar(b_, DType::kInt64, 1, "one");
  const Output counted = b_.add("VariableAssignAdd", {steps_.handle, one}, {}, "count_step");
  if (counted.valid()) counting_.push_back(b_.graph().node(counted.node).name);
}

Output Updates::rate(double learning_rate) {
  if (!scale_.valid()) scale_ = ops::placeholder(b_, kLearningRateScale, DType::kFloat64, {});
  const auto [at, is_new] = rates_.try_emplace(learning_rate);
  if (is_new && rate_.valid()) {
    at->second = ops::mul(b_, rate_, scale_, "scaled_learning_rate");
  } else if (is_new) {
    const Output number = ops::scalar(b_, DType::kFloat64, learning_rate, "learning_rate");
    at->second = ops::mul(b_, number, scale_, "scaled_learning_rate");
  }
  return at->second;
}

Result<std::string> Updates::add(const autodiff::VariableGradient& gradient,
                                 ModelVariable* variable) {
  const OptimizerDef& optimizer = variable->optimizer;
  SR_ASSIGN_OR_RETURN(const auto rule,
                      kernels::UpdateRule::make(optimizer.kind, optimizer.parameters));
  std::vector<Output> inputs;
  if (gradient.sparse) inputs.push_back(gradient.ids);
  inputs.push_back(gradient.grad);
  inputs.push_back(step(rule.rule().uses_step));
  inputs.push_back(rate(rule.learning_rate()));
  // An update of rows has its handles last, part by part, one of the whole has its own first.
  inputs.insert(gradient.sparse ? inputs.end() : inputs.begin(), gradient.handle);
  for (int i = 0; i < rule.num_slots(); ++i) {
    SlotVariable slot{.name = fmt::format("{}/{}", variable->name, rule.slot(i).name),
                      .shape = rule.slot_shape(i, variable->shape),
                      .first = rule.initial_slot(i)};
    inputs.push_back(ops::variable(b_, slot.name, variable->options.dtype, slot.shape));
    variable->slots.push_back(std::move(slot));
  }
  ir::AttrMap attrs = rule_attrs(rule);
  if (gradient.sparse) {
    attrs["rows"] = variable->shape.dim(0);
    attrs["dim"] = variable->shape.dim(1);
    attrs["parts"] = int64_t{1};
  }
  const ir::NodeId node = b_.add_node(gradient.sparse ? "EmbeddingUpdate" : "VariableUpdateDense",
                                      inputs, std::move(attrs), {}, "apply/" + variable->name);
  SR_RETURN_IF_ERROR(b_.status());
  variable->update = b_.graph().node(node).name;
  return variable->update;
}

}  // namespace sidereal::train
