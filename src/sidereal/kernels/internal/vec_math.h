#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

/// Scalar functions without branches, so that a loop over them becomes vector code, and fixed-width
/// vectors. The float functions follow the classic reductions of Cody and Waite; an element's value
/// does not depend on whether the compiler put it into a vector or into the tail.

/// Says that the iterations of the next loop are independent: its output array is distinct from its
/// inputs or is one of them at the same index.
#if defined(__clang__)
#define SR_INDEPENDENT _Pragma("clang loop vectorize(assume_safety) interleave(enable)")
#else
#define SR_INDEPENDENT _Pragma("GCC ivdep")
#endif

namespace sidereal::kernels::internal {

/// 64 bytes of T, whatever the instruction set: the lanes of a sum are the same everywhere.
template <class T>
struct Vec {
  typedef T Type __attribute__((vector_size(64)));
  static constexpr int kLanes = 64 / sizeof(T);
};

template <class T>
inline typename Vec<T>::Type load(const T* p) {
  typename Vec<T>::Type v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

template <class T>
inline void store(typename Vec<T>::Type v, T* p) {
  std::memcpy(p, &v, sizeof v);
}

/// The sum of the lanes: halves are added onto each other.
template <class T>
inline T fold_lanes(typename Vec<T>::Type v) {
  T lanes[Vec<T>::kLanes];
  std::memcpy(lanes, &v, sizeof lanes);
  for (int width = Vec<T>::kLanes / 2; width > 0; width /= 2) {
    for (int j = 0; j < width; ++j) lanes[j] += lanes[j + width];
  }
  return lanes[0];
}

/// a * b + c, rounded once where the processor can. Compilers are told not to fuse on their own
/// (-ffp-contract=off), so a formula is rounded alike in every loop it is compiled into.
template <class T>
inline T mul_add(T a, T b, T c) {
#ifdef __FMA__
  return std::fma(a, b, c);
#else
  return a * b + c;
#endif
}

/// Polynomial with coefficients from the highest power down.
template <class T>
inline T horner(T, T acc) {
  return acc;
}
template <class T, class... Rest>
inline T horner(T x, T acc, T next, Rest... rest) {
  return horner(x, mul_add(acc, x, next), rest...);
}

inline float exp_of(float x) {
  constexpr float kShift = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer.
  const float clamped = x > 89.0F ? 89.0F : (x < -104.0F ? -104.0F : x);
  const float shifted = mul_add(clamped, 1.44269504F, kShift);
  const int32_t n = std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(kShift);
  const float whole = shifted - kShift;
  // ln 2 in two parts, so that the product with `whole` is exact enough.
  const float r = mul_add(whole, 2.12194440e-4F, mul_add(whole, -0.693359375F, clamped));
  const float p = horner(r, 1.9875691500e-4F, 1.3981999507e-3F, 8.3334519073e-3F, 4.1665795894e-2F,
                         1.6666665459e-1F, 5.0000001201e-1F);
  const float e = mul_add(p, r * r, r) + 1.0F;
  // 2^n in two factors: n may be -150 or 128, outside what one float exponent holds.
  const int32_t half = n >> 1;
  const float s1 = std::bit_cast<float>((half + 127) << 23);
  const float s2 = std::bit_cast<float>((n - half + 127) << 23);
  return x != x ? x : e * s1 * s2;
}

inline float log_of(float x) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const bool tiny = x < std::numeric_limits<float>::min();
  const float scaled = tiny ? x * 8388608.0F : x;
  // The mantissa is taken to [sqrt(1/2), sqrt(2)) by an offset in the integer view.
  const auto bits = static_cast<int32_t>(std::bit_cast<uint32_t>(scaled) - 0x3f3504f3U);
  const float exponent = static_cast<float>(bits >> 23) - (tiny ? 23.0F : 0.0F);
  const float m = std::bit_cast<float>((bits & 0x007fffff) + 0x3f3504f3) - 1.0F;
  const float z = m * m;
  const float p = horner(m, 7.0376836292e-2F, -1.1514610310e-1F, 1.1676998740e-1F,
                         -1.2420140846e-1F, 1.4249322787e-1F, -1.6668057665e-1F, 2.0000714765e-1F,
                         -2.4999993993e-1F, 3.3333331174e-1F);
  const float low = mul_add(p * m, z, exponent * -2.12194440e-4F);
  const float y = mul_add(-0.5F, z, low);
  const float result = mul_add(exponent, 0.693359375F, m + y);
  const float at_edge = x == 0.0F ? -kInf : std::numeric_limits<float>::quiet_NaN();
  const float positive = x < kInf ? result : x;
  return x > 0.0F ? positive : at_edge;
}

inline float log1p_of(float x) {
  // log(1 + x) * x / ((1 + x) - 1) undoes the rounding of 1 + x.
  const float u = 1.0F + x;
  const float d = u - 1.0F;
  const float corrected = log_of(u) * (x / (d == 0.0F ? 1.0F : d));
  const float finite = u < std::numeric_limits<float>::infinity() ? corrected : u;
  return d == 0.0F ? x : (u > 0.0F ? finite : log_of(u));
}

inline float tanh_of(float x) {
  const float a = std::fabs(x);
  const float z = x * x;
  const float p = horner(z, -5.70498872745e-3F, 2.06390887954e-2F, -5.37397155531e-2F,
                         1.33314422036e-1F, -3.33332819422e-1F);
  const float small = mul_add(p * z, x, x);
  const float large = std::copysign(1.0F - 2.0F / (exp_of(2.0F * a) + 1.0F), x);
  return x != x ? x : (a < 0.625F ? small : large);
}

inline double exp_of(double x) { return std::exp(x); }
inline double log_of(double x) { return std::log(x); }
inline double log1p_of(double x) { return std::log1p(x); }
inline double tanh_of(double x) { return std::tanh(x); }

template <class T>
inline T sigmoid_of(T x) {
  return T(1) / (T(1) + exp_of(-x));
}

template <class T>
inline T max_of(T a, T b) {
  return a > b ? a : b;
}

template <class T>
inline T softplus_of(T x) {
  return max_of(x, T(0)) + log1p_of(exp_of(-std::abs(x)));
}

}  // namespace sidereal::kernels::internal
