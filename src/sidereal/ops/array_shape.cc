#include <algorithm>
#include <cmath>

#include "sidereal/ops/args.h"

/// Shapes of values: asking for them, changing them, and making values of a given shape.
namespace sidereal::ops::internal {
namespace {

Shape unknown_extents(int64_t count) {
  if (count < 0) return Shape::unknown_rank();
  return Shape(std::vector<int64_t>(static_cast<size_t>(count), -1));
}

Status infer_shape(const InferContext& c) {
  SR_ASSIGN_OR_RETURN(const DType dtype, index_dtype(c, "out_type", DType::kInt32));
  const Shape& shape = c.inputs[0].shape;
  return put(c, dtype, Shape{shape.has_rank() ? shape.rank() : -1});
}

Status infer_size(const InferContext& c) {
  SR_ASSIGN_OR_RETURN(const DType dtype, index_dtype(c, "out_type", DType::kInt32));
  return put(c, dtype, Shape{});
}

Status infer_rank(const InferContext& c) { return put(c, DType::kInt32, Shape{}); }

// --- Reshape and other views.

/// What is known of the elements a Reshape moves: the product of the known extents and whether that
/// is all of them. Extents copied with 0 stand on both sides and are left out.
struct Extents {
  int64_t product = 1;
  bool complete = true;
  void count(int64_t extent) {
    if (extent < 0) {
      complete = false;
    } else {
      product *= extent;
    }
  }
};

/// The shape a Reshape asks for, before what is left goes to the -1 at `free_at`.
struct Wanted {
  Shape shape;
  int free_at = -1;
  Extents given;
  std::vector<bool> copied;  ///< By dimension of the input.
};

Result<Wanted> wanted_shape(const std::vector<int64_t>& extents, bool copies, const Shape& from) {
  if (extents.size() > ir::kMaxRank) return base::invalid_argument("too many dimensions");
  Wanted out;
  out.copied.assign(from.has_rank() ? from.rank() : 0, false);
  for (size_t i = 0; i < extents.size(); ++i) {
    const int64_t extent = extents[i];
    if (extent < -1) return base::invalid_argument("extent {} is {}", i, extent);
    if (extent == 0 && copies) {
      if (from.has_rank() && i >= out.copied.size()) {
        return base::invalid_argument("extent {} is 0 (copy), but the input has rank {}", i,
                                      from.rank());
      }
      if (from.has_rank()) out.copied[i] = true;
      out.shape.append(from.has_rank() ? from.dim(static_cast<int>(i)) : -1);
      continue;
    }
    if (extent == -1 && out.free_at >= 0) {
      return base::invalid_argument("extents {} and {} are both -1; one may be", out.free_at, i);
    }
    if (extent == -1) out.free_at = static_cast<int>(i);
    out.shape.append(extent);
    SR_RETURN_IF_ERROR(ir::check_shape(out.shape));
    if (extent >= 0) out.given.count(extent);
  }
  return out;
}

Status infer_reshape(const InferContext& c) {
  SR_ASSIGN_OR_RETURN(const IntsArg arg, ints_arg(c, "shape", 1));
  const DType dtype = c.inputs[0].dtype;
  const Shape& from = c.inputs[0].shape;
  if (arg.count > ir::kMaxRank) return base::invalid_argument("too many dimensions");
  if (!arg.known) return put(c, dtype, unknown_extents(arg.count));
  const bool copies = c.inputs.size() == 1 && !ir::attr_or<bool>(c.attrs, "allow_zero", false);
  SR_ASSIGN_OR_RETURN(Wanted wanted, wanted_shape(arg.values, copies, from));
  if (!from.has_rank()) return put(c, dtype, wanted.shape);
  Extents had;
  for (int i = 0; i < from.rank(); ++i) {
    if (!wanted.copied[i]) had.count(from.dim(i));
  }
  if (!had.complete) return put(c, dtype, wanted.shape);
  const int64_t given = wanted.given.product;
  const bool fits =
      wanted.free_at < 0 ? had.product == given : given > 0 && had.product % given == 0;
  if (!fits) {
    return base::invalid_argument("{} elements cannot be laid out as {}", had.product,
                                  wanted.shape.to_string());
  }
  if (wanted.free_at >= 0) wanted.shape.set_dim(wanted.free_at, had.product / given);
  return put(c, dtype, wanted.shape);
}

Status infer_reshape_like(const InferContext& c) {
  const Shape& from = c.inputs[0].shape;
  const Shape& to = c.inputs[1].shape;
  if (from.is_fully_defined() && to.is_fully_defined() &&
      from.num_elements() != to.num_elements()) {
    return base::invalid_argument("the inputs have {} and {} elements", from.num_elements(),
                                  to.num_elements());
  }
  return put(c, c.inputs[0].dtype, to);
}

/// For every op that only shows its first input under another shape.
Status grad_view(GradContext& c) {
  (*c.input_grads)[0] = c.builder.add("ReshapeLike", {c.output_grads[0], c.node.inputs[0]});
  return {};
}

Status infer_expand_dims(const InferContext& c) {
  const Shape& from = c.inputs[0].shape;
  if (!from.has_rank()) return put(c, c.inputs[0].dtype, from);
  SR_ASSIGN_OR_RETURN(const int axis, axis_attr(c.attrs, "axis", from.rank() + 1));
  Shape out;
  for (int i = 0; i < from.rank() + 1; ++i) {
    out.append(i == axis ? 1 : from.dim(i < axis ? i : i - 1));
  }
  return put(c, c.inputs[0].dtype, out);
}

Status infer_squeeze(const InferContext& c) {
  const DType dtype = c.inputs[0].dtype;
  const Shape& from = c.inputs[0].shape;
  if (!from.has_rank()) return put(c, dtype, from);
  SR_ASSIGN_OR_RETURN(
      const std::vector<int> axes,
      normalize_axes(ir::attr_or<std::vector<int64_t>>(c.attrs, "axes", {}), from.rank()));
  Shape out;
  for (int i = 0; i < from.rank(); ++i) {
    const bool named = std::binary_search(axes.begin(), axes.end(), i);
    if (named && from.dim(i) >= 0 && from.dim(i) != 1) {
      return base::invalid_argument("dimension {} has extent {}; only extents of 1 can be squeezed",
                                    i, from.dim(i));
    }
    // Whether an unknown extent is 1 shows at run time, and so does the rank then.
    if (axes.empty() && from.dim(i) < 0) return put(c, dtype, Shape::unknown_rank());
    if (axes.empty() ? from.dim(i) != 1 : !named) out.append(from.dim(i));
  }
  return put(c, dtype, out);
}

Status infer_ensure_shape(const InferContext& c) {
  SR_ASSIGN_OR_RETURN(const Shape wanted, ir::get_attr<Shape>(c.attrs, "shape"));
  SR_ASSIGN_OR_RETURN(Shape shape, merge_shapes(c.inputs[0].shape, wanted));
  return put(c, c.inputs[0].dtype, std::move(shape));
}

Status infer_transpose(const InferContext& c) {
  const DType dtype = c.inputs[0].dtype;
  const Shape& from = c.inputs[0].shape;
  const auto perm = ir::attr_or<std::vector<int64_t>>(c.attrs, "perm", {});
  if (perm.size() > ir::kMaxRank) return base::invalid_argument("too many dimensions");
  SR_ASSIGN_OR_RETURN(const std::vector<int> sorted,
                      normalize_axes(perm, static_cast<int>(perm.size())));
  if (!from.has_rank()) {
    return put(c, dtype, perm.empty() ? from : unknown_extents(static_cast<int64_t>(perm.size())));
  }
  if (!perm.empty() && static_cast<int>(perm.size()) != from.rank()) {
    return base::invalid_argument("perm has {} entries for a value of rank {}", perm.size(),
                                  from.rank());
  }
  Shape out;
  for (int i = 0; i < from.rank(); ++i) {
    out.append(perm.empty() ? from.dim(from.rank() - 1 - i) : from.dim(static_cast<int>(perm[i])));
  }
  return put(c, dtype, out);
}

Status grad_transpose(GradContext& c) {
  const auto perm = ir::attr_or<std::vector<int64_t>>(c.node.attrs, "perm", {});
  const auto rank = static_cast<int64_t>(perm.size());
  std::vector<int64_t> inverse(perm.size());
  for (int64_t i = 0; i < rank; ++i) inverse[perm[i] < 0 ? perm[i] + rank : perm[i]] = i;
  (*c.input_grads)[0] = c.builder.add("Transpose", {c.output_grads[0]}, {{"perm", inverse}});
  return {};
}

// --- Values of a given shape.

/// Ok when a value of shape `from` can be repeated to shape `to`.
Status check_broadcast(const Shape& from, const Shape& to) {
  if (!from.has_rank() || !to.has_rank()) return {};
  bool fits = from.rank() <= to.rank();
  for (int i = 1; fits && i <= from.rank(); ++i) {
    const int64_t have = from.dim(-i);
    const int64_t want = to.dim(-i);
    fits = have == 1 || have < 0 || want < 0 || have == want;
  }
  if (fits) return {};
  return base::invalid_argument("shape {} cannot be broadcast to {}", from.to_string(),
                                to.to_string());
}

Status infer_broadcast_to(const InferContext& c) {
  SR_ASSIGN_OR_RETURN(const IntsArg arg, ints_arg(c, "shape", 1));
  SR_ASSIGN_OR_RETURN(Shape to, shape_of_arg(arg));
  const Shape& from = c.inputs[0].shape;
  SR_RETURN_IF_ERROR(check_broadcast(from, to));
  // An extent that is not 1 stays what it is.
  for (int i = 1; from.has_rank() && to.has_rank() && i <= std::min(from.rank(), to.rank()); ++i) {
    if (to.dim(-i) < 0 && from.dim(-i) > 1) to.set_dim(-i, from.dim(-i));
  }
  return put(c, c.inputs[0].dtype, std::move(to));
}

Status grad_broadcast_to(GradContext& c) {
  (*c.input_grads)[0] = sum_to(c.builder, c.output_grads[0], c.node.inputs[0]);
  return {};
}

Status infer_fill(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_rank(c, 0, 0));
  SR_ASSIGN_OR_RETURN(const IntsArg arg, ints_arg(c, "shape", 1));
  SR_ASSIGN_OR_RETURN(Shape to, shape_of_arg(arg));
  return put(c, c.inputs[0].dtype, std::move(to));
}

/// The value of a constant scalar input as double, or nothing.
std::vector<double> constant_number(const InferContext& c, size_t i) {
  const Tensor* t = c.constant(i);
  if (t == nullptr || t->num_elements() != 1) return {};
  switch (t->dtype()) {
    case DType::kInt32:
      return {static_cast<double>(t->data<const int32_t>()[0])};
    case DType::kInt64:
      return {static_cast<double>(t->data<const int64_t>()[0])};
    default:
      return {};  // Rounding decides the length of a range of floats: the kernel says.
  }
}

Status infer_range(const InferContext& c) {
  for (size_t i = 0; i < 3; ++i) {
    SR_RETURN_IF_ERROR(require_rank(c, i, 0));
    SR_RETURN_IF_ERROR(require_numeric(c, i));
  }
  SR_RETURN_IF_ERROR(require_same_dtype(c, 0, 2));
  const std::vector<double> start = constant_number(c, 0);
  const std::vector<double> limit = constant_number(c, 1);
  const std::vector<double> delta = constant_number(c, 2);
  int64_t extent = -1;
  if (!start.empty() && !limit.empty() && !delta.empty() && delta[0] != 0) {
    const double count = std::ceil((limit[0] - start[0]) / delta[0]);
    if (count >= 0 && count < 4e15) extent = static_cast<int64_t>(count);
  }
  return put(c, c.inputs[0].dtype, Shape{extent});
}

Status infer_one_hot(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_index(c, 0));
  SR_RETURN_IF_ERROR(require_rank(c, 1, 0));
  SR_RETURN_IF_ERROR(require_rank(c, 2, 0));
  SR_RETURN_IF_ERROR(require_same_dtype(c, 1, 2));
  SR_ASSIGN_OR_RETURN(const IntArg depth, int_arg(c, "depth", 3));
  if (depth.known && depth.value < 0) {
    return base::invalid_argument("depth is {}; it must not be negative", depth.value);
  }
  const Shape& from = c.inputs[0].shape;
  if (!from.has_rank()) return put(c, c.inputs[1].dtype, from);
  SR_ASSIGN_OR_RETURN(const int axis,
                      normalize_axis(ir::attr_or<int64_t>(c.attrs, "axis", -1), from.rank() + 1));
  Shape out;
  for (int i = 0; i < from.rank() + 1; ++i) {
    out.append(i == axis ? depth.value : from.dim(i < axis ? i : i - 1));
  }
  return put(c, c.inputs[1].dtype, out);
}

