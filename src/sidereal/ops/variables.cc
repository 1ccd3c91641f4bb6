#include <algorithm>
#include <utility>
#include <vector>

#include "sidereal/ops/internal.h"
#include "sidereal/ops/update_rule.h"

/// Ops on variables that steps share by name. The handle, a scalar string, is made by Variable; an
/// op that takes one runs where the handle was made.
namespace sidereal::ops::internal {
namespace {

using ir::AttrSpec;

const AttrSpec kDtype = {"dtype", "dtype", true, "Of the values."};
const AttrSpec kShape = {"shape", "shape", false, "Of the values; anything, if absent."};

Status require_handle(const InferContext& c, size_t i = 0) {
  SR_RETURN_IF_ERROR(require_dtype(c, i, DType::kString));
  return require_rank(c, i, 0);
}

Result<TensorSpec> declared(const InferContext& c) {
  TensorSpec out;
  SR_ASSIGN_OR_RETURN(out.dtype, ir::get_attr<DType>(c.attrs, "dtype"));
  if (!tensor::is_valid(out.dtype)) return base::invalid_argument("the dtype is invalid");
  out.shape = ir::attr_or<Shape>(c.attrs, "shape", Shape::unknown_rank());
  SR_RETURN_IF_ERROR(ir::check_shape(out.shape));
  return out;
}

/// What the node says of the variable, or what made the handle in this graph says.
Shape shape_of_variable(const InferContext& c) {
  if (c.edges == nullptr || c.edges->empty()) return Shape::unknown_rank();
  const ir::Node& maker = c.graph.node((*c.edges)[0].node);
  return maker.op == "Variable" ? ir::attr_or<Shape>(maker.attrs, "shape", Shape::unknown_rank())
                                : Shape::unknown_rank();
}

Status infer_variable(const InferContext& c) {
  SR_RETURN_IF_ERROR(declared(c).status());
  SR_RETURN_IF_ERROR(ir::get_attr<std::string>(c.attrs, "shared_name").status());
  return put(c, DType::kString, Shape());
}

Status infer_read(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_handle(c));
  SR_ASSIGN_OR_RETURN(TensorSpec spec, declared(c));
  return put(c, spec.dtype, std::move(spec.shape));
}

Status infer_variable_gather(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_handle(c));
  SR_RETURN_IF_ERROR(require(c, sets::kIndices, 1, 1));
  SR_ASSIGN_OR_RETURN(const TensorSpec spec, declared(c));
  const auto out = ir::attr_or<DType>(c.attrs, "out_type", spec.dtype);
  if (out != spec.dtype && (spec.dtype != DType::kFloat32 || out != DType::kBFloat16)) {
    return base::invalid_argument("out_type is {}; rows of {} are gathered as they are{}",
                                  tensor::name_of(out), tensor::name_of(spec.dtype),
                                  spec.dtype == DType::kFloat32 ? " or rounded to bfloat16" : "");
  }
  if (!spec.shape.has_rank() || !c.inputs[1].shape.has_rank()) {
    return put(c, out, Shape::unknown_rank());
  }
  if (spec.shape.rank() < 1) return base::invalid_argument("a scalar has no rows");
  Shape shape = c.inputs[1].shape;
  for (int i = 1; i < spec.shape.rank(); ++i) shape.append(spec.shape.dim(i));
  SR_RETURN_IF_ERROR(ir::check_shape(shape));
  return put(c, out, std::move(shape));
}

Status infer_is_initialized(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_handle(c));
  return put(c, DType::kBool, Shape());
}

Status infer_assign(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_handle(c));
  const TensorSpec& value = c.inputs[1];
  if (!ir::attr_or(c.attrs, "validate_shape", true)) return put(c, value.dtype, value.shape);
  SR_ASSIGN_OR_RETURN(Shape shape, merge_shapes(shape_of_variable(c), value.shape));
  return put(c, value.dtype, std::move(shape));
}

Status infer_assign_sum(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_handle(c));
  SR_RETURN_IF_ERROR(require(c, sets::kNumbers, 1, 1));
  SR_ASSIGN_OR_RETURN(Shape shape, merge_shapes(shape_of_variable(c), c.inputs[1].shape));
  return put(c, c.inputs[1].dtype, std::move(shape));
}

Status infer_scatter(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_handle(c));
  SR_RETURN_IF_ERROR(require(c, sets::kIndices, 1, 1));
  return put(c, c.inputs[2].dtype, shape_of_variable(c));
}

/// Step and learning rate at `step`, then the handles of the slots.
Status infer_update(const InferContext& c, size_t step, bool may_have_norms = false) {
  SR_RETURN_IF_ERROR(require_handle(c));
  SR_ASSIGN_OR_RETURN(const kernels::UpdateRule rule, update_rule_of(c.attrs));
  const auto grad = static_cast<int>(step - 1);
  SR_RETURN_IF_ERROR(require(c, sets::kReals, grad, grad));
  SR_RETURN_IF_ERROR(require_step(c, step));
  SR_RETURN_IF_ERROR(check_slots(c, rule, step + 2, may_have_norms));
  for (int i = 0; i < rule.num_slots(); ++i) {
    SR_RETURN_IF_ERROR(require_handle(c, step + 2 + static_cast<size_t>(i)));
  }
  return {};
}

Status infer_update_dense(const InferContext& c) {
  SR_RETURN_IF_ERROR(infer_update(c, 2, true));
  return merge_shapes(shape_of_variable(c), c.inputs[1].shape).status();
}

