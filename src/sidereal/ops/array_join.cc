#include <utility>

#include "sidereal/ops/args.h"

/// Joining values, cutting them apart, and repeating them.
namespace sidereal::ops::internal {
namespace {

// --- Along one axis.

Status infer_concat(const InferContext& c) {
  const DType dtype = c.inputs[0].dtype;
  Shape out = Shape::unknown_rank();
  int64_t total = 0;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    SR_RETURN_IF_ERROR(require_dtype(c, i, dtype));
    Shape shape = c.inputs[i].shape;
    if (!shape.has_rank()) {
      total = -1;
      continue;
    }
    SR_ASSIGN_OR_RETURN(const int axis, axis_attr(c.attrs, "axis", shape.rank()));
    total = total < 0 || shape.dim(axis) < 0 ? -1 : total + shape.dim(axis);
    shape.set_dim(axis, -1);
    SR_ASSIGN_OR_RETURN(out, merge_shapes(out, shape));
  }
  if (out.has_rank()) {
    SR_ASSIGN_OR_RETURN(const int axis, axis_attr(c.attrs, "axis", out.rank()));
    out.set_dim(axis, total);
  }
  return put(c, dtype, out);
}

/// True when the extents of all inputs along the axis are known.
bool known_extents(const GradContext& c, int64_t axis) {
  for (const Output& input : c.node.inputs) {
    const Shape shape = c.builder.spec(input).shape;
    if (!shape.has_rank()) return false;
    const Result<int> at = normalize_axis(axis, shape.rank());
    if (!at.ok() || shape.dim(*at) < 0) return false;
  }
  return true;
}

Status grad_concat(GradContext& c) {
  SR_ASSIGN_OR_RETURN(const int64_t axis, ir::get_attr<int64_t>(c.node.attrs, "axis"));
  if (!known_extents(c, axis)) {
    std::vector<Output> inputs = {c.output_grads[0]};
    append_inputs(c, 0, &inputs);
    const ir::NodeId parts = c.builder.add_node("ConcatGrad", inputs, {{"axis", axis}});
    for (size_t i = 0; i < c.node.inputs.size() && parts.valid(); ++i) {
      (*c.input_grads)[i] = Output{parts, static_cast<int32_t>(i)};
    }
    return {};
  }
  // No input has to be kept for its extent.
  int64_t begin = 0;
  for (size_t i = 0; i < c.node.inputs.size(); ++i) {
    const Shape shape = c.builder.spec(c.node.inputs[i]).shape;
    SR_ASSIGN_OR_RETURN(const int at, normalize_axis(axis, shape.rank()));
    const AttrMap attrs = {{"axis", int64_t{at}}, {"begin", begin}, {"size", shape.dim(at)}};
    (*c.input_grads)[i] = c.builder.add("SliceAxis", {c.output_grads[0]}, attrs);
    begin += shape.dim(at);
  }
  return {};
}

Status infer_concat_grad(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_same_dtype(c, 0, c.inputs.size() - 1));
  SR_RETURN_IF_ERROR(ir::get_attr<int64_t>(c.attrs, "axis").status());
  for (size_t i = 1; i < c.inputs.size(); ++i) {
    SR_RETURN_IF_ERROR(put(c, c.inputs[0].dtype, c.inputs[i].shape));
  }
  return {};
}

/// For ops that cut: their gradients joined again, with zeros for those that nobody uses.
Status join_grads(GradContext& c, const char* op) {
  std::vector<Output> grads;
  for (size_t i = 0; i < c.output_grads.size(); ++i) grads.push_back(grad_or_zeros(c, i));
  if (grads.empty()) return {};
  (*c.input_grads)[0] =
      c.builder.add(op, grads, {{"axis", ir::attr_or<int64_t>(c.node.attrs, "axis", 0)}});
  return {};
}

Status grad_by_concat(GradContext& c) { return join_grads(c, "Concat"); }
Status grad_by_stack(GradContext& c) { return join_grads(c, "Stack"); }

constexpr int64_t kOutputsMax = 1 << 16;

Status check_outputs(int64_t count) {
  if (count >= 1 && count <= kOutputsMax) return {};
  return base::invalid_argument("{} outputs; 1 to {} are possible", count, kOutputsMax);
}

Status infer_split(const InferContext& c) {
  SR_ASSIGN_OR_RETURN(const int64_t num, ir::get_attr<int64_t>(c.attrs, "num"));
  SR_RETURN_IF_ERROR(check_outputs(num));
  Shape shape = c.inputs[0].shape;
  if (shape.has_rank()) {
    SR_ASSIGN_OR_RETURN(const int axis, axis_attr(c.attrs, "axis", shape.rank()));
    const int64_t extent = shape.dim(axis);
    if (extent >= 0 && extent % num != 0) {
      return base::invalid_argument("an axis of extent {} cannot be split into {} equal parts",
                                    extent, num);
    }
    shape.set_dim(axis, extent < 0 ? -1 : extent / num);
  }
  for (int64_t i = 0; i < num; ++i) SR_RETURN_IF_ERROR(put(c, c.inputs[0].dtype, shape));
  return {};
}

