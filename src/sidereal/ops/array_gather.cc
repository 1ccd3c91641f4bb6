#include <utility>

#include "sidereal/ops/args.h"

/// Reading and writing at indices.
namespace sidereal::ops::internal {
namespace {

// --- Gather.

/// Axis and batch dimensions of a Gather from a value of `params` by `indices`, both of known rank.
struct GatherAxes {
  int axis = 0;
  int batch_dims = 0;
};

Result<GatherAxes> gather_axes(const AttrMap& attrs, const Shape& params, const Shape& indices) {
  GatherAxes out;
  const auto batch_dims = ir::attr_or<int64_t>(attrs, "batch_dims", 0);
  const int64_t counted = batch_dims < 0 ? batch_dims + indices.rank() : batch_dims;
  if (counted < 0 || counted > indices.rank()) {
    return base::invalid_argument("batch_dims is {}, but the indices have rank {}", batch_dims,
                                  indices.rank());
  }
  out.batch_dims = static_cast<int>(counted);
  SR_ASSIGN_OR_RETURN(out.axis,
                      normalize_axis(ir::attr_or<int64_t>(attrs, "axis", 0), params.rank()));
  if (out.axis < out.batch_dims) {
    return base::invalid_argument("axis {} is one of the {} batch dimensions", out.axis,
                                  out.batch_dims);
  }
  for (int i = 0; i < out.batch_dims; ++i) {
    const Result<int64_t> extent = merge_extent(params.dim(i), indices.dim(i));
    if (!extent.ok()) {
      return base::invalid_argument("shapes {} and {} differ in batch dimension {}",
                                    params.to_string(), indices.to_string(), i);
    }
  }
  return out;
}

/// What Gather makes of values of these shapes.
Result<Shape> gathered_shape(const AttrMap& attrs, const Shape& params, const Shape& indices) {
  if (!params.has_rank() || !indices.has_rank()) return Shape::unknown_rank();
  SR_ASSIGN_OR_RETURN(const GatherAxes axes, gather_axes(attrs, params, indices));
  Shape out;
  for (int i = 0; i < axes.axis; ++i) {
    const bool batch = i < axes.batch_dims && params.dim(i) < 0;
    out.append(batch ? indices.dim(i) : params.dim(i));
  }
  for (int i = axes.batch_dims; i < indices.rank(); ++i) out.append(indices.dim(i));
  for (int i = axes.axis + 1; i < params.rank(); ++i) out.append(params.dim(i));
  return out;
}

Status infer_gather(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_index(c, 1));
  SR_ASSIGN_OR_RETURN(Shape shape, gathered_shape(c.attrs, c.inputs[0].shape, c.inputs[1].shape));
  const DType in = c.inputs[0].dtype;
  const auto out = ir::attr_or<DType>(c.attrs, "out_type", in);
  if (out != in && (in != DType::kFloat32 || out != DType::kBFloat16)) {
    return base::invalid_argument("out_type is {}; values of {} are gathered as they are{}",
                                  tensor::name_of(out), tensor::name_of(in),
                                  in == DType::kFloat32 ? " or rounded to bfloat16" : "");
  }
  return put(c, out, std::move(shape));
}

Status infer_gather_grad(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_index(c, 1));
  SR_RETURN_IF_ERROR(require_numeric(c, 0));
  SR_RETURN_IF_ERROR(require_dtype(c, 2, c.inputs[0].dtype));
  SR_ASSIGN_OR_RETURN(const Shape gathered,
                      gathered_shape(c.attrs, c.inputs[2].shape, c.inputs[1].shape));
  SR_RETURN_IF_ERROR(merge_shapes(gathered, c.inputs[0].shape).status());
  return put(c, c.inputs[0].dtype, c.inputs[2].shape);
}

Status grad_gather(GradContext& c) {
  const Output x = c.node.inputs[0];
  Output dy = c.output_grads[0];
  AttrMap attrs = c.node.attrs;
  if (attrs.erase("out_type") > 0) {
    dy = c.builder.add("Cast", {dy}, {{"dtype", c.builder.spec(x).dtype}});
  }
  (*c.input_grads)[0] = c.builder.add("GatherGrad", {dy, c.node.inputs[1], x}, attrs);
  return {};
}

Status grad_gather_grad(GradContext& c) {
  (*c.input_grads)[0] =
      c.builder.add("Gather", {c.output_grads[0], c.node.inputs[1]}, c.node.attrs);
  return {};
}

// --- GatherNd, ScatterNd.

