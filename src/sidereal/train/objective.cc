#include "sidereal/train/objective.h"

#include <algorithm>

#include "sidereal/base/strings.h"
#include "sidereal/ops/ops.h"

namespace sidereal::train {

namespace {

using ir::DType;
using ir::Output;

constexpr const char* kBinary = "binary_crossentropy";
constexpr const char* kSquared = "mse";
constexpr const char* kClasses = "sparse_categorical_crossentropy";
constexpr const char* kPairs = "pairwise_logistic";

Output mean_of(ir::Builder& b, Output losses, Output weight) {
  if (weight.valid()) losses = ops::mul(b, losses, weight);
  return ops::reduce_mean(b, losses);
}

/// float32 [b, b]: 1 where the row has the higher label of a group, the column the other.
Output pairs(ir::Builder& b, Output label, Output group) {
  const auto both = [&](const char* op, Output x) {
    return ops::cast(b, b.add(op, {ops::reshape(b, x, {-1, 1}), ops::reshape(b, x, {1, -1})}),
                     DType::kFloat32);
  };
  const Output higher = both("Greater", label);
  return group.valid() ? ops::mul(b, higher, both("Equal", group)) : higher;
}

Output pairwise(ir::Builder& b, Output score, Output label, Output group, Output weight) {
  const Output row = ops::reshape(b, score, {-1, 1});
  const Output column = ops::reshape(b, score, {1, -1});
  Output counts = pairs(b, label, group);
  if (weight.valid()) counts = ops::mul(b, counts, ops::reshape(b, weight, {-1, 1}));
  const Output losses = ops::mul(b, ops::softplus(b, ops::sub(b, column, row)), counts);
  // Of a batch without pairs it is 0.
  const Output number = ops::reduce_sum(b, pairs(b, label, group));
  return ops::div(b, ops::reduce_sum(b, losses),
                  ops::maximum(b, number, ops::scalar(b, DType::kFloat32, 1)));
}

struct Part {
  Output loss;
  Output prediction;
};

Part part_of(ir::Builder& b, const Objective& o, Output logits, Output label, Output group,
             Output weight) {
  if (o.loss == kClasses) {
    const ir::NodeId node = b.add_node("SparseSoftmaxCrossEntropyWithLogits",
                                       {logits, ops::cast(b, label, DType::kInt64)});
    return {mean_of(b, {node, 0}, weight), b.add("Softmax", {logits})};
  }
  const Output flat = ops::reshape(b, logits, {-1});
  if (o.loss == kSquared) {
    return {mean_of(b, ops::square(b, ops::sub(b, flat, label)), weight), flat};
  }
  if (o.loss == kPairs) return {pairwise(b, flat, label, group, weight), flat};
  return {mean_of(b, ops::sigmoid_cross_entropy_with_logits(b, flat, label), weight),
          ops::sigmoid(b, flat)};
}

}  // namespace

std::vector<std::string> loss_names() { return {kBinary, kSquared, kClasses, kPairs}; }

Status check_objective(const Objective& o, const data::Schema& schema) {
  const std::vector<std::string> names = loss_names();
  if (std::find(names.begin(), names.end(), o.loss) == names.end()) {
    return base::invalid_argument("no loss '{}'; the losses are: {}", o.loss,
                                  base::join(names, ", "));
  }
  if (o.loss == kClasses && o.classes < 2) {
    return base::invalid_argument("{} is of 2 classes or more, not {}; say how many there are",
                                  o.loss, o.classes);
  }
  if (o.loss != kClasses && o.classes != 0) {
    return base::invalid_argument("classes are of the loss {}, not of {}", kClasses, o.loss);
  }
  if (schema.has_negatives && o.loss == kClasses) {
    return base::invalid_argument(
        "negatives have the label 0, which is a class of {}; they are of labels 0 and 1, or of "
        "numbers",
        o.loss);
  }
  if (schema.has_group && o.loss != kPairs) {
    return base::invalid_argument("groups of rows are of the loss {}, not of {}", kPairs, o.loss);
  }
  return {};
}

int64_t units_of(const Objective& o) { return o.loss == kClasses ? o.classes : 1; }

Result<CompiledModel> compile_objective(Model* model, const Objective& objective,
                                        const data::Schema& schema,
                                        const std::vector<Output>& logits,
                                        const OptimizerDef& optimizer) {
  if (objective.loss == kBinary && logits.size() == 1) {
    return model->compile(logits.front(), optimizer);
  }
  ir::Builder& b = model->builder();
  std::vector<std::string> names = {"label"};
  names.insert(names.end(), schema.targets.begin(), schema.targets.end());
  Output weight;
  if (schema.has_sample_weight) weight = {b.graph().find("sample_weight")->id, 0};
  const Output group = schema.has_group ? model->input(data::kGroup, DType::kInt64, {}) : Output{};
  std::vector<Output> losses;
  std::vector<Output> predictions;
  for (size_t i = 0; i < logits.size(); ++i) {
    const Output label = model->input(names[i], DType::kFloat32, {});
    const Part part = part_of(b, objective, logits[i], label, group, weight);
    losses.push_back(part.loss);
    predictions.push_back(logits.size() == 1
                              ? part.prediction
                              : ops::reshape(b, part.prediction, {-1, units_of(objective)}));
  }
  const Output loss = losses.size() == 1 ? losses.front() : ops::add_n(b, losses);
  const Output prediction =
      predictions.size() == 1 ? predictions.front() : ops::concat(b, predictions, 1);
  return model->compile(ops::identity(b, prediction, "prediction"), ops::identity(b, loss, "loss"),
                        optimizer);
}

}  // namespace sidereal::train
