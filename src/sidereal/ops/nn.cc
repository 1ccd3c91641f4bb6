#include "sidereal/ops/internal.h"

/// Layers' work: products, biases, losses, dropout, factorisation machines.
namespace sidereal::ops::internal {
namespace {

Status infer_mat_mul(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_real(c));
  SR_RETURN_IF_ERROR(require_rank(c, 0, 2));
  SR_RETURN_IF_ERROR(require_rank(c, 1, 2));
  const int ta = ir::attr_or<bool>(c.attrs, "transpose_a", false) ? 1 : 0;
  const int tb = ir::attr_or<bool>(c.attrs, "transpose_b", false) ? 1 : 0;
  const Shape& a = c.inputs[0].shape;
  const Shape& b = c.inputs[1].shape;
  const int64_t rows = a.has_rank() ? a.dim(ta) : -1;
  const int64_t columns = b.has_rank() ? b.dim(1 - tb) : -1;
  const int64_t inner_a = a.has_rank() ? a.dim(1 - ta) : -1;
  const int64_t inner_b = b.has_rank() ? b.dim(tb) : -1;
  if (!merge_extent(inner_a, inner_b).ok()) {
    return base::invalid_argument(
        "inner extents {} and {} differ; the columns of the first matrix must be the rows of the "
        "second (transpose_a={}, transpose_b={})",
        inner_a, inner_b, ta != 0, tb != 0);
  }
  return put(c, c.inputs[0].dtype, Shape{rows, columns});
}

Status grad_mat_mul(GradContext& c) {
  const Output a = c.node.inputs[0];
  const Output w = c.node.inputs[1];
  const Output g = c.output_grads[0];
  const bool ta = ir::attr_or<bool>(c.node.attrs, "transpose_a", false);
  const bool tb = ir::attr_or<bool>(c.node.attrs, "transpose_b", false);
  const auto product = [&c](Output x, bool tx, Output y, bool ty) {
    return c.builder.add("MatMul", {x, y}, {{"transpose_a", tx}, {"transpose_b", ty}});
  };
  (*c.input_grads)[0] = ta ? product(w, tb, g, true) : product(g, false, w, !tb);
  (*c.input_grads)[1] = tb ? product(g, true, a, ta) : product(a, !ta, g, false);
  return {};
}

Status infer_bias_add(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_real(c));
  SR_RETURN_IF_ERROR(require_rank(c, 1, 1));
  Shape x = c.inputs[0].shape;
  const Shape& bias = c.inputs[1].shape;
  if (x.has_rank() && x.rank() < 1) return base::invalid_argument("input 0 is a scalar");
  if (x.has_rank() && bias.has_rank()) {
    const Result<int64_t> last = merge_extent(x.dim(-1), bias.dim(0));
    if (!last.ok()) {
      return base::invalid_argument("the bias has {} elements; the last extent is {}", bias.dim(0),
                                    x.dim(-1));
    }
    x.set_dim(-1, *last);
  }
  return put(c, c.inputs[0].dtype, x);
}

Status grad_bias_add(GradContext& c) {
  (*c.input_grads)[0] = c.output_grads[0];
  (*c.input_grads)[1] = c.builder.add("BiasAddGrad", {c.output_grads[0]});
  return {};
}

Status infer_bias_add_grad(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_real(c));
  const Shape& shape = c.inputs[0].shape;
  if (shape.has_rank() && shape.rank() < 1) return base::invalid_argument("the input is a scalar");
  return put(c, c.inputs[0].dtype, Shape{shape.has_rank() ? shape.dim(-1) : -1});
}

/// All inputs of one shape and dtype, which are the output's.
Status infer_same_shapes(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_real(c));
  SR_ASSIGN_OR_RETURN(Shape shape, merge_inputs(c, 0, c.inputs.size() - 1));
  return put(c, c.inputs[0].dtype, std::move(shape));
}

Status grad_cross_entropy(GradContext& c) {
  (*c.input_grads)[0] = c.builder.add("SigmoidCrossEntropyGrad",
                                      {c.output_grads[0], c.node.inputs[0], c.node.inputs[1]});
  return {};
}

Status infer_fm(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_real(c));
  SR_RETURN_IF_ERROR(require_rank(c, 0, 3));
  const Shape& x = c.inputs[0].shape;
  return put(c, c.inputs[0].dtype, Shape{x.has_rank() ? x.dim(0) : -1, 1});
}

