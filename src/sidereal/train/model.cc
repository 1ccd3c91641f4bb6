#include "sidereal/train/model.h"

#include <algorithm>
#include <array>
#include <utility>

#include "sidereal/autodiff/autodiff.h"
#include "sidereal/base/hash.h"
#include "sidereal/ops/ops.h"
#include "sidereal/train/optimizers.h"

namespace sidereal::train {

namespace {

constexpr const char* kLabel = "label";

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

// Variables with parameters but no optimizer of their own (an L2 penalty, say) get the model's
// optimizer with these parameters on top.
void complete_optimizers(ir::Graph* graph, const ir::OptimizerDef& optimizer) {
  for (ir::VariableDef& variable : graph->mutable_variables()) {
    ir::OptimizerDef& own = variable.optimizer;
    if (!own.kind.empty() || own.parameters.empty()) continue;
    ir::OptimizerDef whole = optimizer;
    for (const auto& [key, value] : own.parameters) whole.parameters[key] = value;
    own = std::move(whole);
  }
}

}  // namespace

Model::Model(uint64_t seed) : builder_(&graph_, &registry_), seed_(seed) {
  ops::register_all(&registry_);
}

ir::Output Model::input(const std::string& name, ir::DType dtype, const ir::Shape& shape) {
  if (!builder_.status().ok()) return {};
  ir::Shape batched{-1};
  for (const int64_t extent : shape.dims()) batched.append(extent);
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

std::string Model::layer_name(const std::string& kind) {
  const int64_t used = layer_names_[kind]++;
  return used == 0 ? kind : kind + "_" + std::to_string(used);
}

Result<CompiledModel> Model::compile(ir::Output logit, const ir::OptimizerDef& optimizer) {
  if (compiled_) return base::failed_precondition("this model is compiled already");
  compiled_ = true;
  SR_RETURN_IF_ERROR(builder_.status());
  SR_RETURN_IF_ERROR(check_logit(builder_, logit));
  SR_RETURN_IF_ERROR(check_optimizer(optimizer));

  const bool has_label = std::find(inputs_.begin(), inputs_.end(), kLabel) != inputs_.end();
  const ir::Output label =
      has_label ? ir::Output{graph_.find(kLabel)->id, 0} : input(kLabel, ir::DType::kFloat32, {});
  const ir::Output probability = ops::sigmoid(builder_, logit, "probability");
  if (builder_.spec(logit).shape.rank() == 2) {
    logit = ops::reshape(builder_, logit, {-1}, "logit");
  }
  const ir::Output losses =
      ops::sigmoid_cross_entropy_with_logits(builder_, logit, label, "cross_entropy");
  const ir::Output loss = ops::reduce_mean(builder_, losses, {}, false, "loss");
  SR_RETURN_IF_ERROR(builder_.status());

  complete_optimizers(&graph_, optimizer);
  SR_ASSIGN_OR_RETURN(const std::vector<ir::NodeId> updates,
                      autodiff::minimize(builder_, loss, optimizer));
  SR_RETURN_IF_ERROR(builder_.status());

  CompiledModel model;
  model.loss = graph_.output_name(loss);
  model.probability = graph_.output_name(probability);
  for (const ir::NodeId id : updates) model.targets.push_back(graph_.node(id).name);
  model.inputs = inputs_;
  model.graph = std::move(graph_);
  return model;
}

}  // namespace sidereal::train
