#include "sidereal/kernels/reduce.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "sidereal/base/check.h"
#include "sidereal/kernels/internal/broadcast.h"
#include "sidereal/kernels/internal/functors.h"
#include "sidereal/kernels/internal/nan.h"
#include "sidereal/kernels/internal/vec_math.h"

namespace sidereal::kernels {
namespace {

using internal::fold_lanes;
using internal::load;
using internal::Vec;

// Sum of at most a few thousand elements: four vectors of lanes, then a tree.
template <class T>
T sum_block(const T* in, int64_t n) {
  constexpr int kLanes = Vec<T>::kLanes;
  typename Vec<T>::Type acc0{};
  typename Vec<T>::Type acc1{};
  typename Vec<T>::Type acc2{};
  typename Vec<T>::Type acc3{};
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    acc0 += load(in + i);
    acc1 += load(in + i + kLanes);
    acc2 += load(in + i + 2 * kLanes);
    acc3 += load(in + i + 3 * kLanes);
  }
  for (; i + kLanes <= n; i += kLanes) acc0 += load(in + i);
  T total = fold_lanes<T>((acc0 + acc1) + (acc2 + acc3));
  for (; i < n; ++i) total += in[i];
  return total;
}

// out[j] = sum over r of in[r, j], four rows at a time.
template <class T>
void sum_rows_into(const T* in, int64_t rows, int64_t width, T* out) {
  std::fill_n(out, width, T(0));
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4) {
    const T* x = in + r * width;
    SR_INDEPENDENT
    for (int64_t j = 0; j < width; ++j) {
      out[j] += (x[j] + x[width + j]) + (x[2 * width + j] + x[3 * width + j]);
    }
  }
  for (; r < rows; ++r) {
    const T* x = in + r * width;
    SR_INDEPENDENT
    for (int64_t j = 0; j < width; ++j) out[j] += x[j];
  }
}

template <class T>
void divide(T* out, int64_t n, int64_t by) {
  if constexpr (std::is_integral_v<T>) {
    if (by == 0) return;
    // In 64 bits: the count may not fit T.
    using Wide = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;
    for (int64_t i = 0; i < n; ++i) {
      out[i] = static_cast<T>(static_cast<Wide>(out[i]) / static_cast<Wide>(by));
    }
  } else {
    const T divisor = static_cast<T>(by);
    for (int64_t i = 0; i < n; ++i) out[i] /= divisor;
  }
}

template <class T>
constexpr T kHighest = std::numeric_limits<T>::has_infinity ? std::numeric_limits<T>::infinity()
                                                            : std::numeric_limits<T>::max();
template <class T>
constexpr T kLowest = std::numeric_limits<T>::has_infinity ? -std::numeric_limits<T>::infinity()
                                                           : std::numeric_limits<T>::lowest();

/// Calls visit(f, start) with the function that joins two elements and the value to begin with.
template <class T, class Visit>
void with_join(ReduceOp op, Visit visit) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kMean:
      return visit(internal::Add(), T(0));
    case ReduceOp::kMax:
      return visit(internal::Maximum(), kLowest<T>);
    case ReduceOp::kMin:
      return visit(internal::Minimum(), kHighest<T>);
    case ReduceOp::kProd:
      return visit(internal::Mul(), T(1));
  }
}

/// All n elements joined, in 16 lanes that are joined at the end.
template <class T, class F>
T join_block(const T* in, int64_t n, F f, T start) {
  constexpr int kLanes = 16;
  T total = start;
  int64_t i = 0;
  if (n >= 2 * kLanes) {
    T lanes[kLanes];
    std::copy_n(in, kLanes, lanes);
    for (i = kLanes; i + kLanes <= n; i += kLanes) {
      for (int j = 0; j < kLanes; ++j) lanes[j] = f(lanes[j], in[i + j]);
    }
    for (int j = 0; j < kLanes; ++j) total = f(total, lanes[j]);
  }
  for (; i < n; ++i) total = f(total, in[i]);
  return total;
}

/// out[j] = out[j] joined with in[r, j] for all r.
template <class T, class F>
void join_rows_into(const T* in, int64_t rows, int64_t width, F f, T* out) {
  for (int64_t r = 0; r < rows; ++r) {
    const T* x = in + r * width;
    SR_INDEPENDENT
    for (int64_t j = 0; j < width; ++j) out[j] = f(out[j], x[j]);
  }
}

/// True where sum() and sum_rows_into() do the work: sums of real numbers.
template <class T>
bool is_real_sum(ReduceOp op) {
  return std::is_floating_point_v<T> && (op == ReduceOp::kSum || op == ReduceOp::kMean);
}

