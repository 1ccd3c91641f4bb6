#include "sidereal/kernels/elementwise.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "sidereal/base/check.h"
#include "sidereal/kernels/internal/broadcast.h"
#include "sidereal/kernels/internal/vec_math.h"

namespace sidereal::kernels {
namespace {

using internal::for_each_row;
using internal::LoopPlan;
using internal::plan_loops;

template <class T, class F>
void map(const T* in, T* out, int64_t n, F f) {
  SR_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = f(in[i]);
}

struct Add {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      using U = std::make_unsigned_t<T>;  // Wraps instead of being undefined.
      return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
    }
    return a + b;
  }
};
struct Sub {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      using U = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<U>(a) - static_cast<U>(b));
    }
    return a - b;
  }
};
struct Mul {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      using U = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<U>(a) * static_cast<U>(b));
    }
    return a * b;
  }
};
struct Div {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      if (b == 0) return 0;
      if (b == -1) return Sub()(T(0), a);  // The lowest number / -1 traps.
    }
    return a / b;
  }
};
struct Maximum {
  template <class T>
  T operator()(T a, T b) const {
    return a > b ? a : b;
  }
};
struct Minimum {
  template <class T>
  T operator()(T a, T b) const {
    return a < b ? a : b;
  }
};

template <class Visit>
void with_op(BinaryOp op, Visit visit) {
  switch (op) {
    case BinaryOp::kAdd:
      return visit(Add());
    case BinaryOp::kSub:
      return visit(Sub());
    case BinaryOp::kMul:
      return visit(Mul());
    case BinaryOp::kDiv:
      return visit(Div());
    case BinaryOp::kMaximum:
      return visit(Maximum());
    case BinaryOp::kMinimum:
      return visit(Minimum());
  }
}

template <class Visit>
void with_op(CompareOp op, Visit visit) {
  switch (op) {
    case CompareOp::kEqual:
      return visit([](auto a, auto b) { return a == b; });
    case CompareOp::kNotEqual:
      return visit([](auto a, auto b) { return a != b; });
    case CompareOp::kLess:
      return visit([](auto a, auto b) { return a < b; });
    case CompareOp::kLessEqual:
      return visit([](auto a, auto b) { return a <= b; });
    case CompareOp::kGreater:
      return visit([](auto a, auto b) { return a > b; });
    case CompareOp::kGreaterEqual:
      return visit([](auto a, auto b) { return a >= b; });
  }
}

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

}  // namespace

template <class T>
void unary(UnaryOp op, const T* in, T* out, int64_t n) {
  switch (op) {
    case UnaryOp::kNeg:
      return map(in, out, n, [](T x) { return -x; });
    case UnaryOp::kExp:
      return map(in, out, n, [](T x) { return internal::exp_of(x); });
    case UnaryOp::kLog:
      return map(in, out, n, [](T x) { return internal::log_of(x); });
    case UnaryOp::kLog1p:
      return map(in, out, n, [](T x) { return internal::log1p_of(x); });
    case UnaryOp::kSqrt:
      return map(in, out, n, [](T x) { return std::sqrt(x); });
    case UnaryOp::kRsqrt:
      return map(in, out, n, [](T x) { return T(1) / std::sqrt(x); });
    case UnaryOp::kSquare:
      return map(in, out, n, [](T x) { return x * x; });
    case UnaryOp::kAbs:
      return map(in, out, n, [](T x) { return std::abs(x); });
    case UnaryOp::kSign:
      return map(in, out, n, [](T x) { return x > 0 ? T(1) : (x < 0 ? T(-1) : x); });
    case UnaryOp::kSigmoid:
      return map(in, out, n, [](T x) { return internal::sigmoid_of(x); });
    case UnaryOp::kTanh:
      return map(in, out, n, [](T x) { return internal::tanh_of(x); });
    case UnaryOp::kRelu:
      return map(in, out, n, [](T x) { return x < 0 ? T(0) : x; });
    case UnaryOp::kSoftplus:
      return map(in, out, n, [](T x) { return internal::softplus_of(x); });
    case UnaryOp::kReciprocal:
      return map(in, out, n, [](T x) { return T(1) / x; });
  }
}

template <class T>
void binary(BinaryOp op, const T* a, const T* b, T* out, int64_t n) {
  with_op(op, [&](auto f) {
    SR_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) out[i] = f(a[i], b[i]);
  });
}

bool broadcast_shape(const tensor::Shape& a, const tensor::Shape& b, tensor::Shape* out) {
  const tensor::Shape& longer = a.rank() >= b.rank() ? a : b;
  const tensor::Shape& shorter = a.rank() >= b.rank() ? b : a;
  tensor::Shape result = longer;
  const int front = longer.rank() - shorter.rank();
  for (int i = 0; i < shorter.rank(); ++i) {
    const int64_t x = longer.dim(front + i);
    const int64_t y = shorter.dim(i);
    if (x != y && x != 1 && y != 1) return false;
    result.set_dim(front + i, x == 1 ? y : x);
  }
  *out = std::move(result);
  return true;
}

template <class T>
void binary_broadcast(BinaryOp op, const T* a, const tensor::Shape& a_shape, const T* b,
                      const tensor::Shape& b_shape, T* out) {
  const LoopPlan plan = plan_loops(a_shape, b_shape);
  with_op(op, [&](auto f) { zip(plan, a, b, out, f); });
}

template <class T>
void compare_broadcast(CompareOp op, const T* a, const tensor::Shape& a_shape, const T* b,
                       const tensor::Shape& b_shape, bool* out) {
  const LoopPlan plan = plan_loops(a_shape, b_shape);
  with_op(op, [&](auto f) { zip(plan, a, b, out, f); });
}

