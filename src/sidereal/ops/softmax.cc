#include "sidereal/ops/internal.h"
#include "sidereal/ops/rule.h"

/// Softmax along an axis, the losses on it, and normalisation.
namespace sidereal::ops::internal {
namespace {

Status check_axis(const InferContext& c, const Shape& shape) {
  if (!shape.has_rank()) return {};
  return normalize_axis(ir::attr_or<int64_t>(c.attrs, "axis", -1), shape.rank()).status();
}

Status infer_softmax(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_real(c));
  SR_ASSIGN_OR_RETURN(Shape shape, merge_inputs(c, 0, c.inputs.size() - 1));
  SR_RETURN_IF_ERROR(check_axis(c, shape));
  return put(c, c.inputs[0].dtype, std::move(shape));
}

int64_t axis_of(const GradContext& c) { return ir::attr_or<int64_t>(c.node.attrs, "axis", -1); }

/// The sum along the node's axis, kept with extent 1.
Output sum_along(GradContext& c, Output x) {
  return c.builder.add("ReduceSum", {x},
                       {{"axes", std::vector<int64_t>{axis_of(c)}}, {"keep_dims", true}});
}

Status grad_softmax(GradContext& c) {
  Rule r(c);
  return r.flow(r.op("SoftmaxGrad", {r.dy(), r.z()}, {{"axis", axis_of(c)}}));
}

/// z = x - log(sum(exp(x))): dx = dy - exp(z) sum(dy).
Status grad_log_softmax(GradContext& c) {
  Rule r(c);
  const Output total = sum_along(c, r.dy());
  return r.flow(r.sub(r.dy(), r.mul(r.op("Exp", {r.z()}), total)));
}

/// (dy, y) -> y (dy - sum(dy y)), linear in dy. By y: g (dy - sum(dy y)) - dy sum(g y).
Status grad_softmax_grad(GradContext& c) {
  Rule r(c);
  const AttrMap axis = {{"axis", axis_of(c)}};
  SR_RETURN_IF_ERROR(r.flow(0, r.op("SoftmaxGrad", {r.dy(), r.y()}, axis)));
  const Output mixed = sum_along(c, r.mul(r.x(), r.y()));
  const Output left = r.mul(r.dy(), r.sub(r.x(), mixed));
  const Output gained = sum_along(c, r.mul(r.dy(), r.y()));
  return r.flow(1, r.sub(left, r.mul(r.x(), gained)));
}

/// `shape` without its last dimension.
Shape without_last(const Shape& shape) {
  return shape.has_rank() ? Shape(shape.dims().first(shape.rank() - 1)) : shape;
}

Status require_classes(const Shape& logits) {
  if (!logits.has_rank() || logits.rank() > 0) return {};
  return base::invalid_argument("the logits are a scalar; their last dimension is the classes");
}

Status infer_sparse_loss(const InferContext& c) {
  SR_RETURN_IF_ERROR(require(c, sets::kFloats, 0, 0));
  SR_RETURN_IF_ERROR(require(c, sets::kIndices, 1, 1));
  Shape logits = c.inputs[0].shape;
  SR_RETURN_IF_ERROR(require_classes(logits));
  const Result<Shape> labels = merge_shapes(without_last(logits), c.inputs[1].shape);
  if (!labels.ok()) {
    return base::invalid_argument(
        "labels of shape {} do not fit logits of shape {}: one label for "
        "each row of the last dimension is needed",
        c.inputs[1].shape.to_string(), logits.to_string());
  }
  SR_RETURN_IF_ERROR(put(c, c.inputs[0].dtype, *labels));
  if (labels->has_rank()) {
    SR_ASSIGN_OR_RETURN(logits, merge_shapes(logits, with_last(*labels, -1)));
  }
  return put(c, c.inputs[0].dtype, logits);
}

Status infer_dense_loss(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_real(c));
  SR_ASSIGN_OR_RETURN(const Shape logits, merge_inputs(c, 0, 1));
  SR_RETURN_IF_ERROR(require_classes(logits));
  SR_RETURN_IF_ERROR(put(c, c.inputs[0].dtype, without_last(logits)));
  return put(c, c.inputs[0].dtype, logits);
}

/// dy with a last dimension of extent 1, to be multiplied with rows.
Output as_column(GradContext& c, Output dy) {
  const Shape shape = c.builder.spec(dy).shape;
  std::vector<int64_t> to(shape.rank(), 0);
  to.push_back(1);
  // 0 copies an extent.
  return c.builder.add("Reshape", {dy}, {{"shape", to}});
}