Status infer_split_v(const InferContext& c) {
  SR_ASSIGN_OR_RETURN(std::vector<int64_t> sizes,
                      ir::get_attr<std::vector<int64_t>>(c.attrs, "sizes"));
  SR_RETURN_IF_ERROR(check_outputs(static_cast<int64_t>(sizes.size())));
  int64_t given = 0;
  int64_t* rest = nullptr;
  for (int64_t& size : sizes) {
    if (size < -1 || size > ir::kMaxElements) return base::invalid_argument("a size is {}", size);
    if (size == -1 && rest != nullptr)
      return base::invalid_argument("two sizes are -1; one may be");
    if (size == -1) {
      rest = &size;
    } else {
      given += size;
    }
  }
  Shape shape = c.inputs[0].shape;
  const bool has_rank = shape.has_rank();
  int axis = 0;
  if (has_rank) {
    SR_ASSIGN_OR_RETURN(axis, axis_attr(c.attrs, "axis", shape.rank()));
    const int64_t extent = shape.dim(axis);
    if (extent >= 0 && (rest == nullptr ? given != extent : given > extent)) {
      return base::invalid_argument("sizes that add up to {} do not fit an axis of extent {}",
                                    given, extent);
    }
    if (rest != nullptr) *rest = extent < 0 ? -1 : extent - given;
  }
  for (const int64_t size : sizes) {
    if (has_rank) shape.set_dim(axis, size);
    SR_RETURN_IF_ERROR(put(c, c.inputs[0].dtype, shape));
  }
  return {};
}

Status infer_stack(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_same_dtype(c, 0, c.inputs.size() - 1));
  SR_ASSIGN_OR_RETURN(const Shape shape, merge_inputs(c, 0, c.inputs.size() - 1));
  if (!shape.has_rank()) return put(c, c.inputs[0].dtype, shape);
  SR_ASSIGN_OR_RETURN(const int axis, axis_attr(c.attrs, "axis", shape.rank() + 1));
  Shape out;
  for (int i = 0; i < shape.rank() + 1; ++i) {
    out.append(i == axis ? static_cast<int64_t>(c.inputs.size()) : shape.dim(i < axis ? i : i - 1));
  }
  return put(c, c.inputs[0].dtype, out);
}

Status grad_stack(GradContext& c) {
  const AttrMap attrs = {{"axis", ir::attr_or<int64_t>(c.node.attrs, "axis", 0)},
                         {"num", static_cast<int64_t>(c.node.inputs.size())}};
  const ir::NodeId parts = c.builder.add_node("Unstack", {c.output_grads[0]}, attrs);
  for (size_t i = 0; i < c.node.inputs.size() && parts.valid(); ++i) {
    (*c.input_grads)[i] = Output{parts, static_cast<int32_t>(i)};
  }
  return {};
}

Status infer_unstack(const InferContext& c) {
  SR_ASSIGN_OR_RETURN(const int64_t num, ir::get_attr<int64_t>(c.attrs, "num"));
  SR_RETURN_IF_ERROR(check_outputs(num));
  const Shape& from = c.inputs[0].shape;
  Shape out = from;
  if (from.has_rank()) {
    SR_ASSIGN_OR_RETURN(const int axis, axis_attr(c.attrs, "axis", from.rank()));
    if (from.dim(axis) >= 0 && from.dim(axis) != num) {
      return base::invalid_argument("an axis of extent {} cannot be unstacked into {}",
                                    from.dim(axis), num);
    }
    out = Shape();
    for (int i = 0; i < from.rank(); ++i) {
      if (i != axis) out.append(from.dim(i));
    }
  }
  for (int64_t i = 0; i < num; ++i) SR_RETURN_IF_ERROR(put(c, c.inputs[0].dtype, out));
  return {};
}

// --- Repeating.

Result<Shape> tiled_shape(const InferContext& c, size_t input, const Shape& from) {
  SR_ASSIGN_OR_RETURN(const IntsArg multiples, ints_arg(c, "multiples", input));
  if (from.has_rank() && multiples.count >= 0 && multiples.count != from.rank()) {
    return base::invalid_argument("{} multiples for a value of rank {}", multiples.count,
                                  from.rank());
  }
  if (!from.has_rank()) return Shape::unknown_rank();
  Shape out;
  for (int i = 0; i < from.rank(); ++i) {
    const int64_t times = multiples.known ? multiples.values[i] : -1;
    if (multiples.known && (times < 0 || times > ir::kMaxElements)) {
      return base::invalid_argument("multiple {} is {}", i, times);
    }
    if (from.dim(i) > 0 && times > ir::kMaxElements / from.dim(i)) {
      return base::invalid_argument("{} times dimension {} is too large", times, i);
    }
    out.append(from.dim(i) < 0 || times < 0 ? -1 : from.dim(i) * times);
  }
  return out;
}

Status infer_tile(const InferContext& c) {
  SR_ASSIGN_OR_RETURN(Shape shape, tiled_shape(c, 1, c.inputs[0].shape));
  return put(c, c.inputs[0].dtype, std::move(shape));
}

