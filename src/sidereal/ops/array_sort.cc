#include <algorithm>
#include <string>
#include <utility>

#include "sidereal/ops/args.h"

/// Order, membership and running sums.
namespace sidereal::ops::internal {
namespace {

// --- Sorting.

Status require_vector_at_least(const InferContext& c, size_t i) {
  const Shape& shape = c.inputs[i].shape;
  if (!shape.has_rank() || shape.rank() >= 1) return {};
  return base::invalid_argument("input {} is a scalar; it needs a last dimension", i);
}

/// Values and their int32 indices along the last dimension.
Status put_sorted(const InferContext& c, const Shape& shape) {
  SR_RETURN_IF_ERROR(put(c, c.inputs[0].dtype, shape));
  return put(c, DType::kInt32, shape);
}

Status infer_top_k(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_numeric(c, 0));
  SR_RETURN_IF_ERROR(require_vector_at_least(c, 0));
  SR_ASSIGN_OR_RETURN(const IntArg k, int_arg(c, "k", 1));
  Shape shape = c.inputs[0].shape;
  if (k.known && k.value < 0) return base::invalid_argument("k is {}", k.value);
  if (shape.has_rank()) {
    if (k.known && shape.dim(-1) >= 0 && k.value > shape.dim(-1)) {
      return base::invalid_argument("k is {}, but the last dimension has {} elements", k.value,
                                    shape.dim(-1));
    }
    shape.set_dim(-1, k.value);
  }
  return put_sorted(c, shape);
}

Status infer_sort(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_numeric(c, 0));
  SR_RETURN_IF_ERROR(require_vector_at_least(c, 0));
  return put_sorted(c, c.inputs[0].shape);
}

/// The gradients of the values go back to where they came from.
Status grad_sorted(GradContext& c) {
  if (!c.output_grads[0].valid()) return {};
  (*c.input_grads)[0] =
      c.builder.add("GatherGrad", {c.output_grads[0], Output{c.node.id, 1}, c.node.inputs[0]},
                    {{"axis", int64_t{-1}}, {"batch_dims", int64_t{-1}}});
  return {};
}

Status infer_in_top_k(const InferContext& c) {
  SR_RETURN_IF_ERROR(require(c, sets::kFloats, 0, 0));
  SR_RETURN_IF_ERROR(require_rank(c, 0, 2));
  SR_RETURN_IF_ERROR(require_index(c, 1));
  SR_RETURN_IF_ERROR(require_rank(c, 1, 1));
  SR_RETURN_IF_ERROR(ir::get_attr<int64_t>(c.attrs, "k").status());
  int64_t rows = c.inputs[1].shape.has_rank() ? c.inputs[1].shape.dim(0) : -1;
  if (c.inputs[0].shape.has_rank()) {
    SR_ASSIGN_OR_RETURN(rows, merge_extent(rows, c.inputs[0].shape.dim(0)));
  }
  return put(c, DType::kBool, Shape{rows});
}

Status infer_search_sorted(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_numeric(c, 0));
  SR_RETURN_IF_ERROR(require_same_dtype(c, 0, 1));
  SR_RETURN_IF_ERROR(require_vector_at_least(c, 0));
  SR_RETURN_IF_ERROR(require_vector_at_least(c, 1));
  const auto side = ir::attr_or<std::string>(c.attrs, "side", "left");
  if (side != "left" && side != "right") {
    return base::invalid_argument("side is '{}'; it must be 'left' or 'right'", side);
  }
  SR_ASSIGN_OR_RETURN(const DType dtype, index_dtype(c, "out_type", DType::kInt32));
  Shape in = c.inputs[0].shape;
  Shape values = c.inputs[1].shape;
  if (in.has_rank() && values.has_rank()) {
    in.set_dim(-1, -1);
    const int64_t last = values.dim(-1);
    values.set_dim(-1, -1);
    SR_ASSIGN_OR_RETURN(values, merge_shapes(in, values));
    values.set_dim(-1, last);
  }
  return put(c, dtype, values);
}

// --- Unique, bincount, where.