// Axes that are not neighbours: walks the input in index order and joins into the place of each
// element. The output is seen as an array whose reduced dimensions have extent 1.
template <class T>
void reduce_scattered(ReduceOp op, const T* in, const tensor::Shape& shape,
                      const tensor::Shape& kept, T* out) {
  const int64_t size = kept.num_elements();
  const internal::LoopPlan plan = internal::plan_loops(shape, kept);
  const internal::LoopPlan::Loop inner = plan.loops.back();
  const int64_t n = inner.extent;
  with_join<T>(op, [&](auto f, T start) {
    std::fill_n(out, size, start);
    internal::for_each_row(plan, [&](int64_t at_in, int64_t at_out, int64_t) {
      const T* x = in + at_in;
      T* o = out + at_out;
      if (inner.b_stride != 0) {
        join_rows_into(x, 1, n, f, o);
      } else if constexpr (std::is_floating_point_v<T>) {
        *o = f(*o, is_real_sum<T>(op) ? sum(x, n) : join_block(x, n, f, start));
      } else {
        *o = f(*o, join_block(x, n, f, start));
      }
    });
  });
  if (op == ReduceOp::kMean) divide(out, size, shape.num_elements() / size);
}

}  // namespace

template <class T>
T sum(const T* in, int64_t n) {
  // Blocks are added up in double, so a mean over millions of floats keeps its digits.
  constexpr int64_t kBlock = 4096;
  if (n <= kBlock) return sum_block(in, n);
  double total = 0;
  for (int64_t i = 0; i < n; i += kBlock) total += sum_block(in + i, std::min(kBlock, n - i));
  return static_cast<T>(total);
}

template <class T>
void reduce(ReduceOp op, const T* in, const ReduceDims& dims, T* out) {
  const int64_t block = dims.reduce * dims.inner;
  with_join<T>(op, [&](auto f, T start) {
    for (int64_t o = 0; o < dims.outer; ++o) {
      const T* x = in + o * block;
      T* y = out + o * dims.inner;
      if constexpr (std::is_floating_point_v<T>) {
        if (is_real_sum<T>(op)) {
          if (dims.inner == 1) {
            *y = sum(x, dims.reduce);
          } else {
            sum_rows_into(x, dims.reduce, dims.inner, y);
          }
          continue;
        }
      }
      if (dims.inner == 1) {
        *y = join_block(x, dims.reduce, f, start);
      } else {
        std::fill_n(y, dims.inner, start);
        join_rows_into(x, dims.reduce, dims.inner, f, y);
      }
    }
  });
  if (op == ReduceOp::kMean) divide(out, dims.outer * dims.inner, dims.reduce);
}

template <class T>
void reduce_axes(ReduceOp op, const T* in, const tensor::Shape& shape, std::span<const int> axes,
                 T* out) {
  absl::InlinedVector<bool, 8> reduced(shape.rank(), false);
  tensor::Shape kept = shape;
  for (const int axis : axes) {
    SR_CHECK(axis >= 0 && axis < shape.rank(), "axis {} of a tensor of shape {}", axis,
             shape.to_string());
    SR_CHECK(!reduced[axis], "axis {} is given twice", axis);
    reduced[axis] = true;
    kept.set_dim(axis, 1);
  }
  if (kept.num_elements() == 0) return;
  // Outer, reduced, inner: the usual case, when the reduced axes are neighbours.
  ReduceDims dims;
  int phase = 0;
  for (int i = 0; i < shape.rank(); ++i) {
    const int64_t extent = shape.dim(i);
    if (extent == 1 && !reduced[i]) continue;
    if (phase == 0 && reduced[i]) phase = 1;
    if (phase == 1 && !reduced[i]) phase = 2;
    if (phase == 2 && reduced[i] && extent != 1) {
      reduce_scattered(op, in, shape, kept, out);
      return;
    }
    (phase == 0 ? dims.outer : (phase == 1 ? dims.reduce : dims.inner)) *= extent;
  }
  reduce(op, in, dims, out);
}

template <class T>
void bias_grad(const T* grad, int64_t m, int64_t n, T* out) {
  if (n == 1) {
    *out = sum(grad, m);
  } else {
    sum_rows_into(grad, m, n, out);
  }
}

void bias_grad(const tensor::BFloat16* grad, int64_t m, int64_t n, float* out) {
  constexpr int64_t kRows = 4;
  std::fill_n(out, n, 0.0F);
  int64_t i = 0;
  for (; i + kRows <= m; i += kRows) {
    const tensor::BFloat16* row = grad + i * n;
    SR_INDEPENDENT
    for (int64_t j = 0; j < n; ++j) {
      const float first = row[j] + row[n + j];
      const float second = row[2 * n + j] + row[3 * n + j];
      out[j] += first + second;
    }
  }
  for (; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) out[j] += grad[i * n + j];
  }
}

template <class T>
void row_sums(const T* in, int64_t m, int64_t n, T* out) {
  for (int64_t i = 0; i < m; ++i) out[i] = sum(in + i * n, n);
}