/// What flows to the logits: dy times backprop, and through backprop, a softmax times `weight`.
Status flow_to_logits(GradContext& c, Output weight) {
  Rule r(c);
  Output total;
  const Output backprop{c.node.id, 1};
  if (c.output_grads[0].valid()) total = r.mul(as_column(c, r.dy()), backprop);
  if (c.output_grads[1].valid()) {
    const Output g = weight.valid() ? r.mul(c.output_grads[1], weight) : c.output_grads[1];
    const Output through = r.op("SoftmaxGrad", {g, r.op("Softmax", {r.x()})});
    total = total.valid() ? r.add(total, through) : through;
  }
  return r.flow(total);
}

Status need_rank(const GradContext& c) {
  if (c.node.outputs[0].shape.has_rank()) return {};
  return base::unimplemented("the gradient of {} needs a known rank; set the shape of its inputs",
                             c.node.op);
}

Status grad_sparse_loss(GradContext& c) {
  SR_RETURN_IF_ERROR(need_rank(c));
  return flow_to_logits(c, {});
}

Status grad_dense_loss(GradContext& c) {
  SR_RETURN_IF_ERROR(need_rank(c));
  Rule r(c);
  Output weight;
  if (c.output_grads[1].valid()) {
    weight = r.op("ReduceSum", {r.y()}, {{"axes", std::vector<int64_t>{-1}}, {"keep_dims", true}});
  }
  SR_RETURN_IF_ERROR(flow_to_logits(c, weight));
  if (!c.wants(1)) return {};
  Output to_labels;
  if (c.output_grads[0].valid()) {
    const Output column = as_column(c, r.dy());
    to_labels = r.neg(r.mul(column, r.op("LogSoftmax", {r.x()})));
  }
  if (c.output_grads[1].valid()) {
    // backprop = softmax sum(labels) - labels.
    const Output along = r.op("ReduceSum", {r.mul(c.output_grads[1], r.op("Softmax", {r.x()}))},
                              {{"axes", std::vector<int64_t>{-1}}, {"keep_dims", true}});
    const Output through = r.sub(along, c.output_grads[1]);
    to_labels = to_labels.valid() ? r.add(to_labels, through) : through;
  }
  return r.flow(1, to_labels);
}

/// The dtype statistics of `dtype` values are kept in.
DType statistics_dtype(DType dtype) {
  return dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
}

/// Merges the last dimension of `x` with vectors of the inputs `first` to `last`: its extent.
Result<int64_t> columns_of(const InferContext& c, const Shape& x, size_t first, size_t last) {
  if (x.has_rank() && x.rank() < 1) {
    return base::invalid_argument("the input is a scalar; its last dimension is normalised");
  }
  int64_t columns = x.has_rank() ? x.dim(-1) : -1;
  for (size_t i = first; i <= last; ++i) {
    SR_RETURN_IF_ERROR(require_rank(c, i, 1));
    if (!c.inputs[i].shape.has_rank()) continue;
    const Result<int64_t> merged = merge_extent(columns, c.inputs[i].shape.dim(0));
    if (!merged.ok()) {
      return base::invalid_argument("input {} has {} elements; the last extent of the values is {}",
                                    i, c.inputs[i].shape.dim(0), columns);
    }
    columns = *merged;
  }
  return columns;
}

Status infer_norm(const InferContext& c, bool layer) {
  SR_RETURN_IF_ERROR(require_real(c));
  Shape x = c.inputs[0].shape;
  SR_ASSIGN_OR_RETURN(const int64_t columns, columns_of(c, x, 1, 2));
  if (x.has_rank()) x.set_dim(-1, columns);
  const DType statistics = statistics_dtype(c.inputs[0].dtype);
  SR_RETURN_IF_ERROR(put(c, c.inputs[0].dtype, x));
  const Shape shape = layer ? without_last(x) : Shape{columns};
  SR_RETURN_IF_ERROR(put(c, statistics, shape));
  return put(c, statistics, shape);
}

Status infer_norm_grad(const InferContext& c, bool layer) {
  SR_RETURN_IF_ERROR(require(c, sets::kFloats, 0, 2));
  const DType dtype = c.inputs[0].dtype;
  for (size_t i = 3; i < 5; ++i) SR_RETURN_IF_ERROR(require_dtype(c, i, statistics_dtype(dtype)));
  SR_ASSIGN_OR_RETURN(Shape x, merge_inputs(c, 0, 1));
  SR_ASSIGN_OR_RETURN(const int64_t columns, columns_of(c, x, 2, 2));
  if (x.has_rank()) x.set_dim(-1, columns);
  const Shape wanted = layer ? without_last(x) : Shape{columns};
  for (size_t i = 3; i < 5; ++i) {
    SR_RETURN_IF_ERROR(merge_shapes(c.inputs[i].shape, wanted).status());
  }
  SR_RETURN_IF_ERROR(put(c, dtype, x));
  SR_RETURN_IF_ERROR(put(c, dtype, Shape{columns}));
  return put(c, dtype, Shape{columns});
}

