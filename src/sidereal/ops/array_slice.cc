#include <utility>

#include "sidereal/ops/args.h"
#include "sidereal/tensor/slicing.h"

/// Parts of values, and values with a rim around them.
namespace sidereal::ops::internal {
namespace {

using tensor::SliceTerms;

// --- StridedSlice.

SliceTerms masks_of(const AttrMap& attrs) {
  SliceTerms terms;
  terms.begin_mask = ir::attr_or<int64_t>(attrs, "begin_mask", 0);
  terms.end_mask = ir::attr_or<int64_t>(attrs, "end_mask", 0);
  terms.ellipsis_mask = ir::attr_or<int64_t>(attrs, "ellipsis_mask", 0);
  terms.new_axis_mask = ir::attr_or<int64_t>(attrs, "new_axis_mask", 0);
  terms.shrink_axis_mask = ir::attr_or<int64_t>(attrs, "shrink_axis_mask", 0);
  return terms;
}

/// What a strided slice whose begins are input `first`, if inputs, makes of a value of `shape`.
Result<Shape> sliced_shape(const InferContext& c, size_t first, const Shape& shape) {
  SR_ASSIGN_OR_RETURN(const IntsArg begin, ints_arg(c, "begin", first));
  SR_ASSIGN_OR_RETURN(const IntsArg end, ints_arg(c, "end", first + 1));
  SR_ASSIGN_OR_RETURN(const IntsArg strides, ints_arg(c, "strides", first + 2));
  if (!shape.has_rank()) return Shape::unknown_rank();
  SliceTerms terms = masks_of(c.attrs);
  if (begin.known && end.known && strides.known) {
    terms.begin = begin.values;
    terms.end = end.values;
    terms.strides = strides.values;
    SR_ASSIGN_OR_RETURN(const tensor::ResolvedSlice resolved, tensor::resolve_slice(terms, shape));
    return resolved.shape;
  }
  if (begin.count < 0) return Shape::unknown_rank();
  return tensor::shape_of_unknown_slice(begin.count, terms, shape);
}

Status check_slice_inputs(const InferContext& c, size_t values) {
  if (c.inputs.size() == values || c.inputs.size() == values + 3) return {};
  return base::invalid_argument("begin, end and strides are all inputs, or none of them is");
}

Status infer_strided_slice(const InferContext& c) {
  SR_RETURN_IF_ERROR(check_slice_inputs(c, 1));
  SR_ASSIGN_OR_RETURN(Shape shape, sliced_shape(c, 1, c.inputs[0].shape));
  return put(c, c.inputs[0].dtype, std::move(shape));
}

Status infer_strided_slice_grad(const InferContext& c) {
  SR_RETURN_IF_ERROR(check_slice_inputs(c, 2));
  SR_RETURN_IF_ERROR(require_same_dtype(c, 0, 1));
  SR_ASSIGN_OR_RETURN(const Shape part, sliced_shape(c, 2, c.inputs[1].shape));
  SR_RETURN_IF_ERROR(merge_shapes(c.inputs[0].shape, part).status());
  return put(c, c.inputs[0].dtype, c.inputs[1].shape);
}

Status grad_strided_slice(GradContext& c) {
  std::vector<Output> inputs = {c.output_grads[0], c.node.inputs[0]};
  append_inputs(c, 1, &inputs);
  (*c.input_grads)[0] = c.builder.add("StridedSliceGrad", inputs, c.node.attrs);
  return {};
}

Status grad_strided_slice_grad(GradContext& c) {
  std::vector<Output> inputs = {c.output_grads[0]};
  append_inputs(c, 2, &inputs);
  (*c.input_grads)[0] = c.builder.add("StridedSlice", inputs, c.node.attrs);
  return {};
}

// --- Slice.

Status infer_slice(const InferContext& c) {
  if (c.inputs.size() == 2) {
    return base::invalid_argument("begin and size are both inputs, or neither is");
  }
  SR_ASSIGN_OR_RETURN(const IntsArg begin, ints_arg(c, "begin", 1));
  SR_ASSIGN_OR_RETURN(const IntsArg size, ints_arg(c, "size", 2));
  const Shape& from = c.inputs[0].shape;
  const int64_t count = begin.count >= 0 ? begin.count : size.count;
  if (begin.count >= 0 && size.count >= 0 && begin.count != size.count) {
    return base::invalid_argument("begin has {} entries and size {}", begin.count, size.count);
  }
  if (count > ir::kMaxRank) return base::invalid_argument("begin has {} entries", count);
  if (from.has_rank() && count >= 0 && count != from.rank()) {
    return base::invalid_argument("begin has {} entries for a value of rank {}", count,
                                  from.rank());
  }
  const int64_t rank = from.has_rank() ? from.rank() : count;
  if (rank < 0) return put(c, c.inputs[0].dtype, Shape::unknown_rank());
  Shape out;
  for (int i = 0; i < rank; ++i) {
    const int64_t extent = from.has_rank() ? from.dim(i) : -1;
    int64_t taken = size.known ? size.values[i] : -1;
    if (begin.known && begin.values[i] < 0) {
      return base::invalid_argument("begin {} is {}", i, begin.values[i]);
    }
    if (size.known && taken < -1) return base::invalid_argument("size {} is {}", i, taken);
    if (size.known && taken == -1 && begin.known && extent >= 0) {
      taken = extent - begin.values[i];
    }
    if (begin.known && size.known && extent >= 0 &&
        (taken < 0 || begin.values[i] > extent || taken > extent - begin.values[i])) {
      return base::invalid_argument("{} elements from {} on are not in dimension {} of extent {}",
                                    size.values[i], begin.values[i], i, extent);
    }
    out.append(taken);
  }
  return put(c, c.inputs[0].dtype, out);
}

Status infer_slice_grad(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_same_dtype(c, 0, 1));
  SR_ASSIGN_OR_RETURN(const IntsArg begin, ints_arg(c, "begin", 2));
  const Shape& to = c.inputs[1].shape;
  const Shape& dy = c.inputs[0].shape;
  if (to.has_rank() && begin.count >= 0 && begin.count != to.rank()) {
    return base::invalid_argument("begin has {} entries for a value of rank {}", begin.count,
                                  to.rank());
  }
  if (to.has_rank() && dy.has_rank() && to.rank() != dy.rank()) {
    return base::invalid_argument("a part of rank {} of a value of rank {}", dy.rank(), to.rank());
  }
  return put(c, c.inputs[0].dtype, to);
}

Status grad_slice(GradContext& c) {
  std::vector<Output> inputs = {c.output_grads[0], c.node.inputs[0]};
  AttrMap attrs;
  if (c.node.inputs.size() > 1) {
    inputs.push_back(c.node.inputs[1]);
  } else {
    attrs["begin"] = c.node.attrs.at("begin");
  }
  (*c.input_grads)[0] = c.builder.add("SliceGrad", inputs, attrs);
  return {};
}

/// The part of `g` that has the shape of `like` and starts at `begin` (a constant or an output).
Output slice_like(ir::Builder& b, Output g, Output like, const std::vector<int64_t>* constant,
                  Output begin) {
  const Shape shape = b.spec(like).shape;
  if (constant != nullptr && shape.is_fully_defined()) {
    const std::vector<int64_t> size(shape.dims().begin(), shape.dims().end());
    return b.add("Slice", {g}, {{"begin", *constant}, {"size", size}});
  }
  if (constant != nullptr) begin = ints_constant(b, *constant);
  const Output size = b.add("Shape", {like}, {{"out_type", DType::kInt64}});
  return b.add("Slice", {g, begin, size});
}

Status grad_slice_grad(GradContext& c) {
  const bool input = c.node.inputs.size() > 2;
  (*c.input_grads)[0] = slice_like(c.builder, c.output_grads[0], c.node.inputs[0],
                                   ir::find_attr<std::vector<int64_t>>(c.node.attrs, "begin"),
                                   input ? c.node.inputs[2] : Output{});
  return {};
}

// --- Padding.

/// The shape of a value with paddings ([before, after] by dimension, flat) around it.
Result<Shape> padded_shape(const InferContext& c, size_t input, const Shape& from) {
  SR_ASSIGN_OR_RETURN(const IntsArg pads, ints_arg(c, "paddings", input));
  if (pads.count >= 0 && pads.count % 2 != 0) {
    return base::invalid_argument("paddings has {} entries; two a dimension are needed",
                                  pads.count);
  }
  if (from.has_rank() && pads.count >= 0 && pads.count != 2 * int64_t{from.rank()}) {
    return base::invalid_argument(
        "paddings has {} entries for a value of rank {}; two a dimension "
        "are needed",
        pads.count, from.rank());
  }
  if (!from.has_rank()) return Shape::unknown_rank();
  Shape out;
  for (int i = 0; i < from.rank(); ++i) {
    if (!pads.known) {
      out.append(-1);
      continue;
    }
    const int64_t before = pads.values[2 * i];
    const int64_t after = pads.values[2 * i + 1];
    if (before < 0 || after < 0 || before > ir::kMaxElements || after > ir::kMaxElements) {
      return base::invalid_argument("dimension {} is padded by {} and {}", i, before, after);
    }
    out.append(from.dim(i) < 0 ? -1 : from.dim(i) + before + after);
  }
  return out;
}

Status infer_pad(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_same_dtype(c, 0, 1));
  SR_RETURN_IF_ERROR(require_rank(c, 1, 0));
  SR_ASSIGN_OR_RETURN(Shape shape, padded_shape(c, 2, c.inputs[0].shape));
  return put(c, c.inputs[0].dtype, std::move(shape));
}

