#include "sidereal/kernels/nn.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "sidereal/kernels/internal/hash.h"
#include "sidereal/kernels/internal/vec_math.h"

namespace sidereal::kernels {
namespace {

using internal::load;
using internal::Vec;

// Sums over the fields of one example, for the columns of one 64-byte vector; `stride` is the width
// of a field. Two independent chains hide the latency of an addition.
template <class T, bool kSquares>
inline void fm_sums(const T* v, int64_t fields, int64_t stride, typename Vec<T>::Type* sum,
                    typename Vec<T>::Type* squares) {
  typename Vec<T>::Type sum0{};
  typename Vec<T>::Type sum1{};
  typename Vec<T>::Type squares0{};
  typename Vec<T>::Type squares1{};
  int64_t f = 0;
  for (; f + 2 <= fields; f += 2) {
    const typename Vec<T>::Type x = load(v + f * stride);
    const typename Vec<T>::Type y = load(v + (f + 1) * stride);
    sum0 += x;
    sum1 += y;
    if constexpr (kSquares) {
      squares0 += x * x;
      squares1 += y * y;
    }
  }
  if (f < fields) {
    const typename Vec<T>::Type x = load(v + f * stride);
    sum0 += x;
    if constexpr (kSquares) squares0 += x * x;
  }
  *sum = sum0 + sum1;
  if constexpr (kSquares) *squares = squares0 + squares1;
}

// The same for one column.
template <class T>
inline void fm_sums_of_column(const T* v, int64_t fields, int64_t stride, T* sum, T* squares) {
  *sum = 0;
  *squares = 0;
  for (int64_t f = 0; f < fields; ++f) {
    const T x = v[f * stride];
    *sum += x;
    *squares += x * x;
  }
}

// 32 well-mixed bits of a 64-bit counter under a 64-bit key, in 32-bit steps so that it vectorises.
inline uint32_t mask_bits(uint32_t counter, uint32_t key0, uint32_t key1) {
  uint32_t x = counter ^ key0;
  x = (x ^ (x >> 16)) * 0x7FEB352DU;
  x = (x ^ (x >> 15)) * 0x846CA68BU;
  x = (x ^ (x >> 16)) + key1;
  x = (x ^ (x >> 16)) * 0x85EBCA6BU;
  x = (x ^ (x >> 13)) * 0xC2B2AE35U;
  return x ^ (x >> 16);
}

}  // namespace

template <class T>
void sigmoid_cross_entropy(const T* logits, const T* labels, T* out, int64_t n) {
  SR_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    const T x = logits[i];
    out[i] = internal::max_of(x, T(0)) - x * labels[i] +
             internal::log1p_of(internal::exp_of(-std::abs(x)));
  }
}

template <class T>
void sigmoid_cross_entropy_grad(const T* grad, const T* logits, const T* labels, T* out,
                                int64_t n) {
  SR_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    out[i] = grad[i] * (internal::sigmoid_of(logits[i]) - labels[i]);
  }
}

template <class T>
void sigmoid_cross_entropy_label_grad(const T* grad, const T* logits, T* out, int64_t n) {
  SR_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = -grad[i] * logits[i];
}

template <class T>
void fm_interaction(const T* v, const FmDims& dims, T* out) {
  constexpr int kLanes = Vec<T>::kLanes;
  if (dims.fields == 0) {
    std::fill_n(out, dims.batch, T(0));
    return;
  }
  for (int64_t b = 0; b < dims.batch; ++b) {
    const T* x = v + b * dims.fields * dims.dim;
    typename Vec<T>::Type acc{};
    int64_t d = 0;
    for (; d + kLanes <= dims.dim; d += kLanes) {
      typename Vec<T>::Type sum;
      typename Vec<T>::Type squares;
      fm_sums<T, true>(x + d, dims.fields, dims.dim, &sum, &squares);
      acc += sum * sum - squares;
    }
    T total = internal::fold_lanes<T>(acc);
    for (; d < dims.dim; ++d) {
      T sum;
      T squares;
      fm_sums_of_column(x + d, dims.fields, dims.dim, &sum, &squares);
      total += sum * sum - squares;
    }
    out[b] = T(0.5) * total;
  }
}

