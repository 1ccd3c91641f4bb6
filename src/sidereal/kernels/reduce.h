#pragma once

#include <cstdint>
#include <span>

#include "sidereal/tensor/shape.h"

/// Sums, means and maxima. T is float or double. The order of summation is fixed by the extents
/// alone: the same input gives the same bits on every run and instruction set width.
namespace sidereal::kernels {

enum class ReduceOp : uint8_t { kSum, kMean, kMax };

/// An array seen as [outer, reduce, inner]; the middle extent is reduced away.
struct ReduceDims {
  int64_t outer = 1;
  int64_t reduce = 1;
  int64_t inner = 1;
};

/// out[o, i] = op over r of in[o, r, i]. Nothing to reduce gives 0 for a sum, NaN for a mean and
/// -infinity for a maximum.
template <class T>
void reduce(ReduceOp op, const T* in, const ReduceDims& dims, T* out);

/// Reduces over `axes` (each in [0, rank), no duplicates, any order) of an array of `shape`. The
/// result is the same with or without kept dimensions of extent 1.
template <class T>
void reduce_axes(ReduceOp op, const T* in, const tensor::Shape& shape, std::span<const int> axes,
                 T* out);

/// Column sums: out[j] = sum over i of in[i, j] of [m, n]. The gradient of adding a bias.
template <class T>
void bias_grad(const T* grad, int64_t m, int64_t n, T* out);

/// Row sums: out[i] = sum over j of in[i, j] of [m, n].
template <class T>
void row_sums(const T* in, int64_t m, int64_t n, T* out);

/// The sum of n elements.
template <class T>
T sum(const T* in, int64_t n);

}  // namespace sidereal::kernels
