#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

/// The two 16-bit float types as C++ values. They hold and convert; arithmetic is done in float.
namespace sidereal::tensor {

namespace internal {

/// `x` as a float whose last bit says that something was cut off ("round to odd"), so that rounding
/// it again to 16 bits gives what rounding `x` itself would.
inline float sticky_float(double x) {
  const auto near = static_cast<float>(x);
  const auto back = static_cast<double>(near);
  if (back == x || x != x) return near;
  auto bits = std::bit_cast<uint32_t>(near);
  const bool grew = (back > x) == (x > 0);
  bits = (grew ? bits - 1 : bits) | 1U;
  return std::bit_cast<float>(bits);
}

/// Bits of the binary16 nearest to `x`, ties to even; a NaN stays one. No branches, so loops over
/// it become vector code.
inline uint16_t to_half_bits(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t sign = (bits >> 16) & 0x8000U;
  const uint32_t magnitude = bits & 0x7FFFFFFFU;
  // From 2^-14 on: move the exponent's bias, round away the lowest 13 bits.
  const uint32_t odd = (magnitude >> 13) & 1U;
  const uint32_t normal = (magnitude - (112U << 23) + 0xFFFU + odd) >> 13;
  // Below: a multiple of 2^-24; adding 1.5 * 2^23 rounds to an integer.
  constexpr float kShift = 12582912.0F;
  const float scaled = std::bit_cast<float>(magnitude) * 0x1p24F;
  const float small = magnitude < 0x38800000U ? scaled : 0.0F;
  const uint32_t tiny = std::bit_cast<uint32_t>(small + kShift) - std::bit_cast<uint32_t>(kShift);
  uint32_t out = magnitude < 0x38800000U ? tiny : normal;
  out = magnitude >= 0x47800000U ? 0x7C00U : out;
  out = magnitude > 0x7F800000U ? 0x7E00U | ((magnitude >> 13) & 0x3FFU) : out;
  return static_cast<uint16_t>(sign | out);
}

/// The value of a binary16, exactly.
inline float from_half_bits(uint16_t half) {
  const uint32_t sign = (half & 0x8000U) << 16;
  const uint32_t magnitude = half & 0x7FFFU;
  // Infinity and NaN keep the highest exponent; the others move to float's bias.
  const uint32_t bias = magnitude >= 0x7C00U ? 224U << 23 : 112U << 23;
  const uint32_t normal = (magnitude << 13) + bias;
  const float tiny = static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24F;
  const uint32_t out = magnitude < 0x400U ? std::bit_cast<uint32_t>(tiny) : normal;
  return std::bit_cast<float>(sign | out);
}

/// Bits of the bfloat16 nearest to `x`, ties to even; a NaN stays one.
inline uint16_t to_bfloat_bits(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
  const uint32_t quiet = (bits >> 16) | 0x40U;
  return static_cast<uint16_t>((bits & 0x7FFFFFFFU) > 0x7F800000U ? quiet : rounded);
}

inline float from_bfloat_bits(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

}  // namespace internal

/// IEEE 754 binary16: 5 bits of exponent, 10 of fraction; up to 65504. Value type.
struct Float16 {
  uint16_t bits = 0;

  Float16() = default;
  explicit Float16(float x) : bits(internal::to_half_bits(x)) {}
  explicit Float16(double x) : Float16(internal::sticky_float(x)) {}
  template <class T>
  requires std::is_integral_v<T>
  explicit Float16(T x) : Float16(static_cast<double>(x)) {}
  /// Exact.
  operator float() const {
    return internal::from_half_bits(bits);
  }  // NOLINT: widening is implicit.
};

/// The upper half of a binary32: 8 bits of exponent, 7 of fraction. Value type.
struct BFloat16 {
  uint16_t bits = 0;

  BFloat16() = default;
  explicit BFloat16(float x) : bits(internal::to_bfloat_bits(x)) {}
  explicit BFloat16(double x) : BFloat16(internal::sticky_float(x)) {}
  template <class T>
  requires std::is_integral_v<T>
  explicit BFloat16(T x) : BFloat16(static_cast<double>(x)) {}
  /// Exact.
  operator float() const {  // NOLINT: widening is implicit.
    return internal::from_bfloat_bits(bits);
  }
};

static_assert(sizeof(Float16) == 2 && sizeof(BFloat16) == 2);

/// True for the two 16-bit float types.
template <class T>
inline constexpr bool kIsHalf = std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;

/// The type arithmetic on T is done in: float for the 16-bit floats, else T.
template <class T>
using ComputeType = std::conditional_t<kIsHalf<T>, float, T>;

}  // namespace sidereal::tensor
