#pragma once

#include <cstdint>

#include "sidereal/tensor/dispatch.h"

/// Adding rows of any dtype of numbers. For kernels/*.cc only.
namespace sidereal::kernels::internal {

/// `a + b` in T, computed in float for the 16-bit floats; integers wrap around.
template <class T>
inline T plus(T a, T b) {
  using C = tensor::ComputeType<T>;
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<U>(static_cast<U>(a) + static_cast<U>(b)));
  } else {
    return static_cast<T>(static_cast<C>(a) + static_cast<C>(b));
  }
}

/// to[i] += from[i] for i < n.
template <class T>
inline void add_row(const T* from, int64_t n, T* to) {
  for (int64_t i = 0; i < n; ++i) to[i] = plus(to[i], from[i]);
}

}  // namespace sidereal::kernels::internal

/// Expands `what` for every C++ type of a dtype of numbers.
#define SR_FOR_EACH_NUMBER(what)                                                                   \
  what(float) what(double) what(tensor::Float16) what(tensor::BFloat16) what(int8_t) what(int16_t) \
      what(int32_t) what(int64_t) what(uint8_t) what(uint16_t) what(uint32_t) what(uint64_t)
