#include <cmath>
#include <numbers>

#include "sidereal/ops/internal.h"
#include "sidereal/ops/rule.h"

/// Functions of one real number, element by element, and Cast. Gradients are built from ops that
/// have gradients themselves, so that derivatives of any order work.
namespace sidereal::ops::internal {
namespace {

Status grad_neg(GradContext& c) {
  Rule r(c);
  return r.flow(r.neg(r.dy()));
}

Status grad_exp(GradContext& c) {
  Rule r(c);
  return r.flow(r.mul(r.dy(), r.z()));
}

Status grad_expm1(GradContext& c) {
  Rule r(c);
  return r.flow(r.mul(r.dy(), r.op("Exp", {r.x()})));
}

Status grad_log(GradContext& c) {
  Rule r(c);
  return r.flow(r.div(r.dy(), r.x()));
}

Status grad_log1p(GradContext& c) {
  Rule r(c);
  return r.flow(r.div(r.dy(), r.plus(r.x(), 1)));
}

Status grad_sqrt(GradContext& c) {
  Rule r(c);
  const Output half = r.times(r.dy(), 0.5);
  return r.flow(r.div(half, r.z()));
}

/// z = x^-1/2: dx = -dy z^3 / 2.
Status grad_rsqrt(GradContext& c) {
  Rule r(c);
  const Output cube = r.mul(r.square(r.z()), r.z());
  return r.flow(r.mul(r.times(r.dy(), -0.5), cube));
}

Status grad_reciprocal(GradContext& c) {
  Rule r(c);
  return r.flow(r.neg(r.mul(r.dy(), r.square(r.z()))));
}

Status grad_square(GradContext& c) {
  Rule r(c);
  return r.flow(r.mul(r.dy(), r.times(r.x(), 2)));
}

Status grad_abs(GradContext& c) {
  Rule r(c);
  return r.flow(r.mul(r.dy(), r.op("Sign", {r.x()})));
}

Status grad_sin(GradContext& c) {
  Rule r(c);
  return r.flow(r.mul(r.dy(), r.op("Cos", {r.x()})));
}

Status grad_cos(GradContext& c) {
  Rule r(c);
  return r.flow(r.neg(r.mul(r.dy(), r.op("Sin", {r.x()}))));
}

/// The derivative of tan is 1 + tan^2.
Status grad_tan(GradContext& c) {
  Rule r(c);
  return r.flow(r.mul(r.dy(), r.plus(r.square(r.z()), 1)));
}

/// sqrt(1 - x^2).
Output cosine_of_asin(Rule& r) { return r.op("Sqrt", {r.from(1, r.square(r.x()))}); }

Status grad_asin(GradContext& c) {
  Rule r(c);
  return r.flow(r.div(r.dy(), cosine_of_asin(r)));
}

Status grad_acos(GradContext& c) {
  Rule r(c);
  return r.flow(r.neg(r.div(r.dy(), cosine_of_asin(r))));
}

Status grad_atan(GradContext& c) {
  Rule r(c);
  return r.flow(r.div(r.dy(), r.plus(r.square(r.x()), 1)));
}

Status grad_sinh(GradContext& c) {
  Rule r(c);
  return r.flow(r.mul(r.dy(), r.op("Cosh", {r.x()})));
}

Status grad_cosh(GradContext& c) {
  Rule r(c);
  return r.flow(r.mul(r.dy(), r.op("Sinh", {r.x()})));
}

Status grad_asinh(GradContext& c) {
  Rule r(c);
  return r.flow(r.div(r.dy(), r.op("Cosh", {r.z()})));
}

Status grad_acosh(GradContext& c) {
  Rule r(c);
  return r.flow(r.div(r.dy(), r.op("Sinh", {r.z()})));
}

Status grad_atanh(GradContext& c) {
  Rule r(c);
  return r.flow(r.div(r.dy(), r.from(1, r.square(r.x()))));
}

/// dy 2 / sqrt(pi) exp(-x^2).
Output erf_slope(Rule& r) {
  const Output bell = r.op("Exp", {r.neg(r.square(r.x()))});
  return r.mul(r.times(r.dy(), 2 * std::numbers::inv_sqrtpi), bell);
}

Status grad_erf(GradContext& c) {
  Rule r(c);
  return r.flow(erf_slope(r));
}

Status grad_erfc(GradContext& c) {
  Rule r(c);
  return r.flow(r.neg(erf_slope(r)));
}

Status grad_lgamma(GradContext& c) {
  Rule r(c);
  return r.flow(r.mul(r.dy(), r.op("Digamma", {r.x()})));
}

Status grad_digamma(GradContext& c) {
  Rule r(c);
  return r.flow(r.mul(r.dy(), r.op("Trigamma", {r.x()})));
}

Status grad_sigmoid(GradContext& c) {
  Rule r(c);
  return r.flow(r.op("SigmoidGrad", {r.dy(), r.z()}));
}

Status grad_tanh(GradContext& c) {
  Rule r(c);
  return r.flow(r.op("TanhGrad", {r.dy(), r.z()}));
}

Status grad_relu(GradContext& c) {
  Rule r(c);
  return r.flow(r.op("ReluGrad", {r.dy(), r.z()}));
}

Status grad_softplus(GradContext& c) {
  Rule r(c);
  return r.flow(r.mul(r.dy(), r.op("Sigmoid", {r.x()})));
}

/// 0 at both kinks, as TensorFlow's Relu6Grad.
Status grad_relu6(GradContext& c) {
  Rule r(c);
  const Output above = r.op("Greater", {r.z(), r.k(0)});
  const Output within = r.op("LogicalAnd", {above, r.op("Less", {r.z(), r.k(6)})});
  return r.flow(r.op("Select", {within, r.dy(), r.k(0)}));
}

/// Below 0 the derivative is exp(x) = z + 1.
Status grad_elu(GradContext& c) {
  Rule r(c);
  const Output below = r.op("Less", {r.x(), r.k(0)});
  const Output slope = r.op("Exp", {r.op("Minimum", {r.x(), r.k(0)})});
  return r.flow(r.op("Select", {below, r.mul(r.dy(), slope), r.dy()}));
}

Status grad_selu(GradContext& c) {
  constexpr double kScale = 1.0507009873554804934193349852946;
  constexpr double kAlpha = 1.6732632423543772848170429916717;
  Rule r(c);
  const Output below = r.op("Less", {r.x(), r.k(0)});
  const Output slope = r.op("Exp", {r.op("Minimum", {r.x(), r.k(0)})});
  const Output factor = r.op("Select", {below, r.times(slope, kScale * kAlpha), r.k(kScale)});
  return r.flow(r.mul(r.dy(), factor));
}

/// s + x s (1 - s), s being sigmoid(x).
Status grad_silu(GradContext& c) {
  Rule r(c);
  const Output s = r.op("Sigmoid", {r.x()});
  const Output rise = r.op("SigmoidGrad", {r.x(), s});
  return r.flow(r.mul(r.dy(), r.add(s, rise)));
}

/// Phi(x) + x phi(x) of the normal distribution.
Status grad_gelu(GradContext& c) {
  Rule r(c);
  const Output erf = r.op("Erf", {r.times(r.x(), std::numbers::sqrt2 / 2)});
  const Output phi = r.times(r.plus(erf, 1), 0.5);
  const Output bell = r.op("Exp", {r.times(r.square(r.x()), -0.5)});
  const double height = std::numbers::inv_sqrtpi / std::numbers::sqrt2;
  const Output slope = r.times(r.mul(r.x(), bell), height);
  return r.flow(r.mul(r.dy(), r.add(phi, slope)));
}

// The helpers f(dy, y) are linear in dy: their gradient to dy is they themselves.

Status grad_relu_grad(GradContext& c) {
  Rule r(c);
  return r.flow(r.op("ReluGrad", {r.dy(), r.y()}));
}

/// dy y (1 - y); by y: dy (1 - 2 y).
Status grad_sigmoid_grad(GradContext& c) {
  Rule r(c);
  SR_RETURN_IF_ERROR(r.flow(0, r.op("SigmoidGrad", {r.dy(), r.y()})));
  const Output slope = r.from(1, r.times(r.y(), 2));
  return r.flow(1, r.mul(r.mul(r.dy(), r.x()), slope));
}

/// dy (1 - y^2); by y: -2 dy y.
Status grad_tanh_grad(GradContext& c) {
  Rule r(c);
  SR_RETURN_IF_ERROR(r.flow(0, r.op("TanhGrad", {r.dy(), r.y()})));
  const Output slope = r.times(r.y(), -2);
  return r.flow(1, r.mul(r.mul(r.dy(), r.x()), slope));
}

Status infer_cast(const InferContext& c) {
  SR_ASSIGN_OR_RETURN(const DType to, ir::get_attr<DType>(c.attrs, "dtype"));
  if (!tensor::is_valid(to)) return base::invalid_argument("the dtype is invalid");
  if (to == DType::kString || c.inputs[0].dtype == DType::kString) {
    return base::invalid_argument(
        "no cast from {} to {}; text of numbers is AsString, numbers of text StringToNumber",
        tensor::name_of(c.inputs[0].dtype), tensor::name_of(to));
  }
  return put(c, to, c.inputs[0].shape);
}

Status grad_cast(GradContext& c) {
  Rule r(c);
  const DType from = r.dtype();
  if (!is_real(from) || !is_real(c.node.outputs[0].dtype)) return {};
  return r.flow(r.op("Cast", {r.dy()}, {{"dtype", from}}));
}

Status infer_like_any(const InferContext& c) {
  SR_RETURN_IF_ERROR(require(c, sets::kPlain));
  return put(c, c.inputs[0].dtype, c.inputs[0].shape);
}

void add_unary(OpRegistry* registry, const DTypeSet& set, const char* name, const char* doc,
               GradientRule gradient) {
  registry->add({.name = name,
                 .doc = doc,
                 .min_inputs = 1,
                 .max_inputs = 1,
                 .infer = same_shapes(set),
                 .gradient = gradient});
}

void register_elementary(OpRegistry* registry) {
  const DTypeSet& floats = sets::kFloats;
  add_unary(registry, sets::kSigned, "Neg", "-x.", grad_neg);
  add_unary(registry, sets::kNumbers, "Square", "x * x.", grad_square);
  add_unary(registry, sets::kNumbers, "Abs", "Absolute value; its gradient at 0 is 0.", grad_abs);
  add_unary(registry, sets::kNumbers, "Sign", "-1, 0 or 1; its gradient is 0.", no_flow);
  add_unary(registry, floats, "Exp", "e to the power x.", grad_exp);
  add_unary(registry, floats, "Expm1", "e to the power x, less 1; exact near 0.", grad_expm1);
  add_unary(registry, floats, "Log", "Natural logarithm of x.", grad_log);
  add_unary(registry, floats, "Log1p", "Natural logarithm of 1 + x, exact near 0.", grad_log1p);
  add_unary(registry, floats, "Sqrt", "Square root of x.", grad_sqrt);
  add_unary(registry, floats, "Rsqrt", "1 / sqrt(x).", grad_rsqrt);
  add_unary(registry, floats, "Reciprocal", "1 / x.", grad_reciprocal);
  add_unary(registry, floats, "Floor", "The greatest integer not above x. No gradient flows.",
            no_flow);
  add_unary(registry, floats, "Ceil", "The smallest integer not below x. No gradient flows.",
            no_flow);
  add_unary(registry, floats, "Round",
            "The nearest integer, ties to the even one. No gradient flows.", no_flow);
  add_unary(registry, floats, "Trunc", "x without its fraction. No gradient flows.", no_flow);
  add_unary(registry, floats, "Erf", "The error function.", grad_erf);
  add_unary(registry, floats, "Erfc", "1 - erf(x), exact for large x.", grad_erfc);
  add_unary(registry, floats, "Lgamma", "Logarithm of the absolute value of gamma(x).",
            grad_lgamma);
  add_unary(registry, floats, "Digamma", "Derivative of lgamma(x).", grad_digamma);
  registry->add({.name = "Trigamma",
                 .doc = "Derivative of digamma(x).",
                 .min_inputs = 1,
                 .max_inputs = 1,
                 .infer = same_shapes(floats),
                 .differentiable = false});
}

void register_trigonometric(OpRegistry* registry) {
  const DTypeSet& floats = sets::kFloats;
  add_unary(registry, floats, "Sin", "Sine of x in radians.", grad_sin);
  add_unary(registry, floats, "Cos", "Cosine of x in radians.", grad_cos);
  add_unary(registry, floats, "Tan", "Tangent of x in radians.", grad_tan);
  add_unary(registry, floats, "Asin", "The angle in [-pi/2, pi/2] whose sine is x.", grad_asin);
  add_unary(registry, floats, "Acos", "The angle in [0, pi] whose cosine is x.", grad_acos);
  add_unary(registry, floats, "Atan", "The angle in [-pi/2, pi/2] whose tangent is x.", grad_atan);
  add_unary(registry, floats, "Sinh", "Hyperbolic sine.", grad_sinh);
  add_unary(registry, floats, "Cosh", "Hyperbolic cosine.", grad_cosh);
  add_unary(registry, floats, "Asinh", "Inverse of sinh.", grad_asinh);
  add_unary(registry, floats, "Acosh", "Inverse of cosh; NaN below 1.", grad_acosh);
  add_unary(registry, floats, "Atanh", "Inverse of tanh; NaN outside [-1, 1].", grad_atanh);
}

void register_activations(OpRegistry* registry) {
  const DTypeSet& floats = sets::kFloats;
  add_unary(registry, floats, "Sigmoid", "1 / (1 + e^-x).", grad_sigmoid);
  add_unary(registry, floats, "Tanh", "Hyperbolic tangent.", grad_tanh);
  add_unary(registry, sets::kNumbers, "Relu", "max(x, 0); its gradient at 0 is 0.", grad_relu);
  add_unary(registry, sets::kNumbers, "Relu6",
            "min(max(x, 0), 6); its gradient at 0 and at 6 is 0.", grad_relu6);
  add_unary(registry, floats, "Softplus", "log(1 + e^x), without overflow.", grad_softplus);
  add_unary(registry, floats, "Elu", "x, and e^x - 1 below 0.", grad_elu);
  add_unary(registry, floats, "Selu",
            "Elu scaled so that layers keep mean 0 and variance 1 (Klambauer et al., "
            "Self-Normalizing Neural Networks, 2017).",
            grad_selu);
  add_unary(registry, floats, "Silu", "x sigmoid(x), also called swish.", grad_silu);
  add_unary(registry, floats, "Gelu",
            "x Phi(x), Phi being the normal distribution (Hendrycks and Gimpel, Gaussian Error "
            "Linear Units, 2016).",
            grad_gelu);
}

void register_activation_grads(OpRegistry* registry) {
  const auto add = [registry](const char* name, const char* doc, GradientRule gradient) {
    registry->add({.name = name,
                   .doc = doc,
                   .min_inputs = 2,
                   .max_inputs = 2,
                   .infer = same_shapes(sets::kFloats),
                   .gradient = gradient});
  };
  add("ReluGrad", "(dy, y) -> dy where y > 0, else 0.", grad_relu_grad);
  add("SigmoidGrad", "(dy, y) -> dy y (1 - y).", grad_sigmoid_grad);
  add("TanhGrad", "(dy, y) -> dy (1 - y^2).", grad_tanh_grad);
}

}  // namespace

void register_functions_of_one(OpRegistry* registry) {
  register_elementary(registry);
  register_trigonometric(registry);
  register_activations(registry);
  register_activation_grads(registry);
  const auto add_like = [registry](const char* name, const char* doc) {
    registry->add({.name = name,
                   .doc = doc,
                   .min_inputs = 1,
                   .max_inputs = 1,
                   .infer = infer_like_any,
                   .gradient = no_flow});
  };
  add_like("OnesLike", "Ones of the shape and dtype of x.");
  add_like("ZerosLike", "Zeros of the shape and dtype of x.");
  registry->add({.name = "Cast",
                 .doc = "The same values in another dtype; floats to integers round toward zero.",
                 .min_inputs = 1,
                 .max_inputs = 1,
                 .attrs = {{"dtype", "dtype", true, "The dtype of the output."}},
                 .infer = infer_cast,
                 .gradient = grad_cast});
}

}  // namespace sidereal::ops::internal
