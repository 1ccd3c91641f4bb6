#include "sidereal/ops/internal.h"

/// Element-wise arithmetic. Binary ops broadcast as NumPy does; their gradients are summed back to
/// each input's shape.
namespace sidereal::ops::internal {
namespace {

Status infer_binary(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_real(c));
  SR_ASSIGN_OR_RETURN(Shape shape, broadcast_shapes(c.inputs[0].shape, c.inputs[1].shape));
  return put(c, c.inputs[0].dtype, std::move(shape));
}

/// All inputs of one dtype and shape, which is the output's.
Status infer_same_shapes(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_real(c));
  SR_ASSIGN_OR_RETURN(Shape shape, merge_inputs(c, 0, c.inputs.size() - 1));
  return put(c, c.inputs[0].dtype, std::move(shape));
}

Status infer_sum_to_shape_of(const InferContext& c) {
  SR_RETURN_IF_ERROR(require_real(c));
  const Shape& like = c.inputs[1].shape;
  SR_ASSIGN_OR_RETURN(const Shape both, broadcast_shapes(c.inputs[0].shape, like));
  SR_RETURN_IF_ERROR(merge_shapes(both, c.inputs[0].shape).status());
  return put(c, c.inputs[0].dtype, like);
}

Status infer_cast(const InferContext& c) {
  SR_ASSIGN_OR_RETURN(const DType to, ir::get_attr<DType>(c.attrs, "dtype"));
  if (!tensor::is_valid(to)) return base::invalid_argument("the dtype is invalid");
  return put(c, to, c.inputs[0].shape);
}

// What a gradient rule needs by name: dy, the inputs x and y, the output z.
Output dy(GradContext& c) { return c.output_grads[0]; }
Output x_of(GradContext& c) { return c.node.inputs[0]; }
Output y_of(GradContext& c) { return c.node.inputs[1]; }
Output z_of(GradContext& c) { return {c.node.id, 0}; }
DType dtype_of(GradContext& c) { return c.node.outputs[0].dtype; }

Status flow_one(GradContext& c, Output grad) {
  (*c.input_grads)[0] = grad;
  return {};
}

/// Gradients of a binary op, both still of the broadcast shape.
Status flow_two(GradContext& c, Output grad_x, Output grad_y) {
  (*c.input_grads)[0] = sum_to(c.builder, grad_x, x_of(c));
  (*c.input_grads)[1] = sum_to(c.builder, grad_y, y_of(c));
  return {};
}

Status grad_add(GradContext& c) { return flow_two(c, dy(c), dy(c)); }

Status grad_sub(GradContext& c) { return flow_two(c, dy(c), c.builder.add("Neg", {dy(c)})); }

Status grad_mul(GradContext& c) {
  ir::Builder& b = c.builder;
  // One statement each: the order of nodes must not depend on the compiler.
  const Output grad_x = b.add("Mul", {dy(c), y_of(c)});
  const Output grad_y = b.add("Mul", {dy(c), x_of(c)});
  return flow_two(c, grad_x, grad_y);
}

/// z = x / y: dx = dy / y and d(y) = -dy z / y.
Status grad_div(GradContext& c) {
  ir::Builder& b = c.builder;
  const Output grad_x = b.add("Div", {dy(c), y_of(c)});
  return flow_two(c, grad_x, b.add("Neg", {b.add("Mul", {grad_x, z_of(c)})}));
}

/// dy where `winner` is greater than `other` goes to y, the rest (ties too) to x, as TensorFlow's
/// MaximumGrad and MinimumGrad do.
Status grad_select(GradContext& c, Output winner, Output other) {
  ir::Builder& b = c.builder;
  const Output to_y = b.add("ReluGrad", {dy(c), b.add("Sub", {winner, other})});
  return flow_two(c, b.add("Sub", {dy(c), to_y}), to_y);
}

Status grad_maximum(GradContext& c) { return grad_select(c, y_of(c), x_of(c)); }
Status grad_minimum(GradContext& c) { return grad_select(c, x_of(c), y_of(c)); }

Status grad_neg(GradContext& c) { return flow_one(c, c.builder.add("Neg", {dy(c)})); }
Status grad_exp(GradContext& c) { return flow_one(c, c.builder.add("Mul", {dy(c), z_of(c)})); }
Status grad_log(GradContext& c) { return flow_one(c, c.builder.add("Div", {dy(c), x_of(c)})); }

Status grad_log1p(GradContext& c) {
  ir::Builder& b = c.builder;
  const Output one_plus_x = b.add("Add", {x_of(c), scalar(b, dtype_of(c), 1)});
  return flow_one(c, b.add("Div", {dy(c), one_plus_x}));
}

Status grad_sqrt(GradContext& c) {
  ir::Builder& b = c.builder;
  const Output half = b.add("Mul", {dy(c), scalar(b, dtype_of(c), 0.5)});
  return flow_one(c, b.add("Div", {half, z_of(c)}));
}

Status grad_square(GradContext& c) {
  ir::Builder& b = c.builder;
  const Output twice_x = b.add("Mul", {x_of(c), scalar(b, dtype_of(c), 2)});
  return flow_one(c, b.add("Mul", {dy(c), twice_x}));
}

