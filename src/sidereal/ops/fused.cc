#include "sidereal/ir/fused_code.h"
#include "sidereal/ops/internal.h"

/// Ops that passes make of several others, after gradients have been taken.
namespace sidereal::ops::internal {
namespace {

Status infer_fused_elementwise(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_real(c));
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
  return put(c, c.inputs[0].dtype, shapes.back());
}

Status infer_fused_mat_mul(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_real(c));
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
  return put(c, c.inputs[0].dtype, Shape{extent(0, ta), columns});
}

}  // namespace

void register_fused(OpRegistry* registry) {
  registry->add({.name = "FusedElementwise",
                 .doc = "A list of element-wise ops in one loop over memory, with NumPy's "
                        "broadcasting. Made by the fuse pass; the language is in "
                        "ir/fused_code.h.",
                 .min_inputs = 1,
                 .max_inputs = static_cast<int>(ir::kFusedInputsMax),
                 .attrs = {{"code", "strings", true, "The ops, such as 'Mul %0 %1'."}},
                 .infer = infer_fused_elementwise,
                 .differentiable = false});
  registry->add({.name = "FusedMatMul",
                 .doc = "(a, b, bias) -> op(a) op(b) + bias, then the activation. Made by the "
                        "fuse pass of MatMul, BiasAdd and Relu.",
                 .min_inputs = 3,
                 .max_inputs = 3,
                 .attrs = {{"transpose_a", "bool", false, "a is stored transposed."},
                           {"transpose_b", "bool", false, "b is stored transposed."},
                           {"relu", "bool", false, "Apply Relu at the end."}},
                 .infer = infer_fused_mat_mul,
                 .differentiable = false});
}

}  // namespace sidereal::ops::internal
