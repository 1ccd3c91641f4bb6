#include "sidereal/ops/internal.h"
#include "sidereal/ops/rule.h"

/// Comparison, logic, bits, and choice between two values. All broadcast as NumPy does.
namespace sidereal::ops::internal {
namespace {

void add(OpRegistry* registry, const char* name, const char* doc, int inputs,
         std::function<Status(const InferContext&)> infer) {
  registry->add({.name = name,
                 .doc = doc,
                 .min_inputs = inputs,
                 .max_inputs = inputs,
                 .infer = std::move(infer),
                 .gradient = no_flow});
}

void register_comparisons(OpRegistry* registry) {
  const auto numbers = broadcasting(sets::kNumbers, DType::kBool);
  const auto all = broadcasting(sets::kAll, DType::kBool);
  add(registry, "Equal", "x == y, as bool; NaN equals nothing.", 2, all);
  add(registry, "NotEqual", "x != y, as bool.", 2, all);
  add(registry, "Less", "x < y, as bool.", 2, numbers);
  add(registry, "LessEqual", "x <= y, as bool.", 2, numbers);
  add(registry, "Greater", "x > y, as bool.", 2, numbers);
  add(registry, "GreaterEqual", "x >= y, as bool.", 2, numbers);
  const auto floats = same_shapes(sets::kFloats, DType::kBool);
  add(registry, "IsNan", "Whether x is not a number, as bool.", 1, floats);
  add(registry, "IsInf", "Whether x is infinite, as bool.", 1, floats);
  add(registry, "IsFinite", "Whether x is neither infinite nor NaN, as bool.", 1, floats);
}

void register_bits(OpRegistry* registry) {
  const auto bools = broadcasting(sets::kBools);
  add(registry, "LogicalAnd", "x and y.", 2, bools);
  add(registry, "LogicalOr", "x or y.", 2, bools);
  add(registry, "LogicalXor", "Whether one of x and y holds, but not both.", 2, bools);
  add(registry, "LogicalNot", "not x.", 1, bools);
  const auto integers = broadcasting(sets::kIntegers);
  add(registry, "BitwiseAnd", "x & y.", 2, integers);
  add(registry, "BitwiseOr", "x | y.", 2, integers);
  add(registry, "BitwiseXor", "x ^ y.", 2, integers);
  add(registry, "Invert", "All bits of x flipped.", 1, integers);
  add(registry, "LeftShift", "x << y; 0 where y is negative or not below the width of x.", 2,
      integers);
  add(registry, "RightShift",
      "x >> y, keeping the sign; a y that is negative or not below the width of x leaves only the "
      "sign.",
      2, integers);
}

Status infer_select(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_dtype(c, 0, DType::kBool));
  if (c.inputs[1].dtype != c.inputs[2].dtype) {
    return base::invalid_argument("inputs 1 and 2 are {} and {}; cast them to one dtype",
                                  tensor::name_of(c.inputs[1].dtype),
                                  tensor::name_of(c.inputs[2].dtype));
  }
  SR_ASSIGN_OR_RETURN(Shape shape, broadcast_shapes(c.inputs[1].shape, c.inputs[2].shape));
  SR_ASSIGN_OR_RETURN(shape, broadcast_shapes(c.inputs[0].shape, shape));
  return put(c, c.inputs[1].dtype, std::move(shape));
}

/// dy goes to the value that was chosen.
Status grad_select(GradContext& c) {
  Rule r(c);
  const Output zero = scalar(c.builder, c.node.outputs[0].dtype, 0);
  const Output to_x = r.op("Select", {r.x(), r.dy(), zero});
  const Output to_y = r.op("Select", {r.x(), zero, r.dy()});
  (*c.input_grads)[1] = sum_to(c.builder, to_x, r.in(1));
  (*c.input_grads)[2] = sum_to(c.builder, to_y, r.in(2));
  return {};
}

}  // namespace

void register_logic(OpRegistry* registry) {
  register_comparisons(registry);
  register_bits(registry);
  registry->add({.name = "Select",
                 .doc = "(condition, x, y) -> x where the condition holds, else y.",
                 .min_inputs = 3,
                 .max_inputs = 3,
                 .infer = infer_select,
                 .gradient = grad_select});
}

}  // namespace sidereal::ops::internal
