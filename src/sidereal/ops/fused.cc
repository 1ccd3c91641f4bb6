#include <algorithm>

#include "sidereal/ir/fused_code.h"
#include "sidereal/ops/internal.h"

/// Ops that passes make of several others, after gradients have been taken.
namespace sidereal::ops::internal {
namespace {

/// Floats of one dtype, or float32 and bfloat16 together: what comes out is then `out_type`.
Result<DType> fused_type(const InferContext& c) {
  const auto is_known = [](DType dtype) {
    return dtype == DType::kFloat32 || dtype == DType::kBFloat16;
  };
  const bool mixes = std::all_of(c.inputs.begin(), c.inputs.end(),
                                 [&](const TensorSpec& x) { return is_known(x.dtype); });
  if (!mixes) {
    SR_RETURN_IF_ERROR(require_real(c));
    return out_type(c);
  }
  const auto out = ir::attr_or<DType>(c.attrs, "out_type", c.inputs[0].dtype);
  if (is_known(out)) return out;
  return base::invalid_argument("out_type is {}; it must be float32 or bfloat16",
                                tensor::name_of(out));
}

Status infer_fused_elementwise(const InferContext& c) {
  SR_ASSIGN_OR_RETURN(const DType dtype, fused_type(c));
  SR_ASSIGN_OR_RETURN(const auto code, ir::get_attr<std::vector<std::string>>(c.attrs, "code"));
  SR_ASSIGN_OR_RETURN(const auto steps, ir::parse_fused_code(code, c.inputs.size()));
  std::vector<Shape> shapes;
  for (const TensorSpec& input : c.inputs) shapes.push_back(input.shape);
  for (const ir::FusedStep& step : steps) {
    Shape shape = shapes[step.args[0]];
    if (step.args[1] >= 0) {
      SR_ASSIGN_OR_RETURN(shape, broadcast_shapes(shape, shapes[step.args[1]]));
    }
    shapes.push_back(std::move(shape));
  }
  return put(c, dtype, shapes.back());
}

Status infer_fused_mat_mul(const InferContext& c) {
  // The bias of a bfloat16 product may be float32.
  const bool wide_bias =
      c.inputs[0].dtype == DType::kBFloat16 && c.inputs[2].dtype == DType::kFloat32;
  SR_RETURN_IF_ERROR(require(c, sets::kFloats, 0, wide_bias ? 1 : 2));
  SR_ASSIGN_OR_RETURN(const DType dtype, out_type(c));
  SR_RETURN_IF_ERROR(require_rank(c, 0, 2));
  SR_RETURN_IF_ERROR(require_rank(c, 1, 2));
  SR_RETURN_IF_ERROR(require_rank(c, 2, 1));
  const auto extent = [&](size_t input, int i) {
    const Shape& shape = c.inputs[input].shape;
    return shape.has_rank() ? shape.dim(i) : -1;
  };
  const int ta = ir::attr_or(c.attrs, "transpose_a", false) ? 1 : 0;
  const int tb = ir::attr_or(c.attrs, "transpose_b", false) ? 1 : 0;
  SR_RETURN_IF_ERROR(merge_extent(extent(0, 1 - ta), extent(1, tb)).status());
  SR_ASSIGN_OR_RETURN(const int64_t columns, merge_extent(extent(1, 1 - tb), extent(2, 0)));
  return put(c, dtype, Shape{extent(0, ta), columns});
}

/// What is in front of the last dimension.
Shape front_of(const Shape& shape) { return Shape(shape.dims().first(shape.rank() - 1)); }

/// The matrix that the first `count` inputs make, next to one another along their last dimension,
/// with the dimensions in front, broadcast, as its rows.
Result<Shape> joined_matrix(const InferContext& c, size_t count) {
  Shape front;
  int64_t columns = 0;
  bool known = true;
  for (size_t i = 0; i < count; ++i) {
    const Shape& part = c.inputs[i].shape;
    if (!part.has_rank()) return Shape{-1, -1};
    if (part.rank() == 0) return base::invalid_argument("part {} is a scalar", i);
    SR_ASSIGN_OR_RETURN(front, broadcast_shapes(front, front_of(part)));
    known = known && part.dim(-1) >= 0;
    columns = known ? columns + part.dim(-1) : -1;
  }
  int64_t rows = 1;
  for (const int64_t extent : front.dims()) {
    if (extent < 0 || rows < 0) {
      rows = -1;
    } else if (extent > 0 && rows > ir::kMaxElements / extent) {
      return base::invalid_argument("there are too many rows");
    } else {
      rows *= extent;
    }
  }
  return Shape{rows, columns};
}

int64_t extent_of(const InferContext& c, size_t input, int i) {
  const Shape& shape = c.inputs[input].shape;
  return shape.has_rank() ? shape.dim(i) : -1;
}

Status infer_concat_mat_mul(const InferContext& c) {
  const auto activation = ir::attr_or<std::string>(c.attrs, "activation", "");
  if (!activation.empty() && activation != "Relu" && activation != "Sigmoid" &&
      activation != "Tanh") {
    return base::invalid_argument("activation is '{}'; it must be Relu, Sigmoid or Tanh",
                                  activation);
  }
  const size_t rest = ir::attr_or(c.attrs, "bias", false) ? 2 : 1;
  if (c.inputs.size() <= rest) return base::invalid_argument("there are no parts");
  const size_t w = c.inputs.size() - rest;
  SR_RETURN_IF_ERROR(require(c, sets::kReals));
  SR_RETURN_IF_ERROR(require_rank(c, w, 2));
  SR_ASSIGN_OR_RETURN(const Shape joined, joined_matrix(c, w));
  SR_RETURN_IF_ERROR(merge_extent(joined.dim(1), extent_of(c, w, 0)).status());
  int64_t columns = extent_of(c, w, 1);
  if (rest == 2) {
    SR_RETURN_IF_ERROR(require_rank(c, w + 1, 1));
    SR_ASSIGN_OR_RETURN(columns, merge_extent(columns, extent_of(c, w + 1, 0)));
  }
  return put(c, c.inputs[0].dtype, Shape{joined.dim(0), columns});
}

Status infer_transposed_concat_mat_mul(const InferContext& c) {
  const size_t y = c.inputs.size() - 1;
  SR_RETURN_IF_ERROR(require(c, sets::kReals));
  SR_RETURN_IF_ERROR(require_rank(c, y, 2));
  SR_ASSIGN_OR_RETURN(const Shape joined, joined_matrix(c, y));
  SR_RETURN_IF_ERROR(merge_extent(joined.dim(0), extent_of(c, y, 0)).status());
  return put(c, c.inputs[0].dtype, Shape{joined.dim(1), extent_of(c, y, 1)});
}

Status infer_mat_mul_split(const InferContext& c) {
  SR_RETURN_IF_ERROR(require(c, sets::kReals));
  SR_RETURN_IF_ERROR(require_rank(c, 0, 2));
  SR_RETURN_IF_ERROR(require_rank(c, 1, 2));
  SR_RETURN_IF_ERROR(merge_extent(extent_of(c, 0, 1), extent_of(c, 1, 1)).status());
  SR_ASSIGN_OR_RETURN(const auto begins, ir::get_attr<std::vector<int64_t>>(c.attrs, "begins"));
  SR_ASSIGN_OR_RETURN(const auto sizes, ir::get_attr<std::vector<int64_t>>(c.attrs, "sizes"));
  constexpr size_t kPartsMax = 1 << 16;
  if (begins.size() != sizes.size() || sizes.empty() || sizes.size() > kPartsMax) {
    return base::invalid_argument("{} begins and {} sizes", begins.size(), sizes.size());
  }
  const int64_t rows = extent_of(c, 1, 0);
  const int64_t limit = rows < 0 ? ir::kMaxElements : rows;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (begins[i] < 0 || sizes[i] < 0 || begins[i] > limit || sizes[i] > limit - begins[i]) {
      return base::invalid_argument("part {} is {}+{} of {} rows", i, begins[i], sizes[i], rows);
    }
    SR_RETURN_IF_ERROR(put(c, c.inputs[0].dtype, Shape{extent_of(c, 0, 0), sizes[i]}));
  }
  return {};
}

/// Products of values that stand next to one another: made by the pass concat_products.
void register_parts(OpRegistry* registry) {
  registry->add({.name = "ConcatMatMul",
                 .doc = "(x..., w[, bias]) -> the product of Concat(x...) along the last axis, as "
                        "a matrix of rows, and w; then bias and activation. The dimensions of the "
                        "x in front broadcast together. Made by passes: nothing is concatenated.",
                 .min_inputs = 2,
                 .max_inputs = -1,
                 .attrs = {{"bias", "bool", false, "The last input is a bias."},
                           {"activation", "string", false, "Relu, Sigmoid or Tanh, at the end."}},
                 .infer = infer_concat_mat_mul,
                 .differentiable = false});
  registry->add({.name = "TransposedConcatMatMul",
                 .doc = "(x..., y) -> the product of Concat(x...) along the last axis, as a "
                        "transposed matrix of rows, and y. The dimensions of the x in front "
                        "broadcast together. Made by passes: nothing is concatenated.",
                 .min_inputs = 2,
                 .max_inputs = -1,
                 .infer = infer_transposed_concat_mat_mul,
                 .differentiable = false});
  registry->add({.name = "MatMulSplit",
                 .doc = "(a, w) -> for every part, the product of a and the transposed rows "
                        "[begin, begin + size) of w. Made by passes of a MatMul whose columns are "
                        "cut apart.",
                 .min_inputs = 2,
                 .max_inputs = 2,
                 .attrs = {{"begins", "ints", true, "First row, for every part."},
                           {"sizes", "ints", true, "Number of rows, for every part."}},
                 .infer = infer_mat_mul_split,
                 .differentiable = false});
}

}  // namespace

