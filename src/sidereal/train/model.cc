#include "sidereal/train/model.h"

#include <algorithm>
#include <array>
#include <utility>

#include "sidereal/autodiff/autodiff.h"
#include "sidereal/base/hash.h"
#include "sidereal/ir/needed.h"
#include "sidereal/ops/ops.h"
#include "sidereal/train/updates.h"

namespace sidereal::train {

namespace {

constexpr const char* kLabel = "label";
constexpr const char* kSampleWeight = "sample_weight";

Status check_logit(const ir::Builder& builder, ir::Output logit) {
  const ir::TensorSpec spec = builder.spec(logit);
  const ir::Shape& shape = spec.shape;
  const bool column = shape.has_rank() && shape.rank() == 2 && shape.dim(1) == 1;
  if (spec.dtype == ir::DType::kFloat32 && shape.has_rank() && (shape.rank() == 1 || column)) {
    return {};
  }
  return base::invalid_argument(
      "the logit is {}; a model ends in float32[?,1] or float32[?], such as Dense with 1 unit",
      ir::to_string(spec));
}

Status check_dtype(const std::string& name, const VariableOptions& options) {
  using enum ir::DType;
  const ir::DType dtype = options.dtype;
  const bool is_integer = dtype == kInt32 || dtype == kInt64;
  if (options.is_table && dtype != kFloat32) {
    return base::invalid_argument("table '{}' is {}; tables are float32", name,
                                  tensor::name_of(dtype));
  }
  if (dtype == kFloat32 || dtype == kFloat64 || (is_integer && !options.trainable)) return {};
  return base::invalid_argument(
      "variable '{}' is {}; it must be float32 or float64, or, where it is not trained, int32 or "
      "int64",
      name, tensor::name_of(dtype));
}

Status check_value(const std::string& name, const ir::Shape& shape,
                   const VariableOptions& options) {
  if (options.value == nullptr) return {};
  if (options.value->dtype() == options.dtype && options.value->shape() == shape) return {};
  return base::invalid_argument("variable '{}' is {}{} and would start as {}{}", name,
                                tensor::name_of(options.dtype), shape.to_string(),
                                tensor::name_of(options.value->dtype()),
                                options.value->shape().to_string());
}

}  // namespace

Model::Model(uint64_t seed) : builder_(&graph_, &registry_), seed_(seed) {
  ops::register_all(&registry_);
}

ir::Output Model::input(const std::string& name, ir::DType dtype, const ir::Shape& shape) {
  if (!builder_.status().ok()) return {};
  ir::Shape batched{-1};
  for (const int64_t extent : shape.dims()) batched.append(extent);
  if (std::find(inputs_.begin(), inputs_.end(), name) != inputs_.end()) {
    builder_.fail(base::already_exists(
        "the model has an input '{}' already: each reads a column of the data of its own", name));
    return {};
  }
  const ir::Output x = ops::placeholder(builder_, name, dtype, batched);
  if (!x.valid()) return {};
  if (graph_.node(x.node).name != name) {
    builder_.fail(base::invalid_argument(
        "input '{}' became '{}': inputs are made outside of scopes and have names of their own",
        name, graph_.node(x.node).name));
    return {};
  }
  inputs_.push_back(name);
  return x;
}

uint64_t Model::next_seed() {
  const std::array<uint64_t, 2> key = {seed_, ++seeds_given_};
  // Never 0, which stands for "none given"; 63 bits, so that it is an int attribute too.
  return (base::hash64(key.data(), sizeof(key)) >> 1) | 1;
}

Initializer Model::seeded(Initializer how) {
  if (how.kind != "zeros" && how.kind != "constant" && how.seed == 0) how.seed = next_seed();
  return how;
}

std::string Model::layer_name(const std::string& kind) {
  const int64_t used = layer_names_[kind]++;
  return used == 0 ? kind : kind + "_" + std::to_string(used);
}

ir::Output Model::variable(const std::string& name, const ir::Shape& shape,
                           const VariableOptions& options) {
  if (!builder_.status().ok()) return {};
  const std::string full = builder_.full_name(name);
  for (const ModelVariable& known : variables_) {
    if (known.name != full) continue;
    if (known.shape == shape && known.options == options) return {graph_.find(full)->id, 0};
    builder_.fail(base::already_exists(
        "variable '{}' is there with another shape, initializer or penalty", full));
    return {};
  }
  const int rank = options.is_table ? 2 : shape.rank();
  if (!shape.is_fully_defined() || shape.rank() != rank || shape.num_elements() < 1) {
    builder_.fail(base::invalid_argument(
        "variable '{}' has shape {}; {}", full, shape.to_string(),
        options.is_table ? "a table has [rows, dim]" : "all its extents must be known"));
    return {};
  }
  if (const Status fits = check_dtype(full, options); !fits.ok()) {
    builder_.fail(fits);
    return {};
  }
  if (const Status fits = check_value(full, shape, options); !fits.ok()) {
    builder_.fail(fits);
    return {};
  }
  const ir::Output handle = ops::variable(builder_, name, options.dtype, shape);
  if (!handle.valid()) return {};
  if (graph_.node(handle.node).name != full) {
    builder_.fail(base::already_exists("'{}' is the name of a variable and of another node", full));
    return {};
  }
  variables_.push_back({.name = full, .shape = shape, .options = options});
  return handle;
}

Result<CompiledModel> Model::compile(ir::Output logit, const OptimizerDef& optimizer) {
  SR_RETURN_IF_ERROR(begin_compile(optimizer));
  SR_RETURN_IF_ERROR(check_logit(builder_, logit));
  const bool has_label = std::find(inputs_.begin(), inputs_.end(), kLabel) != inputs_.end();
  const ir::Output label =
      has_label ? ir::Output{graph_.find(kLabel)->id, 0} : input(kLabel, ir::DType::kFloat32, {});
  const ir::Output probability = ops::sigmoid(builder_, logit, "probability");
  if (builder_.spec(logit).shape.rank() == 2) {
    logit = ops::reshape(builder_, logit, {-1}, "logit");
  }
  ir::Output losses =
      ops::sigmoid_cross_entropy_with_logits(builder_, logit, label, "cross_entropy");
  if (std::find(inputs_.begin(), inputs_.end(), kSampleWeight) != inputs_.end()) {
    const ir::Output weight = {graph_.find(kSampleWeight)->id, 0};
    losses = ops::mul(builder_, losses, weight, "weighted");
  }
  const ir::Output loss = ops::reduce_mean(builder_, losses, {}, false, "loss");
  return finish(probability, loss, true, optimizer);
}

Result<CompiledModel> Model::compile(ir::Output prediction, ir::Output loss,
                                     const OptimizerDef& optimizer) {
  SR_RETURN_IF_ERROR(begin_compile(optimizer));
  const ir::TensorSpec what = builder_.spec(prediction);
  const ir::TensorSpec minimized = builder_.spec(loss);
  if (what.dtype != ir::DType::kFloat32 || !what.shape.has_rank() || what.shape.rank() < 1) {
    return base::invalid_argument("the prediction is {}; it must be float32 [batch, ...]",
                                  ir::to_string(what));
  }
  if (minimized.dtype != ir::DType::kFloat32 || !minimized.shape.has_rank() ||
      minimized.shape.rank() != 0) {
    return base::invalid_argument("the loss is {}; it must be a float32 scalar, such as a mean",
                                  ir::to_string(minimized));
  }
  return finish(prediction, loss, false, optimizer);
}

Status Model::begin_compile(const OptimizerDef& optimizer) {
  if (compiled_) return base::failed_precondition("this model is compiled already");
  compiled_ = true;
  SR_RETURN_IF_ERROR(builder_.status());
  return check_optimizer(optimizer);
}

Result<CompiledModel> Model::finish(ir::Output prediction, ir::Output loss, bool is_binary,
                                    const OptimizerDef& optimizer) {
  SR_RETURN_IF_ERROR(builder_.status());
  for (ModelVariable& variable : variables_) {
    if (!variable.options.trainable) continue;
    variable.optimizer = optimizer;
    for (const auto& [key, value] : variable.options.parameters) {
      variable.optimizer.parameters[key] = value;
    }
  }
  CompiledModel model;
  if (learning_rate_.valid()) {
    const ir::TensorSpec rate = builder_.spec(learning_rate_);
    if (rate.dtype != ir::DType::kFloat64 || !rate.shape.has_rank() || rate.shape.rank() != 0) {
      return base::invalid_argument("the learning rate is {}; it must be a float64 scalar",
                                    ir::to_string(rate));
    }
  }
  model.clipping = optimizer.clipping;
  SR_ASSIGN_OR_RETURN(model.targets, add_updates(loss, optimizer.clipping));
  for (const ir::NodeId update : updates_) model.updates.push_back(graph_.node(update).name);
  model.loss = graph_.output_name(loss);
  model.prediction = graph_.output_name(prediction);
  model.is_binary = is_binary;
  model.inputs = inputs_;
  model.variables = std::move(variables_);
  model.graph = std::move(graph_);
  return model;
}

ir::Output Model::steps_done() {
  return builder_.status().ok() ? count_steps(builder_, &steps_) : ir::Output{};
}

Result<std::vector<std::string>> Model::add_updates(ir::Output loss, const Clipping& clipping) {
  std::map<ir::Output, ModelVariable*> trained;
  std::vector<ir::Output> handles;
  for (ModelVariable& variable : variables_) {
    if (!variable.options.trainable) continue;
    handles.push_back({graph_.find(variable.name)->id, 0});
    trained[handles.back()] = &variable;
  }
  SR_ASSIGN_OR_RETURN(const std::vector<autodiff::VariableGradient> gradients,
                      autodiff::variable_gradients(builder_, loss, handles));
  if (gradients.empty()) {
    return base::invalid_argument("'{}' depends on no trainable variable: nothing to minimize",
                                  graph_.output_name(loss));
  }
  for (const autodiff::VariableGradient& gradient : gradients) {
    ModelVariable& variable = *trained.at(gradient.handle);
    variable.gradient = graph_.output_name(gradient.grad);
    if (gradient.sparse) variable.ids = graph_.output_name(gradient.ids);
  }
  Updates updates(&builder_, &steps_, learning_rate_);
  std::vector<std::string> out;
  for (const autodiff::VariableGradient& gradient :
       clipping.any() ? clipped(builder_, clipping, gradients) : gradients) {
    SR_ASSIGN_OR_RETURN(out.emplace_back(), updates.add(gradient, trained.at(gradient.handle)));
  }
  updates.finish();
  out.insert(out.end(), updates.counting().begin(), updates.counting().end());
  return out;
}

Result<std::vector<std::string>> placeholders_of(const ir::Graph& graph,
                                                 const std::vector<std::string>& outputs) {
  std::vector<ir::Output> found;
  for (const std::string& output : outputs) {
    SR_ASSIGN_OR_RETURN(found.emplace_back(), graph.find_output(output));
  }
  const std::vector<bool> needed = ir::needed_for(graph, found);
  std::vector<std::string> out;
  for (size_t i = graph.size(); i-- > 0;) {
    const ir::Node& node = graph.nodes()[i];
    if (needed[i] && node.op == "Placeholder") out.push_back(node.name);
  }
  return out;
}

const ModelVariable* CompiledModel::find_variable(std::string_view name) const {
  for (const ModelVariable& variable : variables) {
    if (variable.name == name) return &variable;
  }
  return nullptr;
}

}  // namespace sidereal::train
