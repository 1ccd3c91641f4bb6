#include "sidereal/ops/internal.h"

/// Cutting and padding along one axis.
namespace sidereal::ops::internal {
namespace {

Result<int> axis_of(const AttrMap& attrs, int rank) {
  SR_ASSIGN_OR_RETURN(const int64_t axis, ir::get_attr<int64_t>(attrs, "axis"));
  return normalize_axis(axis, rank);
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
  const int64_t begin = ir::attr_or<int64_t>(c.node.attrs, "begin", 0);
  if (shape.dim(axis) < 0) {
    std::vector<int64_t> begins(shape.rank(), 0);
    begins[axis] = begin;
    (*c.input_grads)[0] =
        c.builder.add("SliceGrad", {c.output_grads[0], c.node.inputs[0]}, {{"begin", begins}});
    return {};
  }
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
    // g[..., before : -after, ...]; a term per dimension up to the axis.
    const int64_t after = ir::attr_or<int64_t>(c.node.attrs, "after", 0);
    std::vector<int64_t> begin(axis + 1, 0);
    std::vector<int64_t> end(axis + 1, 0);
    begin[axis] = ir::attr_or<int64_t>(c.node.attrs, "before", 0);
    end[axis] = -after;
    const int64_t others = (int64_t{1} << axis) - 1;
    (*c.input_grads)[0] =
        c.builder.add("StridedSlice", {c.output_grads[0]},
                      {{"begin", begin},
                       {"end", end},
                       {"strides", std::vector<int64_t>(axis + 1, 1)},
                       {"begin_mask", others},
                       {"end_mask", after == 0 ? others | int64_t{1} << axis : others}});
    return {};
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
