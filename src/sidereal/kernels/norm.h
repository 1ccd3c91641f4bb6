#pragma once

#include <cstdint>

/// Normalisation. T is float or double; statistics are summed in blocks in a fixed order.
namespace sidereal::kernels {

/// Rows of x [m, n] brought to mean 0 and variance 1: out = (x - mean) * rstd * scale + offset,
/// with scale and offset [n], mean and rstd = 1 / sqrt(variance + epsilon) [m] (Ba et al., Layer
/// Normalization, 2016).
template <class T>
void layer_norm(const T* x, const T* scale, const T* offset, int64_t m, int64_t n, double epsilon,
                T* out, T* mean, T* rstd);

/// Gradients of layer_norm: dx [m, n], dscale and doffset [n].
template <class T>
void layer_norm_grad(const T* dy, const T* x, const T* scale, const T* mean, const T* rstd,
                     int64_t m, int64_t n, T* dx, T* dscale, T* doffset);

/// Columns of x [m, n] brought to mean 0 and variance 1, then scaled and shifted by scale and
/// offset [n]; mean and variance (divided by m) [n] are outputs (Ioffe and Szegedy, Batch
/// Normalization, 2015).
template <class T>
void batch_norm(const T* x, const T* scale, const T* offset, int64_t m, int64_t n, double epsilon,
                T* out, T* mean, T* variance);

/// Gradients of batch_norm: dx [m, n], dscale and doffset [n].
template <class T>
void batch_norm_grad(const T* dy, const T* x, const T* scale, const T* mean, const T* variance,
                     int64_t m, int64_t n, double epsilon, T* dx, T* dscale, T* doffset);

}  // namespace sidereal::kernels
