#include <utility>

#include "sidereal/ops/internal.h"
#include "sidereal/ops/rule.h"

/// Layers' work: products, biases, losses, dropout, factorisation machines.
namespace sidereal::ops::internal {
namespace {

constexpr DTypeSet kMultiplied = {"a float, int32 or int64",
                                  sets::kFloats.bits | sets::kIndices.bits};

/// The dimensions in front of the last two.
Shape batch_of(const Shape& shape) {
  return shape.has_rank() ? Shape(shape.dims().first(shape.rank() - 2)) : shape;
}

Status infer_mat_mul(const InferContext& c) {
  SR_RETURN_IF_ERROR(require(c, kMultiplied));
  const Shape& a = c.inputs[0].shape;
  const Shape& b = c.inputs[1].shape;
  for (const Shape& shape : {a, b}) {
    if (shape.has_rank() && shape.rank() < 2) {
      return base::invalid_argument(
          "shape {} is no matrix: at least 2 dimensions are needed; reshape it first",
          shape.to_string());
    }
  }
  const int ta = ir::attr_or<bool>(c.attrs, "transpose_a", false) ? 1 : 0;
  const int tb = ir::attr_or<bool>(c.attrs, "transpose_b", false) ? 1 : 0;
  const int64_t inner_a = a.has_rank() ? a.dim(-1 - ta) : -1;
  const int64_t inner_b = b.has_rank() ? b.dim(-2 + tb) : -1;
  if (!merge_extent(inner_a, inner_b).ok()) {
    return base::invalid_argument(
        "inner extents {} and {} differ; the columns of the first matrix must be the rows of the "
        "second (transpose_a={}, transpose_b={})",
        inner_a, inner_b, ta != 0, tb != 0);
  }
  SR_ASSIGN_OR_RETURN(const DType dtype, out_type(c));
  if (!a.has_rank() || !b.has_rank()) return put(c, dtype, Shape::unknown_rank());
  SR_ASSIGN_OR_RETURN(Shape out, broadcast_shapes(batch_of(a), batch_of(b)));
  out.append(a.dim(-2 + ta));
  out.append(b.dim(-1 - tb));
  return put(c, dtype, out);
}

/// `g`, the gradient of a result wider than the inputs, with the dtype of input `x`.
Output like_dtype(GradContext& c, Output g, Output x) {
  const DType dtype = c.builder.spec(x).dtype;
  if (c.builder.spec(g).dtype == dtype) return g;
  return c.builder.add("Cast", {g}, {{"dtype", dtype}});
}

bool is_matrix(const Shape& shape) { return shape.has_rank() && shape.rank() == 2; }

/// `x` as a matrix with its last extent.
Output flattened(ir::Builder& b, Output x) {
  return b.add("Reshape", {x}, {{"shape", std::vector<int64_t>{-1, b.spec(x).shape.dim(-1)}}});
}

/// The gradient of w in x[.., m, k] w[k, n] is one product of tall matrices, not a stack of them.
bool is_tall(const TensorSpec& a, const TensorSpec& w, const TensorSpec& g, bool ta) {
  return !ta && is_matrix(w.shape) && a.shape.has_rank() && a.shape.rank() > 2 &&
         a.shape.dim(-1) > 0 && g.shape.has_rank() && g.shape.dim(-1) > 0;
}

/// The gradient of x in x x^T or x^T x: one product, with g + g^T.
Output grad_of_gram(ir::Builder& b, Output x, Output g, bool ta) {
  std::vector<int64_t> perm;
  for (int i = 0; i < b.spec(x).shape.rank(); ++i) perm.push_back(i);
  std::swap(perm.back(), perm[perm.size() - 2]);
  const Output sum = b.add("Add", {g, b.add("Transpose", {g}, {{"perm", perm}})});
  return ta ? b.add("MatMul", {x, sum}) : b.add("MatMul", {sum, x});
}

Status grad_mat_mul(GradContext& c) {
  const Output a = c.node.inputs[0];
  const Output w = c.node.inputs[1];
  const Output g = like_dtype(c, c.output_grads[0], a);
  const bool ta = ir::attr_or<bool>(c.node.attrs, "transpose_a", false);
  const bool tb = ir::attr_or<bool>(c.node.attrs, "transpose_b", false);
  if (a == w && ta != tb && c.builder.spec(a).shape.has_rank()) {
    (*c.input_grads)[0] = grad_of_gram(c.builder, a, g, ta);
    return {};
  }
  const auto product = [&c](Output x, bool tx, Output y, bool ty) {
    return c.builder.add("MatMul", {x, y}, {{"transpose_a", tx}, {"transpose_b", ty}});
  };
  const TensorSpec a_spec = c.builder.spec(a);
  const TensorSpec w_spec = c.builder.spec(w);
  const bool plain = is_matrix(a_spec.shape) && is_matrix(w_spec.shape);
  const Output to_a = ta ? product(w, tb, g, true) : product(g, false, w, !tb);
  (*c.input_grads)[0] = plain ? to_a : sum_to(c.builder, to_a, a);
  if (is_tall(a_spec, w_spec, c.builder.spec(g), ta)) {
    const Output tall_a = flattened(c.builder, a);
    const Output tall_g = flattened(c.builder, g);
    (*c.input_grads)[1] =
        tb ? product(tall_g, true, tall_a, false) : product(tall_a, true, tall_g, false);
    return {};
  }
  const Output to_w = tb ? product(g, true, a, ta) : product(a, !ta, g, false);
  (*c.input_grads)[1] = plain ? to_w : sum_to(c.builder, to_w, w);
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

Status grad_bias_add_grad(GradContext& c) {
  Rule r(c);
  return r.flow(r.op("BroadcastLike", {like_dtype(c, r.dy(), r.x()), r.x()}));
}

Status infer_bias_add_grad(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_real(c));
  const Shape& shape = c.inputs[0].shape;
  if (shape.has_rank() && shape.rank() < 1) return base::invalid_argument("the input is a scalar");
  SR_ASSIGN_OR_RETURN(const DType dtype, out_type(c));
  return put(c, dtype, Shape{shape.has_rank() ? shape.dim(-1) : -1});
}

Status grad_cross_entropy(GradContext& c) {
  (*c.input_grads)[0] = c.builder.add("SigmoidCrossEntropyGrad",
                                      {c.output_grads[0], c.node.inputs[0], c.node.inputs[1]});
  if (!c.wants(1)) return {};
  // The loss is linear in the labels.
  (*c.input_grads)[1] =
      c.builder.add("Neg", {c.builder.add("Mul", {c.output_grads[0], c.node.inputs[0]})});
  return {};
}

/// (dy, logits, labels) -> dy (sigmoid(logits) - labels).
Status grad_cross_entropy_grad(GradContext& c) {
  Rule r(c);
  SR_RETURN_IF_ERROR(r.flow(0, r.op("SigmoidCrossEntropyGrad", {r.dy(), r.y(), r.in(2)})));
  const Output both = r.mul(r.dy(), r.x());
  const Output s = r.op("Sigmoid", {r.y()});
  SR_RETURN_IF_ERROR(r.flow(1, r.op("SigmoidGrad", {both, s})));
  return r.flow(2, r.neg(both));
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

/// (dy, x) -> dy (sum of the vectors of x - x), linear in both.
Status grad_fm_grad(GradContext& c) {
  Rule r(c);
  const Output ones = r.op("OnesLike", {r.x()});
  const Output slope = r.mul(r.dy(), r.op("FmInteractionGrad", {ones, r.y()}));
  const Output total = r.op("ReduceSum", {slope}, {{"axes", std::vector<int64_t>{1, 2}}});
  SR_RETURN_IF_ERROR(r.flow(0, r.op("ReshapeLike", {total, r.x()})));
  return r.flow(1, r.op("FmInteractionGrad", {r.x(), r.dy()}));
}

Status infer_dropout(const InferContext& c) {
  SR_ASSIGN_OR_RETURN(const double rate, ir::get_attr<double>(c.attrs, "rate"));
  if (!(rate >= 0 && rate < 1)) {
    return base::invalid_argument("rate is {}; it must be at least 0 and less than 1", rate);
  }
  SR_RETURN_IF_ERROR(require(c, sets::kFloats, 0, 0));
  SR_RETURN_IF_ERROR(require_stream(c, 1));
  return put(c, c.inputs[0].dtype, c.inputs[0].shape);
}

/// The mask depends on the attributes, the step and the element's index only, so the same op drops
/// the same elements of the gradient.
Status grad_dropout(GradContext& c) {
  std::vector<Output> inputs = c.node.inputs;
  inputs[0] = c.output_grads[0];
  (*c.input_grads)[0] = c.builder.add("Dropout", inputs, c.node.attrs);
  return {};
}

void register_losses(OpRegistry* registry) {
  registry->add({.name = "SigmoidCrossEntropyWithLogits",
                 .doc = "(logits, labels) -> max(x, 0) - x z + log(1 + e^-|x|), element by element "
                        "(tf.nn.sigmoid_cross_entropy_with_logits).",
                 .min_inputs = 2,
                 .max_inputs = 2,
                 .infer = same_shapes(sets::kFloats),
                 .gradient = grad_cross_entropy});
  registry->add({.name = "SigmoidCrossEntropyGrad",
                 .doc = "(dy, logits, labels) -> dy (sigmoid(logits) - labels).",
                 .min_inputs = 3,
                 .max_inputs = 3,
                 .infer = same_shapes(sets::kFloats),
                 .gradient = grad_cross_entropy_grad});
}

}  // namespace

void register_nn(OpRegistry* registry) {
  registry->add({.name = "MatMul",
                 .doc =
                     "Product of matrices: [..., m, k] times [..., k, n]. The dimensions in front "
                     "broadcast as NumPy does.",
                 .min_inputs = 2,
                 .max_inputs = 2,
                 .attrs = {{"transpose_a", "bool", false, "Swap the last two dimensions of a."},
                           {"transpose_b", "bool", false, "Swap the last two dimensions of b."},
                           {"out_type", "dtype", false, kWideTypeDoc}},
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
                 .attrs = {{"out_type", "dtype", false, kWideTypeDoc}},
                 .infer = infer_bias_add_grad,
                 .gradient = grad_bias_add_grad});
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
                 .gradient = grad_fm_grad});
  registry->add({.name = "Dropout",
                 .doc = "While training, each element is 0 with probability `rate`, else divided "
                        "by 1 - rate; which, depends on (seed, step, element index) only. An int64 "
                        "scalar as second input takes the place of the step.",
                 .min_inputs = 1,
                 .max_inputs = 2,
                 .attrs = {{"rate", "float", true, "Probability of 0; at least 0, less than 1."},
                           {"seed", "int", true, "Tells dropouts apart."},
                           {"training", "bool", false, "False (or absent): the input as it is."}},
                 .infer = infer_dropout,
                 .gradient = grad_dropout,
                 .stateful = true});
}

}  // namespace sidereal::ops::internal
