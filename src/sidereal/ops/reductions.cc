#include <algorithm>

#include "sidereal/ops/internal.h"
#include "sidereal/ops/rule.h"

/// Reductions over axes, their gradients, and the places of extremes.
namespace sidereal::ops::internal {
namespace {

/// The axes of a reduction over a tensor of `rank` dimensions; an empty list means all of them.
Result<std::vector<int>> reduced_axes(const AttrMap& attrs, int rank) {
  SR_ASSIGN_OR_RETURN(const std::vector<int64_t> axes,
                      ir::get_attr<std::vector<int64_t>>(attrs, "axes"));
  SR_ASSIGN_OR_RETURN(std::vector<int> out, normalize_axes(axes, rank));
  if (axes.empty()) {
    for (int i = 0; i < rank; ++i) out.push_back(i);
  }
  return out;
}

Result<Shape> reduced_shape(const Shape& shape, const AttrMap& attrs) {
  if (!shape.has_rank()) return Shape::unknown_rank();
  SR_ASSIGN_OR_RETURN(const std::vector<int> axes, reduced_axes(attrs, shape.rank()));
  const bool keep = ir::attr_or<bool>(attrs, "keep_dims", false);
  Shape out;
  for (int i = 0; i < shape.rank(); ++i) {
    const bool reduced = std::binary_search(axes.begin(), axes.end(), i);
    if (reduced && keep) out.append(1);
    if (!reduced) out.append(shape.dim(i));
  }
  return out;
}

std::function<Status(const InferContext&)> infer_reduce(const DTypeSet& set) {
  return [set](const InferContext& c) -> Status {
    SR_RETURN_IF_ERROR(require(c, set));
    SR_ASSIGN_OR_RETURN(Shape shape, reduced_shape(c.inputs[0].shape, c.attrs));
    return put(c, c.inputs[0].dtype, std::move(shape));
  };
}

/// (g, like): g has the shape of a reduction of `like`, the output that of `like`.
std::function<Status(const InferContext&)> infer_undo(const DTypeSet& set) {
  return [set](const InferContext& c) -> Status {
    SR_RETURN_IF_ERROR(require(c, set));
    SR_ASSIGN_OR_RETURN(const Shape reduced, reduced_shape(c.inputs[1].shape, c.attrs));
    SR_RETURN_IF_ERROR(merge_shapes(c.inputs[0].shape, reduced).status());
    return put(c, c.inputs[0].dtype, c.inputs[1].shape);
  };
}

/// The attributes of a reduction again, for its gradient.
AttrMap axes_of(const GradContext& c) {
  return {{"axes", c.node.attrs.at("axes")},
          {"keep_dims", ir::attr_or<bool>(c.node.attrs, "keep_dims", false)}};
}

/// `reduced`, a reduction of x with the node's attributes, repeated to the shape of x.
Output spread(GradContext& c, Output reduced, bool mean) {
  AttrMap attrs = axes_of(c);
  attrs["mean"] = mean;
  return c.builder.add("BroadcastAxes", {reduced, c.node.inputs[0]}, attrs);
}

Status grad_sum(GradContext& c) { return Rule(c).flow(spread(c, c.output_grads[0], false)); }
Status grad_mean(GradContext& c) { return Rule(c).flow(spread(c, c.output_grads[0], true)); }

Status grad_prod(GradContext& c) {
  Rule r(c);
  return r.flow(r.op("ProdGrad", {r.dy(), r.x()}, axes_of(c)));
}

/// (dy, x) -> dy times the product of the others, linear in dy.
Status grad_prod_grad(GradContext& c) {
  Rule r(c);
  const Output u = c.output_grads[0];
  const Output ones = r.op("OnesLike", {r.in(0)});
  const Output others = r.op("ProdGrad", {ones, r.in(1)}, axes_of(c));
  SR_RETURN_IF_ERROR(r.flow(0, r.op("ReduceSum", {r.mul(u, others)}, axes_of(c))));
  return r.flow(1, r.op("ProdGradGrad", {r.in(0), r.in(1), u}, axes_of(c)));
}

/// The elements that are the extreme share its gradient equally (TensorFlow's _MinOrMaxGrad).
Status grad_extreme(GradContext& c) {
  Rule r(c);
  const Output winner = r.op("Equal", {r.x(), spread(c, r.z(), false)});
  const Output indicator = r.op("Cast", {winner}, {{"dtype", r.dtype()}});
  const Output count = r.op("ReduceSum", {indicator}, axes_of(c));
  const Output share = r.div(r.dy(), count);
  return r.flow(r.mul(indicator, spread(c, share, false)));
}

/// The gradient of a repetition is the reduction.
Status grad_broadcast_axes(GradContext& c) {
  Rule r(c);
  const bool mean = ir::attr_or<bool>(c.node.attrs, "mean", false);
  return r.flow(r.op(mean ? "ReduceMean" : "ReduceSum", {r.dy()}, axes_of(c)));
}

Status infer_arg(const InferContext& c) {
  SR_RETURN_IF_ERROR(require(c, sets::kNumbers));
  SR_ASSIGN_OR_RETURN(const int64_t axis, ir::get_attr<int64_t>(c.attrs, "axis"));
  const DType dtype = ir::attr_or(c.attrs, "output_dtype", DType::kInt64);
  if (!sets::kIndices.has(dtype)) {
    return base::invalid_argument("output_dtype is {}; it must be int32 or int64",
                                  tensor::name_of(dtype));
  }
  const Shape& x = c.inputs[0].shape;
  if (!x.has_rank()) return put(c, dtype, Shape::unknown_rank());
  SR_ASSIGN_OR_RETURN(const int reduced, normalize_axis(axis, x.rank()));
  if (x.dim(reduced) == 0) {
    return base::invalid_argument("axis {} is empty: it has no greatest or smallest element",
                                  reduced);
  }
  Shape out;
  for (int i = 0; i < x.rank(); ++i) {
    if (i != reduced) out.append(x.dim(i));
  }
  return put(c, dtype, std::move(out));
}

std::vector<ir::AttrSpec> reduce_attrs() {
  return {{"axes", "ints", true, "Dimensions reduced; negative count from the end; none: all."},
          {"keep_dims", "bool", false, "Keep them with extent 1."}};
}

void add_reduction(OpRegistry* registry, const DTypeSet& set, const char* name, const char* doc,
                   GradientRule gradient) {
  registry->add({.name = name,
                 .doc = doc,
                 .min_inputs = 1,
                 .max_inputs = 1,
                 .attrs = reduce_attrs(),
                 .infer = infer_reduce(set),
                 .gradient = gradient});
}

void add_arg(OpRegistry* registry, const char* name, const char* doc) {
  registry->add({.name = name,
                 .doc = doc,
                 .min_inputs = 1,
                 .max_inputs = 1,
                 .attrs = {{"axis", "int", true, "The dimension; negative counts from the end."},
                           {"output_dtype", "dtype", false, "int32 or int64 (the default)."}},
                 .infer = infer_arg,
                 .gradient = no_flow});
}

}  // namespace

void register_reductions(OpRegistry* registry) {
  const DTypeSet& numbers = sets::kNumbers;
  add_reduction(registry, numbers, "ReduceSum", "Sums over axes; integers wrap around.", grad_sum);
  add_reduction(registry, numbers, "ReduceMean", "Means over axes; of integers truncated.",
                grad_mean);
  add_reduction(registry, numbers, "ReduceProd", "Products over axes; integers wrap around.",
                grad_prod);
  add_reduction(registry, numbers, "ReduceMax",
                "Greatest elements over axes, NaN when one is; equal ones share the gradient.",
                grad_extreme);
  add_reduction(registry, numbers, "ReduceMin",
                "Smallest elements over axes, NaN when one is; equal ones share the gradient.",
                grad_extreme);
  add_reduction(registry, sets::kBools, "ReduceAny", "Whether one element over axes holds.",
                no_flow);
  add_reduction(registry, sets::kBools, "ReduceAll", "Whether all elements over axes hold.",
                no_flow);
  add_arg(registry, "ArgMax",
          "Index of the first greatest element along an axis (NaN is greater).");
  add_arg(registry, "ArgMin",
          "Index of the first smallest element along an axis (NaN is smaller).");
  registry->add({.name = "ProdGrad",
                 .doc = "(dy, x) -> the gradient of a product of x over axes: dy times the product "
                        "of the other elements.",
                 .min_inputs = 2,
                 .max_inputs = 2,
                 .attrs = reduce_attrs(),
                 .infer = infer_undo(sets::kFloats),
                 .gradient = grad_prod_grad});
  registry->add({.name = "ProdGradGrad",
                 .doc =
                     "(dy, x, u) -> the gradient of ProdGrad by x, u that of its output: dy times "
                     "the sum, over the elements but one, of theirs of u times the product of the "
                     "others.",
                 .min_inputs = 3,
                 .max_inputs = 3,
                 .attrs = reduce_attrs(),
                 .infer = infer_undo(sets::kFloats),
                 .differentiable = false});
  std::vector<ir::AttrSpec> attrs = reduce_attrs();
  attrs.push_back({"mean", "bool", false, "Divide by the number of elements reduced."});
  registry->add({.name = "BroadcastAxes",
                 .doc = "(g, like) -> g, of the shape of a reduction of `like`, repeated over the "
                        "reduced axes.",
                 .min_inputs = 2,
                 .max_inputs = 2,
                 .attrs = std::move(attrs),
                 .infer = infer_undo(sets::kNumbers),
                 .gradient = grad_broadcast_axes});
}

}  // namespace sidereal::ops::internal
