#include "sidereal/ops/internal.h"

/// Reshaping, and joining and cutting along one axis.
namespace sidereal::ops::internal {
namespace {

/// What is known of the elements a Reshape moves: the product of the known extents and whether
/// that is all of them. Extents copied with 0 stand on both sides and are left out.
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

Status infer_reshape(const InferContext& c) {
  SR_ASSIGN_OR_RETURN(const std::vector<int64_t> wanted,
                      ir::get_attr<std::vector<int64_t>>(c.attrs, "shape"));
  const Shape& from = c.inputs[0].shape;
  if (wanted.size() > ir::kMaxRank) return base::invalid_argument("too many dimensions");
  Shape out;
  Extents given;
  int free_at = -1;
  std::vector<bool> copied(from.has_rank() ? from.rank() : 0, false);
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i] == 0 && from.has_rank()) {
      if (i >= copied.size()) {
        return base::invalid_argument("extent {} is 0 (copy), but the input has rank {}", i,
                                      from.rank());
      }
      copied[i] = true;
      out.append(from.dim(static_cast<int>(i)));
      continue;
    }
    if (wanted[i] < -1) return base::invalid_argument("extent {} is {}", i, wanted[i]);
    if (wanted[i] == -1 && free_at >= 0) {
      return base::invalid_argument("extents {} and {} are both -1; one may be", free_at, i);
    }
    if (wanted[i] == -1) free_at = static_cast<int>(i);
    out.append(wanted[i] == 0 ? -1 : wanted[i]);
    if (wanted[i] > 0) {
      given.count(wanted[i]);
      SR_RETURN_IF_ERROR(ir::check_shape(out));
    }
  }
  if (!from.has_rank()) return put(c, c.inputs[0].dtype, out);
  Extents had;
  for (int i = 0; i < from.rank(); ++i) {
    if (!copied[i]) had.count(from.dim(i));
  }
  const std::string text = out.to_string();
  if (free_at >= 0 && had.complete) {
    if (had.product % given.product != 0) {
      return base::invalid_argument("{} elements cannot be laid out as {}", had.product, text);
    }
    out.set_dim(free_at, had.product / given.product);
  } else if (free_at < 0 && had.complete && had.product != given.product) {
    return base::invalid_argument("{} elements cannot be laid out as {}", had.product, text);
  }
  return put(c, c.inputs[0].dtype, out);
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

Status grad_reshape(GradContext& c) {
  (*c.input_grads)[0] = c.builder.add("ReshapeLike", {c.output_grads[0], c.node.inputs[0]});
  return {};
}

Result<int> axis_of(const AttrMap& attrs, int rank) {
  SR_ASSIGN_OR_RETURN(const int64_t axis, ir::get_attr<int64_t>(attrs, "axis"));
  return normalize_axis(axis, rank);
}

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
    SR_ASSIGN_OR_RETURN(const int axis, axis_of(c.attrs, shape.rank()));
    total = total < 0 || shape.dim(axis) < 0 ? -1 : total + shape.dim(axis);
    shape.set_dim(axis, -1);
    SR_ASSIGN_OR_RETURN(out, merge_shapes(out, shape));
  }
  if (out.has_rank()) {
    SR_ASSIGN_OR_RETURN(const int axis, axis_of(c.attrs, out.rank()));
    out.set_dim(axis, total);
  }
  return put(c, dtype, out);
}

Status grad_concat(GradContext& c) {
  const Shape out = c.node.outputs[0].shape;
  if (!out.has_rank()) return base::unimplemented("the gradient of Concat needs a known rank");
  SR_ASSIGN_OR_RETURN(const int axis, axis_of(c.node.attrs, out.rank()));
  int64_t begin = 0;
  for (size_t i = 0; i < c.node.inputs.size(); ++i) {
    const Shape shape = c.builder.spec(c.node.inputs[i]).shape;
    if (!shape.has_rank() || shape.dim(axis) < 0) {
      return base::unimplemented(
          "the gradient of Concat needs known extents along its axis; input {} has shape {}", i,
          shape.to_string());
    }
    const AttrMap attrs = {{"axis", int64_t{axis}}, {"begin", begin}, {"size", shape.dim(axis)}};
    (*c.input_grads)[i] = c.builder.add("SliceAxis", {c.output_grads[0]}, attrs);
    begin += shape.dim(axis);
  }
  return {};
}

Status infer_slice_axis(const InferContext& c) {
  SR_ASSIGN_OR_RETURN(const int64_t begin, ir::get_attr<int64_t>(c.attrs, "begin"));
  SR_ASSIGN_OR_RETURN(const int64_t size, ir::get_attr<int64_t>(c.attrs, "size"));
  Shape shape = c.inputs[0].shape;
  if (begin < 0 || size < 0 || size > ir::kMaxElements) {
    return base::invalid_argument("begin {} and size {} must not be negative", begin, size);
  }
  if (!shape.has_rank()) return put(c, c.inputs[0].dtype, shape);
  SR_ASSIGN_OR_RETURN(const int axis, axis_of(c.attrs, shape.rank()));
  const int64_t extent = shape.dim(axis);
  if (extent >= 0 && (begin > extent || size > extent - begin)) {
    return base::invalid_argument("{} elements from {} on are not in an axis of extent {}", size,
                                  begin, extent);
  }
  shape.set_dim(axis, size);
  return put(c, c.inputs[0].dtype, shape);
}

