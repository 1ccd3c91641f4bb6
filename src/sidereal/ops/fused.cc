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

}  // namespace

void register_fused(OpRegistry* registry) {
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
