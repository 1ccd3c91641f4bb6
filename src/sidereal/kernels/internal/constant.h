#pragma once

#include <cstdint>
#include <type_traits>

namespace sidereal::kernels::internal {

/// Calls body(std::integral_constant<int64_t, N>) once, with N = n when n is one of `kUsual`, so
/// that the compiler knows it, else with N = 0.
template <int64_t... kUsual, class Body>
void with_constant(int64_t n, Body body) {
  const bool is_usual =
      ((n == kUsual ? (body(std::integral_constant<int64_t, kUsual>()), true) : false) || ...);
  if (!is_usual) body(std::integral_constant<int64_t, 0>());
}

}  // namespace sidereal::kernels::internal