Status grad_pad(GradContext& c) {
  ir::Builder& b = c.builder;
  std::vector<int64_t> before;
  const auto* pads = ir::find_attr<std::vector<int64_t>>(c.node.attrs, "paddings");
  Output begin;
  if (pads != nullptr) {
    for (size_t i = 0; i < pads->size(); i += 2) before.push_back((*pads)[i]);
  } else {
    // paddings[:, 0]
    begin = b.add("StridedSlice", {c.node.inputs[2]},
                  {{"begin", std::vector<int64_t>{0, 0}},
                   {"end", std::vector<int64_t>{0, 0}},
                   {"strides", std::vector<int64_t>{1, 1}},
                   {"begin_mask", int64_t{1}},
                   {"end_mask", int64_t{1}},
                   {"shrink_axis_mask", int64_t{2}}});
  }
  const Output g = c.output_grads[0];
  const Output inner =
      slice_like(b, g, c.node.inputs[0], pads == nullptr ? nullptr : &before, begin);
  (*c.input_grads)[0] = inner;
  const AttrMap all = {{"axes", std::vector<int64_t>{}}, {"keep_dims", false}};
  const Output everything = b.add("ReduceSum", {g}, all);
  const Output inside = b.add("ReduceSum", {inner}, all);
  (*c.input_grads)[1] = b.add("Sub", {everything, inside});
  return {};
}

