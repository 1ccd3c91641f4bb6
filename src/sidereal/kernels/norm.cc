#include "sidereal/kernels/norm.h"

#include <algorithm>
#include <cmath>

#include "sidereal/kernels/internal/vec_math.h"
#include "sidereal/kernels/reduce.h"

namespace sidereal::kernels {
namespace {

constexpr int64_t kBlock = 256;

/// The sum over j < n of f(j), in blocks.
template <class T, class F>
T sum_of(int64_t n, F f) {
  T block[kBlock];
  double total = 0;
  for (int64_t from = 0; from < n; from += kBlock) {
    const int64_t count = std::min(kBlock, n - from);
    SR_INDEPENDENT
    for (int64_t j = 0; j < count; ++j) block[j] = f(from + j);
    total += sum(block, count);
  }
  return static_cast<T>(total);
}

/// Columns that are worked on together.
constexpr int64_t kColumns = 64;

/// out[j] = the sum over i < m of f(i, j): rows are added up in blocks, and the blocks in double.
template <class T, class F>
void column_sums(int64_t m, int64_t n, F f, T* out) {
  for (int64_t first = 0; first < n; first += kColumns) {
    const int64_t width = std::min(kColumns, n - first);
    double total[kColumns] = {};
    for (int64_t from = 0; from < m; from += kBlock) {
      T part[kColumns] = {};
      for (int64_t i = from; i < std::min(m, from + kBlock); ++i) {
        SR_INDEPENDENT
        for (int64_t j = 0; j < width; ++j) part[j] += f(i, first + j);
      }
      for (int64_t j = 0; j < width; ++j) total[j] += part[j];
    }
    for (int64_t j = 0; j < width; ++j) out[first + j] = static_cast<T>(total[j]);
  }
}

/// Calls rows(first column, number of columns, factor[]) for tiles of columns, with
/// factor[j] = 1 / sqrt(variance + epsilon) of the tile's column j.
template <class T, class Rows>
void by_columns(const T* variance, int64_t n, double epsilon, Rows rows) {
  for (int64_t first = 0; first < n; first += kColumns) {
    const int64_t width = std::min(kColumns, n - first);
    T factor[kColumns];
    for (int64_t j = 0; j < width; ++j) {
      factor[j] = T(1) / std::sqrt(variance[first + j] + static_cast<T>(epsilon));
    }
    rows(first, width, factor);
  }
}

}  // namespace

template <class T>
void layer_norm(const T* x, const T* scale, const T* offset, int64_t m, int64_t n, double epsilon,
                T* out, T* mean, T* rstd) {
  for (int64_t i = 0; i < m; ++i) {
    const T* row = x + i * n;
    T* y = out + i * n;
    const T center = sum(row, n) / static_cast<T>(n);
    const T squares = sum_of<T>(n, [&](int64_t j) {
      const T d = row[j] - center;
      return d * d;
    });
    const T factor = T(1) / std::sqrt(squares / static_cast<T>(n) + static_cast<T>(epsilon));
    mean[i] = center;
    rstd[i] = factor;
    SR_INDEPENDENT
    for (int64_t j = 0; j < n; ++j) y[j] = (row[j] - center) * factor * scale[j] + offset[j];
  }
}

template <class T>
void layer_norm_grad(const T* dy, const T* x, const T* scale, const T* mean, const T* rstd,
                     int64_t m, int64_t n, T* dx, T* dscale, T* doffset) {
  column_sums(
      m, n,
      [&](int64_t i, int64_t j) { return dy[i * n + j] * (x[i * n + j] - mean[i]) * rstd[i]; },
      dscale);
  column_sums(
      m, n, [&](int64_t i, int64_t j) { return dy[i * n + j]; }, doffset);
  for (int64_t i = 0; i < m; ++i) {
    const T* g = dy + i * n;
    const T* row = x + i * n;
    T* to = dx + i * n;
    const T center = mean[i];
    const T factor = rstd[i];
    const T plain = sum_of<T>(n, [&](int64_t j) { return g[j] * scale[j]; }) / static_cast<T>(n);
    const T along =
        sum_of<T>(n, [&](int64_t j) { return g[j] * scale[j] * ((row[j] - center) * factor); }) /
        static_cast<T>(n);
    SR_INDEPENDENT
    for (int64_t j = 0; j < n; ++j) {
      to[j] = factor * (g[j] * scale[j] - plain - (row[j] - center) * factor * along);
    }
  }
}

template <class T>
void batch_norm(const T* x, const T* scale, const T* offset, int64_t m, int64_t n, double epsilon,
                T* out, T* mean, T* variance) {
  const T count = static_cast<T>(m);
  column_sums(
      m, n, [&](int64_t i, int64_t j) { return x[i * n + j]; }, mean);
  for (int64_t j = 0; j < n; ++j) mean[j] /= count;
  column_sums(
      m, n,
      [&](int64_t i, int64_t j) {
        const T d = x[i * n + j] - mean[j];
        return d * d;
      },
      variance);
  for (int64_t j = 0; j < n; ++j) variance[j] /= count;
  by_columns(variance, n, epsilon, [&](int64_t first, int64_t width, const T* factor) {
    for (int64_t i = 0; i < m; ++i) {
      SR_INDEPENDENT
      for (int64_t j = 0; j < width; ++j) {
        const int64_t c = first + j;
        out[i * n + c] = (x[i * n + c] - mean[c]) * (factor[j] * scale[c]) + offset[c];
      }
    }
  });
}

template <class T>
void batch_norm_grad(const T* dy, const T* x, const T* scale, const T* mean, const T* variance,
                     int64_t m, int64_t n, double epsilon, T* dx, T* dscale, T* doffset) {
  const T count = static_cast<T>(m);
  column_sums(
      m, n, [&](int64_t i, int64_t j) { return dy[i * n + j]; }, doffset);
  column_sums(
      m, n, [&](int64_t i, int64_t j) { return dy[i * n + j] * (x[i * n + j] - mean[j]); }, dscale);
  by_columns(variance, n, epsilon, [&](int64_t first, int64_t width, const T* rstd) {
    for (int64_t j = 0; j < width; ++j) dscale[first + j] *= rstd[j];
    for (int64_t i = 0; i < m; ++i) {
      SR_INDEPENDENT
      for (int64_t j = 0; j < width; ++j) {
        const int64_t c = first + j;
        const T along = (x[i * n + c] - mean[c]) * rstd[j] * (dscale[c] / count);
        dx[i * n + c] = scale[c] * rstd[j] * (dy[i * n + c] - doffset[c] / count - along);
      }
    }
  });
}

#define SR_INSTANTIATE(T)                                                                       \
  template void layer_norm(const T*, const T*, const T*, int64_t, int64_t, double, T*, T*, T*); \
  template void layer_norm_grad(const T*, const T*, const T*, const T*, const T*, int64_t,      \
                                int64_t, T*, T*, T*);                                           \
  template void batch_norm(const T*, const T*, const T*, int64_t, int64_t, double, T*, T*, T*); \
  template void batch_norm_grad(const T*, const T*, const T*, const T*, const T*, int64_t,      \
                                int64_t, double, T*, T*, T*);
SR_INSTANTIATE(float)
SR_INSTANTIATE(double)
#undef SR_INSTANTIATE

}  // namespace sidereal::kernels