const char* const kOutTypeDoc = "int32 (if absent) or int64.";

void register_questions(OpRegistry* registry) {
  registry->add({.name = "Shape",
                 .doc = "The extents of its input, as a vector (tf.shape).",
                 .min_inputs = 1,
                 .max_inputs = 1,
                 .attrs = {{"out_type", "dtype", false, kOutTypeDoc}},
                 .infer = infer_shape,
                 .gradient = no_flow});
  registry->add({.name = "Size",
                 .doc = "The number of elements of its input (tf.size).",
                 .min_inputs = 1,
                 .max_inputs = 1,
                 .attrs = {{"out_type", "dtype", false, kOutTypeDoc}},
                 .infer = infer_size,
                 .gradient = no_flow});
  registry->add({.name = "Rank",
                 .doc = "The number of dimensions of its input, an int32 (tf.rank).",
                 .min_inputs = 1,
                 .max_inputs = 1,
                 .infer = infer_rank,
                 .gradient = no_flow});
}

void register_views(OpRegistry* registry) {
  registry->add({.name = "Reshape",
                 .doc = "(x[, shape]) -> the same elements under another shape (tf.reshape). One "
                        "extent may be -1: what is left.",
                 .min_inputs = 1,
                 .max_inputs = 2,
                 .attrs = {{"shape", "ints", false,
                            "Extents when they are no input; one may be -1, 0 copies the input's."},
                           {"allow_zero", "bool", false,
                            "In the attribute 0 is an extent of 0, as it always is in the input."}},
                 .infer = infer_reshape,
                 .gradient = grad_view});
  registry->add({.name = "ReshapeLike",
                 .doc = "(g, like) -> g under the shape of `like`.",
                 .min_inputs = 2,
                 .max_inputs = 2,
                 .infer = infer_reshape_like,
                 .gradient = grad_view});
  registry->add({.name = "ExpandDims",
                 .doc = "Its input with a dimension of extent 1 more (tf.expand_dims).",
                 .min_inputs = 1,
                 .max_inputs = 1,
                 .attrs = {{"axis", "int", true, "Where; negative counts from behind the end."}},
                 .infer = infer_expand_dims,
                 .gradient = grad_view});
  registry->add({.name = "Squeeze",
                 .doc = "Its input without dimensions of extent 1 (tf.squeeze).",
                 .min_inputs = 1,
                 .max_inputs = 1,
                 .attrs = {{"axes", "ints", false, "Which; none: all that have extent 1."}},
                 .infer = infer_squeeze,
                 .gradient = grad_view});
  registry->add({.name = "EnsureShape",
                 .doc = "Its input, or an error when its shape does not fit (tf.ensure_shape).",
                 .min_inputs = 1,
                 .max_inputs = 1,
                 .attrs = {{"shape", "shape", true, "What the shape must agree with."}},
                 .infer = infer_ensure_shape,
                 .gradient = grad_view});
  registry->add({.name = "Transpose",
                 .doc = "Its input with the dimensions in another order (tf.transpose).",
                 .min_inputs = 1,
                 .max_inputs = 1,
                 .attrs = {{"perm", "ints", false,
                            "Dimension i of the output is perm[i] of the input; none: reversed."}},
                 .infer = infer_transpose,
                 .gradient = grad_transpose});
}

