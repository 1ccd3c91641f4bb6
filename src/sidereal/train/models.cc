#include "sidereal/train/models.h"

#include <algorithm>
#include <memory>

#include "sidereal/base/strings.h"
#include "sidereal/train/layers.h"

namespace sidereal::train {

namespace {

// The inputs of one model and the parts made from them so far.
struct Parts {
  Model& model;
  const ModelOptions& options;
  Output ids = {};                     // None without categories.
  Output weights = {};                 // Only for weighted schemas.
  Output dense = {};                   // None without numbers.
  std::vector<Output> sequences = {};  // Ids [b, length] each.
  Output rows = {};                    // Embedding rows [b, f, dim], weighted; made by embed().
};

void add_inputs(Parts* p) {
  const data::Schema& schema = p->options.schema;
  for (const auto& [name, length] : schema.sequences) {
    p->sequences.push_back(p->model.input(name, ir::DType::kInt64, {length}));
  }
  if (schema.rows > 0 && (schema.fields > 0 || schema.weighted)) {
    const int64_t fields = schema.fields > 0 ? schema.fields : -1;
    p->ids = p->model.input("ids", ir::DType::kInt64, {fields});
    if (schema.weighted) p->weights = p->model.input("weights", ir::DType::kFloat32, {fields});
  }
  if (schema.dense_width > 0) {
    p->dense = p->model.input("dense", ir::DType::kFloat32, {schema.dense_width});
  }
  if (schema.has_sample_weight) p->model.input("sample_weight", ir::DType::kFloat32, {});
}

int64_t units(const Parts& p) { return units_of(p.options.objective); }

// Those of fields and sequences beside each other: a table is read once.
Output all_ids(const Parts& p) {
  std::vector<Output> ids;
  if (p.ids.valid()) ids.push_back(p.ids);
  ids.insert(ids.end(), p.sequences.begin(), p.sequences.end());
  return Concatenate{.axis = 1}(p.model, ids);
}

// Weight per id and per number, and a bias: [b, units].
Output linear(Parts* p) {
  const auto scope = p->model.builder().scope("linear");
  std::vector<Output> terms;
  if (p->ids.valid() || !p->sequences.empty()) {
    const Embedding weights{.rows = p->options.schema.rows,
                            .dim = units(*p),
                            .initializer = zeros_initializer(),
                            .name = "ids",
                            .l2 = p->options.l2_linear};
    terms.push_back(WeightedSum{}(p->model, weights(p->model, all_ids(*p)), p->weights));
  }
  if (p->dense.valid()) {
    const Dense weights{.units = units(*p),
                        .use_bias = false,
                        .initializer = zeros_initializer(),
                        .name = "dense",
                        .l2 = p->options.l2_linear};
    terms.push_back(weights(p->model, p->dense));
  }
  return Bias{.name = "out"}(p->model, Add{}(p->model, terms));
}

// Rows of all ids, [b, n, dim], in which those of a sequence become their sum, as one field.
Output pooled(Parts* p, Output rows) {
  ir::Builder& b = p->model.builder();
  int64_t at = std::max<int64_t>(p->options.schema.fields, 0);
  std::vector<Output> parts;
  if (at > 0) parts.push_back(ops::slice_axis(b, rows, 1, 0, at));
  for (const auto& [name, length] : p->options.schema.sequences) {
    const Output sum = WeightedSum{}(p->model, ops::slice_axis(b, rows, 1, at, length));
    parts.push_back(ops::reshape(b, sum, {-1, 1, p->options.embedding_dim}));
    at += length;
  }
  return Concatenate{.axis = 1}(p->model, parts);
}

Output embed(Parts* p) {
  if ((!p->ids.valid() && p->sequences.empty()) || p->rows.valid()) return p->rows;
  const Embedding table{.rows = p->options.schema.rows,
                        .dim = p->options.embedding_dim,
                        .initializer = normal_initializer(p->options.embedding_stddev),
                        .name = "embedding",
                        .l2 = p->options.l2_embedding};
  p->rows = table(p->model, all_ids(*p));
  if (!p->sequences.empty()) p->rows = pooled(p, p->rows);
  if (p->weights.valid()) p->rows = Weighted{}(p->model, p->rows, p->weights);
  return p->rows;
}

// What the deep parts see: embeddings and numbers beside each other, [b, n].
Output features(Parts* p) {
  std::vector<Output> parts;
  if (const Output rows = embed(p); rows.valid()) {
    parts.push_back(p->weights.valid() ? WeightedSum{}(p->model, rows) : Flatten{}(p->model, rows));
  }
  if (p->dense.valid()) parts.push_back(p->dense);
  return Concatenate{}(p->model, parts);
}

Output mlp(Parts* p, Output x) {
  return Mlp{.hidden = p->options.hidden,
             .dropout = p->options.dropout,
             .name = "mlp",
             .l2 = p->options.l2_dense}(p->model, x);
}

Output head(Parts* p, Output x, bool bias) {
  return Dense{.units = units(*p), .use_bias = bias, .name = "head", .l2 = p->options.l2_dense}(
      p->model, x);
}

// A tower for each label over a mixture of experts: a list of [b, units].
std::vector<Output> mixtures(Parts* p) {
  const ModelOptions& o = p->options;
  ir::Builder& b = p->model.builder();
  const Output x = features(p);
  const int64_t width = o.hidden.front();
  const Dense experts{
      .units = o.experts * width, .activation = "relu", .name = "experts", .l2 = o.l2_dense};
  const Output known = ops::reshape(b, experts(p->model, x), {-1, o.experts, width});
  std::vector<Output> out;
  for (size_t i = 0; i <= o.schema.targets.size(); ++i) {
    const std::string task = "task_" + std::to_string(i);
    const auto scope = b.scope(task);
    const Dense gate{.units = o.experts, .use_bias = false, .name = "gate", .l2 = o.l2_dense};
    const Output share = b.add("Softmax", {gate(p->model, x)});
    Output mixed = WeightedSum{}(p->model, known, share);
    const std::vector<int64_t> tower(o.hidden.begin() + 1, o.hidden.end());
    if (!tower.empty()) {
      mixed = Mlp{.hidden = tower, .dropout = o.dropout, .name = "mlp", .l2 = o.l2_dense}(p->model,
                                                                                          mixed);
    }
    out.push_back(head(p, mixed, true));
  }
  return out;
}

Output logit_of(Parts* p) {
  const std::string& kind = p->options.kind;
  if (kind == "lr") return linear(p);
  if (kind == "fm") {
    const Output wide = linear(p);
    return Add{}(p->model, {wide, FactorizationMachine{}(p->model, embed(p))});
  }
  if (kind == "dcn") {
    const Output x = features(p);
    const CrossNetwork cross{
        .layers = p->options.cross_layers, .name = "cross", .l2 = p->options.l2_dense};
    const Output crossed = cross(p->model, x);
    return head(p, Concatenate{}(p->model, {crossed, mlp(p, x)}), true);
  }
  // The linear part has the bias of these two.
  std::vector<Output> terms = {linear(p)};
  if (kind == "deepfm" && embed(p).valid()) {
    terms.push_back(FactorizationMachine{}(p->model, embed(p)));
  }
  terms.push_back(head(p, mlp(p, features(p)), false));
  return Add{}(p->model, terms);
}

Status check_options(const ModelOptions& o) {
  const std::vector<std::string> names = model_names();
  if (std::find(names.begin(), names.end(), o.kind) == names.end()) {
    return base::invalid_argument("no model '{}'; the models are: {}", o.kind,
                                  base::join(names, ", "));
  }
  if (o.schema.rows <= 0 && o.schema.dense_width <= 0) {
    return base::invalid_argument(
        "the data has neither categorical nor numeric columns; name some");
  }
  if (o.kind == "fm" && o.schema.rows <= 0) {
    return base::invalid_argument("fm needs categorical columns; the data has none");
  }
  if (o.kind != "lr" && o.embedding_dim <= 0) {
    return base::invalid_argument("embedding_dim is {}; it must be positive", o.embedding_dim);
  }
  if (!(o.embedding_stddev >= 0)) {
    return base::invalid_argument("embedding_stddev is {}; it must be 0 or more",
                                  o.embedding_stddev);
  }
  SR_RETURN_IF_ERROR(check_objective(o.objective, o.schema));
  if (!o.schema.targets.empty() && o.kind != "mmoe") {
    return base::invalid_argument("{} learns one label, and the data has {}; mmoe learns several",
                                  o.kind, 1 + o.schema.targets.size());
  }
  if (units_of(o.objective) > 1 && (o.kind == "fm" || o.kind == "deepfm")) {
    return base::invalid_argument(
        "{} has one number for each row; take lr, wdl, dcn or mmoe for {} classes", o.kind,
        o.objective.classes);
  }
  if (o.kind == "mmoe" && o.experts < 1) {
    return base::invalid_argument("experts is {}; it must be positive", o.experts);
  }
  const bool deep = o.kind == "wdl" || o.kind == "deepfm" || o.kind == "dcn" || o.kind == "mmoe";
  if (deep && (o.hidden.empty() || *std::min_element(o.hidden.begin(), o.hidden.end()) <= 0)) {
    return base::invalid_argument("hidden must be one or more positive numbers of units");
  }
  if (o.kind == "dcn" && o.cross_layers <= 0) {
    return base::invalid_argument("cross_layers is {}; it must be positive", o.cross_layers);
  }
  if (!(o.l2_embedding >= 0 && o.l2_linear >= 0 && o.l2_dense >= 0)) {
    return base::invalid_argument("an L2 penalty is negative");
  }
  return check_optimizer(o.optimizer);
}

Status warm_up(Model* model, const ModelOptions& options) {
  const auto rate = options.optimizer.parameters.find("learning_rate");
  if (rate == options.optimizer.parameters.end()) {
    return base::invalid_argument("{} has no learning rate, which warmup_steps would let grow",
                                  options.optimizer.kind);
  }
  ir::Builder& b = model->builder();
  const auto number = [&b](double value) { return ops::constant(b, ir::Tensor::scalar(value)); };
  const auto steps = static_cast<double>(options.warmup_steps);
  const Output done = ops::cast(b, model->steps_done(), ir::DType::kFloat64);
  const Output part =
      ops::minimum(b, ops::mul(b, ops::add(b, done, number(1)), number(1 / steps)), number(1));
  model->set_learning_rate(ops::mul(b, part, number(rate->second), "warmed_up_learning_rate"));
  return {};
}

}  // namespace

std::vector<std::string> model_names() { return {"lr", "fm", "wdl", "deepfm", "dcn", "mmoe"}; }

Result<CompiledModel> build_model(const ModelOptions& options) {
  SR_RETURN_IF_ERROR(check_options(options));
  Model model(options.seed);
  Parts parts{.model = model, .options = options};
  add_inputs(&parts);
  const std::vector<Output> logits =
      options.kind == "mmoe" ? mixtures(&parts) : std::vector<Output>{logit_of(&parts)};
  if (options.warmup_steps > 0) SR_RETURN_IF_ERROR(warm_up(&model, options));
  return compile_objective(&model, options.objective, options.schema, logits, options.optimizer);
}

}  // namespace sidereal::train