template <class T>
void select(const bool* condition, const T* a, const T* b, T* out, int64_t n) {
  SR_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = condition[i] ? a[i] : b[i];
}

template <class T>
void reduce_to_shape(const T* grad, const tensor::Shape& from, const tensor::Shape& to, T* out) {
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
      T acc[8] = {};
      int64_t i = 0;
      for (; i + 8 <= n; i += 8) {
        for (int j = 0; j < 8; ++j) acc[j] += g[i + j];
      }
      T total = ((acc[0] + acc[1]) + (acc[2] + acc[3])) + ((acc[4] + acc[5]) + (acc[6] + acc[7]));
      for (; i < n; ++i) total += g[i];
      *o += total;
    } else {
      SR_INDEPENDENT
      for (int64_t i = 0; i < n; ++i) o[i] += g[i];
    }
  });
}

template <class T>
void broadcast_to(const T* in, const tensor::Shape& from, const tensor::Shape& to, T* out) {
  const LoopPlan plan = plan_loops(from, to);
  const LoopPlan::Loop inner = plan.loops.back();
  const int64_t n = inner.extent;
  for_each_row(plan, [&](int64_t at_in, int64_t, int64_t at_out) {
    if (inner.a_stride == 0) {
      fill(out + at_out, n, in[at_in]);
    } else {
      std::memcpy(out + at_out, in + at_in, n * sizeof(T));
    }
  });
}

template <class T>
void relu_grad(const T* grad, const T* x, T* out, int64_t n) {
  SR_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = x[i] > T(0) ? grad[i] : T(0);
}

template <class T>
void sigmoid_grad(const T* grad, const T* y, T* out, int64_t n) {
  SR_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = grad[i] * y[i] * (T(1) - y[i]);
}

template <class T>
void tanh_grad(const T* grad, const T* y, T* out, int64_t n) {
  SR_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = grad[i] * (T(1) - y[i] * y[i]);
}

template <class T>
void fill(T* out, int64_t n, std::type_identity_t<T> value) {
  for (int64_t i = 0; i < n; ++i) out[i] = value;
}

template <class T>
void scale(std::type_identity_t<T> alpha, const T* x, T* out, int64_t n) {
  SR_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = alpha * x[i];
}

template <class T>
void axpy(std::type_identity_t<T> alpha, const T* x, T* y, int64_t n) {
  SR_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) y[i] += alpha * x[i];
}

namespace {

template <class From, class To>
To convert(From x) {
  if constexpr (std::is_same_v<To, bool>) {
    return x != From(0);
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    if (std::isnan(x)) return 0;
    // The highest integer may round up to a power of two, which is already outside.
    if (x >= static_cast<From>(std::numeric_limits<To>::max())) {
      return std::numeric_limits<To>::max();
    }
    if (x <= static_cast<From>(std::numeric_limits<To>::min())) {
      return std::numeric_limits<To>::min();
    }
    return static_cast<To>(x);
  } else {
    return static_cast<To>(x);
  }
}

template <class Visit>
bool with_type(tensor::DType dtype, Visit visit) {
  switch (dtype) {
    // NOLINTNEXTLINE(bugprone-branch-clone): each visit is of another type.
    case tensor::DType::kFloat32:
      return visit(float());
    case tensor::DType::kFloat64:
      return visit(double());
    case tensor::DType::kInt32:
      return visit(int32_t());
    case tensor::DType::kInt64:
      return visit(int64_t());
    case tensor::DType::kUInt8:
      return visit(uint8_t());
    case tensor::DType::kBool:
      return visit(bool());
    default:
      return false;
  }
}

}  // namespace

bool cast(tensor::DType from, const void* in, tensor::DType to, void* out, int64_t n) {
  return with_type(from, [&](auto from_tag) {
    return with_type(to, [&](auto to_tag) {
      using From = decltype(from_tag);
      using To = decltype(to_tag);
      const auto* x = static_cast<const From*>(in);
      auto* y = static_cast<To*>(out);
      for (int64_t i = 0; i < n; ++i) y[i] = convert<From, To>(x[i]);
      return true;
    });
  });
}

#define SR_INSTANTIATE_ANY(T)                                                              \
  template void binary(BinaryOp, const T*, const T*, T*, int64_t);                         \
  template void binary_broadcast(BinaryOp, const T*, const tensor::Shape&, const T*,       \
                                 const tensor::Shape&, T*);                                \
  template void compare_broadcast(CompareOp, const T*, const tensor::Shape&, const T*,     \
                                  const tensor::Shape&, bool*);                            \
  template void select(const bool*, const T*, const T*, T*, int64_t);                      \
  template void broadcast_to(const T*, const tensor::Shape&, const tensor::Shape&, T*);    \
  template void reduce_to_shape(const T*, const tensor::Shape&, const tensor::Shape&, T*); \
  template void fill(T*, int64_t, T);

#define SR_INSTANTIATE_REAL(T)                                 \
  SR_INSTANTIATE_ANY(T)                                        \
  template void unary(UnaryOp, const T*, T*, int64_t);         \
  template void relu_grad(const T*, const T*, T*, int64_t);    \
  template void sigmoid_grad(const T*, const T*, T*, int64_t); \
  template void tanh_grad(const T*, const T*, T*, int64_t);    \
  template void scale(T, const T*, T*, int64_t);               \
  template void axpy(T, const T*, T*, int64_t);

SR_INSTANTIATE_REAL(float)
SR_INSTANTIATE_REAL(double)
SR_INSTANTIATE_ANY(int32_t)
SR_INSTANTIATE_ANY(int64_t)
#undef SR_INSTANTIATE_REAL
#undef SR_INSTANTIATE_ANY

}  // namespace sidereal::kernels