Status infer_update_norms(const InferContext& c) {
  SR_RETURN_IF_ERROR(infer_update(c, 2));
  SR_RETURN_IF_ERROR(merge_shapes(shape_of_variable(c), c.inputs[1].shape).status());
  return put(c, DType::kFloat64, {2});
}

Status infer_update_rows(const InferContext& c) {
  SR_RETURN_IF_ERROR(require(c, sets::kIndices, 1, 1));
  return infer_update(c, 3);
}

/// Gradients with respect to a variable are those of its reads: none flows to the handle.
Status grad_read(GradContext& /*c*/) { return {}; }

void add(OpRegistry* registry, const char* name, const char* doc, int inputs,
         std::vector<AttrSpec> attrs, std::function<Status(const InferContext&)> infer) {
  registry->add({.name = name,
                 .doc = doc,
                 .min_inputs = inputs,
                 .max_inputs = inputs,
                 .attrs = std::move(attrs),
                 .infer = std::move(infer),
                 .differentiable = false,
                 .stateful = true,
                 .effect = true,
                 .handle_inputs = std::min(inputs, 1)});
}

void register_reads(OpRegistry* registry) {
  registry->add({.name = "VariableRead",
                 .doc = "The value of the variable of a handle, which does not change with it.",
                 .min_inputs = 1,
                 .max_inputs = 1,
                 .attrs = {kDtype, kShape},
                 .infer = infer_read,
                 .gradient = grad_read,
                 .stateful = true,
                 .handle_inputs = 1});
  registry->add(
      {.name = "VariableGather",
       .doc = "(handle, indices) -> the rows of a variable at indices: Gather of its VariableRead, "
              "without the rest of it. Made by the pass that gathers at variables.",
       .min_inputs = 2,
       .max_inputs = 2,
       .attrs = {kDtype,
                 kShape,
                 {"out_type", "dtype", false, "bfloat16: float32 rows are rounded on the way."}},
       .infer = infer_variable_gather,
       .differentiable = false,
       .stateful = true,
       .handle_inputs = 1});
  registry->add({.name = "VariableIsInitialized",
                 .doc = "Whether the variable of a handle has a value.",
                 .min_inputs = 1,
                 .max_inputs = 1,
                 .infer = infer_is_initialized,
                 .differentiable = false,
                 .stateful = true,
                 .handle_inputs = 1});
}

void register_rules(OpRegistry* registry) {
  std::vector<AttrSpec> attrs = update_rule_attrs();
  registry->add({.name = "VariableUpdateDense",
                 .doc = "(handle, gradient, step, learning rate, handles of slots...): UpdateDense "
                        "of variables, at once. Norms may follow.",
                 .min_inputs = 4,
                 .max_inputs = 5 + kernels::kRuleSlotsMax,
                 .attrs = attrs,
                 .infer = infer_update_dense,
                 .differentiable = false,
                 .stateful = true,
                 .effect = true,
                 .handle_inputs = 1});
  registry->add({.name = "VariableUpdateNorms",
                 .doc = "(handle, gradient, step, learning rate, handles of slots...): UpdateNorms "
                        "of variables, which it does not change.",
                 .min_inputs = 4,
                 .max_inputs = 4 + kernels::kRuleSlotsMax,
                 .attrs = attrs,
                 .infer = infer_update_norms,
                 .differentiable = false,
                 .stateful = true,
                 .handle_inputs = 1});
  attrs.push_back(
      {"distinct", "bool", false, "No two indices are equal; none is looked for then."});
  registry->add({.name = "VariableUpdateRows",
                 .doc = "(handle, indices, values, step, learning rate, handles of slots...): "
                        "UpdateRows of variables, at once.",
                 .min_inputs = 5,
                 .max_inputs = 5 + kernels::kRuleSlotsMax,
                 .attrs = attrs,
                 .infer = infer_update_rows,
                 .differentiable = false,
                 .stateful = true,
                 .effect = true,
                 .handle_inputs = 1});
}

}  // namespace

void register_variables(OpRegistry* registry) {
  add(registry, "Variable",
      "The handle of the variable of this name, which is made, without a value, when there is "
      "none.",
      0,
      {{"shared_name", "string", true, "Name under which the steps of a task find it."},
       {"container", "string", false, "Container of the name; the default one, \"\", if absent."},
       {"of_lane", "int", false,
        "Each lane of the task has one: the lane whose it is; -1: the lane that runs the node."},
       kDtype,
       kShape},
      infer_variable);
  register_reads(registry);
  add(registry, "VariableAssign", "(handle, value): gives the variable a value; the value.", 2,
      {{"validate_shape", "bool", false,
        "Whether the value must have the variable's shape; true if absent."}},
      infer_assign);
  add(registry, "VariableAssignAdd", "(handle, x): adds x, of its shape; the new value.", 2, {},
      infer_assign_sum);
  add(registry, "VariableAssignSub", "(handle, x): subtracts x, of its shape; the new value.", 2,
      {}, infer_assign_sum);
  add(registry, "VariableScatterAdd",
      "(handle, indices, values): adds rows, those of equal indices one after the other; the new "
      "value.",
      3, {}, infer_scatter);
  add(registry, "VariableScatterSub",
      "(handle, indices, values): subtracts rows, those of equal indices one after the other; the "
      "new value.",
      3, {}, infer_scatter);
  add(registry, "VariableScatterUpdate",
      "(handle, indices, values): replaces rows, of equal indices the last one stays; the new "
      "value.",
      3, {}, infer_scatter);
  register_rules(registry);
}

}  // namespace sidereal::ops::internal