Status infer_unique(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_rank(c, 0, 1));
  SR_ASSIGN_OR_RETURN(const DType dtype, index_dtype(c, "out_idx", DType::kInt32));
  const int64_t n = c.inputs[0].shape.has_rank() ? c.inputs[0].shape.dim(0) : -1;
  SR_RETURN_IF_ERROR(put(c, c.inputs[0].dtype, Shape{-1}));
  SR_RETURN_IF_ERROR(put(c, dtype, Shape{n}));
  return put(c, dtype, Shape{-1});
}

Status infer_bincount(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_index(c, 0));
  const auto at_least = ir::attr_or<int64_t>(c.attrs, "minlength", 0);
  const auto at_most = ir::attr_or<int64_t>(c.attrs, "maxlength", -1);
  if (at_least < 0 || at_most < -1) {
    return base::invalid_argument("minlength {} and maxlength {} must not be negative", at_least,
                                  at_most);
  }
  DType dtype = ir::attr_or<DType>(c.attrs, "dtype", DType::kInt32);
  if (c.inputs.size() > 1) {
    SR_RETURN_IF_ERROR(require_numeric(c, 1));
    SR_RETURN_IF_ERROR(merge_shapes(c.inputs[0].shape, c.inputs[1].shape).status());
    dtype = c.inputs[1].dtype;
  }
  if (!sets::kNumbers.has(dtype)) return base::invalid_argument("counts cannot be of this dtype");
  return put(c, dtype, Shape{-1});
}

Status infer_where(const InferContext& c) {
  const Shape& shape = c.inputs[0].shape;
  return put(c, DType::kInt64, Shape{-1, shape.has_rank() ? shape.rank() : -1});
}

// --- Running sums.

Status infer_cumulative(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_numeric(c, 0));
  SR_RETURN_IF_ERROR(ir::get_attr<int64_t>(c.attrs, "axis").status());
  if (c.inputs[0].shape.has_rank()) {
    SR_RETURN_IF_ERROR(axis_attr(c.attrs, "axis", c.inputs[0].shape.rank()).status());
  }
  return put(c, c.inputs[0].dtype, c.inputs[0].shape);
}

AttrMap turned_around(const AttrMap& attrs) {
  AttrMap out = attrs;
  out["reverse"] = !ir::attr_or<bool>(attrs, "reverse", false);
  return out;
}

Status grad_cumsum(GradContext& c) {
  (*c.input_grads)[0] = c.builder.add("Cumsum", {c.output_grads[0]}, turned_around(c.node.attrs));
  return {};
}

/// As TensorFlow: the running sum of dy times the result, over x; 0 where x is 0.
Status grad_cumprod(GradContext& c) {
  ir::Builder& b = c.builder;
  const Output weighted = b.add("Mul", {c.output_grads[0], Output{c.node.id, 0}});
  const Output summed = b.add("Cumsum", {weighted}, turned_around(c.node.attrs));
  (*c.input_grads)[0] = b.add("DivNoNan", {summed, c.node.inputs[0]});
  return {};
}

// --- Partition and stitch.

constexpr int64_t kPartitionsMax = 1 << 16;

Status infer_dynamic_partition(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_index(c, 1));
  SR_ASSIGN_OR_RETURN(const int64_t num, ir::get_attr<int64_t>(c.attrs, "num_partitions"));
  if (num < 1 || num > kPartitionsMax) {
    return base::invalid_argument("num_partitions is {}; it must be in [1, {}]", num,
                                  kPartitionsMax);
  }
  const Shape& data = c.inputs[0].shape;
  const Shape& ids = c.inputs[1].shape;
  Shape out = Shape::unknown_rank();
  if (data.has_rank() && ids.has_rank()) {
    out = Shape{-1};
    for (int i = 0; i < data.rank(); ++i) {
      if (i >= ids.rank()) {
        out.append(data.dim(i));
      } else if (!merge_extent(data.dim(i), ids.dim(i)).ok()) {
        return base::invalid_argument("partitions of shape {} do not fit data of shape {}",
                                      ids.to_string(), data.to_string());
      }
    }
    if (ids.rank() > data.rank()) {
      return base::invalid_argument("partitions of shape {} do not fit data of shape {}",
                                    ids.to_string(), data.to_string());
    }
  }
  for (int64_t i = 0; i < num; ++i) SR_RETURN_IF_ERROR(put(c, c.inputs[0].dtype, out));
  return {};
}