Status check_mirror_mode(const AttrMap& attrs) {
  const auto mode = ir::attr_or<std::string>(attrs, "mode", "");
  if (mode == "reflect" || mode == "symmetric") return {};
  return base::invalid_argument("mode is '{}'; it must be 'reflect' or 'symmetric'", mode);
}

Status infer_mirror_pad(const InferContext& c) {
  SR_RETURN_IF_ERROR(check_mirror_mode(c.attrs));
  SR_ASSIGN_OR_RETURN(Shape shape, padded_shape(c, 1, c.inputs[0].shape));
  return put(c, c.inputs[0].dtype, std::move(shape));
}

Status infer_mirror_pad_grad(const InferContext& c) {
  SR_RETURN_IF_ERROR(check_mirror_mode(c.attrs));
  SR_RETURN_IF_ERROR(require_same_dtype(c, 0, 1));
  SR_RETURN_IF_ERROR(require_numeric(c, 0));
  SR_ASSIGN_OR_RETURN(const Shape padded, padded_shape(c, 2, c.inputs[1].shape));
  SR_RETURN_IF_ERROR(merge_shapes(padded, c.inputs[0].shape).status());
  return put(c, c.inputs[0].dtype, c.inputs[1].shape);
}

Status grad_mirror_pad(GradContext& c) {
  std::vector<Output> inputs = {c.output_grads[0], c.node.inputs[0]};
  append_inputs(c, 1, &inputs);
  (*c.input_grads)[0] = c.builder.add("MirrorPadGrad", inputs, c.node.attrs);
  return {};
}