/// Splits shapes for indices [batch..., n..., k] into `params` [batch..., k dimensions, rest...].
/// `slices` is [batch..., n..., rest...].
Result<Shape> slices_shape(int64_t batch_dims, const Shape& params, const Shape& indices) {
  if (indices.has_rank() && indices.rank() < 1) {
    return base::invalid_argument(
        "the indices are a scalar; they must have a last dimension, one "
        "number per dimension indexed");
  }
  if (!params.has_rank() || !indices.has_rank() || indices.dim(-1) < 0) {
    return Shape::unknown_rank();
  }
  const int64_t k = indices.dim(-1);
  if (batch_dims < 0 || batch_dims >= indices.rank() || batch_dims + k > params.rank()) {
    return base::invalid_argument(
        "indices of shape {} with {} batch dimensions do not index a "
        "value of shape {}",
        indices.to_string(), batch_dims, params.to_string());
  }
  Shape out;
  for (int i = 0; i < indices.rank() - 1; ++i) {
    int64_t extent = indices.dim(i);
    if (i < batch_dims) {
      const Result<int64_t> merged = merge_extent(extent, params.dim(i));
      if (!merged.ok()) {
        return base::invalid_argument("shapes {} and {} differ in batch dimension {}",
                                      params.to_string(), indices.to_string(), i);
      }
      extent = *merged;
    }
    out.append(extent);
  }
  for (auto i = static_cast<int>(batch_dims + k); i < params.rank(); ++i) out.append(params.dim(i));
  return out;
}

int64_t batch_dims_of(const AttrMap& attrs) { return ir::attr_or<int64_t>(attrs, "batch_dims", 0); }

Status infer_gather_nd(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_index(c, 1));
  SR_ASSIGN_OR_RETURN(Shape shape,
                      slices_shape(batch_dims_of(c.attrs), c.inputs[0].shape, c.inputs[1].shape));
  return put(c, c.inputs[0].dtype, std::move(shape));
}

Status infer_gather_nd_grad(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_index(c, 1));
  SR_RETURN_IF_ERROR(require_numeric(c, 0));
  SR_RETURN_IF_ERROR(require_dtype(c, 2, c.inputs[0].dtype));
  SR_ASSIGN_OR_RETURN(const Shape slices,
                      slices_shape(batch_dims_of(c.attrs), c.inputs[2].shape, c.inputs[1].shape));
  SR_RETURN_IF_ERROR(merge_shapes(slices, c.inputs[0].shape).status());
  return put(c, c.inputs[0].dtype, c.inputs[2].shape);
}

Status grad_gather_nd(GradContext& c) {
  (*c.input_grads)[0] = c.builder.add(
      "GatherNdGrad", {c.output_grads[0], c.node.inputs[1], c.node.inputs[0]}, c.node.attrs);
  return {};
}

Status grad_gather_nd_grad(GradContext& c) {
  (*c.input_grads)[0] =
      c.builder.add("GatherNd", {c.output_grads[0], c.node.inputs[1]}, c.node.attrs);
  return {};
}

Status infer_scatter_nd(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_index(c, 0));
  SR_RETURN_IF_ERROR(require_numeric(c, 1));
  SR_ASSIGN_OR_RETURN(const IntsArg arg, ints_arg(c, "shape", 2));
  SR_ASSIGN_OR_RETURN(Shape to, shape_of_arg(arg));
  SR_ASSIGN_OR_RETURN(const Shape slices, slices_shape(0, to, c.inputs[0].shape));
  SR_RETURN_IF_ERROR(merge_shapes(slices, c.inputs[1].shape).status());
  return put(c, c.inputs[1].dtype, std::move(to));
}

Status grad_scatter_nd(GradContext& c) {
  (*c.input_grads)[1] = c.builder.add("GatherNd", {c.output_grads[0], c.node.inputs[0]});
  return {};
}

Status infer_tensor_scatter(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_index(c, 1));
  SR_RETURN_IF_ERROR(require_dtype(c, 2, c.inputs[0].dtype));
  if (c.schema.name != "TensorScatterUpdate") SR_RETURN_IF_ERROR(require_numeric(c, 0));
  SR_ASSIGN_OR_RETURN(const Shape slices, slices_shape(0, c.inputs[0].shape, c.inputs[1].shape));
  SR_RETURN_IF_ERROR(merge_shapes(slices, c.inputs[2].shape).status());
  return put(c, c.inputs[0].dtype, c.inputs[0].shape);
}

Status grad_tensor_scatter_add(GradContext& c) {
  const Output g = c.output_grads[0];
  (*c.input_grads)[0] = g;
  (*c.input_grads)[2] = c.builder.add("GatherNd", {g, c.node.inputs[1]});
  return {};
}

Status grad_tensor_scatter_sub(GradContext& c) {
  const Output g = c.output_grads[0];
  (*c.input_grads)[0] = g;
  (*c.input_grads)[2] = c.builder.add("Neg", {c.builder.add("GatherNd", {g, c.node.inputs[1]})});
  return {};
}

Status grad_tensor_scatter_update(GradContext& c) {
  const Output g = c.output_grads[0];
  const Output zeros = c.builder.add("ZerosLike", {c.node.inputs[2]});
  (*c.input_grads)[0] = c.builder.add("TensorScatterUpdate", {g, c.node.inputs[1], zeros});
  (*c.input_grads)[2] = c.builder.add("GatherNd", {g, c.node.inputs[1]});
  return {};
}

