#pragma once

#include <cstdint>
#include <span>

#include "sidereal/tensor/half.h"
#include "sidereal/tensor/shape.h"

/// Reductions. T is float, double or an integer, which wraps around; kMax and kMin of uint8_t stand
/// for any and all of bools. The order of summation is fixed by the extents alone: the same input
/// gives the same bits on every run and instruction set width.
namespace sidereal::kernels {

enum class ReduceOp : uint8_t {
  kSum,
  kMean,  ///< Of integers: truncated.
  kMax,   ///< NaN when one is NaN, as kMin.
  kMin,
  kProd,
};

/// An array seen as [outer, reduce, inner]; the middle extent is reduced away.
struct ReduceDims {
  int64_t outer = 1;
  int64_t reduce = 1;
  int64_t inner = 1;
};

/// out[o, i] = op over r of in[o, r, i]. Nothing to reduce gives 0 for a sum, 1 for a product, NaN
/// (an integer: 0) for a mean, the lowest value or -infinity for a maximum, and its opposite for a
/// minimum.
template <class T>
void reduce(ReduceOp op, const T* in, const ReduceDims& dims, T* out);

/// Reduces over `axes` (each in [0, rank), no duplicates, any order) of an array of `shape`. The
/// result is the same with or without kept dimensions of extent 1.
template <class T>
void reduce_axes(ReduceOp op, const T* in, const tensor::Shape& shape, std::span<const int> axes,
                 T* out);

/// out[o, i] = the r of the greatest (`greatest`) or smallest in[o, r, i]; of equal ones the first;
/// of NaNs the first. dims.reduce must be at least 1.
template <class T, class Index>
void arg_reduce(bool greatest, const T* in, const ReduceDims& dims, Index* out);

/// The gradient of a product over some axes: out = dy times the product of the other elements,
/// exact where some are 0. `kept` is `shape` with extent 1 along the reduced axes; dy and `running`
/// (scratch) have as many elements as it. T is float or double.
template <class T>
void prod_grad(const T* dy, const T* x, const tensor::Shape& shape, const tensor::Shape& kept,
               T* running, T* out);

/// The gradient of prod_grad() by x: out[j] = dy times the sum over k != j of u[k] times the
/// product of all but elements j and k, exact where some are 0. `running` has room for two numbers
/// for each element of `kept`, `before` for one for each of x. T is float or double.
template <class T>
void prod_grad_grad(const T* dy, const T* x, const T* u, const tensor::Shape& shape,
                    const tensor::Shape& kept, T* running, T* before, T* out);

/// Column sums: out[j] = sum over i of in[i, j] of [m, n]. The gradient of adding a bias. T is
/// float or double, as below.
template <class T>
void bias_grad(const T* grad, int64_t m, int64_t n, T* out);
/// The same of bfloat16, summed in float32.
void bias_grad(const tensor::BFloat16* grad, int64_t m, int64_t n, float* out);

/// Row sums: out[i] = sum over j of in[i, j] of [m, n].
template <class T>
void row_sums(const T* in, int64_t m, int64_t n, T* out);

/// The sum of n elements.
template <class T>
T sum(const T* in, int64_t n);

}  // namespace sidereal::kernels
