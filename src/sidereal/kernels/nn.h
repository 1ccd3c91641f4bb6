#pragma once

#include <cstdint>

/// Fused pieces of neural networks. T is float or double; `out` may be the same array as an input
/// of the same extent.
namespace sidereal::kernels {

/// out = max(x, 0) - x * z + log(1 + exp(-|x|)) for logits x and labels z, element by element
/// (tf.nn.sigmoid_cross_entropy_with_logits).
template <class T>
void sigmoid_cross_entropy(const T* logits, const T* labels, T* out, int64_t n);

/// The gradient for the logits: out = grad * (sigmoid(x) - z).
template <class T>
void sigmoid_cross_entropy_grad(const T* grad, const T* logits, const T* labels, T* out, int64_t n);

/// The gradient for the labels: out = -grad * x.
template <class T>
void sigmoid_cross_entropy_label_grad(const T* grad, const T* logits, T* out, int64_t n);

/// Extents of the input of the second-order interaction of a factorization machine.
struct FmDims {
  int64_t batch = 0;
  int64_t fields = 0;
  int64_t dim = 0;
};

/// out[b] = 0.5 * sum over d of ((sum over f of v[b,f,d])^2 - sum over f of v[b,f,d]^2), the sum
/// of all pairwise dot products (Rendle, Factorization Machines, 2010). v is [batch, fields, dim],
/// out is [batch].
template <class T>
void fm_interaction(const T* v, const FmDims& dims, T* out);

/// grad_v[b,f,d] = grad[b] * (sum over f' of v[b,f',d] - v[b,f,d]).
template <class T>
void fm_interaction_grad(const T* grad, const T* v, const FmDims& dims, T* grad_v);

/// out[i, j] = x[i, j] + bias[j] of [m, n].
template <class T>
void bias_add(const T* x, const T* bias, T* out, int64_t m, int64_t n);

/// out[i, j] = max(x[i, j] + bias[j], 0) of [m, n].
template <class T>
void bias_add_relu(const T* x, const T* bias, T* out, int64_t m, int64_t n);

/// Which elements a dropout call drops: a function of (seed, step, element index), so the gradient
/// draws the same mask again.
struct DropoutKey {
  uint64_t seed = 0;
  uint64_t step = 0;
};

/// out[i] = x[i] / (1 - rate) with probability 1 - rate, else 0; 0 <= rate < 1. The gradient is the
/// same function on the gradient with the same key.
template <class T>
void dropout(const T* x, double rate, const DropoutKey& key, T* out, int64_t n);

/// Softmax of each row of [m, n], stable.
template <class T>
void softmax(const T* x, T* out, int64_t m, int64_t n);

}  // namespace sidereal::kernels