/// The rows of dy, cut apart as the data was, are stitched together again.
Status grad_dynamic_partition(GradContext& c) {
  ir::Builder& b = c.builder;
  const Output ids = c.node.inputs[1];
  const auto num = static_cast<int64_t>(c.output_grads.size());
  const Output count = b.add("Size", {ids});
  const Output zero = b.add("Const", {}, {{"value", Tensor::scalar(int32_t{0})}});
  const Output one = b.add("Const", {}, {{"value", Tensor::scalar(int32_t{1})}});
  const Output places = b.add("ReshapeLike", {b.add("Range", {zero, count, one}), ids});
  const ir::NodeId parts = b.add_node("DynamicPartition", {places, ids}, {{"num_partitions", num}});
  if (!parts.valid()) return {};
  std::vector<Output> inputs;
  for (int64_t i = 0; i < num; ++i) inputs.push_back({parts, static_cast<int32_t>(i)});
  for (int64_t i = 0; i < num; ++i) inputs.push_back(grad_or_zeros(c, i));
  const Output stitched = b.add("DynamicStitch", inputs);
  (*c.input_grads)[0] = b.add("ReshapeLike", {stitched, c.node.inputs[0]});
  return {};
}

Status infer_dynamic_stitch(const InferContext& c) {
  const size_t n = c.inputs.size() / 2;
  if (c.inputs.size() % 2 != 0) {
    return base::invalid_argument("{} inputs; as many indices as data are needed", c.inputs.size());
  }
  Shape rest = Shape::unknown_rank();
  SR_RETURN_IF_ERROR(require_same_dtype(c, n, 2 * n - 1));
  for (size_t i = 0; i < n; ++i) {
    SR_RETURN_IF_ERROR(require_index(c, i));
    const Shape& ids = c.inputs[i].shape;
    const Shape& data = c.inputs[n + i].shape;
    if (!ids.has_rank() || !data.has_rank()) continue;
    Shape row;
    bool fits = ids.rank() <= data.rank();
    for (int d = 0; fits && d < data.rank(); ++d) {
      if (d >= ids.rank()) {
        row.append(data.dim(d));
      } else {
        fits = merge_extent(ids.dim(d), data.dim(d)).ok();
      }
    }
    if (!fits) {
      return base::invalid_argument("indices {} of shape {} do not fit data of shape {}", i,
                                    ids.to_string(), data.to_string());
    }
    SR_ASSIGN_OR_RETURN(rest, merge_shapes(rest, row));
  }
  if (!rest.has_rank()) return put(c, c.inputs[n].dtype, rest);
  Shape out{-1};
  for (const int64_t extent : rest.dims()) out.append(extent);
  return put(c, c.inputs[n].dtype, out);
}

Status grad_dynamic_stitch(GradContext& c) {
  const size_t n = c.node.inputs.size() / 2;
  for (size_t i = 0; i < n; ++i) {
    (*c.input_grads)[n + i] = c.builder.add("Gather", {c.output_grads[0], c.node.inputs[i]});
  }
  return {};
}

// --- Matrices.

Status infer_matrix_diag(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_vector_at_least(c, 0));
  Shape shape = c.inputs[0].shape;
  if (shape.has_rank()) shape.append(shape.dim(-1));
  return put(c, c.inputs[0].dtype, shape);
}

Status require_matrix(const InferContext& c) {
  const Shape& shape = c.inputs[0].shape;
  if (!shape.has_rank() || shape.rank() >= 2) return {};
  return base::invalid_argument("a value of shape {} is no matrix", shape.to_string());
}