Status infer_tile_grad(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_same_dtype(c, 0, 1));
  SR_RETURN_IF_ERROR(require_numeric(c, 0));
  SR_ASSIGN_OR_RETURN(const Shape tiled, tiled_shape(c, 2, c.inputs[1].shape));
  SR_RETURN_IF_ERROR(merge_shapes(tiled, c.inputs[0].shape).status());
  return put(c, c.inputs[0].dtype, c.inputs[1].shape);
}

Status grad_tile(GradContext& c) {
  std::vector<Output> inputs = {c.output_grads[0], c.node.inputs[0]};
  append_inputs(c, 1, &inputs);
  (*c.input_grads)[0] = c.builder.add("TileGrad", inputs, c.node.attrs);
  return {};
}

Status grad_tile_grad(GradContext& c) {
  std::vector<Output> inputs = {c.output_grads[0]};
  append_inputs(c, 2, &inputs);
  (*c.input_grads)[0] = c.builder.add("Tile", inputs, c.node.attrs);
  return {};
}

Status infer_repeat_indices(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_index(c, 0));
  SR_RETURN_IF_ERROR(require_rank(c, 0, 1));
  int64_t total = -1;
  if (const Tensor* repeats = c.constant(0); repeats != nullptr) {
    if (repeats->dtype() == DType::kInt64 && repeats->num_elements() < 4096) {
      total = 0;
      for (const int64_t times : repeats->data<const int64_t>()) {
        if (times < 0 || times > ir::kMaxElements) {
          return base::invalid_argument("an element is repeated {} times", times);
        }
        total += times;
      }
    }
  }
  return put(c, DType::kInt64, Shape{total});
}

void register_along_axis(OpRegistry* registry) {
  const ir::AttrSpec axis = {"axis", "int", true, "The dimension; negative counts from the end."};
  registry->add({.name = "Concat",
                 .doc = "Its inputs one after another along an axis (tf.concat).",
                 .min_inputs = 1,
                 .max_inputs = -1,
                 .attrs = {axis},
                 .infer = infer_concat,
                 .gradient = grad_concat});
  registry->add({.name = "ConcatGrad",
                 .doc = "(dy, x...) -> dy cut along an axis into parts as long as each x.",
                 .min_inputs = 2,
                 .max_inputs = -1,
                 .attrs = {axis},
                 .infer = infer_concat_grad,
                 .gradient = grad_by_concat});
  registry->add({.name = "Split",
                 .doc = "Its input cut along an axis into equal parts (tf.split).",
                 .min_inputs = 1,
                 .max_inputs = 1,
                 .attrs = {axis, {"num", "int", true, "Number of parts."}},
                 .infer = infer_split,
                 .gradient = grad_by_concat});
  registry->add({.name = "SplitV",
                 .doc = "Its input cut along an axis into parts of given sizes (tf.split).",
                 .min_inputs = 1,
                 .max_inputs = 1,
                 .attrs = {axis, {"sizes", "ints", true, "Extents; one may be -1: what is left."}},
                 .infer = infer_split_v,
                 .gradient = grad_by_concat});
  registry->add({.name = "Stack",
                 .doc = "Its inputs, of one shape, along a new axis (tf.stack).",
                 .min_inputs = 1,
                 .max_inputs = -1,
                 .attrs = {{"axis", "int", true, "Where it goes; -1: last."}},
                 .infer = infer_stack,
                 .gradient = grad_stack});
  registry->add({.name = "Unstack",
                 .doc = "The values along an axis, without that axis (tf.unstack).",
                 .min_inputs = 1,
                 .max_inputs = 1,
                 .attrs = {axis, {"num", "int", true, "The extent of the axis."}},
                 .infer = infer_unstack,
                 .gradient = grad_by_stack});
}

}  // namespace

void register_array_join(OpRegistry* registry) {
  register_along_axis(registry);
  const ir::AttrSpec multiples = {"multiples", "ints", false,
                                  "How often, by dimension, when no input."};
  registry->add({.name = "Tile",
                 .doc = "(x[, multiples]) -> x again and again along each dimension (tf.tile).",
                 .min_inputs = 1,
                 .max_inputs = 2,
                 .attrs = {multiples},
                 .infer = infer_tile,
                 .gradient = grad_tile});
  registry->add({.name = "TileGrad",
                 .doc = "(dy, x[, multiples]) -> the tiles of dy, each of the shape of x, summed.",
                 .min_inputs = 2,
                 .max_inputs = 3,
                 .attrs = {multiples},
                 .infer = infer_tile_grad,
                 .gradient = grad_tile_grad});
  registry->add({.name = "RepeatIndices",
                 .doc = "repeats[n] -> index i repeats[i] times, for all i in order; int64 "
                        "(numpy.repeat of numpy.arange).",
                 .min_inputs = 1,
                 .max_inputs = 1,
                 .infer = infer_repeat_indices,
                 .differentiable = false});
}

}  // namespace sidereal::ops::internal