Status grad_slice_axis(GradContext& c) {
  const Shape shape = c.builder.spec(c.node.inputs[0]).shape;
  if (!shape.has_rank()) return base::unimplemented("the gradient of SliceAxis needs a known rank");
  SR_ASSIGN_OR_RETURN(const int axis, axis_of(c.node.attrs, shape.rank()));
  if (shape.dim(axis) < 0) {
    return base::unimplemented("the gradient of SliceAxis needs a known extent along its axis");
  }
  const int64_t begin = ir::attr_or<int64_t>(c.node.attrs, "begin", 0);
  const int64_t size = ir::attr_or<int64_t>(c.node.attrs, "size", 0);
  const AttrMap attrs = {
      {"axis", int64_t{axis}}, {"before", begin}, {"after", shape.dim(axis) - begin - size}};
  (*c.input_grads)[0] = c.builder.add("PadAxis", {c.output_grads[0]}, attrs);
  return {};
}

Status infer_pad_axis(const InferContext& c) {
  SR_ASSIGN_OR_RETURN(const int64_t before, ir::get_attr<int64_t>(c.attrs, "before"));
  SR_ASSIGN_OR_RETURN(const int64_t after, ir::get_attr<int64_t>(c.attrs, "after"));
  Shape shape = c.inputs[0].shape;
  if (before < 0 || after < 0 || before > ir::kMaxElements || after > ir::kMaxElements) {
    return base::invalid_argument("before {} and after {} must not be negative", before, after);
  }
  if (!shape.has_rank()) return put(c, c.inputs[0].dtype, shape);
  SR_ASSIGN_OR_RETURN(const int axis, axis_of(c.attrs, shape.rank()));
  if (shape.dim(axis) >= 0) shape.set_dim(axis, shape.dim(axis) + before + after);
  return put(c, c.inputs[0].dtype, shape);
}

Status grad_pad_axis(GradContext& c) {
  const Shape shape = c.builder.spec(c.node.inputs[0]).shape;
  if (!shape.has_rank()) return base::unimplemented("the gradient of PadAxis needs a known rank");
  SR_ASSIGN_OR_RETURN(const int axis, axis_of(c.node.attrs, shape.rank()));
  if (shape.dim(axis) < 0) {
    return base::unimplemented("the gradient of PadAxis needs a known extent along its axis");
  }
  const AttrMap attrs = {{"axis", int64_t{axis}},
                         {"begin", ir::attr_or<int64_t>(c.node.attrs, "before", 0)},
                         {"size", shape.dim(axis)}};
  (*c.input_grads)[0] = c.builder.add("SliceAxis", {c.output_grads[0]}, attrs);
  return {};
}

}  // namespace

void register_shape_ops(OpRegistry* registry) {
  const ir::AttrSpec axis = {"axis", "int", true, "The dimension; negative counts from the end."};
  registry->add({.name = "Reshape",
                 .doc = "The same elements under another shape.",
                 .min_inputs = 1,
                 .max_inputs = 1,
                 .attrs = {{"shape", "ints", true,
                            "Extents; one may be -1 (what is left), 0 copies the input's."}},
                 .infer = infer_reshape,
                 .gradient = grad_reshape});
  registry->add({.name = "ReshapeLike",
                 .doc = "(g, like) -> g under the shape of `like`.",
                 .min_inputs = 2,
                 .max_inputs = 2,
                 .infer = infer_reshape_like,
                 .gradient = grad_reshape});
  registry->add({.name = "Concat",
                 .doc = "Its inputs one after another along an axis.",
                 .min_inputs = 1,
                 .max_inputs = -1,
                 .attrs = {axis},
                 .infer = infer_concat,
                 .gradient = grad_concat});
  registry->add({.name = "SliceAxis",
                 .doc = "The elements [begin, begin + size) along an axis.",
                 .min_inputs = 1,
                 .max_inputs = 1,
                 .attrs = {axis,
                           {"begin", "int", true, "First element."},
                           {"size", "int", true, "Number of elements."}},
                 .infer = infer_slice_axis,
                 .gradient = grad_slice_axis});
  registry->add({.name = "PadAxis",
                 .doc = "Zeros before and after along an axis.",
                 .min_inputs = 1,
                 .max_inputs = 1,
                 .attrs = {axis,
                           {"before", "int", true, "Zeros in front."},
                           {"after", "int", true, "Zeros behind."}},
                 .infer = infer_pad_axis,
                 .gradient = grad_pad_axis});
}

}  // namespace sidereal::ops::internal