Status infer_matrix_diag_part(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_matrix(c));
  const Shape& shape = c.inputs[0].shape;
  if (!shape.has_rank()) return put(c, c.inputs[0].dtype, shape);
  Shape out;
  for (int i = 0; i < shape.rank() - 2; ++i) out.append(shape.dim(i));
  const int64_t rows = shape.dim(-2);
  const int64_t columns = shape.dim(-1);
  out.append(rows < 0 || columns < 0 ? -1 : std::min(rows, columns));
  return put(c, c.inputs[0].dtype, out);
}

Status grad_matrix_diag(GradContext& c) {
  (*c.input_grads)[0] = c.builder.add("MatrixDiagPart", {c.output_grads[0]});
  return {};
}

/// dy on the diagonal of zeros like the matrix, which need not be square.
Status grad_matrix_diag_part(GradContext& c) {
  (*c.input_grads)[0] = c.builder.add("MatrixDiagPartGrad", {c.output_grads[0], c.node.inputs[0]});
  return {};
}

Status infer_matrix_diag_part_grad(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_same_dtype(c, 0, 1));
  const Shape& like = c.inputs[1].shape;
  if (like.has_rank() && like.rank() < 2) return base::invalid_argument("input 1 is no matrix");
  return put(c, c.inputs[0].dtype, like);
}

Status infer_band_part(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_matrix(c));
  SR_RETURN_IF_ERROR(ir::get_attr<int64_t>(c.attrs, "lower").status());
  SR_RETURN_IF_ERROR(ir::get_attr<int64_t>(c.attrs, "upper").status());
  return put(c, c.inputs[0].dtype, c.inputs[0].shape);
}

Status grad_band_part(GradContext& c) {
  (*c.input_grads)[0] = c.builder.add("MatrixBandPart", {c.output_grads[0]}, c.node.attrs);
  return {};
}

// --- Registration.

void register_order(OpRegistry* registry) {
  registry->add({.name = "TopK",
                 .doc =
                     "(x[, k]) -> the k greatest elements of the last dimension, greatest first, "
                     "and their int32 indices (tf.math.top_k). The lower index wins a tie; NaN "
                     "is greater than all.",
                 .min_inputs = 1,
                 .max_inputs = 2,
                 .attrs = {{"k", "int", false, "How many, when no input."}},
                 .infer = infer_top_k,
                 .gradient = grad_sorted});
  registry->add({.name = "Sort",
                 .doc =
                     "x in order along the last dimension, and the int32 indices of its elements "
                     "(tf.sort, tf.argsort). Equal elements keep their order; NaN is greater "
                     "than all.",
                 .min_inputs = 1,
                 .max_inputs = 1,
                 .attrs = {{"descending", "bool", false, "Greatest first."}},
                 .infer = infer_sort,
                 .gradient = grad_sorted});
  registry->add({.name = "InTopK",
                 .doc = "(predictions[b, n], targets[b]) -> whether fewer than k predictions are "
                        "greater than the target's (tf.math.in_top_k).",
                 .min_inputs = 2,
                 .max_inputs = 2,
                 .attrs = {{"k", "int", true, "How many count as top."}},
                 .infer = infer_in_top_k,
                 .gradient = no_flow});
  registry->add({.name = "SearchSorted",
                 .doc = "(sorted[..., n], values[..., m]) -> where in `sorted` each value belongs "
                        "(tf.searchsorted).",
                 .min_inputs = 2,
                 .max_inputs = 2,
                 .attrs = {{"side", "string", false,
                            "'left' (if absent): before equal ones; 'right': behind them."},
                           {"out_type", "dtype", false, "int32 (if absent) or int64."}},
                 .infer = infer_search_sorted,
                 .gradient = no_flow});
}