Status grad_norm(GradContext& c, std::string_view op) {
  if (c.output_grads[1].valid() || c.output_grads[2].valid()) {
    return base::unimplemented(
        "no gradient flows through the statistics that {} gives beside its result; compute them "
        "with moments()",
        c.node.op);
  }
  const double epsilon = ir::attr_or(c.node.attrs, "epsilon", 1e-3);
  const ir::NodeId grad = c.builder.add_node(
      op, {c.output_grads[0], c.node.inputs[0], c.node.inputs[1], {c.node.id, 1}, {c.node.id, 2}},
      {{"epsilon", epsilon}});
  if (!grad.valid()) return c.builder.status();
  for (int i = 0; i < 3; ++i) (*c.input_grads)[i] = {grad, i};
  return {};
}

/// What the gradients of LayerNormGrad and BatchNormGrad are made of. Rows are normalised by the
/// first, columns by the second; hat is x normalised, and project() what both do to scale dy:
/// P(z) = rstd (z - mean(z) - hat mean(z hat)). Thread: core-local. Borrows the context.
class NormRule : public Rule {
 public:
  NormRule(GradContext& c, bool layer)
      : Rule(c),
        op_(c.node.op),
        epsilon_(ir::attr_or(c.node.attrs, "epsilon", 1e-3)),
        layer_(layer) {
    ones_ = op("OnesLike", {in(2)});
    // From x again, not from the statistics, through which no gradient flows.
    const Output centred = sub(in(1), mean(in(1)));
    const Output variance = mean(square(centred));
    rstd_ = op("Rsqrt", {plus(variance, epsilon_)});
    hat_ = mul(centred, rstd_);
  }

  [[nodiscard]] Output hat() const { return hat_; }
  [[nodiscard]] Output rstd() const { return rstd_; }

  Output project(Output z) {
    const ir::NodeId node =
        builder().add_node(op_, {z, in(1), ones_, in(3), in(4)}, {{"epsilon", epsilon_}});
    return node.valid() ? Output{node, 0} : Output{};
  }

  /// Means over what is normalised together, in a shape that is broadcast to that of x.
  Output mean(Output z) {
    if (layer_) return op("ReduceMean", {z}, {{"axes", kLast}, {"keep_dims", true}});
    const Output sums = sum_rows(z);
    return div(sums, sum_rows(op("OnesLike", {z})));
  }

  Output sum_rows(Output z) { return op("BiasAddGrad", {z}); }

 private:
  inline static const std::vector<int64_t> kLast = {-1};

  std::string op_;
  double epsilon_;
  bool layer_;
  Output ones_;
  Output rstd_;
  Output hat_;
};

/// dx = P(scale dy), dscale = sum(dy hat), doffset = sum(dy), over rows. P is its own transpose,
/// and takes gradients by hat to those by x. The statistics count as functions of x: what they get
/// goes to x as well. With c = mean(scale dy hat), d = mean(u hat), where u, v, w are the gradients
/// of dx, dscale and doffset:
///   by dy: scale P(u) + hat v + w, by scale: sum(dy P(u)),
///   by x:  P(dy v - rstd (u c + scale dy d)) - rstd hat mean(u dx).
Status grad_norm_grad(GradContext& c, bool layer) {
  NormRule r(c, layer);
  const Output dy = r.in(0);
  const Output scale = r.in(2);
  const Output u = c.output_grads[0];
  const Output v = c.output_grads[1];
  const Output w = c.output_grads[2];
  const auto sum = [&](Output a, Output b) { return a.valid() ? r.add(a, b) : b; };
  Output by_dy;
  Output by_hat;
  Output by_rstd;
  if (u.valid()) {
    const Output projected = r.project(u);
    by_dy = r.mul(scale, projected);
    SR_RETURN_IF_ERROR(r.flow(2, r.sum_rows(r.mul(dy, projected))));
    const Output g = r.mul(dy, scale);
    const Output by_c = r.mul(u, r.mean(r.mul(g, r.hat())));
    const Output by_d = r.mul(g, r.mean(r.mul(u, r.hat())));
    by_hat = r.neg(r.mul(r.rstd(), r.add(by_c, by_d)));
    const Output along = r.mean(r.mul(u, {c.node.id, 0}));
    by_rstd = r.mul(r.mul(r.rstd(), r.hat()), along);
  }
  if (v.valid()) {
    by_dy = sum(by_dy, r.mul(r.hat(), v));
    by_hat = sum(by_hat, r.mul(dy, v));
  }
  if (w.valid()) by_dy = sum(by_dy, r.op("BroadcastLike", {w, dy}));
  if (by_dy.valid()) SR_RETURN_IF_ERROR(r.flow(0, by_dy));
  if (!by_hat.valid()) return {};
  const Output by_x = r.project(by_hat);
  return r.flow(1, by_rstd.valid() ? r.sub(by_x, by_rstd) : by_x);
}

