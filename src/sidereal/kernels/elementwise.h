#pragma once

#include <cstdint>
#include <type_traits>

#include "absl/container/inlined_vector.h"
#include "sidereal/tensor/dtype.h"
#include "sidereal/tensor/shape.h"

/// Element by element arithmetic. T is float or double unless said; tensor::Float16 and BFloat16
/// are widened to float in blocks and rounded once. `out` may be the same array as an input of the
/// same extent and type (in place); other overlaps are not allowed. The value of an element depends
/// on its inputs only, never on its place in the array.
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
  kFloor,
  kCeil,
  kRound,  ///< To the nearest integer, ties to even.
  kTrunc,
  kExpm1,
  kSin,
  kCos,
  kTan,
  kAsin,
  kAcos,
  kAtan,
  kSinh,
  kCosh,
  kAsinh,
  kAcosh,
  kAtanh,
  kErf,
  kErfc,
  kLgamma,
  kDigamma,   ///< Derivative of lgamma.
  kTrigamma,  ///< Derivative of digamma.
  kRelu6,     ///< min(max(x, 0), 6).
  kElu,       ///< x, or exp(x) - 1 below 0.
  kSelu,      ///< Elu with the scale and alpha of Klambauer et al., 2017.
  kSilu,      ///< x * sigmoid(x).
  kGelu,      ///< x * (1 + erf(x / sqrt(2))) / 2.
};
inline constexpr int kUnaryOps = static_cast<int>(UnaryOp::kGelu) + 1;

enum class BinaryOp : uint8_t {
  kAdd,
  kSub,
  kMul,
  kDiv,      ///< Of integers: truncated.
  kMaximum,  ///< NaN when one is NaN.
  kMinimum,
  kFloorDiv,
  kFloorMod,  ///< Has the sign of the divisor, as Python's %.
  kPow,       ///< Of integers: by squaring; the exponent must not be negative.
  kSquaredDifference,
  kAtan2,     ///< Not of integers, as all that follow.
  kDivNoNan,  ///< 0 where the divisor is 0.
  kXlogy,     ///< x log(y), 0 where x is 0.
  kXlog1py,   ///< x log(1 + y), 0 where x is 0.
};
inline constexpr int kBinaryOps = static_cast<int>(BinaryOp::kXlog1py) + 1;

/// Bit by bit, on integers.
enum class BitOp : uint8_t {
  kAnd,
  kOr,
  kXor,
  kLeftShift,   ///< Shifts beyond the width, or negative, give 0.
  kRightShift,  ///< Keeps the sign; shifts beyond the width give 0 or -1.
};

enum class CompareOp : uint8_t { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual };

/// out[i] = op(in[i]) for i < n. float transcendentals are within 4 units in the last place. Also
/// for the 16-bit floats. Integers of any width: kNeg, kSquare, kAbs, kSign, kRelu and kRelu6 only,
/// with wrap-around.
template <class T>
void unary(UnaryOp op, const T* in, T* out, int64_t n);

/// out[i] = op(a[i], b[i]) for i < n. Also for the 16-bit floats and integers of any width, which
/// wrap around; their x / 0 and x % 0 are 0: callers refuse those first.
template <class T>
void binary(BinaryOp op, const T* a, const T* b, T* out, int64_t n);

/// True when one of the n integers is 0, or is negative.
template <class T>
bool any_zero(const T* in, int64_t n);
template <class T>
bool any_negative(const T* in, int64_t n);

/// The shape NumPy broadcasting gives two (fully defined) shapes; false when they do not fit.
bool broadcast_shape(const tensor::Shape& a, const tensor::Shape& b, tensor::Shape* out);

/// out = op(a, b) with NumPy broadcasting; out has the shape broadcast_shape() gives, and the
/// shapes must fit. Same shape, scalar, [..., n] with [n] and [m, n] with [m, 1] run at memory
/// speed. Types as of binary().
template <class T>
void binary_broadcast(BinaryOp op, const T* a, const tensor::Shape& a_shape, const T* b,
                      const tensor::Shape& b_shape, T* out);

