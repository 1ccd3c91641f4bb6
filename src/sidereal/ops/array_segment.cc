#include <string>
#include <utility>

#include "sidereal/ops/args.h"

/// Sums, means, products and extremes of rows that belong together.
namespace sidereal::ops::internal {
namespace {

/// The shape of `rows` rows like those of data under the dimensions of the ids.
Result<Shape> segments_shape(const Shape& data, const Shape& ids, int64_t rows) {
  if (!data.has_rank() || !ids.has_rank()) return Shape::unknown_rank();
  if (ids.rank() > data.rank()) {
    return base::invalid_argument("segment ids of shape {} for data of shape {}", ids.to_string(),
                                  data.to_string());
  }
  for (int i = 0; i < ids.rank(); ++i) {
    if (!merge_extent(data.dim(i), ids.dim(i)).ok()) {
      return base::invalid_argument(
          "segment ids of shape {} do not fit data of shape {}: they "
          "differ in dimension {}",
          ids.to_string(), data.to_string(), i);
    }
  }
  Shape out{rows};
  for (int i = ids.rank(); i < data.rank(); ++i) out.append(data.dim(i));
  return out;
}

Status infer_segment(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_numeric(c, 0));
  SR_RETURN_IF_ERROR(require_index(c, 1));
  SR_RETURN_IF_ERROR(require_rank(c, 1, 1));
  SR_ASSIGN_OR_RETURN(Shape shape, segments_shape(c.inputs[0].shape, c.inputs[1].shape, -1));
  return put(c, c.inputs[0].dtype, std::move(shape));
}

Status infer_unsorted(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_numeric(c, 0));
  SR_RETURN_IF_ERROR(require_index(c, 1));
  SR_ASSIGN_OR_RETURN(const IntArg num, int_arg(c, "num_segments", 2));
  if (num.known && num.value < 0) {
    return base::invalid_argument("num_segments is {}", num.value);
  }
  SR_ASSIGN_OR_RETURN(Shape shape, segments_shape(c.inputs[0].shape, c.inputs[1].shape, num.value));
  return put(c, c.inputs[0].dtype, std::move(shape));
}

Status check_combiner(const AttrMap& attrs) {
  const auto combiner = ir::attr_or<std::string>(attrs, "combiner", "");
  if (combiner == "sum" || combiner == "mean" || combiner == "sqrt_n") return {};
  return base::invalid_argument("combiner is '{}'; it must be 'sum', 'mean' or 'sqrt_n'", combiner);
}

/// (g[rows, ...], ids) -> [ids..., ...]
Status infer_spread(const InferContext& c) {
  SR_RETURN_IF_ERROR(check_combiner(c.attrs));
  SR_RETURN_IF_ERROR(require(c, sets::kFloats, 0, 0));
  SR_RETURN_IF_ERROR(require_index(c, 1));
  const Shape& g = c.inputs[0].shape;
  const Shape& ids = c.inputs[1].shape;
  if (g.has_rank() && g.rank() == 0) return base::invalid_argument("input 0 is a scalar");
  if (!g.has_rank() || !ids.has_rank()) return put(c, c.inputs[0].dtype, Shape::unknown_rank());
  Shape out = ids;
  for (int i = 1; i < g.rank(); ++i) out.append(g.dim(i));
  return put(c, c.inputs[0].dtype, out);
}

Status infer_ties(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_same_dtype(c, 0, 1));
  SR_RETURN_IF_ERROR(require_numeric(c, 0));
  SR_RETURN_IF_ERROR(require_index(c, 2));
  return put(c, c.inputs[0].dtype, c.inputs[0].shape);
}

// --- Gradients.

/// g at each element's segment, scaled as the combiner says.
Output spread(GradContext& c, const char* combiner) {
  return c.builder.add("SegmentSpread", {c.output_grads[0], c.node.inputs[1]},
                       {{"combiner", std::string(combiner)}});
}

Status grad_sum(GradContext& c) {
  (*c.input_grads)[0] = spread(c, "sum");
  return {};
}
Status grad_mean(GradContext& c) {
  (*c.input_grads)[0] = spread(c, "mean");
  return {};
}
Status grad_sqrt_n(GradContext& c) {
  (*c.input_grads)[0] = spread(c, "sqrt_n");
  return {};
}

/// The elements that have the extreme value of their segment share the gradient.
Status grad_extreme(GradContext& c) {
  const Output share =
      c.builder.add("SegmentTies", {c.node.inputs[0], Output{c.node.id, 0}, c.node.inputs[1]});
  const Output g = spread(c, "sum");
  (*c.input_grads)[0] = c.builder.add("Mul", {share, g});
  return {};
}