void register_membership(OpRegistry* registry) {
  registry->add({.name = "UniqueWithCounts",
                 .doc = "x[n] -> its distinct elements in the order they first appear, the place "
                        "of each x among them, and how often each is there "
                        "(tf.unique_with_counts).",
                 .min_inputs = 1,
                 .max_inputs = 1,
                 .attrs = {{"out_idx", "dtype", false,
                            "Dtype of places and counts: int32 (if absent) or int64."}},
                 .infer = infer_unique,
                 .differentiable = false});
  registry->add({.name = "Bincount",
                 .doc = "(x[, weights]) -> how often each number from 0 on is in x, or the sums of "
                        "its weights (tf.math.bincount).",
                 .min_inputs = 1,
                 .max_inputs = 2,
                 .attrs = {{"minlength", "int", false, "Counts at least; 0 if absent."},
                           {"maxlength", "int", false,
                            "Counts at most: greater numbers are left out; -1 (if absent): all."},
                           {"dtype", "dtype", false,
                            "Of the counts when there are no weights; int32 if absent."}},
                 .infer = infer_bincount,
                 .differentiable = false});
  registry->add({.name = "Where",
                 .doc = "The indices of the elements that are not zero or false, one row each; "
                        "int64 (tf.where of one argument).",
                 .min_inputs = 1,
                 .max_inputs = 1,
                 .infer = infer_where,
                 .gradient = no_flow});
  registry->add({.name = "DynamicPartition",
                 .doc = "(x, partitions) -> the parts of x by the number of their partition "
                        "(tf.dynamic_partition).",
                 .min_inputs = 2,
                 .max_inputs = 2,
                 .attrs = {{"num_partitions", "int", true, "Number of outputs."}},
                 .infer = infer_dynamic_partition,
                 .gradient = grad_dynamic_partition});
  registry->add({.name = "DynamicStitch",
                 .doc = "(indices..., data...) -> the parts of data at their indices; the last one "
                        "for an index stays (tf.dynamic_stitch).",
                 .min_inputs = 2,
                 .max_inputs = -1,
                 .infer = infer_dynamic_stitch,
                 .gradient = grad_dynamic_stitch});
}

void register_cumulative(OpRegistry* registry) {
  const std::vector<ir::AttrSpec> attrs = {
      {"axis", "int", true, "The dimension; negative counts from the end."},
      {"exclusive", "bool", false, "Without the element itself."},
      {"reverse", "bool", false, "From the last to the first."}};
  registry->add({.name = "Cumsum",
                 .doc = "Running sums along an axis (tf.cumsum).",
                 .min_inputs = 1,
                 .max_inputs = 1,
                 .attrs = attrs,
                 .infer = infer_cumulative,
                 .gradient = grad_cumsum});
  registry->add({.name = "Cumprod",
                 .doc = "Running products along an axis (tf.math.cumprod). The gradient is 0 where "
                        "x is 0.",
                 .min_inputs = 1,
                 .max_inputs = 1,
                 .attrs = attrs,
                 .infer = infer_cumulative,
                 .gradient = grad_cumprod});
}

void register_matrices(OpRegistry* registry) {
  registry->add({.name = "MatrixDiag",
                 .doc = "x[..., n] -> matrices with x on the diagonal (tf.linalg.diag).",
                 .min_inputs = 1,
                 .max_inputs = 1,
                 .infer = infer_matrix_diag,
                 .gradient = grad_matrix_diag});
  registry->add({.name = "MatrixDiagPart",
                 .doc = "The diagonals of matrices (tf.linalg.diag_part).",
                 .min_inputs = 1,
                 .max_inputs = 1,
                 .infer = infer_matrix_diag_part,
                 .gradient = grad_matrix_diag_part});
  registry->add({.name = "MatrixDiagPartGrad",
                 .doc = "(dy, x) -> zeros like the matrices x with dy on the diagonal.",
                 .min_inputs = 2,
                 .max_inputs = 2,
                 .infer = infer_matrix_diag_part_grad,
                 .gradient = grad_matrix_diag});
  registry->add({.name = "MatrixBandPart",
                 .doc = "Matrices with zeros outside a band around the diagonal "
                        "(tf.linalg.band_part).",
                 .min_inputs = 1,
                 .max_inputs = 1,
                 .attrs = {{"lower", "int", true, "Diagonals kept below; negative: all."},
                           {"upper", "int", true, "Diagonals kept above; negative: all."}},
                 .infer = infer_band_part,
                 .gradient = grad_band_part});
}

}  // namespace

void register_array_sort(OpRegistry* registry) {
  register_order(registry);
  register_membership(registry);
  register_cumulative(registry);
  register_matrices(registry);
}

}  // namespace sidereal::ops::internal
