#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "sidereal/ops/internal.h"
#include "sidereal/ops/update_rule.h"

/// Updates of variables of this process by the rules of optimizers.
namespace sidereal::ops::internal {
namespace {

using Ints = std::vector<int64_t>;

/// Checks step, learning rate and slots at `step`, which follow it. The shape of the weights.
Result<Shape> check_update(const InferContext& c, const kernels::UpdateRule& rule, size_t step,
                           bool may_have_norms) {
  SR_RETURN_IF_ERROR(require_step(c, step));
  SR_RETURN_IF_ERROR(check_slots(c, rule, step + 2, may_have_norms));
  const DType dtype = c.inputs[0].dtype;
  Shape shape = c.inputs[0].shape;
  for (int i = 0; i < rule.num_slots(); ++i) {
    const size_t input = step + 2 + static_cast<size_t>(i);
    SR_RETURN_IF_ERROR(require_dtype(c, input, dtype));
    if (rule.slot(i).width == kernels::SlotWidth::kElement) {
      SR_ASSIGN_OR_RETURN(shape, merge_shapes(shape, c.inputs[input].shape));
    }
  }
  return shape;
}

/// Weights and slots of an update, as they came in.
Status put_updated(const InferContext& c, size_t step, bool may_have_norms = false) {
  SR_ASSIGN_OR_RETURN(const kernels::UpdateRule rule, update_rule_of(c.attrs));
  SR_ASSIGN_OR_RETURN(const Shape shape, check_update(c, rule, step, may_have_norms));
  const DType dtype = c.inputs[0].dtype;
  SR_RETURN_IF_ERROR(put(c, dtype, shape));
  for (int i = 0; i < rule.num_slots(); ++i) {
    const Shape& given = c.inputs[step + 2 + static_cast<size_t>(i)].shape;
    const Shape wanted = shape.has_rank() ? rule.slot_shape(i, shape) : Shape::unknown_rank();
    SR_ASSIGN_OR_RETURN(Shape slot, merge_shapes(wanted, given));
    SR_RETURN_IF_ERROR(put(c, dtype, std::move(slot)));
  }
  return {};
}

Status check_dense_gradient(const InferContext& c) {
  SR_RETURN_IF_ERROR(require(c, sets::kReals, 0, 0));
  SR_RETURN_IF_ERROR(require_dtype(c, 1, c.inputs[0].dtype));
  return merge_inputs(c, 0, 1).status();
}

Status infer_update_dense(const InferContext& c) {
  SR_RETURN_IF_ERROR(check_dense_gradient(c));
  return put_updated(c, 2, true);
}

Status infer_update_norms(const InferContext& c) {
  SR_ASSIGN_OR_RETURN(const kernels::UpdateRule rule, update_rule_of(c.attrs));
  SR_RETURN_IF_ERROR(check_dense_gradient(c));
  SR_RETURN_IF_ERROR(check_update(c, rule, 2, false).status());
  return put(c, DType::kFloat64, {2});
}

Status infer_update_rows(const InferContext& c) {
  SR_RETURN_IF_ERROR(require(c, sets::kReals, 0, 0));
  SR_RETURN_IF_ERROR(require(c, sets::kIndices, 1, 1));
  SR_RETURN_IF_ERROR(require_dtype(c, 2, c.inputs[0].dtype));
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
  SR_RETURN_IF_ERROR(require(c, sets::kReals, 0, 0));
  SR_ASSIGN_OR_RETURN(const int64_t dim, row_width(c.inputs[0].shape));
  SR_ASSIGN_OR_RETURN(const Ints columns, ir::get_attr<Ints>(c.attrs, "columns"));
  SR_ASSIGN_OR_RETURN(const Ints widths, ir::get_attr<Ints>(c.attrs, "widths"));
  SR_RETURN_IF_ERROR(check_columns(columns, widths, dim));
  // weights, indices..., values..., step, learning rate, slots...
  SR_ASSIGN_OR_RETURN(const int64_t indices, ir::get_attr<int64_t>(c.attrs, "indices"));
  const auto inputs = static_cast<int64_t>(c.inputs.size());
  const auto values = static_cast<int64_t>(columns.size());
  if (indices < 1 || values > inputs || indices > inputs - values - 3) {
    return base::invalid_argument("{} indices and {} values among {} inputs", indices, values,
                                  inputs);
  }
  SR_RETURN_IF_ERROR(require(c, sets::kIndices, 1, static_cast<int>(indices)));
  for (int64_t i = 0; i < values; ++i) {
    SR_RETURN_IF_ERROR(require_dtype(c, static_cast<size_t>(1 + indices + i), c.inputs[0].dtype));
  }
  return put_updated(c, static_cast<size_t>(1 + indices + values));
}

}  // namespace

Status require_step(const InferContext& c, size_t step) {
  if (c.inputs.size() < step + 2) {
    return base::invalid_argument("{} inputs; there must be a step and a learning rate",
                                  c.inputs.size());
  }
  SR_RETURN_IF_ERROR(require_dtype(c, step, DType::kFloat64));
  SR_RETURN_IF_ERROR(require_rank(c, step, 0));
  const auto rate = static_cast<int>(step + 1);
  SR_RETURN_IF_ERROR(require(c, sets::kReals, rate, rate));
  return require_rank(c, step + 1, 0);
}

Status check_slots(const InferContext& c, const kernels::UpdateRule& rule, size_t first,
                   bool may_have_norms) {
  const size_t norms = first + static_cast<size_t>(rule.num_slots());
  if (c.inputs.size() == norms) return {};
  if (may_have_norms && rule.rule().uses_norms && c.inputs.size() == norms + 1) {
    SR_RETURN_IF_ERROR(require_dtype(c, norms, DType::kFloat64));
    return merge_shapes(c.inputs[norms].shape, {2}).status();
  }
  return base::invalid_argument("{} inputs for {}, which has {} slots after {} others",
                                c.inputs.size(), rule.rule().name, rule.num_slots(), first);
}

std::vector<ir::AttrSpec> update_rule_attrs() {
  std::vector<ir::AttrSpec> attrs = {{"kind", "string", true, ""}};
  for (const kernels::Rule* rule : kernels::all_rules()) {
    attrs[0].doc += fmt::format("{}'{}'", attrs[0].doc.empty() ? "" : ", ", rule->name);
    for (const kernels::RuleParameter& parameter : rule->parameters) {
      const bool is_known = std::any_of(attrs.begin(), attrs.end(), [&](const ir::AttrSpec& attr) {
        return attr.name == parameter.name;
      });
      if (is_known || parameter.name == "learning_rate") continue;
      attrs.push_back({std::string(parameter.name),
                       parameter.range == kernels::Range::kFlag ? "bool" : "float", false,
                       std::string(parameter.doc)});
    }
  }
  attrs[0].doc += ". The parameters that it has: docs/guide/optimizers.md.";
  return attrs;
}

void register_updates(OpRegistry* registry) {
  registry->add(
      {.name = "UpdateDense",
       .doc = "(weights, gradient, step, learning rate, slots...) -> (weights, slots...) "
              "after one update by the rule of an optimizer, all float32 or all float64. "
              "`step`: float64 scalar, 1 at the first update. `learning rate`: float32 or "
              "float64 scalar. Slots are as large as the weights, or, where the rule "
              "keeps one number for a row, [rows]. A rule that uses norms takes those of the "
              "weights, or of what they are a part of: the sum of the UpdateNorms of all "
              "parts, as its last input.",
       .min_inputs = 4,
       .max_inputs = 5 + kernels::kRuleSlotsMax,
       .attrs = update_rule_attrs(),
       .infer = infer_update_dense,
       .differentiable = false});
  registry->add({.name = "UpdateNorms",
                 .doc =
                     "(weights, gradient, step, learning rate, slots...) -> the squares of the "
                     "norms that UpdateDense by this rule would use, float64[2]; of rules that use "
                     "none, zeros.",
                 .min_inputs = 4,
                 .max_inputs = 4 + kernels::kRuleSlotsMax,
                 .attrs = update_rule_attrs(),
                 .infer = infer_update_norms,
                 .differentiable = false});
  registry->add({.name = "UpdateRows",
                 .doc =
                     "(weights, indices, values, step, learning rate, slots...) -> (weights, "
                     "slots...): UpdateDense of the rows `indices` (int32 or int64 of any shape) "
                     "alone, one row of `values` for each; rows of equal indices are summed "
                     "first.",
                 .min_inputs = 5,
                 .max_inputs = 5 + kernels::kRuleSlotsMax,
                 .attrs = update_rule_attrs(),
                 .infer = infer_update_rows,
                 .differentiable = false});
  std::vector<ir::AttrSpec> attrs = {
      {"indices", "int", true, "How many of the inputs are indices."},
      {"columns", "ints", true, "By input of values: where in a row of it the gradient begins."},
      {"widths", "ints", true, "By input of values: how long a row of it is."}};
  for (ir::AttrSpec& attr : update_rule_attrs()) attrs.push_back(std::move(attr));
  registry->add({.name = "UpdateJoinedRows",
                 .doc = "(weights, indices..., values..., step, learning rate, slots...) -> "
                        "(weights, slots...): UpdateRows by all indices one after the other, and "
                        "all values, of which "
                        "each row is read from one column on. Made by the lookup layout pass.",
                 .min_inputs = 5,
                 .max_inputs = -1,
                 .attrs = std::move(attrs),
                 .infer = infer_update_joined_rows,
                 .differentiable = false});
}

}  // namespace sidereal::ops::internal

namespace sidereal::ops {

Result<kernels::UpdateRule> update_rule_of(const ir::AttrMap& attrs) {
  // Never destroyed: lanes may bind until the process is gone.
  static const auto& kKnown = *new const auto(internal::update_rule_attrs());
  SR_ASSIGN_OR_RETURN(const std::string kind, ir::get_attr<std::string>(attrs, "kind"));
  kernels::UpdateRule::Parameters parameters;
  for (const ir::AttrSpec& known : kKnown) {
    if (known.name == "kind" || !attrs.contains(known.name)) continue;
    if (known.type == "bool") {
      SR_ASSIGN_OR_RETURN(const bool value, ir::get_attr<bool>(attrs, known.name));
      parameters[known.name] = value ? 1 : 0;
    } else {
      SR_ASSIGN_OR_RETURN(parameters[known.name], ir::get_attr<double>(attrs, known.name));
    }
  }
  return kernels::UpdateRule::make(kind, parameters);
}

}  // namespace sidereal::ops
