#include <algorithm>
#include <utility>

#include "sidereal/ops/internal.h"

/// Updates of variables of this process by the rules of optimizers.
namespace sidereal::ops::internal {
namespace {

using Ints = std::vector<int64_t>;

/// Weights and slots out, as they came in; `before` inputs stand between them.
Status put_updated(const InferContext& c, size_t before) {
  SR_RETURN_IF_ERROR(require_dtype(c, before, DType::kFloat64));
  SR_RETURN_IF_ERROR(require_rank(c, before, 0));
  Shape shape = c.inputs[0].shape;
  for (size_t i = before + 1; i < c.inputs.size(); ++i) {
    SR_RETURN_IF_ERROR(require_dtype(c, i, DType::kFloat32));
    SR_ASSIGN_OR_RETURN(shape, merge_shapes(shape, c.inputs[i].shape));
  }
  for (size_t i = before; i < c.inputs.size(); ++i) {
    SR_RETURN_IF_ERROR(put(c, DType::kFloat32, shape));
  }
  return {};
}

Status infer_update_dense(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_dtype(c, 0, DType::kFloat32));
  SR_RETURN_IF_ERROR(require_dtype(c, 1, DType::kFloat32));
  SR_RETURN_IF_ERROR(merge_inputs(c, 0, 1).status());
  return put_updated(c, 2);
}

Status infer_update_rows(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_dtype(c, 0, DType::kFloat32));
  SR_RETURN_IF_ERROR(require(c, sets::kIndices, 1, 1));
  SR_RETURN_IF_ERROR(require_dtype(c, 2, DType::kFloat32));
  const Shape& table = c.inputs[0].shape;
  const Shape& values = c.inputs[2].shape;
  if (table.has_rank() && table.rank() < 1) {
    return base::invalid_argument("a scalar has no rows to be updated");
  }
  if (table.has_rank() && values.has_rank()) {
    if (table.rank() != values.rank()) {
      return base::invalid_argument("rows {} do not fit the table {}", values.to_string(),
                                    table.to_string());
    }
    for (int i = 1; i < table.rank(); ++i) {
      SR_RETURN_IF_ERROR(merge_extent(table.dim(i), values.dim(i)).status());
    }
  }
  return put_updated(c, 3);
}

/// Whole rows of `width` floats of which the gradients are a part.
Status check_columns(const Ints& columns, const Ints& widths, int64_t dim) {
  if (columns.empty() || columns.size() != widths.size()) {
    return base::invalid_argument("{} columns of {} widths", columns.size(), widths.size());
  }
  for (size_t i = 0; i < columns.size(); ++i) {
    if (columns[i] < 0 || widths[i] < 1 || widths[i] > ir::kMaxElements ||
        columns[i] > widths[i] - std::max<int64_t>(dim, 0)) {
      return base::invalid_argument("gradients of {} from column {} of rows of {}", dim, columns[i],
                                    widths[i]);
    }
  }
  return {};
}

Status infer_update_joined_rows(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_dtype(c, 0, DType::kFloat32));
  SR_ASSIGN_OR_RETURN(const int64_t dim, row_width(c.inputs[0].shape));
  SR_ASSIGN_OR_RETURN(const Ints columns, ir::get_attr<Ints>(c.attrs, "columns"));
  SR_ASSIGN_OR_RETURN(const Ints widths, ir::get_attr<Ints>(c.attrs, "widths"));
  SR_RETURN_IF_ERROR(check_columns(columns, widths, dim));
  // weights, indices..., values..., step, slots...
  SR_ASSIGN_OR_RETURN(const int64_t indices, ir::get_attr<int64_t>(c.attrs, "indices"));
  const auto inputs = static_cast<int64_t>(c.inputs.size());
  const auto values = static_cast<int64_t>(columns.size());
  if (indices < 1 || values > inputs || indices > inputs - values - 2) {
    return base::invalid_argument("{} indices and {} values among {} inputs", indices, values,
                                  inputs);
  }
  SR_RETURN_IF_ERROR(require(c, sets::kIndices, 1, static_cast<int>(indices)));
  for (int64_t i = 0; i < values; ++i) {
    SR_RETURN_IF_ERROR(require_dtype(c, static_cast<size_t>(1 + indices + i), DType::kFloat32));
  }
  return put_updated(c, static_cast<size_t>(1 + indices + values));
}

}  // namespace

std::vector<ir::AttrSpec> update_rule_attrs() {
  return {{"kind", "string", true, "sgd, momentum, adagrad, adam or ftrl."},
          {"learning_rate", "float", true, "Step size."},
          {"weight_decay", "float", false, "L2 penalty; its gradient is added. Default 0."},
          {"momentum", "float", false, "Momentum. Default 0."},
          {"nesterov", "bool", false, "Momentum: Nesterov's form."},
          {"beta1", "float", false, "Adam. Default 0."},
          {"beta2", "float", false, "Adam. Default 0."},
          {"epsilon", "float", false, "Adagrad and Adam. Default 0."},
          {"l1", "float", false, "FTRL. Default 0."},
          {"l2", "float", false, "FTRL. Default 0."},
          {"lr_power", "float", false, "FTRL. Default -0.5."}};
}

void register_updates(OpRegistry* registry) {
  registry->add({.name = "UpdateDense",
                 .doc = "(weights, gradient, step, slots...) -> (weights, slots...) after one "
                        "update by the rule of an optimizer, float32. `step`: float64 scalar, 1 "
                        "at the first update. Adagrad and momentum have one slot, Adam (m, v) and "
                        "FTRL (accumulator, linear) two.",
                 .min_inputs = 3,
                 .max_inputs = 3 + kRuleSlotsMax,
                 .attrs = update_rule_attrs(),
                 .infer = infer_update_dense,
                 .differentiable = false});
  registry->add({.name = "UpdateRows",
                 .doc = "(weights, indices, values, step, slots...) -> (weights, slots...): "
                        "UpdateDense of the rows `indices` (int32 or int64 of any shape) alone, "
                        "one row of `values` for each; rows of equal indices are summed first.",
                 .min_inputs = 4,
                 .max_inputs = 4 + kRuleSlotsMax,
                 .attrs = update_rule_attrs(),
                 .infer = infer_update_rows,
                 .differentiable = false});
  std::vector<ir::AttrSpec> attrs = {
      {"indices", "int", true, "How many of the inputs are indices."},
      {"columns", "ints", true, "By input of values: where in a row of it the gradient begins."},
      {"widths", "ints", true, "By input of values: how long a row of it is."}};
  for (ir::AttrSpec& attr : update_rule_attrs()) attrs.push_back(std::move(attr));
  registry->add({.name = "UpdateJoinedRows",
                 .doc = "(weights, indices..., values..., step, slots...) -> (weights, slots...): "
                        "UpdateRows by all indices one after the other, and all values, of which "
                        "each row is read from one column on. Made by the lookup layout pass.",
                 .min_inputs = 4,
                 .max_inputs = -1,
                 .attrs = std::move(attrs),
                 .infer = infer_update_joined_rows,
                 .differentiable = false});
}

}  // namespace sidereal::ops::internal