Status grad_abs(GradContext& c) {
  ir::Builder& b = c.builder;
  return flow_one(c, b.add("Mul", {dy(c), b.add("Sign", {x_of(c)})}));
}

Status grad_sigmoid(GradContext& c) {
  return flow_one(c, c.builder.add("SigmoidGrad", {dy(c), z_of(c)}));
}
Status grad_tanh(GradContext& c) {
  return flow_one(c, c.builder.add("TanhGrad", {dy(c), z_of(c)}));
}
Status grad_relu(GradContext& c) {
  return flow_one(c, c.builder.add("ReluGrad", {dy(c), z_of(c)}));
}

Status grad_softplus(GradContext& c) {
  ir::Builder& b = c.builder;
  return flow_one(c, b.add("Mul", {dy(c), b.add("Sigmoid", {x_of(c)})}));
}

Status grad_add_n(GradContext& c) {
  for (Output& grad : *c.input_grads) grad = dy(c);
  return {};
}

Status grad_cast(GradContext& c) {
  const DType from = c.builder.spec(x_of(c)).dtype;
  if (!is_real(from) || !is_real(dtype_of(c))) return {};
  return flow_one(c, c.builder.add("Cast", {dy(c)}, {{"dtype", from}}));
}

using GradientRule = Status (*)(GradContext&);

void add_binary(OpRegistry* registry, const char* name, const char* doc, GradientRule gradient) {
  registry->add({.name = name,
                 .doc = doc,
                 .min_inputs = 2,
                 .max_inputs = 2,
                 .infer = infer_binary,
                 .gradient = gradient});
}

void add_unary(OpRegistry* registry, const char* name, const char* doc, GradientRule gradient) {
  registry->add({.name = name,
                 .doc = doc,
                 .min_inputs = 1,
                 .max_inputs = 1,
                 .infer = infer_like_first,
                 .gradient = gradient});
}

/// A helper of a gradient rule; takes `inputs` tensors of one shape.
void add_helper(OpRegistry* registry, const char* name, const char* doc, int inputs) {
  registry->add({.name = name,
                 .doc = doc,
                 .min_inputs = inputs,
                 .max_inputs = inputs,
                 .infer = infer_same_shapes,
                 .differentiable = false});
}

}  // namespace

void register_arithmetic(OpRegistry* registry) {
  add_binary(registry, "Add", "x + y.", grad_add);
  add_binary(registry, "Sub", "x - y.", grad_sub);
  add_binary(registry, "Mul", "x * y.", grad_mul);
  add_binary(registry, "Div", "x / y.", grad_div);
  add_binary(registry, "Maximum", "The greater of x and y; the gradient of a tie goes to x.",
             grad_maximum);
  add_binary(registry, "Minimum", "The smaller of x and y; the gradient of a tie goes to x.",
             grad_minimum);
  add_unary(registry, "Neg", "-x.", grad_neg);
  add_unary(registry, "Exp", "e to the power x.", grad_exp);
  add_unary(registry, "Log", "Natural logarithm of x.", grad_log);
  add_unary(registry, "Log1p", "Natural logarithm of 1 + x, exact near 0.", grad_log1p);
  add_unary(registry, "Sqrt", "Square root of x.", grad_sqrt);
  add_unary(registry, "Square", "x * x.", grad_square);
  add_unary(registry, "Abs", "Absolute value; its gradient at 0 is 0.", grad_abs);
  add_unary(registry, "Sign", "-1, 0 or 1; its gradient is 0.", no_flow);
  add_unary(registry, "Sigmoid", "1 / (1 + e^-x).", grad_sigmoid);
  add_unary(registry, "Tanh", "Hyperbolic tangent.", grad_tanh);
  add_unary(registry, "Relu", "max(x, 0); its gradient at 0 is 0.", grad_relu);
  add_unary(registry, "Softplus", "log(1 + e^x).", grad_softplus);
  add_unary(registry, "OnesLike", "Ones of the input's shape.", no_flow);
  add_unary(registry, "ZerosLike", "Zeros of the input's shape.", no_flow);
  add_helper(registry, "ReluGrad", "(dy, y) -> dy where y > 0, else 0.", 2);
  add_helper(registry, "SigmoidGrad", "(dy, y) -> dy y (1 - y).", 2);
  add_helper(registry, "TanhGrad", "(dy, y) -> dy (1 - y y).", 2);
  registry->add({.name = "AddN",
                 .doc = "The sum of its inputs, all of one shape, from the first to the last.",
                 .min_inputs = 1,
                 .max_inputs = -1,
                 .infer = infer_same_shapes,
                 .gradient = grad_add_n});
  registry->add({.name = "SumToShapeOf",
                 .doc = "(g, like) -> g summed over the dimensions along which `like` was "
                        "broadcast to g's shape.",
                 .min_inputs = 2,
                 .max_inputs = 2,
                 .infer = infer_sum_to_shape_of,
                 .differentiable = false});
  registry->add({.name = "Cast",
                 .doc = "The same values in another dtype; floats to integers round toward zero.",
                 .min_inputs = 1,
                 .max_inputs = 1,
                 .attrs = {{"dtype", "dtype", true, "The dtype of the output."}},
                 .infer = infer_cast,
                 .gradient = grad_cast});
}

}  // namespace sidereal::ops::internal