/// Those who have the value that won share the gradient.
Status grad_tensor_scatter_extreme(GradContext& c) {
  ir::Builder& b = c.builder;
  const Output x = c.node.inputs[0];
  const Output indices = c.node.inputs[1];
  const Output updates = c.node.inputs[2];
  const Output out = {c.node.id, 0};
  const AttrMap dtype = {{"dtype", c.node.outputs[0].dtype}};
  const Output x_won = b.add("Cast", {b.add("Equal", {x, out})}, dtype);
  const Output won = b.add("GatherNd", {out, indices});
  const Output updates_won = b.add("Cast", {b.add("Equal", {updates, won})}, dtype);
  const Output winners = b.add("TensorScatterAdd", {x_won, indices, updates_won});
  const Output share = b.add("Div", {c.output_grads[0], winners});
  (*c.input_grads)[0] = b.add("Mul", {share, x_won});
  (*c.input_grads)[2] = b.add("Mul", {b.add("GatherNd", {share, indices}), updates_won});
  return {};
}

using GradientRule = Status (*)(GradContext&);

void add_tensor_scatter(OpRegistry* registry, const char* name, const char* doc,
                        GradientRule gradient) {
  registry->add({.name = name,
                 .doc = doc,
                 .min_inputs = 3,
                 .max_inputs = 3,
                 .infer = infer_tensor_scatter,
                 .gradient = gradient});
}

void register_scatters(OpRegistry* registry) {
  registry->add({.name = "ScatterNd",
                 .doc = "(indices, updates[, shape]) -> zeros of a shape with updates added at "
                        "indices (tf.scatter_nd).",
                 .min_inputs = 2,
                 .max_inputs = 3,
                 .attrs = {{"shape", "ints", false, "The shape when it is no input."}},
                 .infer = infer_scatter_nd,
                 .gradient = grad_scatter_nd});
  add_tensor_scatter(registry, "TensorScatterAdd",
                     "(x, indices, updates) -> x with updates added at indices "
                     "(tf.tensor_scatter_nd_add).",
                     grad_tensor_scatter_add);
  add_tensor_scatter(registry, "TensorScatterSub",
                     "(x, indices, updates) -> x with updates subtracted at indices "
                     "(tf.tensor_scatter_nd_sub).",
                     grad_tensor_scatter_sub);
  add_tensor_scatter(registry, "TensorScatterUpdate",
                     "(x, indices, updates) -> x with updates at indices; of several for one place "
                     "the last stays (tf.tensor_scatter_nd_update).",
                     grad_tensor_scatter_update);
  add_tensor_scatter(registry, "TensorScatterMax",
                     "(x, indices, updates) -> x, or the update at its index where that is greater "
                     "(tf.tensor_scatter_nd_max).",
                     grad_tensor_scatter_extreme);
  add_tensor_scatter(registry, "TensorScatterMin",
                     "(x, indices, updates) -> x, or the update at its index where that is smaller "
                     "(tf.tensor_scatter_nd_min).",
                     grad_tensor_scatter_extreme);
}

}  // namespace

void register_array_gather(OpRegistry* registry) {
  const std::vector<ir::AttrSpec> attrs = {
      {"axis", "int", false, "The dimension indexed; 0 if absent."},
      {"batch_dims", "int", false, "Leading dimensions that both inputs share; 0 if absent."}};
  registry->add(
      {.name = "Gather",
       .doc = "(x, indices) -> the values of x at indices along an axis (tf.gather). An "
              "index outside is an error.",
       .min_inputs = 2,
       .max_inputs = 2,
       .attrs = {attrs[0],
                 attrs[1],
                 {"out_type", "dtype", false, "bfloat16: float32 values are rounded on the way."}},
       .infer = infer_gather,
       .gradient = grad_gather});
  registry->add({.name = "GatherGrad",
                 .doc = "(dy, indices, x) -> zeros like x with dy added at indices along an axis.",
                 .min_inputs = 3,
                 .max_inputs = 3,
                 .attrs = attrs,
                 .infer = infer_gather_grad,
                 .gradient = grad_gather_grad});
  const ir::AttrSpec batch_dims = {"batch_dims", "int", false,
                                   "Leading dimensions that both inputs share; 0 if absent."};
  registry->add({.name = "GatherNd",
                 .doc = "(x, indices) -> the parts of x at indices[..., :], one number per "
                        "dimension (tf.gather_nd). An index outside is an error.",
                 .min_inputs = 2,
                 .max_inputs = 2,
                 .attrs = {batch_dims},
                 .infer = infer_gather_nd,
                 .gradient = grad_gather_nd});
  registry->add({.name = "GatherNdGrad",
                 .doc = "(dy, indices, x) -> zeros like x with dy added at indices[..., :].",
                 .min_inputs = 3,
                 .max_inputs = 3,
                 .attrs = {batch_dims},
                 .infer = infer_gather_nd_grad,
                 .gradient = grad_gather_nd_grad});
  register_scatters(registry);
}

}  // namespace sidereal::ops::internal