template <class T>
void fm_interaction_grad(const T* grad, const T* v, const FmDims& dims, T* grad_v) {
  constexpr int kLanes = Vec<T>::kLanes;
  if (dims.fields == 0) return;
  for (int64_t b = 0; b < dims.batch; ++b) {
    const T* x = v + b * dims.fields * dims.dim;
    T* y = grad_v + b * dims.fields * dims.dim;
    const T g = grad[b];
    int64_t d = 0;
    for (; d + kLanes <= dims.dim; d += kLanes) {
      typename Vec<T>::Type sum;
      fm_sums<T, false>(x + d, dims.fields, dims.dim, &sum, nullptr);
      for (int64_t f = 0; f < dims.fields; ++f) {
        const int64_t at = f * dims.dim + d;
        internal::store(g * (sum - load(x + at)), y + at);
      }
    }
    for (; d < dims.dim; ++d) {
      T sum;
      T squares;
      fm_sums_of_column(x + d, dims.fields, dims.dim, &sum, &squares);
      for (int64_t f = 0; f < dims.fields; ++f) {
        y[f * dims.dim + d] = g * (sum - x[f * dims.dim + d]);
      }
    }
  }
}

template <class T>
void bias_add(const T* x, const T* bias, T* out, int64_t m, int64_t n) {
  for (int64_t i = 0; i < m; ++i) {
    SR_INDEPENDENT
    for (int64_t j = 0; j < n; ++j) out[i * n + j] = x[i * n + j] + bias[j];
  }
}

template <class T>
void bias_add_relu(const T* x, const T* bias, T* out, int64_t m, int64_t n) {
  for (int64_t i = 0; i < m; ++i) {
    SR_INDEPENDENT
    for (int64_t j = 0; j < n; ++j) {
      const T y = x[i * n + j] + bias[j];
      out[i * n + j] = y < T(0) ? T(0) : y;
    }
  }
}

template <class T>
void dropout(const T* x, double rate, const DropoutKey& key, T* out, int64_t n) {
  constexpr int64_t kBlock = int64_t{1} << 32;  // Counters of one pair of 32-bit keys.
  const internal::CounterHash hash(key.seed, key.step);
  const T scale = static_cast<T>(1.0 / (1.0 - rate));
  const uint32_t drop_below = static_cast<uint32_t>(std::min(rate * 0x1p32, 0x1p32 - 1));
  for (int64_t from = 0; from < n; from += kBlock) {
    const uint64_t keys = hash.bits(static_cast<uint64_t>(from / kBlock));
    const auto key0 = static_cast<uint32_t>(keys);
    const auto key1 = static_cast<uint32_t>(keys >> 32);
    const int64_t count = std::min(kBlock, n - from);
    SR_INDEPENDENT
    for (int64_t i = 0; i < count; ++i) {
      const bool drop = mask_bits(static_cast<uint32_t>(i), key0, key1) < drop_below;
      out[from + i] = drop ? T(0) : x[from + i] * scale;
    }
  }
}

template <class T>
void softmax(const T* x, T* out, int64_t m, int64_t n) {
  for (int64_t i = 0; i < m; ++i) {
    const T* row = x + i * n;
    T* y = out + i * n;
    T top = -std::numeric_limits<T>::infinity();
    for (int64_t j = 0; j < n; ++j) top = internal::max_of(row[j], top);
    SR_INDEPENDENT
    for (int64_t j = 0; j < n; ++j) y[j] = internal::exp_of(row[j] - top);
    T total = 0;
    for (int64_t j = 0; j < n; ++j) total += y[j];
    const T factor = T(1) / total;
    for (int64_t j = 0; j < n; ++j) y[j] *= factor;
  }
}

#define SR_INSTANTIATE(T)                                                              \
  template void sigmoid_cross_entropy(const T*, const T*, T*, int64_t);                \
  template void sigmoid_cross_entropy_grad(const T*, const T*, const T*, T*, int64_t); \
  template void sigmoid_cross_entropy_label_grad(const T*, const T*, T*, int64_t);     \
  template void fm_interaction(const T*, const FmDims&, T*);                           \
  template void fm_interaction_grad(const T*, const T*, const FmDims&, T*);            \
  template void bias_add(const T*, const T*, T*, int64_t, int64_t);                    \
  template void bias_add_relu(const T*, const T*, T*, int64_t, int64_t);               \
  template void dropout(const T*, double, const DropoutKey&, T*, int64_t);             \
  template void softmax(const T*, T*, int64_t, int64_t);
SR_INSTANTIATE(float)
SR_INSTANTIATE(double)
#undef SR_INSTANTIATE

}  // namespace sidereal::kernels
