#pragma once

#include <cstdint>
#include <type_traits>

#include "sidereal/tensor/dtype.h"
#include "sidereal/tensor/shape.h"

/// Element by element arithmetic. T is float or double unless said. `out` may be the same array as
/// an input of the same extent (in place); other overlaps are not allowed. The value of an element
/// depends on its inputs only, never on its place in the array.
namespace sidereal::kernels {

enum class UnaryOp : uint8_t {
  kNeg,
  kExp,
  kLog,
  kLog1p,
  kSqrt,
  kRsqrt,
  kSquare,
  kAbs,
  kSign,     ///< -1, 0 or 1.
  kSigmoid,  ///< 1 / (1 + exp(-x)).
  kTanh,
  kRelu,      ///< max(x, 0).
  kSoftplus,  ///< log(1 + exp(x)), stable.
  kReciprocal,
};

enum class BinaryOp : uint8_t { kAdd, kSub, kMul, kDiv, kMaximum, kMinimum };

enum class CompareOp : uint8_t { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual };

/// out[i] = op(in[i]) for i < n. float transcendentals are within 4 units in the last place.
template <class T>
void unary(UnaryOp op, const T* in, T* out, int64_t n);

/// out[i] = op(a[i], b[i]) for i < n. Also for int32_t and int64_t, where x / 0 is 0.
template <class T>
void binary(BinaryOp op, const T* a, const T* b, T* out, int64_t n);

/// The shape NumPy broadcasting gives two (fully defined) shapes; false when they do not fit.
bool broadcast_shape(const tensor::Shape& a, const tensor::Shape& b, tensor::Shape* out);

/// out = op(a, b) with NumPy broadcasting; out has the shape broadcast_shape() gives, and the
/// shapes must fit. Same shape, scalar, [..., n] with [n] and [m, n] with [m, 1] run at memory
/// speed. Also for int32_t and int64_t.
template <class T>
void binary_broadcast(BinaryOp op, const T* a, const tensor::Shape& a_shape, const T* b,
                      const tensor::Shape& b_shape, T* out);

/// out = op(a, b) as bytes 0 or 1, with NumPy broadcasting. Also for int32_t and int64_t.
template <class T>
void compare_broadcast(CompareOp op, const T* a, const tensor::Shape& a_shape, const T* b,
                       const tensor::Shape& b_shape, bool* out);

/// out[i] = condition[i] ? a[i] : b[i]. Also for int32_t and int64_t.
template <class T>
void select(const bool* condition, const T* a, const T* b, T* out, int64_t n);

/// Sums a gradient of shape `from` back to shape `to`, which was broadcast to `from`: the gradient
/// of broadcasting. Summation runs in index order of `from`.
template <class T>
void reduce_to_shape(const T* grad, const tensor::Shape& from, const tensor::Shape& to, T* out);

/// Copies `in` of shape `from` into `out` of shape `to`, repeating broadcast dimensions.
template <class T>
void broadcast_to(const T* in, const tensor::Shape& from, const tensor::Shape& to, T* out);

/// out = x > 0 ? grad : 0; `x` may be the input or the result of relu.
template <class T>
void relu_grad(const T* grad, const T* x, T* out, int64_t n);

/// out = grad * y * (1 - y), y the result of sigmoid.
template <class T>
void sigmoid_grad(const T* grad, const T* y, T* out, int64_t n);

/// out = grad * (1 - y * y), y the result of tanh.
template <class T>
void tanh_grad(const T* grad, const T* y, T* out, int64_t n);

/// out[i] = value.
template <class T>
void fill(T* out, int64_t n, std::type_identity_t<T> value);

/// out[i] = alpha * x[i].
template <class T>
void scale(std::type_identity_t<T> alpha, const T* x, T* out, int64_t n);

/// y[i] += alpha * x[i].
template <class T>
void axpy(std::type_identity_t<T> alpha, const T* x, T* y, int64_t n);

/// Converts n elements between any two of float32, float64, int32, int64, uint8 and bool. To bool:
/// x != 0. A real number goes to an integer by truncation; outside the range it becomes the nearest
/// bound, NaN becomes 0. Returns false for another dtype.
bool cast(tensor::DType from, const void* in, tensor::DType to, void* out, int64_t n);

}  // namespace sidereal::kernels
