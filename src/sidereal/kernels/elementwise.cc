#include "sidereal/kernels/elementwise.h"

#include <cmath>
#include <cstring>
#include <string_view>
#include <type_traits>

#include "absl/container/inlined_vector.h"
#include "sidereal/kernels/internal/broadcast.h"
#include "sidereal/kernels/internal/functors.h"
#include "sidereal/kernels/internal/nan.h"
#include "sidereal/kernels/internal/real_math.h"
#include "sidereal/kernels/internal/vec_math.h"

namespace sidereal::kernels {

using internal::LoopPlan;
using internal::map;
using internal::plan_loops;
using internal::zip;

namespace {

struct Atan2 {
  template <class T>
  T operator()(T a, T b) const {
    return std::atan2(a, b);
  }
};
struct DivNoNan {
  template <class T>
  T operator()(T a, T b) const {
    return b == T(0) ? T(0) : a / b;
  }
};
struct Xlogy {
  template <class T>
  T operator()(T a, T b) const {
    return a == T(0) ? (internal::is_nan(b) ? b : T(0)) : a * internal::log_of(b);
  }
};
struct Xlog1py {
  template <class T>
  T operator()(T a, T b) const {
    return a == T(0) ? (internal::is_nan(b) ? b : T(0)) : a * internal::log1p_of(b);
  }
};

template <class Visit>
void with_op(BinaryOp op, Visit visit) {
  if (internal::with_numeric_op(op, visit)) return;
  switch (op) {
    case BinaryOp::kAtan2:
      return visit(Atan2());
    case BinaryOp::kDivNoNan:
      return visit(DivNoNan());
    case BinaryOp::kXlogy:
      return visit(Xlogy());
    default:
      return visit(Xlog1py());
  }
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
    default:
      return internal::unary_more(op, in, out, n);
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
  internal::compare_loop(op, a, a_shape, b, b_shape, out);
}

template <class T>
void classify(TestOp op, const T* in, bool* out, int64_t n) {
  switch (op) {
    case TestOp::kIsNan:
      return map(in, out, n, [](T x) { return internal::is_nan(x); });
    case TestOp::kIsInf:
      return map(in, out, n, [](T x) { return std::abs(x) == std::numeric_limits<T>::infinity(); });
    case TestOp::kIsFinite:
      return map(in, out, n, [](T x) { return std::abs(x) < std::numeric_limits<T>::infinity(); });
  }
}

template <class T>
void reduce_to_shape(const T* grad, const tensor::Shape& from, const tensor::Shape& to, T* out) {
  internal::reduce_to_shape_loop(grad, from, to, out);
}

template <class T>
void select(const bool* condition, const T* a, const T* b, T* out, int64_t n) {
  SR_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = condition[i] ? a[i] : b[i];
}

template <class T>
void select_broadcast(const bool* condition, const tensor::Shape& condition_shape, const T* a,
                      const tensor::Shape& a_shape, const T* b, const tensor::Shape& b_shape,
                      const tensor::Shape& shape, T* out) {
  const int64_t n = shape.num_elements();
  if (condition_shape == shape && a_shape == shape && b_shape == shape) {
    return select(condition, a, b, out, n);
  }
  if (n == 0) return;
  const int rank = shape.rank();
  const internal::Strides c_strides(condition_shape, rank);
  const internal::Strides a_strides(a_shape, rank);
  const internal::Strides b_strides(b_shape, rank);
  const int64_t width = rank == 0 ? 1 : shape.dim(-1);
  absl::InlinedVector<int64_t, 8> at(rank, 0);
  for (int64_t done = 0; done < n; done += width) {
    const bool* c = condition + c_strides.offset(at);
    const T* x = a + a_strides.offset(at);
    const T* y = b + b_strides.offset(at);
    const int64_t cs = c_strides.last();
    const int64_t xs = a_strides.last();
    const int64_t ys = b_strides.last();
    T* z = out + done;
    SR_INDEPENDENT
    for (int64_t i = 0; i < width; ++i) z[i] = c[i * cs] ? x[i * xs] : y[i * ys];
    for (int d = rank - 2; d >= 0; --d) {
      if (++at[d] < shape.dim(d)) break;
      at[d] = 0;
    }
  }
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

#define SR_INSTANTIATE_WIDTH(T)                                                         \
  template void select(const bool*, const T*, const T*, T*, int64_t);                   \
  template void select_broadcast(const bool*, const tensor::Shape&, const T*,           \
                                 const tensor::Shape&, const T*, const tensor::Shape&,  \
                                 const tensor::Shape&, T*);                             \
  template void broadcast_to(const T*, const tensor::Shape&, const tensor::Shape&, T*); \
  template void fill(T*, int64_t, T);

#define SR_INSTANTIATE(T)                                                                  \
  template void unary(UnaryOp, const T*, T*, int64_t);                                     \
  template void binary(BinaryOp, const T*, const T*, T*, int64_t);                         \
  template void binary_broadcast(BinaryOp, const T*, const tensor::Shape&, const T*,       \
                                 const tensor::Shape&, T*);                                \
  template void compare_broadcast(CompareOp, const T*, const tensor::Shape&, const T*,     \
                                  const tensor::Shape&, bool*);                            \
  template void classify(TestOp, const T*, bool*, int64_t);                                \
  template void reduce_to_shape(const T*, const tensor::Shape&, const tensor::Shape&, T*); \
  template void relu_grad(const T*, const T*, T*, int64_t);                                \
  template void sigmoid_grad(const T*, const T*, T*, int64_t);                             \
  template void tanh_grad(const T*, const T*, T*, int64_t);                                \
  template void scale(T, const T*, T*, int64_t);                                           \
  template void axpy(T, const T*, T*, int64_t);

SR_INSTANTIATE_WIDTH(float)
SR_INSTANTIATE_WIDTH(double)
SR_INSTANTIATE_WIDTH(uint8_t)
SR_INSTANTIATE_WIDTH(uint16_t)
SR_INSTANTIATE_WIDTH(uint32_t)
SR_INSTANTIATE_WIDTH(uint64_t)
SR_INSTANTIATE_WIDTH(std::string_view)
SR_INSTANTIATE(float)
SR_INSTANTIATE(double)
#undef SR_INSTANTIATE
#undef SR_INSTANTIATE_WIDTH

}  // namespace sidereal::kernels