template <class T, class Index>
void arg_reduce(bool greatest, const T* in, const ReduceDims& dims, Index* out) {
  for (int64_t o = 0; o < dims.outer; ++o) {
    for (int64_t i = 0; i < dims.inner; ++i) {
      const T* x = in + o * dims.reduce * dims.inner + i;
      int64_t best = 0;
      for (int64_t r = 1; r < dims.reduce; ++r) {
        const T held = x[best * dims.inner];
        const T next = x[r * dims.inner];
        const bool better = greatest ? next > held : next < held;
        if (better || (internal::is_nan(next) && !internal::is_nan(held))) best = r;
      }
      out[o * dims.inner + i] = static_cast<Index>(best);
    }
  }
}

template <class T>
void prod_grad(const T* dy, const T* x, const tensor::Shape& shape, const tensor::Shape& kept,
               T* running, T* out) {
  const int rank = shape.rank();
  const int64_t n = shape.num_elements();
  const internal::Strides strides(kept, rank);
  absl::InlinedVector<int64_t, 8> at(rank, 0);
  // Products of what comes before, from the front; then of what comes after, from the back.
  std::fill_n(running, kept.num_elements(), T(1));
  for (int64_t i = 0; i < n; ++i) {
    T& before = running[strides.offset(at)];
    out[i] = before;
    before *= x[i];
    for (int d = rank - 1; d >= 0 && ++at[d] == shape.dim(d); --d) at[d] = 0;
  }
  std::copy_n(dy, kept.num_elements(), running);
  for (int d = 0; d < rank; ++d) at[d] = shape.dim(d) - 1;
  for (int64_t i = n - 1; i >= 0; --i) {
    T& after = running[strides.offset(at)];
    out[i] *= after;
    after *= x[i];
    for (int d = rank - 1; d >= 0 && --at[d] < 0; --d) at[d] = shape.dim(d) - 1;
  }
}

template <class T>
void prod_grad_grad(const T* dy, const T* x, const T* u, const tensor::Shape& shape,
                    const tensor::Shape& kept, T* running, T* before, T* out) {
  const int rank = shape.rank();
  const int64_t n = shape.num_elements();
  const int64_t groups = kept.num_elements();
  const internal::Strides strides(kept, rank);
  absl::InlinedVector<int64_t, 8> at(rank, 0);
  // As prod_grad(), with products of dual numbers x + u e, where e^2 = 0: the part at e is wanted.
  T* const slopes = running + groups;
  std::fill_n(running, groups, T(1));
  std::fill_n(slopes, groups, T(0));
  for (int64_t i = 0; i < n; ++i) {
    const int64_t group = strides.offset(at);
    before[i] = running[group];
    out[i] = slopes[group];
    slopes[group] = slopes[group] * x[i] + running[group] * u[i];
    running[group] *= x[i];
    for (int d = rank - 1; d >= 0 && ++at[d] == shape.dim(d); --d) at[d] = 0;
  }
  std::copy_n(dy, groups, running);
  std::fill_n(slopes, groups, T(0));
  for (int d = 0; d < rank; ++d) at[d] = shape.dim(d) - 1;
  for (int64_t i = n - 1; i >= 0; --i) {
    const int64_t group = strides.offset(at);
    out[i] = out[i] * running[group] + before[i] * slopes[group];
    slopes[group] = slopes[group] * x[i] + running[group] * u[i];
    running[group] *= x[i];
    for (int d = rank - 1; d >= 0 && --at[d] < 0; --d) at[d] = shape.dim(d) - 1;
  }
}

#define SR_INSTANTIATE(T)                                                                        \
  template void reduce(ReduceOp, const T*, const ReduceDims&, T*);                               \
  template void reduce_axes(ReduceOp, const T*, const tensor::Shape&, std::span<const int>, T*); \
  template void arg_reduce(bool, const T*, const ReduceDims&, int32_t*);                         \
  template void arg_reduce(bool, const T*, const ReduceDims&, int64_t*);

#define SR_INSTANTIATE_REAL(T)                                                                     \
  SR_INSTANTIATE(T)                                                                                \
  template T sum(const T*, int64_t);                                                               \
  template void prod_grad(const T*, const T*, const tensor::Shape&, const tensor::Shape&, T*, T*); \
  template void prod_grad_grad(const T*, const T*, const T*, const tensor::Shape&,                 \
                               const tensor::Shape&, T*, T*, T*);                                  \
  template void bias_grad(const T*, int64_t, int64_t, T*);                                         \
  template void row_sums(const T*, int64_t, int64_t, T*);

SR_INSTANTIATE_REAL(float)
SR_INSTANTIATE_REAL(double)
SR_INSTANTIATE(int8_t)
SR_INSTANTIATE(int16_t)
SR_INSTANTIATE(int32_t)
SR_INSTANTIATE(int64_t)
SR_INSTANTIATE(uint8_t)
SR_INSTANTIATE(uint16_t)
SR_INSTANTIATE(uint32_t)
SR_INSTANTIATE(uint64_t)
#undef SR_INSTANTIATE_REAL
#undef SR_INSTANTIATE

}  // namespace sidereal::kernels
