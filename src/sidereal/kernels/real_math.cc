#include "sidereal/kernels/internal/real_math.h"

#include <cmath>
#include <limits>
#include <numbers>

#include "sidereal/kernels/internal/functors.h"
#include "sidereal/kernels/internal/vec_math.h"

namespace sidereal::kernels::internal {
namespace {

constexpr double kPi = std::numbers::pi;

/// lgamma() without the global sign that the standard one writes.
float lgamma_of(float x) {
  int sign = 0;
  return ::lgammaf_r(x, &sign);
}
double lgamma_of(double x) {
  int sign = 0;
  return ::lgamma_r(x, &sign);
}

/// Derivative of lgamma: recurrence up to 10, then the asymptotic series of Bernoulli numbers
/// (Abramowitz and Stegun, 6.3.18); reflection below 0. Poles: -inf at 0 and NaN at the others.
double digamma_of(double x) {
  if (x == 0) return std::copysign(std::numeric_limits<double>::infinity(), -x);
  double result = 0;
  if (x < 0) {
    if (x == std::floor(x)) return std::numeric_limits<double>::quiet_NaN();
    result = -kPi / std::tan(kPi * std::remainder(x, 1.0));
    x = 1 - x;
  }
  while (x < 10) {
    result -= 1 / x;
    x += 1;
  }
  const double z = 1 / (x * x);
  const double series =
      horner(z, 1.0 / 12, -691.0 / 32760, 1.0 / 132, -1.0 / 240, 1.0 / 252, -1.0 / 120, 1.0 / 12);
  return result + std::log(x) - 0.5 / x - z * series;
}

/// Derivative of digamma, in the same way (6.4.12).
double trigamma_of(double x) {
  if (x <= 0) {
    if (x == std::floor(x)) return std::numeric_limits<double>::infinity();
    const double s = std::sin(kPi * std::remainder(x, 1.0));
    return kPi * kPi / (s * s) - trigamma_of(1 - x);
  }
  double result = 0;
  while (x < 10) {
    result += 1 / (x * x);
    x += 1;
  }
  const double z = 1 / (x * x);
  const double series =
      horner(z, 7.0 / 6, -691.0 / 2730, 5.0 / 66, -1.0 / 30, 1.0 / 42, -1.0 / 30, 1.0 / 6);
  return result + 1 / x + z / 2 + z / x * series;
}

/// erfc within 4 units in the last place: exp(-x^2) times a polynomial in 1 / (1 + 0.4 |x|), a
/// minimax fit for |x| up to 10.1, where floats end. The square is taken in two parts, because its
/// rounding would show in the exponential.
inline float erfc_of(float x) {
  const float magnitude = std::fabs(x);
  const float a = magnitude > 10.1F ? 10.1F : magnitude;
  const float t = 1.0F / mul_add(0.4F, a, 1.0F);
  const float high = a * a;
  const float low = mul_add(a, a, -high);
  const float p = horner(t, -3.851824931e-2F, 2.493759274e-1F, -6.282907241e-1F, 7.353471435e-1F,
                         -4.579154933e-1F, 3.784579430e-1F, 8.590654944e-2F, 2.268381317e-1F,
                         2.228984126e-1F, 2.259089847e-1F, -8.623978417e-6F);
  const float tail = p * exp_of(-high);
  const float positive = mul_add(-tail, low, tail);
  return x < 0.0F ? 2.0F - positive : positive;
}

/// erf within 2 units in the last place: a polynomial below 1, else 1 - erfc.
inline float erf_of(float x) {
  const float z = x * x;
  const float p = horner(z, 7.853859947e-5F, -8.010193199e-4F, 5.188327637e-3F, -2.685381191e-2F,
                         1.128358515e-1F, -3.761262582e-1F, 1.128379166F);
  const float large = std::copysign(1.0F - erfc_of(std::fabs(x)), x);
  return std::fabs(x) < 1.0F ? x * p : large;
}

inline double erfc_of(double x) { return std::erfc(x); }
inline double erf_of(double x) { return std::erf(x); }

template <class T>
T elu_of(T x) {
  return x < T(0) ? std::expm1(x) : x;
}

template <class T>
T selu_of(T x) {
  constexpr double kScale = 1.0507009873554804934193349852946;
  constexpr double kAlpha = 1.6732632423543772848170429916717;
  return x < T(0) ? static_cast<T>(kScale * kAlpha) * std::expm1(x) : static_cast<T>(kScale) * x;
}

template <class T>
T relu6_of(T x) {
  const T positive = x < T(0) ? T(0) : x;
  return positive > T(6) ? T(6) : positive;
}

template <class T>
T gelu_of(T x) {
  return T(0.5) * x * erfc_of(x * static_cast<T>(-std::numbers::sqrt2 / 2));
}

/// The trigonometric and hyperbolic functions and their inverses.
template <class T>
bool trigonometric(UnaryOp op, const T* in, T* out, int64_t n) {
  switch (op) {
    case UnaryOp::kSin:
      map(in, out, n, [](T x) { return std::sin(x); });
      return true;
    case UnaryOp::kCos:
      map(in, out, n, [](T x) { return std::cos(x); });
      return true;
    case UnaryOp::kTan:
      map(in, out, n, [](T x) { return std::tan(x); });
      return true;
    case UnaryOp::kAsin:
      map(in, out, n, [](T x) { return std::asin(x); });
      return true;
    case UnaryOp::kAcos:
      map(in, out, n, [](T x) { return std::acos(x); });
      return true;
    case UnaryOp::kAtan:
      map(in, out, n, [](T x) { return std::atan(x); });
      return true;
    case UnaryOp::kSinh:
      map(in, out, n, [](T x) { return std::sinh(x); });
      return true;
    case UnaryOp::kCosh:
      map(in, out, n, [](T x) { return std::cosh(x); });
      return true;
    case UnaryOp::kAsinh:
      map(in, out, n, [](T x) { return std::asinh(x); });
      return true;
    case UnaryOp::kAcosh:
      map(in, out, n, [](T x) { return std::acosh(x); });
      return true;
    case UnaryOp::kAtanh:
      map(in, out, n, [](T x) { return std::atanh(x); });
      return true;
    default:
      return false;
  }
}

/// Rounding and activations.
template <class T>
bool piecewise(UnaryOp op, const T* in, T* out, int64_t n) {
  switch (op) {
    case UnaryOp::kFloor:
      map(in, out, n, [](T x) { return std::floor(x); });
      return true;
    case UnaryOp::kCeil:
      map(in, out, n, [](T x) { return std::ceil(x); });
      return true;
    case UnaryOp::kRound:
      map(in, out, n, [](T x) { return std::nearbyint(x); });
      return true;
    case UnaryOp::kTrunc:
      map(in, out, n, [](T x) { return std::trunc(x); });
      return true;
    case UnaryOp::kRelu6:
      map(in, out, n, relu6_of<T>);
      return true;
    case UnaryOp::kElu:
      map(in, out, n, elu_of<T>);
      return true;
    case UnaryOp::kSelu:
      map(in, out, n, selu_of<T>);
      return true;
    case UnaryOp::kSilu:
      map(in, out, n, [](T x) { return x * sigmoid_of(x); });
      return true;
    case UnaryOp::kGelu:
      map(in, out, n, gelu_of<T>);
      return true;
    default:
      return false;
  }
}

}  // namespace

template <class T>
void unary_more(UnaryOp op, const T* in, T* out, int64_t n) {
  if (trigonometric(op, in, out, n) || piecewise(op, in, out, n)) return;
  switch (op) {
    case UnaryOp::kExpm1:
      return map(in, out, n, [](T x) { return std::expm1(x); });
    case UnaryOp::kErf:
      return map(in, out, n, [](T x) { return erf_of(x); });
    case UnaryOp::kErfc:
      return map(in, out, n, [](T x) { return erfc_of(x); });
    case UnaryOp::kLgamma:
      return map(in, out, n, [](T x) { return lgamma_of(x); });
    case UnaryOp::kDigamma:
      return map(in, out, n, [](T x) { return static_cast<T>(digamma_of(x)); });
    case UnaryOp::kTrigamma:
      return map(in, out, n, [](T x) { return static_cast<T>(trigamma_of(x)); });
    default:
      SR_CHECK(false, "no loop for unary op {}", static_cast<int>(op));
  }
}

template void unary_more(UnaryOp, const float*, float*, int64_t);
template void unary_more(UnaryOp, const double*, double*, int64_t);

}  // namespace sidereal::kernels::internal
