#include "sidereal/kernels/nn.h"

#include <algorithm>
#include <cmath>

#include "sidereal/kernels/internal/hash.h"
#include "sidereal/kernels/internal/vec_math.h"

namespace sidereal::kernels {
namespace {

// Columns of a factorization machine handled at once, in local arrays.
constexpr int64_t kFmChunk = 64;

// Sums v over the fields for `width` columns; squares too where asked.
template <class T, bool kSquares>
void fm_sums(const T* v, int64_t fields, int64_t stride, int64_t width, T* sum, T* squares) {
  for (int64_t j = 0; j < width; ++j) sum[j] = 0;
  if constexpr (kSquares) {
    for (int64_t j = 0; j < width; ++j) squares[j] = 0;
  }
  for (int64_t f = 0; f < fields; ++f) {
    const T* x = v + f * stride;
    SR_INDEPENDENT
    for (int64_t j = 0; j < width; ++j) {
      sum[j] += x[j];
      if constexpr (kSquares) squares[j] += x[j] * x[j];
    }
  }
}

template <class T>
T fm_fold(const T* sum, const T* squares, int64_t width) {
  T acc[8] = {};
  int64_t j = 0;
  for (; j + 8 <= width; j += 8) {
    for (int64_t l = 0; l < 8; ++l) acc[l] += sum[j + l] * sum[j + l] - squares[j + l];
  }
  T total = ((acc[0] + acc[1]) + (acc[2] + acc[3])) + ((acc[4] + acc[5]) + (acc[6] + acc[7]));
  for (; j < width; ++j) total += sum[j] * sum[j] - squares[j];
  return total;
}

// kDim is the dimension when it is one of the usual ones, else 0.
template <class T, int64_t kDim>
void fm_forward(const T* v, const FmDims& dims, T* out) {
  const int64_t dim = kDim > 0 ? kDim : dims.dim;
  constexpr int64_t kWidth = kDim > 0 ? kDim : kFmChunk;
  T sum[kWidth];
  T squares[kWidth];
  for (int64_t b = 0; b < dims.batch; ++b) {
    const T* x = v + b * dims.fields * dim;
    T total = 0;
    for (int64_t d = 0; d < dim; d += kWidth) {
      const int64_t width = kDim > 0 ? kDim : std::min(kWidth, dim - d);
      fm_sums<T, true>(x + d, dims.fields, dim, width, sum, squares);
      total += fm_fold(sum, squares, width);
    }
    out[b] = T(0.5) * total;
  }
}

template <class T, int64_t kDim>
void fm_backward(const T* grad, const T* v, const FmDims& dims, T* grad_v) {
  const int64_t dim = kDim > 0 ? kDim : dims.dim;
  constexpr int64_t kWidth = kDim > 0 ? kDim : kFmChunk;
  T sum[kWidth];
  for (int64_t b = 0; b < dims.batch; ++b) {
    const T* x = v + b * dims.fields * dim;
    T* y = grad_v + b * dims.fields * dim;
    const T g = grad[b];
    for (int64_t d = 0; d < dim; d += kWidth) {
      const int64_t width = kDim > 0 ? kDim : std::min(kWidth, dim - d);
      fm_sums<T, false>(x + d, dims.fields, dim, width, sum, nullptr);
      for (int64_t f = 0; f < dims.fields; ++f) {
        const T* xf = x + f * dim + d;
        T* yf = y + f * dim + d;
        SR_INDEPENDENT
        for (int64_t j = 0; j < width; ++j) yf[j] = g * (sum[j] - xf[j]);
      }
    }
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
  switch (dims.dim) {
    case 8: return fm_forward<T, 8>(v, dims, out);
    case 16: return fm_forward<T, 16>(v, dims, out);
    case 32: return fm_forward<T, 32>(v, dims, out);
    default: return fm_forward<T, 0>(v, dims, out);
  }
}

template <class T>
void fm_interaction_grad(const T* grad, const T* v, const FmDims& dims, T* grad_v) {
  switch (dims.dim) {
    case 8: return fm_backward<T, 8>(grad, v, dims, grad_v);
    case 16: return fm_backward<T, 16>(grad, v, dims, grad_v);
    case 32: return fm_backward<T, 32>(grad, v, dims, grad_v);
    default: return fm_backward<T, 0>(grad, v, dims, grad_v);
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

#define SR_INSTANTIATE(T)                                                                  \
  template void sigmoid_cross_entropy(const T*, const T*, T*, int64_t);                    \
  template void sigmoid_cross_entropy_grad(const T*, const T*, const T*, T*, int64_t);     \
  template void sigmoid_cross_entropy_label_grad(const T*, const T*, T*, int64_t);         \
  template void fm_interaction(const T*, const FmDims&, T*);                               \
  template void fm_interaction_grad(const T*, const T*, const FmDims&, T*);                \
  template void bias_add(const T*, const T*, T*, int64_t, int64_t);                        \
  template void bias_add_relu(const T*, const T*, T*, int64_t, int64_t);                   \
  template void dropout(const T*, double, const DropoutKey&, T*, int64_t);                 \
  template void softmax(const T*, T*, int64_t, int64_t);
SR_INSTANTIATE(float)
SR_INSTANTIATE(double)
#undef SR_INSTANTIATE

}  // namespace sidereal::kernels