/// The op of this node on other data.
Output again(GradContext& c, const std::string& op, Output data) {
  std::vector<Output> inputs = {data};
  append_inputs(c, 1, &inputs);
  return c.builder.add(op, inputs, c.node.attrs);
}

/// dy times the product of the other elements of the segment, exact where some are zero.
Status grad_prod(GradContext& c) {
  ir::Builder& b = c.builder;
  const std::string family = c.node.op == "SegmentProd" ? "Segment" : "UnsortedSegment";
  const Output x = c.node.inputs[0];
  const Output ids = c.node.inputs[1];
  const DType dtype = c.node.outputs[0].dtype;
  const AttrMap plain = {{"combiner", std::string("sum")}};
  const Output zero = scalar(b, dtype, 0);
  const Output one = scalar(b, dtype, 1);
  const Output is_zero = b.add("Equal", {x, zero});
  const Output count_zero = b.add("Cast", {is_zero}, {{"dtype", dtype}});
  const Output zeros = b.add("SegmentSpread", {again(c, family + "Sum", count_zero), ids}, plain);
  const Output other_zeros = b.add("Sub", {zeros, count_zero});
  const Output safe = b.add("Select", {is_zero, one, x});
  const Output product = b.add("SegmentSpread", {again(c, family + "Prod", safe), ids}, plain);
  const Output others = b.add("Div", {product, safe});
  const Output alone = b.add("Equal", {other_zeros, zero});
  const Output kept = b.add("Select", {alone, others, zero});
  const Output g = spread(c, "sum");
  (*c.input_grads)[0] = b.add("Mul", {g, kept});
  return {};
}

/// SegmentSpread is linear in g: the gradient combines again, into as many rows as g has.
Status grad_spread(GradContext& c) {
  ir::Builder& b = c.builder;
  const auto combiner = ir::attr_or<std::string>(c.node.attrs, "combiner", "sum");
  const std::string op = combiner == "sum"    ? "UnsortedSegmentSum"
                         : combiner == "mean" ? "UnsortedSegmentMean"
                                              : "UnsortedSegmentSqrtN";
  const Output g = c.output_grads[0];
  const Output ids = c.node.inputs[1];
  const Shape shape = b.spec(c.node.inputs[0]).shape;
  if (shape.has_rank() && shape.dim(0) >= 0) {
    (*c.input_grads)[0] = b.add(op, {g, ids}, {{"num_segments", shape.dim(0)}});
    return {};
  }
  const Output extents = b.add("Shape", {c.node.inputs[0]}, {{"out_type", DType::kInt64}});
  const std::vector<int64_t> first = {0};
  const std::vector<int64_t> one = {1};
  const Output rows = b.add("Slice", {extents}, {{"begin", first}, {"size", one}});
  (*c.input_grads)[0] = b.add(op, {g, ids, rows});
  return {};
}

// --- Sparse segments: rows of data at indices.

Status infer_sparse(const InferContext& c) {
  SR_RETURN_IF_ERROR(require(c, sets::kFloats, 0, 0));
  SR_RETURN_IF_ERROR(require_index(c, 1));
  SR_RETURN_IF_ERROR(require_index(c, 2));
  SR_RETURN_IF_ERROR(require_rank(c, 1, 1));
  SR_RETURN_IF_ERROR(require_rank(c, 2, 1));
  SR_RETURN_IF_ERROR(merge_shapes(c.inputs[1].shape, c.inputs[2].shape).status());
  IntArg num;
  if (c.inputs.size() > 3 || c.attrs.contains("num_segments")) {
    SR_ASSIGN_OR_RETURN(num, int_arg(c, "num_segments", 3));
    if (num.known && num.value < 0) {
      return base::invalid_argument("num_segments is {}", num.value);
    }
  }
  Shape out = c.inputs[0].shape;
  if (out.has_rank() && out.rank() == 0) return base::invalid_argument("the data is a scalar");
  if (out.has_rank()) out.set_dim(0, num.value);
  return put(c, c.inputs[0].dtype, out);
}

Status grad_sparse(GradContext& c, const char* combiner) {
  const Output rows = c.builder.add("SegmentSpread", {c.output_grads[0], c.node.inputs[2]},
                                    {{"combiner", std::string(combiner)}});
  (*c.input_grads)[0] = c.builder.add("GatherGrad", {rows, c.node.inputs[1], c.node.inputs[0]});
  return {};
}

Status grad_sparse_sum(GradContext& c) { return grad_sparse(c, "sum"); }
Status grad_sparse_mean(GradContext& c) { return grad_sparse(c, "mean"); }
Status grad_sparse_sqrt_n(GradContext& c) { return grad_sparse(c, "sqrt_n"); }

using GradientRule = Status (*)(GradContext&);

