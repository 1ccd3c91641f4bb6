#include "sidereal/ops/internal.h"
#include "sidereal/ops/rule.h"

/// Element-wise arithmetic of two inputs, and what sums and spreads over broadcast dimensions.
/// Binary ops broadcast as NumPy does; their gradients are summed back to each input's shape.
namespace sidereal::ops::internal {
namespace {

Status infer_sum_to_shape_of(const InferContext& c) {
  SR_RETURN_IF_ERROR(require(c, sets::kNumbers));
  const Shape& like = c.inputs[1].shape;
  SR_ASSIGN_OR_RETURN(const Shape both, broadcast_shapes(c.inputs[0].shape, like));
  SR_RETURN_IF_ERROR(merge_shapes(both, c.inputs[0].shape).status());
  return put(c, c.inputs[0].dtype, like);
}

Status grad_sum_to_shape_of(GradContext& c) {
  Rule r(c);
  return r.flow(r.op("BroadcastLike", {r.dy(), r.x()}));
}

Status infer_broadcast_like(const InferContext& c) {
  const Shape& like = c.inputs[1].shape;
  SR_ASSIGN_OR_RETURN(const Shape both, broadcast_shapes(c.inputs[0].shape, like));
  SR_RETURN_IF_ERROR(merge_shapes(both, like).status());
  return put(c, c.inputs[0].dtype, like);
}

Status grad_broadcast_like(GradContext& c) {
  Rule r(c);
  return r.flow(sum_to(c.builder, r.dy(), r.x()));
}

Status grad_add(GradContext& c) {
  Rule r(c);
  return r.flow_two(r.dy(), r.dy());
}

Status grad_sub(GradContext& c) {
  Rule r(c);
  return r.flow_two(r.dy(), r.neg(r.dy()));
}

Status grad_mul(GradContext& c) {
  Rule r(c);
  const Output grad_x = r.mul(r.dy(), r.y());
  const Output grad_y = r.mul(r.dy(), r.x());
  return r.flow_two(grad_x, grad_y);
}

/// z = x / y: dx = dy / y and d(y) = -dy z / y.
Status grad_div(GradContext& c) {
  Rule r(c);
  const Output grad_x = r.div(r.dy(), r.y());
  return r.flow_two(grad_x, r.neg(r.mul(grad_x, r.z())));
}

Status grad_div_no_nan(GradContext& c) {
  Rule r(c);
  const Output grad_x = r.op("DivNoNan", {r.dy(), r.y()});
  return r.flow_two(grad_x, r.neg(r.mul(grad_x, r.z())));
}

/// dy where `winner` is greater than `other` goes to y, the rest (ties too) to x, as TensorFlow's
/// MaximumGrad and MinimumGrad do.
Status grad_select(GradContext& c, Output winner, Output other) {
  Rule r(c);
  const Output to_y = r.op("ReluGrad", {r.dy(), r.sub(winner, other)});
  return r.flow_two(r.sub(r.dy(), to_y), to_y);
}

Status grad_maximum(GradContext& c) { return grad_select(c, c.node.inputs[1], c.node.inputs[0]); }
Status grad_minimum(GradContext& c) { return grad_select(c, c.node.inputs[0], c.node.inputs[1]); }

/// x mod y = x - y floor(x / y).
Status grad_floor_mod(GradContext& c) {
  Rule r(c);
  const Output quotient = r.op("FloorDiv", {r.x(), r.y()});
  return r.flow_two(r.dy(), r.neg(r.mul(r.dy(), quotient)));
}

/// d(y) is dy z log(x) where x > 0 and 0 elsewhere.
Status grad_pow(GradContext& c) {
  Rule r(c);
  const Output less_one = r.op("Pow", {r.x(), r.plus(r.y(), -1)});
  const Output grad_x = r.mul(r.dy(), r.mul(r.y(), less_one));
  const Output positive = r.op("Greater", {r.x(), r.k(0)});
  const Output safe = r.op("Select", {positive, r.x(), r.k(1)});
  const Output grad_y = r.mul(r.dy(), r.mul(r.z(), r.op("Log", {safe})));
  return r.flow_two(grad_x, grad_y);
}

Status grad_squared_difference(GradContext& c) {
  Rule r(c);
  const Output twice = r.times(r.dy(), 2);
  const Output grad_x = r.mul(twice, r.sub(r.x(), r.y()));
  return r.flow_two(grad_x, r.neg(grad_x));
}

/// atan2(x, y), x being the ordinate.
Status grad_atan2(GradContext& c) {
  Rule r(c);
  const Output xx = r.square(r.x());
  const Output scaled = r.div(r.dy(), r.add(xx, r.square(r.y())));
  const Output grad_x = r.mul(scaled, r.y());
  return r.flow_two(grad_x, r.neg(r.mul(scaled, r.x())));
}

/// x log(y); nothing flows where x is 0 (TensorFlow's XlogyGrad).
Status grad_xlogy(GradContext& c) {
  Rule r(c);
  const Output zero = r.op("Equal", {r.x(), r.k(0)});
  const Output one = r.op("Select", {zero, r.k(0), r.op("OnesLike", {r.x()})});
  const Output grad_x = r.mul(r.dy(), r.op("Xlogy", {one, r.y()}));
  return r.flow_two(grad_x, r.mul(r.dy(), r.op("DivNoNan", {r.x(), r.y()})));
}

Status grad_xlog1py(GradContext& c) {
  Rule r(c);
  const Output zero = r.op("Equal", {r.x(), r.k(0)});
  const Output one = r.op("Select", {zero, r.k(0), r.op("OnesLike", {r.x()})});
  const Output grad_x = r.mul(r.dy(), r.op("Xlog1py", {one, r.y()}));
  const Output shifted = r.plus(r.y(), 1);
  return r.flow_two(grad_x, r.mul(r.dy(), r.op("DivNoNan", {r.x(), shifted})));
}

Status grad_add_n(GradContext& c) {
  for (Output& grad : *c.input_grads) grad = c.output_grads[0];
  return {};
}

void add_binary(OpRegistry* registry, const DTypeSet& set, const char* name, const char* doc,
                GradientRule gradient) {
  registry->add({.name = name,
                 .doc = doc,
                 .min_inputs = 2,
                 .max_inputs = 2,
                 .infer = broadcasting(set),
                 .gradient = gradient});
}

void register_binary(OpRegistry* registry) {
  const DTypeSet& numbers = sets::kNumbers;
  const DTypeSet& floats = sets::kFloats;
  constexpr DTypeSet kTerms = {"a number or string", sets::kNumbers.bits | sets::kStrings.bits};
  add_binary(registry, kTerms, "Add", "x + y; integers wrap around, strings are joined.", grad_add);
  add_binary(registry, numbers, "Sub", "x - y; integers wrap around.", grad_sub);
  add_binary(registry, numbers, "Mul", "x * y; integers wrap around.", grad_mul);
  add_binary(registry, numbers, "Div", "x / y; of integers truncated, and an error where y is 0.",
             grad_div);
  add_binary(registry, numbers, "Maximum",
             "The greater of x and y; NaN when one is. The gradient of a tie goes to x.",
             grad_maximum);
  add_binary(registry, numbers, "Minimum",
             "The smaller of x and y; NaN when one is. The gradient of a tie goes to x.",
             grad_minimum);
  add_binary(registry, numbers, "FloorDiv",
             "floor(x / y), as Python's //; of integers an error where y is 0. No gradient flows.",
             no_flow);
  add_binary(registry, numbers, "FloorMod",
             "x - y floor(x / y), as Python's %: the sign is that of y. Of integers an error where "
             "y is 0.",
             grad_floor_mod);
  add_binary(registry, numbers, "Pow",
             "x to the power y; an error where an integer y is negative. The gradient to y is 0 "
             "where x is not positive.",
             grad_pow);
  add_binary(registry, numbers, "SquaredDifference", "(x - y) squared.", grad_squared_difference);
  add_binary(registry, floats, "Atan2", "The angle of the point (y, x), x being the ordinate.",
             grad_atan2);
  add_binary(registry, floats, "DivNoNan", "x / y, and 0 where y is 0.", grad_div_no_nan);
  add_binary(registry, floats, "Xlogy", "x log(y), and 0 where x is 0.", grad_xlogy);
  add_binary(registry, floats, "Xlog1py", "x log(1 + y), and 0 where x is 0.", grad_xlog1py);
}

}  // namespace

void register_arithmetic(OpRegistry* registry) {
  register_binary(registry);
  registry->add({.name = "AddN",
                 .doc = "The sum of its inputs, all of one shape, from the first to the last.",
                 .min_inputs = 1,
                 .max_inputs = -1,
                 .infer = same_shapes(sets::kNumbers),
                 .gradient = grad_add_n});
  registry->add({.name = "SumToShapeOf",
                 .doc = "(g, like) -> g summed over the dimensions along which `like` was "
                        "broadcast to g's shape.",
                 .min_inputs = 2,
                 .max_inputs = 2,
                 .infer = infer_sum_to_shape_of,
                 .gradient = grad_sum_to_shape_of});
  registry->add({.name = "BroadcastLike",
                 .doc = "(x, like) -> x repeated along dimensions of extent 1 to the shape of "
                        "`like`.",
                 .min_inputs = 2,
                 .max_inputs = 2,
                 .infer = infer_broadcast_like,
                 .gradient = grad_broadcast_like});
}

}  // namespace sidereal::ops::internal
