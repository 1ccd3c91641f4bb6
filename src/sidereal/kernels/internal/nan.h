#pragma once

namespace sidereal::kernels::internal {

/// True for a NaN; never for an integer. Compiles to a comparison, also in vectorised loops, which
/// std::isnan does not promise.
template <class T>
constexpr bool is_nan(T x) {
  return x != x;  // NOLINT(misc-redundant-expression)
}

}  // namespace sidereal::kernels::internal
