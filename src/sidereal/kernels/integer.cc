#include <algorithm>
#include <cstring>
#include <string_view>
#include <type_traits>

#include "sidereal/kernels/elementwise.h"
#include "sidereal/kernels/internal/functors.h"

/// The element-wise loops of integers and bool.
namespace sidereal::kernels {

using internal::map;
using internal::plan_loops;
using internal::zip;

namespace {

template <class T, class F>
void fold_unary(UnaryOp op, const T* in, T* out, int64_t n, F fail) {
  switch (op) {
    case UnaryOp::kNeg:
      return map(in, out, n, [](T x) { return internal::Sub()(T(0), x); });
    case UnaryOp::kSquare:
      return map(in, out, n, [](T x) { return internal::Mul()(x, x); });
    case UnaryOp::kAbs:
      return map(in, out, n, [](T x) { return x < T(0) ? internal::Sub()(T(0), x) : x; });
    case UnaryOp::kSign:
      return map(in, out, n, [](T x) { return static_cast<T>((x > T(0)) - (x < T(0))); });
    case UnaryOp::kRelu:
      return map(in, out, n, [](T x) { return x < T(0) ? T(0) : x; });
    case UnaryOp::kRelu6:
      return map(in, out, n, [](T x) { return x < T(0) ? T(0) : (x > T(6) ? T(6) : x); });
    default:
      fail();
  }
}

struct LeftShift {
  template <class T>
  T operator()(T a, T b) const {
    using U = std::make_unsigned_t<T>;
    const auto by = static_cast<U>(b);  // Negative ones become large.
    if (by >= sizeof(T) * 8) return 0;
    return static_cast<T>(static_cast<internal::Wrap<T>>(a) << by);
  }
};

struct RightShift {
  template <class T>
  T operator()(T a, T b) const {
    using U = std::make_unsigned_t<T>;
    const auto by = std::min<U>(static_cast<U>(b), sizeof(T) * 8 - 1);
    if constexpr (std::is_unsigned_v<T>) {
      if (static_cast<U>(b) >= sizeof(T) * 8) return 0;
    }
    return static_cast<T>(a >> by);
  }
};

template <class T>
void integer_unary(UnaryOp op, const T* in, T* out, int64_t n) {
  fold_unary(op, in, out, n,
             [&] { SR_CHECK(false, "unary op {} of integers", static_cast<int>(op)); });
}

template <class T>
void integer_binary(BinaryOp op, const T* a, const T* b, T* out, int64_t n) {
  const bool known = internal::with_numeric_op(op, [&](auto f) {
    SR_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) out[i] = f(a[i], b[i]);
  });
  SR_CHECK(known, "binary op {} of integers", static_cast<int>(op));
}

template <class T>
void integer_binary_broadcast(BinaryOp op, const T* a, const tensor::Shape& a_shape, const T* b,
                              const tensor::Shape& b_shape, T* out) {
  const internal::LoopPlan plan = plan_loops(a_shape, b_shape);
  const bool known = internal::with_numeric_op(op, [&](auto f) { zip(plan, a, b, out, f); });
  SR_CHECK(known, "binary op {} of integers", static_cast<int>(op));
}

template <class T>
void integer_compare_broadcast(CompareOp op, const T* a, const tensor::Shape& a_shape, const T* b,
                               const tensor::Shape& b_shape, bool* out) {
  internal::compare_loop(op, a, a_shape, b, b_shape, out);
}

template <class T>
void integer_reduce_to_shape(const T* grad, const tensor::Shape& from, const tensor::Shape& to,
                             T* out) {
  internal::reduce_to_shape_loop(grad, from, to, out);
}

}  // namespace

