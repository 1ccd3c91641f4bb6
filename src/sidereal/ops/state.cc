#include "sidereal/ops/internal.h"

/// Sources of values, and what only passes on.
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
