#include "sidereal/train/layers.h"

#include <array>
#include <utility>

#include "sidereal/base/strings.h"
#include "sidereal/ops/ops.h"

namespace sidereal::train {

namespace {

using ir::DType;
using ir::Shape;

struct Activation {
  std::string_view name;
  std::string_view op;
};
constexpr std::array<Activation, 5> kActivations = {{{"linear", ""},
                                                     {"relu", "Relu"},
                                                     {"sigmoid", "Sigmoid"},
                                                     {"tanh", "Tanh"},
                                                     {"softplus", "Softplus"}}};

std::string name_or(Model& model, const std::string& name, const char* kind) {
  return name.empty() ? model.layer_name(kind) : name;
}

Output fail(Model& model, const Status& status) {
  model.builder().fail(status);
  return {};
}

// The handle of a float32 variable in the present scope that is trained as the whole model is, with
// `l2` on top.
Output trained(Model& model, const std::string& name, const Shape& shape, Initializer initializer,
               double l2, bool table = false) {
  VariableOptions options{.initializer = model.seeded(std::move(initializer)), .is_table = table};
  if (l2 != 0) options.parameters["l2_penalty"] = l2;
  return model.variable(name, shape, options);
}

Output read(Model& model, Output handle) {
  return ops::variable_read(model.builder(), handle, "read");
}

// The known last extent of x, whose rank must be `rank`; 0 after recording an error.
int64_t last_extent(Model& model, Output x, int rank, const char* layer, const std::string& name) {
  if (!model.builder().status().ok()) return 0;
  const ir::TensorSpec spec = model.builder().spec(x);
  if (spec.dtype != DType::kFloat32 || !spec.shape.has_rank() || spec.shape.rank() != rank ||
      spec.shape.dim(-1) <= 0) {
    model.builder().fail(base::invalid_argument(
        "{} '{}': the input is {}; it must be float32 of rank {} with a known last extent", layer,
        name, ir::to_string(spec), rank));
    return 0;
  }
  return spec.shape.dim(-1);
}

}  // namespace

Initializer normal_initializer(double stddev) { return {"normal", 0, stddev, 0}; }
Initializer glorot_uniform_initializer() { return {"glorot_uniform", 0, 0, 0}; }
Initializer zeros_initializer() { return {"zeros", 0, 0, 0}; }

Output activate(Model& model, Output x, std::string_view activation) {
  if (activation.empty()) return x;
  std::vector<std::string> names;
  for (const Activation& a : kActivations) {
    if (a.name == activation) return a.op.empty() ? x : model.builder().add(a.op, {x});
    names.emplace_back(a.name);
  }
  return fail(model, base::invalid_argument("no activation '{}'; the activations are: {}",
                                            activation, base::join(names, ", ")));
}

Output Embedding::operator()(Model& model, Output ids) const {
  const std::string layer = name_or(model, name, "embedding");
  if (rows <= 0 || dim <= 0) {
    return fail(model, base::invalid_argument("Embedding '{}': rows is {} and dim is {}; both must "
                                              "be positive",
                                              layer, rows, dim));
  }
  const auto scope = model.builder().scope(layer);
  const Output table = trained(model, "table", {rows, dim}, initializer, l2, true);
  return ops::embedding_lookup(model.builder(), ids, {table}, rows, dim, "lookup");
}

Output Dense::operator()(Model& model, Output x) const {
  const std::string layer = name_or(model, name, "dense");
  if (units <= 0) {
    return fail(model, base::invalid_argument("Dense '{}': units is {}; it must be positive", layer,
                                              units));
  }
  const int64_t width = last_extent(model, x, 2, "Dense", layer);
  if (width == 0) return {};
  const auto scope = model.builder().scope(layer);
  const Output kernel = trained(model, "kernel", {width, units}, initializer, l2);
  Output y = ops::mat_mul(model.builder(), x, read(model, kernel), false, false, "mat_mul");
  if (use_bias) {
    const Output bias = trained(model, "bias", {units}, zeros_initializer(), 0);
    y = ops::bias_add(model.builder(), y, read(model, bias), "bias_add");
  }
  return activate(model, y, activation);
}

Output Bias::operator()(Model& model, Output x) const {
  const std::string layer = name_or(model, name, "bias");
  const int64_t width = last_extent(model, x, 2, "Bias", layer);
  if (width == 0) return {};
  const auto scope = model.builder().scope(layer);
  const Output bias = trained(model, "bias", {width}, zeros_initializer(), 0);
  return ops::bias_add(model.builder(), x, read(model, bias), "bias_add");
}

Output Dropout::operator()(Model& model, Output x) const {
  if (!(rate >= 0 && rate < 1)) {
    return fail(model, base::invalid_argument("Dropout: rate is {}; it must be in [0, 1)", rate));
  }
  if (rate == 0) return x;
  const auto seed = static_cast<int64_t>(model.next_seed());
  return ops::dropout(model.builder(), x, rate, seed, true, "dropout");
}

Output Mlp::operator()(Model& model, Output x) const {
  const auto scope = model.builder().scope(name_or(model, name, "mlp"));
  for (size_t i = 0; i < hidden.size(); ++i) {
    x = Dense{.units = hidden[i], .activation = activation, .name = std::to_string(i), .l2 = l2}(
        model, x);
    x = Dropout{.rate = dropout}(model, x);
  }
  return x;
}

Output Flatten::operator()(Model& model, Output x) const {
  if (!model.builder().status().ok()) return {};
  const Shape shape = model.builder().spec(x).shape;
  int64_t width = 1;
  for (int i = 1; shape.has_rank() && i < shape.rank(); ++i)
    width *= shape.dim(i) < 0 ? 0 : shape.dim(i);
  if (!shape.has_rank() || shape.rank() < 2 || width <= 0) {
    return fail(model, base::invalid_argument("Flatten: the input is {}; all its extents but the "
                                              "first must be known",
                                              shape.to_string()));
  }
  if (shape.rank() == 2) return x;
  return ops::reshape(model.builder(), x, {0, width}, "flatten");
}

Output Concatenate::operator()(Model& model, const std::vector<Output>& inputs) const {
  if (inputs.size() == 1) return inputs[0];
  return ops::concat(model.builder(), inputs, axis, "concat");
}

Output Add::operator()(Model& model, const std::vector<Output>& inputs) const {
  if (inputs.size() == 1) return inputs[0];
  return ops::add_n(model.builder(), inputs, "add");
}

Output Weighted::operator()(Model& model, Output x, Output weights) const {
  const Output column = ops::reshape(model.builder(), weights, {0, 0, 1}, "weight_column");
  return ops::mul(model.builder(), x, column, "weighted");
}

Output WeightedSum::operator()(Model& model, Output x, Output weights) const {
  if (weights.valid()) x = Weighted{}(model, x, weights);
  return ops::reduce_sum(model.builder(), x, {1}, false, "sum");
}

Output FactorizationMachine::operator()(Model& model, Output x) const {
  return ops::fm_interaction(model.builder(), x, "fm");
}

Output CrossNetwork::operator()(Model& model, Output x) const {
  const std::string layer = name_or(model, name, "cross");
  const int64_t width = last_extent(model, x, 2, "CrossNetwork", layer);
  if (width == 0) return {};
  const auto scope = model.builder().scope(layer);
  ir::Builder& b = model.builder();
  Output y = x;
  for (int64_t i = 0; i < layers; ++i) {
    const auto layer_scope = b.scope(std::to_string(i));
    const Output kernel = trained(model, "kernel", {width, 1}, glorot_uniform_initializer(), l2);
    const Output bias = trained(model, "bias", {width}, zeros_initializer(), 0);
    const Output score = ops::mat_mul(b, y, read(model, kernel), false, false, "score");
    const Output crossed = ops::mul(b, x, score, "crossed");
    const Output biased = ops::bias_add(b, crossed, read(model, bias), "bias_add");
    y = ops::add(b, biased, y, "add");
  }
  return y;
}

}  // namespace sidereal::train
