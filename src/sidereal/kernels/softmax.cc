#include "sidereal/kernels/softmax.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "sidereal/kernels/internal/nan.h"
#include "sidereal/kernels/internal/vec_math.h"

namespace sidereal::kernels {
namespace {

/// Columns at a time where the axis is not the last one.
constexpr int64_t kColumns = 64;

template <class T>
T highest(const T* x, int64_t n) {
  T top = -std::numeric_limits<T>::infinity();
  for (int64_t j = 0; j < n; ++j) top = x[j] > top || internal::is_nan(x[j]) ? x[j] : top;
  return top;
}

/// y = exp(x - top) of n elements; their sum.
template <class T>
T exp_less(const T* x, T top, int64_t n, T* y) {
  SR_INDEPENDENT
  for (int64_t j = 0; j < n; ++j) y[j] = internal::exp_of(x[j] - top);
  return sum(y, n);
}

template <class T>
void softmax_row(const T* x, int64_t n, T* y) {
  const T total = exp_less(x, highest(x, n), n, y);
  const T factor = T(1) / total;
  SR_INDEPENDENT
  for (int64_t j = 0; j < n; ++j) y[j] *= factor;
}

template <class T>
void log_softmax_row(const T* x, int64_t n, T* y) {
  const T top = highest(x, n);
  T total = 0;
  // In blocks: y may be x.
  T block[kColumns];
  for (int64_t from = 0; from < n; from += kColumns) {
    total += exp_less(x + from, top, std::min(kColumns, n - from), block);
  }
  // Not in one: the sum of both would be rounded to the digits of the maximum.
  const T rest = std::log(total);
  SR_INDEPENDENT
  for (int64_t j = 0; j < n; ++j) y[j] = (x[j] - top) - rest;
}

template <class T>
void softmax_grad_row(const T* dy, const T* y, int64_t n, T* out) {
  T total = 0;
  T block[kColumns];
  for (int64_t from = 0; from < n; from += kColumns) {
    const int64_t count = std::min(kColumns, n - from);
    SR_INDEPENDENT
    for (int64_t j = 0; j < count; ++j) block[j] = dy[from + j] * y[from + j];
    total += sum(block, count);
  }
  SR_INDEPENDENT
  for (int64_t j = 0; j < n; ++j) out[j] = y[j] * (dy[j] - total);
}

/// Calls row(from, to) for every row; rows of an axis that is not the last are gathered into one
/// array and scattered back.
template <class T, class Row>
void by_rows(const T* x, const T* y, const ReduceDims& dims, T* out, Row row) {
  const int64_t n = dims.reduce;
  if (dims.inner == 1) {
    for (int64_t o = 0; o < dims.outer; ++o) row(x + o * n, y + o * n, out + o * n);
    return;
  }
  std::vector<T> a(n);
  std::vector<T> b(n);
  for (int64_t o = 0; o < dims.outer; ++o) {
    for (int64_t i = 0; i < dims.inner; ++i) {
      const int64_t at = o * n * dims.inner + i;
      for (int64_t j = 0; j < n; ++j) {
        a[j] = x[at + j * dims.inner];
        b[j] = y[at + j * dims.inner];
      }
      row(a.data(), b.data(), a.data());
      for (int64_t j = 0; j < n; ++j) out[at + j * dims.inner] = a[j];
    }
  }
}

}  // namespace

template <class T>
void softmax(const T* x, const ReduceDims& dims, T* out) {
  by_rows(x, x, dims, out, [&](const T* a, const T*, T* to) { softmax_row(a, dims.reduce, to); });
}

template <class T>
void log_softmax(const T* x, const ReduceDims& dims, T* out) {
  by_rows(x, x, dims, out,
          [&](const T* a, const T*, T* to) { log_softmax_row(a, dims.reduce, to); });
}

template <class T>
void softmax_grad(const T* dy, const T* y, const ReduceDims& dims, T* out) {
  by_rows(dy, y, dims, out,
          [&](const T* g, const T* b, T* to) { softmax_grad_row(g, b, dims.reduce, to); });
}

template <class T, class Index>
int64_t sparse_softmax_cross_entropy(const T* x, const Index* labels, int64_t m, int64_t n, T* loss,
                                     T* backprop) {
  for (int64_t i = 0; i < m; ++i) {
    const auto label = static_cast<int64_t>(labels[i]);
    if (label < 0 || label >= n) return i;
    const T* row = x + i * n;
    T* out = backprop + i * n;
    const T top = highest(row, n);
    const T shifted = row[label] - top;
    const T total = exp_less(row, top, n, out);
    loss[i] = std::log(total) - shifted;
    const T factor = T(1) / total;
    SR_INDEPENDENT
    for (int64_t j = 0; j < n; ++j) out[j] *= factor;
    out[label] -= T(1);
  }
  return -1;
}

template <class T>
void softmax_cross_entropy(const T* x, const T* labels, int64_t m, int64_t n, T* loss,
                           T* backprop) {
  for (int64_t i = 0; i < m; ++i) {
    const T* row = x + i * n;
    const T* z = labels + i * n;
    T* out = backprop + i * n;
    const T top = highest(row, n);
    const T total = exp_less(row, top, n, out);
    const T rest = std::log(total);
    const T weight = sum(z, n);
    T sum_of_losses = 0;
    // A label of 0 does not see an infinite logarithm.
    for (int64_t j = 0; j < n; ++j) {
      sum_of_losses += z[j] == T(0) ? T(0) : z[j] * (rest - (row[j] - top));
    }
    loss[i] = sum_of_losses;
    const T factor = weight / total;
    SR_INDEPENDENT
    for (int64_t j = 0; j < n; ++j) out[j] = out[j] * factor - z[j];
  }
}

#define SR_INSTANTIATE(T)                                                                       \
  template void softmax(const T*, const ReduceDims&, T*);                                       \
  template void log_softmax(const T*, const ReduceDims&, T*);                                   \
  template void softmax_grad(const T*, const T*, const ReduceDims&, T*);                        \
  template int64_t sparse_softmax_cross_entropy(const T*, const int32_t*, int64_t, int64_t, T*, \
                                                T*);                                            \
  template int64_t sparse_softmax_cross_entropy(const T*, const int64_t*, int64_t, int64_t, T*, \
                                                T*);                                            \
  template void softmax_cross_entropy(const T*, const T*, int64_t, int64_t, T*, T*);
SR_INSTANTIATE(float)
SR_INSTANTIATE(double)
#undef SR_INSTANTIATE

}  // namespace sidereal::kernels