Status grad_fm(GradContext& c) {
  (*c.input_grads)[0] = c.builder.add("FmInteractionGrad", {c.output_grads[0], c.node.inputs[0]});
  return {};
}

Status infer_fm_grad(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_real(c));
  SR_RETURN_IF_ERROR(require_rank(c, 1, 3));
  const Shape& x = c.inputs[1].shape;
  const Shape wanted{x.has_rank() ? x.dim(0) : -1, 1};
  SR_RETURN_IF_ERROR(merge_shapes(c.inputs[0].shape, wanted).status());
  return put(c, c.inputs[0].dtype, x);
}

Status infer_dropout(const InferContext& c) {
  SR_ASSIGN_OR_RETURN(const double rate, ir::get_attr<double>(c.attrs, "rate"));
  if (!(rate >= 0 && rate < 1)) {
    return base::invalid_argument("rate is {}; it must be at least 0 and less than 1", rate);
  }
  return infer_like_first(c);
}

/// The mask depends on the attributes, the step and the element's index only, so the same op drops
/// the same elements of the gradient.
Status grad_dropout(GradContext& c) {
  (*c.input_grads)[0] = c.builder.add("Dropout", {c.output_grads[0]}, c.node.attrs);
  return {};
}

void register_losses(OpRegistry* registry) {
  registry->add({.name = "SigmoidCrossEntropyWithLogits",
                 .doc = "(logits, labels) -> max(x, 0) - x z + log(1 + e^-|x|), element by element "
                        "(tf.nn.sigmoid_cross_entropy_with_logits). No gradient to the labels.",
                 .min_inputs = 2,
                 .max_inputs = 2,
                 .infer = infer_same_shapes,
                 .gradient = grad_cross_entropy});
  registry->add({.name = "SigmoidCrossEntropyGrad",
                 .doc = "(dy, logits, labels) -> dy (sigmoid(logits) - labels).",
                 .min_inputs = 3,
                 .max_inputs = 3,
                 .infer = infer_same_shapes,
                 .differentiable = false});
}

}  // namespace

void register_nn(OpRegistry* registry) {
  registry->add({.name = "MatMul",
                 .doc = "Product of two matrices.",
                 .min_inputs = 2,
                 .max_inputs = 2,
                 .attrs = {{"transpose_a", "bool", false, "Transpose the first matrix."},
                           {"transpose_b", "bool", false, "Transpose the second matrix."}},
                 .infer = infer_mat_mul,
                 .gradient = grad_mat_mul});
  registry->add({.name = "BiasAdd",
                 .doc = "x[..., n] + bias[n].",
                 .min_inputs = 2,
                 .max_inputs = 2,
                 .infer = infer_bias_add,
                 .gradient = grad_bias_add});
  registry->add({.name = "BiasAddGrad",
                 .doc = "dy[..., n] summed over all but the last dimension.",
                 .min_inputs = 1,
                 .max_inputs = 1,
                 .infer = infer_bias_add_grad,
                 .differentiable = false});
  register_losses(registry);
  registry->add({.name = "FmInteraction",
                 .doc = "x[b, f, d] -> [b, 1]: the inner products of all pairs of the f vectors, "
                        "summed (Rendle, Factorization Machines, 2010).",
                 .min_inputs = 1,
                 .max_inputs = 1,
                 .infer = infer_fm,
                 .gradient = grad_fm});
  registry->add({.name = "FmInteractionGrad",
                 .doc = "(dy[b, 1], x[b, f, d]) -> dy times (sum of the f vectors - x).",
                 .min_inputs = 2,
                 .max_inputs = 2,
                 .infer = infer_fm_grad,
                 .differentiable = false});
  registry->add({.name = "Dropout",
                 .doc = "While training, each element is 0 with probability `rate`, else divided "
                        "by 1 - rate; which, depends on (seed, step, element index) only.",
                 .min_inputs = 1,
                 .max_inputs = 1,
                 .attrs = {{"rate", "float", true, "Probability of 0; at least 0, less than 1."},
                           {"seed", "int", true, "Tells dropouts apart."},
                           {"training", "bool", false, "False (or absent): the input as it is."}},
                 .infer = infer_dropout,
                 .gradient = grad_dropout,
                 .stateful = true});
}

}  // namespace sidereal::ops::internal
