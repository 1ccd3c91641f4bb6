#pragma once

#include <cstdint>

#include "sidereal/kernels/reduce.h"

/// Softmax along one axis and the losses on it. T is float or double. Arrays are [outer, n, inner],
/// n being ReduceDims::reduce; `out` may be the same array as an input of its extent.
namespace sidereal::kernels {

/// exp(x) / sum(exp(x)), stable.
template <class T>
void softmax(const T* x, const ReduceDims& dims, T* out);

/// x - log(sum(exp(x))), stable.
template <class T>
void log_softmax(const T* x, const ReduceDims& dims, T* out);

/// The gradient of softmax from its result y: out = y * (dy - sum(dy * y)).
template <class T>
void softmax_grad(const T* dy, const T* y, const ReduceDims& dims, T* out);

/// For rows of [m, n] and one label each: loss[i] = -log softmax(x[i])[label], and the gradient of
/// that, softmax(x[i]) less 1 at the label, into backprop [m, n]. Returns -1, or the first row
/// whose label is outside [0, n); the outputs are then undefined.
template <class T, class Index>
int64_t sparse_softmax_cross_entropy(const T* x, const Index* labels, int64_t m, int64_t n, T* loss,
                                     T* backprop);

/// The same with a distribution per row: loss[i] = -sum(labels * log softmax), and backprop =
/// softmax * sum(labels) - labels.
template <class T>
void softmax_cross_entropy(const T* x, const T* labels, int64_t m, int64_t n, T* loss, T* backprop);

}  // namespace sidereal::kernels
