#include "sidereal/ops/internal.h"

/// Sources of values and the variables.
namespace sidereal::ops::internal {
namespace {

Status infer_placeholder(const InferContext& c) {
  SR_ASSIGN_OR_RETURN(const DType dtype, ir::get_attr<DType>(c.attrs, "dtype"));
  SR_ASSIGN_OR_RETURN(const Shape shape, ir::get_attr<Shape>(c.attrs, "shape"));
  if (!tensor::is_valid(dtype)) return base::invalid_argument("the dtype is invalid");
  return put(c, dtype, shape);
}

Status infer_const(const InferContext& c) {
  SR_ASSIGN_OR_RETURN(const Tensor value, ir::get_attr<Tensor>(c.attrs, "value"));
  return put(c, value.dtype(), value.shape());
}

Result<const ir::VariableDef*> variable_of(const InferContext& c, bool embedding) {
  SR_ASSIGN_OR_RETURN(const std::string name, ir::get_attr<std::string>(c.attrs, "var"));
  const ir::VariableDef* variable = c.graph.find_variable(name);
  if (variable == nullptr) return base::not_found("variable '{}' is not declared", name);
  if (variable->embedding != embedding) {
    return base::invalid_argument(
        "variable '{}' is {}; this op takes {}", name,
        variable->embedding ? "an embedding" : "a dense variable",
        embedding ? "embeddings only" : "dense variables only (read embeddings with Lookup)");
  }
  return variable;
}

Status infer_read_variable(const InferContext& c) {
  SR_ASSIGN_OR_RETURN(const ir::VariableDef* variable, variable_of(c, false));
  return put(c, variable->dtype, variable->shape);
}

Result<const ir::VariableDef*> embedding_of(const InferContext& c) {
  SR_ASSIGN_OR_RETURN(const ir::VariableDef* variable, variable_of(c, true));
  if (variable->dtype != DType::kFloat32) {
    return base::invalid_argument("embedding '{}' is {}; it must be float32", variable->name,
                                  tensor::name_of(variable->dtype));
  }
  SR_RETURN_IF_ERROR(require_dtype(c, 0, DType::kInt64));
  return variable;
}

Status infer_lookup(const InferContext& c) {
  SR_ASSIGN_OR_RETURN(const ir::VariableDef* variable, embedding_of(c));
  return put(c, variable->dtype, with_last(c.inputs[0].shape, variable->shape.dim(1)));
}

Status infer_apply_dense(const InferContext& c) {
  SR_ASSIGN_OR_RETURN(const ir::VariableDef* variable, variable_of(c, false));
  SR_RETURN_IF_ERROR(require_dtype(c, 0, variable->dtype));
  if (merge_shapes(c.inputs[0].shape, variable->shape).ok()) return {};
  return base::invalid_argument("the gradient does not have the shape {} of variable '{}'",
                                variable->shape.to_string(), variable->name);
}

Status infer_apply_sparse(const InferContext& c) {
  SR_ASSIGN_OR_RETURN(const ir::VariableDef* variable, embedding_of(c));
  SR_RETURN_IF_ERROR(require_dtype(c, 1, variable->dtype));
  const Shape wanted = with_last(c.inputs[0].shape, variable->shape.dim(1));
  if (merge_shapes(c.inputs[1].shape, wanted).ok()) return {};
  return base::invalid_argument("the gradients must have shape {}: one row of {} per id",
                                wanted.to_string(), variable->shape.dim(1));
}

Status infer_same(const InferContext& c) { return put(c, c.inputs[0].dtype, c.inputs[0].shape); }

Status infer_nothing(const InferContext& /*c*/) { return {}; }

Status pass_through(GradContext& c) {
  (*c.input_grads)[0] = c.output_grads[0];
  return {};
}

}  // namespace

void register_state(OpRegistry* registry) {
  registry->add({.name = "Placeholder",
                 .doc = "A value fed under the node's name.",
                 .attrs = {{"dtype", "dtype", true, "Element type."},
                           {"shape", "shape", true, "Shape; unknown extents are allowed."}},
                 .infer = infer_placeholder,
                 .gradient = no_flow});
  registry->add({.name = "Const",
                 .doc = "A value known when the graph is built.",
                 .attrs = {{"value", "tensor", true, "The value."}},
                 .infer = infer_const,
                 .gradient = no_flow});
  registry->add({.name = "ReadVariable",
                 .doc = "The value of a dense variable.",
                 .attrs = {{"var", "string", true, "Name of the variable."}},
                 .infer = infer_read_variable,
                 .gradient = no_flow,
                 .stateful = true,
                 .on_ps = true});
  registry->add({.name = "Lookup",
                 .doc =
                     "Rows of an embedding: ids int64 of any shape -> float32 ids.shape + [dim]. "
                     "A negative id gives a row of zeros and takes no gradient.",
                 .min_inputs = 1,
                 .max_inputs = 1,
                 .attrs = {{"var", "string", true, "Name of the embedding."}},
                 .infer = infer_lookup,
                 .gradient = no_flow,
                 .stateful = true});
  registry->add({.name = "ApplyDense",
                 .doc = "Updates a dense variable by its optimizer from a gradient of its shape.",
                 .min_inputs = 1,
                 .max_inputs = 1,
                 .attrs = {{"var", "string", true, "Name of the variable."}},
                 .infer = infer_apply_dense,
                 .differentiable = false,
                 .stateful = true,
                 .on_ps = true});
  registry->add({.name = "ApplySparse",
                 .doc = "Updates rows of an embedding by its optimizer from (ids, gradients of "
                        "shape ids.shape + [dim]); gradients of equal ids are summed first.",
                 .min_inputs = 2,
                 .max_inputs = 2,
                 .attrs = {{"var", "string", true, "Name of the embedding."}},
                 .infer = infer_apply_sparse,
                 .differentiable = false,
                 .stateful = true});
  registry->add({.name = "Identity",
                 .doc = "Its input.",
                 .min_inputs = 1,
                 .max_inputs = 1,
                 .infer = infer_same,
                 .gradient = pass_through});
  registry->add({.name = "StopGradient",
                 .doc = "Its input, through which no gradient flows back.",
                 .min_inputs = 1,
                 .max_inputs = 1,
                 .infer = infer_same,
                 .gradient = no_flow});
  registry->add({.name = "NoOp",
                 .doc = "Nothing; stands for its control inputs.",
                 .infer = infer_nothing,
                 .differentiable = false});
}

}  // namespace sidereal::ops::internal