template <class T>
void bit_broadcast(BitOp op, const T* a, const tensor::Shape& a_shape, const T* b,
                   const tensor::Shape& b_shape, T* out) {
  const internal::LoopPlan plan = plan_loops(a_shape, b_shape);
  switch (op) {
    case BitOp::kAnd:
      return zip(plan, a, b, out, [](T x, T y) { return static_cast<T>(x & y); });
    case BitOp::kOr:
      return zip(plan, a, b, out, [](T x, T y) { return static_cast<T>(x | y); });
    case BitOp::kXor:
      return zip(plan, a, b, out, [](T x, T y) { return static_cast<T>(x ^ y); });
    case BitOp::kLeftShift:
    case BitOp::kRightShift:
      break;
  }
  if constexpr (std::is_same_v<T, bool>) {
    SR_CHECK(false, "a shift of bools");
  } else if (op == BitOp::kLeftShift) {
    zip(plan, a, b, out, LeftShift());
  } else {
    zip(plan, a, b, out, RightShift());
  }
}

template <class T>
void invert(const T* in, T* out, int64_t n) {
  if constexpr (std::is_same_v<T, bool>) {
    map(in, out, n, [](bool x) { return !x; });
  } else {
    map(in, out, n, [](T x) { return static_cast<T>(~x); });
  }
}

template <class T>
bool any_zero(const T* in, int64_t n) {
  return std::find(in, in + n, T(0)) != in + n;
}

template <class T>
bool any_negative(const T* in, int64_t n) {
  return std::any_of(in, in + n, [](T x) { return x < T(0); });
}

template <>
void compare_broadcast(CompareOp op, const bool* a, const tensor::Shape& a_shape, const bool* b,
                       const tensor::Shape& b_shape, bool* out) {
  integer_compare_broadcast(op, a, a_shape, b, b_shape, out);
}
template <>
void compare_broadcast(CompareOp op, const std::string_view* a, const tensor::Shape& a_shape,
                       const std::string_view* b, const tensor::Shape& b_shape, bool* out) {
  integer_compare_broadcast(op, a, a_shape, b, b_shape, out);
}
template void bit_broadcast(BitOp, const bool*, const tensor::Shape&, const bool*,
                            const tensor::Shape&, bool*);
template void invert(const bool*, bool*, int64_t);

#define SR_SPECIALIZE(T)                                                                     \
  template <>                                                                                \
  void unary(UnaryOp op, const T* in, T* out, int64_t n) {                                   \
    integer_unary(op, in, out, n);                                                           \
  }                                                                                          \
  template <>                                                                                \
  void binary(BinaryOp op, const T* a, const T* b, T* out, int64_t n) {                      \
    integer_binary(op, a, b, out, n);                                                        \
  }                                                                                          \
  template <>                                                                                \
  void binary_broadcast(BinaryOp op, const T* a, const tensor::Shape& a_shape, const T* b,   \
                        const tensor::Shape& b_shape, T* out) {                              \
    integer_binary_broadcast(op, a, a_shape, b, b_shape, out);                               \
  }                                                                                          \
  template <>                                                                                \
  void compare_broadcast(CompareOp op, const T* a, const tensor::Shape& a_shape, const T* b, \
                         const tensor::Shape& b_shape, bool* out) {                          \
    integer_compare_broadcast(op, a, a_shape, b, b_shape, out);                              \
  }                                                                                          \
  template <>                                                                                \
  void reduce_to_shape(const T* grad, const tensor::Shape& from, const tensor::Shape& to,    \
                       T* out) {                                                             \
    integer_reduce_to_shape(grad, from, to, out);                                            \
  }                                                                                          \
  template void bit_broadcast(BitOp, const T*, const tensor::Shape&, const T*,               \
                              const tensor::Shape&, T*);                                     \
  template void invert(const T*, T*, int64_t);                                               \
  template bool any_zero(const T*, int64_t);                                                 \
  template bool any_negative(const T*, int64_t);

SR_SPECIALIZE(int8_t)
SR_SPECIALIZE(int16_t)
SR_SPECIALIZE(int32_t)
SR_SPECIALIZE(int64_t)
SR_SPECIALIZE(uint8_t)
SR_SPECIALIZE(uint16_t)
SR_SPECIALIZE(uint32_t)
SR_SPECIALIZE(uint64_t)
#undef SR_SPECIALIZE

}  // namespace sidereal::kernels
