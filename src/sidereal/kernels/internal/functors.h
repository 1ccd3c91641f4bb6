#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "sidereal/base/check.h"
#include "sidereal/kernels/elementwise.h"
#include "sidereal/kernels/internal/broadcast.h"
#include "sidereal/kernels/internal/nan.h"
#include "sidereal/kernels/internal/vec_math.h"

/// What the element-wise loops of real numbers and of integers share.
namespace sidereal::kernels::internal {

/// The type in which integers wrap around instead of being undefined; real types as they are.
template <class T>
struct Wrapping {
  using Type = T;
};
template <class T>
requires std::is_integral_v<T>
struct Wrapping<T> {
  // Narrow types would be promoted to int, whose products may overflow.
  using Type = std::conditional_t<(sizeof(T) < 4), uint32_t, std::make_unsigned_t<T>>;
};
template <class T>
using Wrap = typename Wrapping<T>::Type;

struct Add {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(static_cast<Wrap<T>>(a) + static_cast<Wrap<T>>(b));
  }
};
struct Sub {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(static_cast<Wrap<T>>(a) - static_cast<Wrap<T>>(b));
  }
};
struct Mul {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(static_cast<Wrap<T>>(a) * static_cast<Wrap<T>>(b));
  }
};
struct Div {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      if (b == 0) return 0;
      if constexpr (std::is_signed_v<T>) {
        if (b == -1) return Sub()(T(0), a);  // The lowest number / -1 traps.
      }
    }
    return static_cast<T>(a / b);
  }
};
struct Maximum {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) return a > b ? a : b;
    return a > b || is_nan(a) ? a : b;
  }
};
struct Minimum {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) return a < b ? a : b;
    return a < b || is_nan(a) ? a : b;
  }
};
struct FloorMod {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      if (b == 0) return 0;
      if constexpr (std::is_signed_v<T>) {
        if (b == -1) return 0;
        const T rest = static_cast<T>(a % b);
        return rest != 0 && (rest < 0) != (b < 0) ? static_cast<T>(rest + b) : rest;
      } else {
        return static_cast<T>(a % b);
      }
    } else {
      const T rest = std::fmod(a, b);
      return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
    }
  }
};
struct FloorDiv {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      const T quotient = Div()(a, b);
      if constexpr (std::is_signed_v<T>) {
        if (b != 0 && b != -1 && a % b != 0 && (a < 0) != (b < 0)) {
          return static_cast<T>(quotient - 1);
        }
      }
      return quotient;
    } else {
      return std::floor(a / b);
    }
  }
};
struct Pow {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      if constexpr (std::is_signed_v<T>) {
        if (b < 0) return 0;
      }
      T result = 1;
      for (auto left = static_cast<std::make_unsigned_t<T>>(b); left != 0; left >>= 1) {
        if ((left & 1U) != 0) result = Mul()(result, a);
        a = Mul()(a, a);
      }
      return result;
    } else {
      return std::pow(a, b);
    }
  }
};
struct SquaredDifference {
  template <class T>
  T operator()(T a, T b) const {
    const T d = Sub()(a, b);
    return Mul()(d, d);
  }
};

/// Calls visit with the functor of an op that every numeric type has; false for another.
template <class Visit>
bool with_numeric_op(BinaryOp op, Visit visit) {
  switch (op) {
    case BinaryOp::kAdd:
      visit(Add());
      return true;
    case BinaryOp::kSub:
      visit(Sub());
      return true;
    case BinaryOp::kMul:
      visit(Mul());
      return true;
    case BinaryOp::kDiv:
      visit(Div());
      return true;
    case BinaryOp::kMaximum:
      visit(Maximum());
      return true;
    case BinaryOp::kMinimum:
      visit(Minimum());
      return true;
    case BinaryOp::kFloorDiv:
      visit(FloorDiv());
      return true;
    case BinaryOp::kFloorMod:
      visit(FloorMod());
      return true;
    case BinaryOp::kPow:
      visit(Pow());
      return true;
    case BinaryOp::kSquaredDifference:
      visit(SquaredDifference());
      return true;
    default:
      return false;
  }
}