void register_makers(OpRegistry* registry) {
  registry->add({.name = "BroadcastTo",
                 .doc = "(x[, shape]) -> x repeated to a shape by NumPy's rules (tf.broadcast_to).",
                 .min_inputs = 1,
                 .max_inputs = 2,
                 .attrs = {{"shape", "ints", false, "The shape when it is no input."}},
                 .infer = infer_broadcast_to,
                 .gradient = grad_broadcast_to});
  registry->add({.name = "Fill",
                 .doc = "(value[, shape]) -> a tensor full of the scalar `value` (tf.fill).",
                 .min_inputs = 1,
                 .max_inputs = 2,
                 .attrs = {{"shape", "ints", false, "The shape when it is no input."}},
                 .infer = infer_fill,
                 .gradient = grad_broadcast_to});
  registry->add({.name = "Range",
                 .doc =
                     "(start, limit, delta) -> start, start + delta, ... up to but without limit "
                     "(tf.range).",
                 .min_inputs = 3,
                 .max_inputs = 3,
                 .infer = infer_range,
                 .gradient = no_flow});
  registry->add({.name = "OneHot",
                 .doc = "(indices, on, off[, depth]) -> a new dimension with `on` at the index and "
                        "`off` elsewhere; an index outside gives `off` only (tf.one_hot).",
                 .min_inputs = 3,
                 .max_inputs = 4,
                 .attrs = {{"depth", "int", false, "Extent of the new dimension when no input."},
                           {"axis", "int", false, "Where it goes; -1 (if absent): last."}},
                 .infer = infer_one_hot,
                 .gradient = no_flow});
}

}  // namespace

void register_array_shape(OpRegistry* registry) {
  register_questions(registry);
  register_views(registry);
  register_makers(registry);
}

}  // namespace sidereal::ops::internal