void add_sorted(OpRegistry* registry, const char* name, const char* doc, GradientRule gradient) {
  registry->add({.name = name,
                 .doc = doc,
                 .min_inputs = 2,
                 .max_inputs = 2,
                 .infer = infer_segment,
                 .gradient = gradient});
}

void add_unsorted(OpRegistry* registry, const char* name, const char* doc, GradientRule gradient) {
  registry->add({.name = name,
                 .doc = doc,
                 .min_inputs = 2,
                 .max_inputs = 3,
                 .attrs = {{"num_segments", "int", false, "Rows of the output, when no input."}},
                 .infer = infer_unsorted,
                 .gradient = gradient});
}

void add_sparse(OpRegistry* registry, const char* name, const char* doc, GradientRule gradient) {
  registry->add({.name = name,
                 .doc = doc,
                 .min_inputs = 3,
                 .max_inputs = 4,
                 .attrs = {{"num_segments", "int", false,
                            "Rows of the output; without it as many as there are ids."},
                           {"gathered", "bool", false,
                            "x has the rows at indices, in their order, and no others."}},
                 .infer = infer_sparse,
                 .gradient = gradient});
}

void register_segments(OpRegistry* registry) {
  add_sorted(
      registry, "SegmentSum",
      "(x, ids) -> sums of the rows of equal ids, which must be sorted (tf.math.segment_sum); "
      "0 for an id that is not there.",
      grad_sum);
  add_sorted(registry, "SegmentMean", "As SegmentSum, means (tf.math.segment_mean).", grad_mean);
  add_sorted(registry, "SegmentProd",
             "As SegmentSum, products (tf.math.segment_prod); 1 for an id that is not there.",
             grad_prod);
  add_sorted(registry, "SegmentMax", "As SegmentSum, greatest elements (tf.math.segment_max).",
             grad_extreme);
  add_sorted(registry, "SegmentMin", "As SegmentSum, smallest elements (tf.math.segment_min).",
             grad_extreme);
  add_unsorted(registry, "UnsortedSegmentSum",
               "(x, ids[, num_segments]) -> sums of the parts of x of equal ids, in any order; "
               "negative ids are left out (tf.math.unsorted_segment_sum).",
               grad_sum);
  add_unsorted(registry, "UnsortedSegmentMean",
               "As UnsortedSegmentSum, means (tf.math.unsorted_segment_mean).", grad_mean);
  add_unsorted(registry, "UnsortedSegmentSqrtN",
               "As UnsortedSegmentSum, sums divided by the square root of their number "
               "(tf.math.unsorted_segment_sqrt_n).",
               grad_sqrt_n);
  add_unsorted(registry, "UnsortedSegmentProd",
               "As UnsortedSegmentSum, products (tf.math.unsorted_segment_prod); 1 for an id that "
               "is not there.",
               grad_prod);
  add_unsorted(registry, "UnsortedSegmentMax",
               "As UnsortedSegmentSum, greatest elements (tf.math.unsorted_segment_max); the "
               "lowest number for an id that is not there.",
               grad_extreme);
  add_unsorted(registry, "UnsortedSegmentMin",
               "As UnsortedSegmentSum, smallest elements (tf.math.unsorted_segment_min); the "
               "highest number for an id that is not there.",
               grad_extreme);
}

}  // namespace

void register_array_segment(OpRegistry* registry) {
  register_segments(registry);
  add_sparse(registry, "SparseSegmentSum",
             "(x, indices, ids[, num_segments]) -> SegmentSum of the rows of x at indices "
             "(tf.sparse.segment_sum).",
             grad_sparse_sum);
  add_sparse(registry, "SparseSegmentMean", "As SparseSegmentSum, means (tf.sparse.segment_mean).",
             grad_sparse_mean);
  add_sparse(registry, "SparseSegmentSqrtN",
             "As SparseSegmentSum, sums divided by the square root of their number "
             "(tf.sparse.segment_sqrt_n).",
             grad_sparse_sqrt_n);
  registry->add({.name = "SegmentSpread",
                 .doc = "(g, ids) -> row ids[i] of g for each i, divided as the combiner says; "
                        "zeros for a negative id. The gradient of segment sums and means.",
                 .min_inputs = 2,
                 .max_inputs = 2,
                 .attrs = {{"combiner", "string", true,
                            "'sum': as it is; 'mean': by the number of elements of the segment; "
                            "'sqrt_n': by its square root."}},
                 .infer = infer_spread,
                 .gradient = grad_spread});
  registry->add({.name = "SegmentTies",
                 .doc = "(x, extremes, ids) -> for each element of x 1 over the number of elements "
                        "of its segment that equal the extreme, if it does, else 0.",
                 .min_inputs = 3,
                 .max_inputs = 3,
                 .infer = infer_ties,
                 .gradient = no_flow});
}

}  // namespace sidereal::ops::internal