void register_losses(OpRegistry* registry) {
  registry->add({.name = "SparseSoftmaxCrossEntropyWithLogits",
                 .doc = "(logits[..., n], labels[...] in [0, n)) -> the losses -log "
                        "softmax(logits)[label], and their gradients by the logits.",
                 .min_inputs = 2,
                 .max_inputs = 2,
                 .infer = infer_sparse_loss,
                 .gradient = grad_sparse_loss});
  registry->add({.name = "SoftmaxCrossEntropyWithLogits",
                 .doc = "(logits[..., n], labels[..., n]) -> the losses -sum(labels log "
                        "softmax(logits)), and their gradients by the logits.",
                 .min_inputs = 2,
                 .max_inputs = 2,
                 .infer = infer_dense_loss,
                 .gradient = grad_dense_loss});
}

void register_norms(OpRegistry* registry) {
  const ir::AttrSpec epsilon = {"epsilon", "float", false, "Added to variances; 0.001 if absent."};
  const auto add = [&](const char* name, const char* doc, int inputs, auto infer, auto gradient) {
    registry->add({.name = name,
                   .doc = doc,
                   .min_inputs = inputs,
                   .max_inputs = inputs,
                   .attrs = {epsilon},
                   .infer = infer,
                   .gradient = gradient});
  };
  add(
      "LayerNorm",
      "(x[..., n], scale[n], offset[n]) -> each row of n brought to mean 0 and variance 1, scaled "
      "and shifted; the means, and 1 / sqrt(variance + epsilon) (Ba et al., 2016).",
      3, [](const InferContext& c) { return infer_norm(c, true); },
      [](GradContext& c) { return grad_norm(c, "LayerNormGrad"); });
  add(
      "LayerNormGrad",
      "(dy, x, scale, means, rstds) -> gradients by x, scale and offset. Its own gradient takes "
      "the statistics for functions of x.",
      5, [](const InferContext& c) { return infer_norm_grad(c, true); },
      [](GradContext& c) { return grad_norm_grad(c, true); });
  add(
      "BatchNorm",
      "(x[..., n], scale[n], offset[n]) -> each column brought to mean 0 and variance 1, scaled "
      "and "
      "shifted; the means and the variances (Ioffe and Szegedy, 2015).",
      3, [](const InferContext& c) { return infer_norm(c, false); },
      [](GradContext& c) { return grad_norm(c, "BatchNormGrad"); });
  add(
      "BatchNormGrad",
      "(dy, x, scale, means, variances) -> gradients by x, scale and offset. Its own gradient "
      "takes "
      "the statistics for functions of x.",
      5, [](const InferContext& c) { return infer_norm_grad(c, false); },
      [](GradContext& c) { return grad_norm_grad(c, false); });
}

}  // namespace

void register_softmax(OpRegistry* registry) {
  const ir::AttrSpec axis = {"axis", "int", false, "The dimension; -1, the last, if absent."};
  const auto add = [&](const char* name, const char* doc, int inputs, GradientRule gradient) {
    registry->add({.name = name,
                   .doc = doc,
                   .min_inputs = inputs,
                   .max_inputs = inputs,
                   .attrs = {axis},
                   .infer = infer_softmax,
                   .gradient = gradient});
  };
  add("Softmax", "exp(x) / sum(exp(x)) along an axis, without overflow.", 1, grad_softmax);
  add("LogSoftmax", "x - log(sum(exp(x))) along an axis, without overflow.", 1, grad_log_softmax);
  add("SoftmaxGrad", "(dy, y) -> y (dy - sum(dy y)) along an axis.", 2, grad_softmax_grad);
  register_losses(registry);
  register_norms(registry);
}

}  // namespace sidereal::ops::internal