Status grad_mirror_pad_grad(GradContext& c) {
  std::vector<Output> inputs = {c.output_grads[0]};
  append_inputs(c, 2, &inputs);
  (*c.input_grads)[0] = c.builder.add("MirrorPad", inputs, c.node.attrs);
  return {};
}

// --- Reverse and Roll.

Status infer_reverse(const InferContext& c) {
  SR_ASSIGN_OR_RETURN(const auto axes, ir::get_attr<std::vector<int64_t>>(c.attrs, "axes"));
  if (c.inputs[0].shape.has_rank()) {
    SR_RETURN_IF_ERROR(normalize_axes(axes, c.inputs[0].shape.rank()).status());
  }
  return put(c, c.inputs[0].dtype, c.inputs[0].shape);
}

Status grad_reverse(GradContext& c) {
  (*c.input_grads)[0] = c.builder.add("Reverse", {c.output_grads[0]}, c.node.attrs);
  return {};
}

Status infer_roll(const InferContext& c) {
  SR_ASSIGN_OR_RETURN(const auto shift, ir::get_attr<std::vector<int64_t>>(c.attrs, "shift"));
  SR_ASSIGN_OR_RETURN(const auto axes, ir::get_attr<std::vector<int64_t>>(c.attrs, "axes"));
  if (shift.size() != axes.size()) {
    return base::invalid_argument("{} shifts for {} axes", shift.size(), axes.size());
  }
  for (const int64_t s : shift) {
    if (s < -ir::kMaxElements || s > ir::kMaxElements) {
      return base::invalid_argument("a shift of {} is out of range", s);
    }
  }
  if (c.inputs[0].shape.has_rank()) {
    for (const int64_t axis : axes) {
      SR_RETURN_IF_ERROR(normalize_axis(axis, c.inputs[0].shape.rank()).status());
    }
  }
  return put(c, c.inputs[0].dtype, c.inputs[0].shape);
}

Status grad_roll(GradContext& c) {
  SR_ASSIGN_OR_RETURN(auto shift, ir::get_attr<std::vector<int64_t>>(c.node.attrs, "shift"));
  for (int64_t& s : shift) s = -s;
  AttrMap attrs = c.node.attrs;
  attrs["shift"] = shift;
  (*c.input_grads)[0] = c.builder.add("Roll", {c.output_grads[0]}, attrs);
  return {};
}

std::vector<ir::AttrSpec> strided_attrs() {
  return {{"begin", "ints", false, "First index of each term, when no input."},
          {"end", "ints", false, "Index at which each term ends, when no input."},
          {"strides", "ints", false, "Step of each term, not 0, when no input."},
          {"begin_mask", "int", false, "Bits of the terms without a begin."},
          {"end_mask", "int", false, "Bits of the terms without an end."},
          {"ellipsis_mask", "int", false, "Bit of the term that is an ellipsis."},
          {"new_axis_mask", "int", false, "Bits of the terms that insert a dimension."},
          {"shrink_axis_mask", "int", false, "Bits of the terms that are a single index."}};
}