/// out = op(a, b) as bytes 0 or 1, with NumPy broadcasting. Also for the 16-bit floats, integers of
/// any width, and (kEqual and kNotEqual) bool and strings.
template <class T>
void compare_broadcast(CompareOp op, const T* a, const tensor::Shape& a_shape, const T* b,
                       const tensor::Shape& b_shape, bool* out);

/// out = op(a, b) on integers of any width, with NumPy broadcasting. kAnd, kOr and kXor also on
/// bool.
template <class T>
void bit_broadcast(BitOp op, const T* a, const tensor::Shape& a_shape, const T* b,
                   const tensor::Shape& b_shape, T* out);

/// out[i] = ~in[i] of integers; !in[i] of bool.
template <class T>
void invert(const T* in, T* out, int64_t n);

enum class TestOp : uint8_t { kIsNan, kIsInf, kIsFinite };

/// out[i] = op(in[i]) of float, double and the 16-bit floats.
template <class T>
void classify(TestOp op, const T* in, bool* out, int64_t n);

/// out[i] = condition[i] ? a[i] : b[i]. For unsigned integers, which stand for any type of their
/// width.
template <class T>
void select(const bool* condition, const T* a, const T* b, T* out, int64_t n);

/// select() with NumPy broadcasting of the three to `shape`, which they must fit.
template <class T>
void select_broadcast(const bool* condition, const tensor::Shape& condition_shape, const T* a,
                      const tensor::Shape& a_shape, const T* b, const tensor::Shape& b_shape,
                      const tensor::Shape& shape, T* out);

/// Where the elements of an array lie that is broadcast from `from` to `to`, which must fit.
/// Value type.
class RowOffsets {
 public:
  RowOffsets(const tensor::Shape& from, const tensor::Shape& to);
  /// Index in the array of the element that stands at `index` (row-major) of `to`.
  int64_t operator()(int64_t index) const;

 private:
  struct Dim {
    int64_t extent;
    int64_t stride;
  };
  absl::InlinedVector<Dim, 4> dims_;  // Innermost first.
};

/// Sums a gradient of shape `from` back to shape `to`, which was broadcast to `from`: the gradient
/// of broadcasting. Summation runs in index order of `from`. Also for integers of any width.
template <class T>
void reduce_to_shape(const T* grad, const tensor::Shape& from, const tensor::Shape& to, T* out);

/// Copies `in` of shape `from` into `out` of shape `to`, repeating broadcast dimensions. Also for
/// unsigned integers, which stand for any type of their width.
template <class T>
void broadcast_to(const T* in, const tensor::Shape& from, const tensor::Shape& to, T* out);

/// out = x < 0 ? 0 : x, as unary() does it, without a detour over float.
void relu(const tensor::BFloat16* x, tensor::BFloat16* out, int64_t n);

/// out = x > 0 ? grad : 0; `x` may be the input or the result of relu.
template <class T>
void relu_grad(const T* grad, const T* x, T* out, int64_t n);
/// The same of bfloat16; exact.
void relu_grad(const tensor::BFloat16* grad, const tensor::BFloat16* x, tensor::BFloat16* out,
               int64_t n);

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

/// Converts n elements between any two dtypes of fixed width. To bool: x != 0. A real number goes
/// to an integer by truncation; outside the range it becomes the nearest bound, NaN becomes 0.
/// Integers to narrower ones keep their low bits. To the 16-bit floats: rounded once, to the
/// nearest. Returns false for another dtype.
bool cast(tensor::DType from, const void* in, tensor::DType to, void* out, int64_t n);

/// n 16-bit floats as floats, exactly; and back, to the nearest.
void widen(const tensor::Float16* in, float* out, int64_t n);
void widen(const tensor::BFloat16* in, float* out, int64_t n);
void narrow(const float* in, tensor::Float16* out, int64_t n);
void narrow(const float* in, tensor::BFloat16* out, int64_t n);

}  // namespace sidereal::kernels