/// Greater and greater-or-equal are less and less-or-equal with the operands exchanged.
template <class Visit>
void with_compare(CompareOp op, Visit visit) {
  switch (op) {
    case CompareOp::kEqual:
      return visit([](auto a, auto b) { return a == b; });
    case CompareOp::kNotEqual:
      return visit([](auto a, auto b) { return a != b; });
    case CompareOp::kLess:
    case CompareOp::kGreater:
      return visit([](auto a, auto b) { return a < b; });
    case CompareOp::kLessEqual:
    case CompareOp::kGreaterEqual:
      return visit([](auto a, auto b) { return a <= b; });
  }
}

inline bool is_exchanged(CompareOp op) {
  return op == CompareOp::kGreater || op == CompareOp::kGreaterEqual;
}

/// out[i] = f(in[i]).
template <class T, class Out, class F>
void map(const T* in, Out* out, int64_t n, F f) {
  SR_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = f(in[i]);
}

/// out = f(a, b) over the loops of a broadcast.
template <class T, class Out, class F>
void zip(const LoopPlan& plan, const T* a, const T* b, Out* out, F f) {
  const LoopPlan::Loop inner = plan.loops.back();
  const int64_t n = inner.extent;
  for_each_row(plan, [&](int64_t at_a, int64_t at_b, int64_t at_out) {
    const T* x = a + at_a;
    const T* y = b + at_b;
    Out* z = out + at_out;
    if (inner.a_stride == 0) {
      const T left = *x;
      SR_INDEPENDENT
      for (int64_t i = 0; i < n; ++i) z[i] = f(left, y[i]);
    } else if (inner.b_stride == 0) {
      const T right = *y;
      SR_INDEPENDENT
      for (int64_t i = 0; i < n; ++i) z[i] = f(x[i], right);
    } else {
      SR_INDEPENDENT
      for (int64_t i = 0; i < n; ++i) z[i] = f(x[i], y[i]);
    }
  });
}

/// compare_broadcast() for a type with comparisons of its own.
template <class T>
void compare_loop(CompareOp op, const T* a, const tensor::Shape& a_shape, const T* b,
                  const tensor::Shape& b_shape, bool* out) {
  if (is_exchanged(op)) {
    const LoopPlan plan = plan_loops(b_shape, a_shape);
    with_compare(op, [&](auto f) { zip(plan, b, a, out, f); });
  } else {
    const LoopPlan plan = plan_loops(a_shape, b_shape);
    with_compare(op, [&](auto f) { zip(plan, a, b, out, f); });
  }
}

/// reduce_to_shape() for one type; see there.
template <class T>
void reduce_to_shape_loop(const T* grad, const tensor::Shape& from, const tensor::Shape& to,
                          T* out) {
  const int64_t size = to.num_elements();
  if (size == 0) return;
  const LoopPlan plan = plan_loops(from, to);
  std::memset(out, 0, size * sizeof(T));
  const LoopPlan::Loop inner = plan.loops.back();
  const int64_t n = inner.extent;
  for_each_row(plan, [&](int64_t at_grad, int64_t at_out, int64_t) {
    const T* g = grad + at_grad;
    T* o = out + at_out;
    if (inner.b_stride == 0) {
      Wrap<T> acc[8] = {};
      int64_t i = 0;
      for (; i + 8 <= n; i += 8) {
        for (int j = 0; j < 8; ++j) acc[j] += static_cast<Wrap<T>>(g[i + j]);
      }
      Wrap<T> total =
          ((acc[0] + acc[1]) + (acc[2] + acc[3])) + ((acc[4] + acc[5]) + (acc[6] + acc[7]));
      for (; i < n; ++i) total += static_cast<Wrap<T>>(g[i]);
      *o = Add()(*o, static_cast<T>(total));
    } else {
      SR_INDEPENDENT
      for (int64_t i = 0; i < n; ++i) o[i] = Add()(o[i], g[i]);
    }
  });
}

}  // namespace sidereal::kernels::internal
