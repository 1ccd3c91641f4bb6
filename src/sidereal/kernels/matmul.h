#pragma once

#include <cstdint>
#include <type_traits>

namespace sidereal::kernels {

/// Extents of a product op(a) * op(b): op(a) is [m, k], op(b) is [k, n], the result is [m, n].
/// With `trans_a` the array a is stored as [k, m]; with `trans_b` b is stored as [n, k].
struct MatMulDims {
  int64_t m = 0;
  int64_t k = 0;
  int64_t n = 0;
  bool trans_a = false;
  bool trans_b = false;
  bool operator==(const MatMulDims&) const = default;
};

/// out = op(a) * op(b) + beta * out, dense row-major arrays. `out` must not overlap a or b. With
/// beta 0 the old content of `out` is not read; with k 0 the product is zero.
/// float: oneDNN; double: Eigen (for gradient checks, not for speed); int32_t and int64_t: plain
/// loops, with wrap-around. Always one OpenMP thread.
template <class T>
void mat_mul(const T* a, const T* b, T* out, const MatMulDims& dims,
             std::type_identity_t<T> beta = 0);

/// A part of a product, float32: rows [first, last) of the result with `is_inner` false; else what
/// the inner places [first, last) add to all of it. Parts of one product may run at the same time.
struct MatMulPart {
  bool is_inner = false;
  int64_t first = 0;
  int64_t last = 0;
};

/// Row parts: out[first .. last) of the whole product is written. Inner parts: `out` [m, n] is the
/// product of that part alone.
void mat_mul_part(const float* a, const float* b, float* out, const MatMulDims& dims,
                  const MatMulPart& part);

extern template void mat_mul(const float*, const float*, float*, const MatMulDims&, float);
extern template void mat_mul(const double*, const double*, double*, const MatMulDims&, double);
extern template void mat_mul(const int32_t*, const int32_t*, int32_t*, const MatMulDims&, int32_t);
extern template void mat_mul(const int64_t*, const int64_t*, int64_t*, const MatMulDims&, int64_t);

}  // namespace sidereal::kernels