void register_slices(OpRegistry* registry) {
  registry->add({.name = "StridedSlice",
                 .doc = "(x[, begin, end, strides]) -> x[1:, ..., None, 3, ::-1] by NumPy's rules "
                        "(tf.strided_slice).",
                 .min_inputs = 1,
                 .max_inputs = 4,
                 .attrs = strided_attrs(),
                 .infer = infer_strided_slice,
                 .gradient = grad_strided_slice});
  registry->add({.name = "StridedSliceGrad",
                 .doc = "(dy, x[, begin, end, strides]) -> zeros like x with dy where StridedSlice "
                        "takes from.",
                 .min_inputs = 2,
                 .max_inputs = 5,
                 .attrs = strided_attrs(),
                 .infer = infer_strided_slice_grad,
                 .gradient = grad_strided_slice_grad});
  registry->add({.name = "Slice",
                 .doc = "(x[, begin, size]) -> size elements from begin on, by dimension "
                        "(tf.slice). A size of -1 takes what is left.",
                 .min_inputs = 1,
                 .max_inputs = 3,
                 .attrs = {{"begin", "ints", false, "First index by dimension, when no input."},
                           {"size", "ints", false, "Elements by dimension, when no input."}},
                 .infer = infer_slice,
                 .gradient = grad_slice});
  registry->add({.name = "SliceGrad",
                 .doc = "(dy, x[, begin]) -> zeros like x with dy from begin on.",
                 .min_inputs = 2,
                 .max_inputs = 3,
                 .attrs = {{"begin", "ints", false, "First index by dimension, when no input."}},
                 .infer = infer_slice_grad,
                 .gradient = grad_slice_grad});
}

void register_pads(OpRegistry* registry) {
  const ir::AttrSpec pads = {"paddings", "ints", false,
                             "Before and after, by dimension, when no input."};
  const ir::AttrSpec mode = {"mode", "string", true,
                             "'reflect' leaves the border out of the mirror image, 'symmetric' "
                             "does not."};
  registry->add({.name = "Pad",
                 .doc = "(x, value[, paddings]) -> x with the scalar `value` around it (tf.pad, "
                        "mode CONSTANT).",
                 .min_inputs = 2,
                 .max_inputs = 3,
                 .attrs = {pads},
                 .infer = infer_pad,
                 .gradient = grad_pad});
  registry->add({.name = "MirrorPad",
                 .doc = "(x[, paddings]) -> x with its mirror image around it (tf.pad, modes "
                        "REFLECT and SYMMETRIC).",
                 .min_inputs = 1,
                 .max_inputs = 2,
                 .attrs = {pads, mode},
                 .infer = infer_mirror_pad,
                 .gradient = grad_mirror_pad});
  registry->add({.name = "MirrorPadGrad",
                 .doc = "(dy, x[, paddings]) -> dy folded back to the shape of x and summed.",
                 .min_inputs = 2,
                 .max_inputs = 3,
                 .attrs = {pads, mode},
                 .infer = infer_mirror_pad_grad,
                 .gradient = grad_mirror_pad_grad});
}

}  // namespace

void register_array_slice(OpRegistry* registry) {
  register_slices(registry);
  register_pads(registry);
  registry->add({.name = "Reverse",
                 .doc = "Its input with the order along axes turned around (tf.reverse).",
                 .min_inputs = 1,
                 .max_inputs = 1,
                 .attrs = {{"axes", "ints", true, "Which; negative count from the end."}},
                 .infer = infer_reverse,
                 .gradient = grad_reverse});
  registry->add({.name = "Roll",
                 .doc = "Its input moved around in a circle along axes (tf.roll).",
                 .min_inputs = 1,
                 .max_inputs = 1,
                 .attrs = {{"shift", "ints", true, "By how many, one per axis."},
                           {"axes", "ints", true, "Along which; one named twice moves twice."}},
                 .infer = infer_roll,
                 .gradient = grad_roll});
}

}  // namespace sidereal::ops::internal