void register_fused(OpRegistry* registry) {
  register_parts(registry);
  registry->add({.name = "FusedElementwise",
                 .doc = "A list of element-wise ops in one loop over memory, with NumPy's "
                        "broadcasting, float32 and bfloat16 together, computed in float32. Made by "
                        "the fuse pass; the language is in ir/fused_code.h.",
                 .min_inputs = 1,
                 .max_inputs = static_cast<int>(ir::kFusedInputsMax),
                 .attrs = {{"code", "strings", true, "The ops, such as 'Mul %0 %1'."},
                           {"out_type", "dtype", false,
                            "Dtype of the output: float32 or bfloat16; else that of input 0."}},
                 .infer = infer_fused_elementwise,
                 .differentiable = false});
  registry->add({.name = "FusedMatMul",
                 .doc = "(a, b, bias) -> op(a) op(b) + bias, then the activation. Made by the "
                        "fuse pass of MatMul, BiasAdd and Relu.",
                 .min_inputs = 3,
                 .max_inputs = 3,
                 .attrs = {{"transpose_a", "bool", false, "a is stored transposed."},
                           {"transpose_b", "bool", false, "b is stored transposed."},
                           {"relu", "bool", false, "Apply Relu at the end."},
                           {"out_type", "dtype", false, kWideTypeDoc}},
                 .infer = infer_fused_mat_mul,
                 .differentiable = false});
}

}  // namespace sidereal::ops::internal
