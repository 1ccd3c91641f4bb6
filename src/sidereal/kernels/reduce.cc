#include "sidereal/kernels/reduce.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "sidereal/base/check.h"
#include "sidereal/kernels/internal/broadcast.h"
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

template <class T>
T max_block(const T* in, int64_t n) {
  constexpr int kLanes = Vec<T>::kLanes;
  T best = -std::numeric_limits<T>::infinity();
  int64_t i = 0;
  if (n >= kLanes) {
    typename Vec<T>::Type acc = load(in);
    for (i = kLanes; i + kLanes <= n; i += kLanes) {
      const typename Vec<T>::Type next = load(in + i);
      acc = next > acc ? next : acc;
    }
    for (int j = 0; j < kLanes; ++j) best = std::max(best, static_cast<T>(acc[j]));
  }
  for (; i < n; ++i) best = std::max(best, in[i]);
  return best;
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
void max_rows_into(const T* in, int64_t rows, int64_t width, T* out) {
  std::fill_n(out, width, -std::numeric_limits<T>::infinity());
  for (int64_t r = 0; r < rows; ++r) {
    const T* x = in + r * width;
    SR_INDEPENDENT
    for (int64_t j = 0; j < width; ++j) out[j] = x[j] > out[j] ? x[j] : out[j];
  }
}

template <class T>
void divide(T* out, int64_t n, int64_t by) {
  const T divisor = static_cast<T>(by);
  for (int64_t i = 0; i < n; ++i) out[i] /= divisor;
}

// Axes that are not neighbours: walks the input in index order and adds into the place of each
// element. The output is seen as an array whose reduced dimensions have extent 1.
template <class T>
void reduce_scattered(ReduceOp op, const T* in, const tensor::Shape& shape,
                      const tensor::Shape& kept, T* out) {
  const int64_t size = kept.num_elements();
  const T start = op == ReduceOp::kMax ? -std::numeric_limits<T>::infinity() : T(0);
  std::fill_n(out, size, start);
  const internal::LoopPlan plan = internal::plan_loops(shape, kept);
  const internal::LoopPlan::Loop inner = plan.loops.back();
  const int64_t n = inner.extent;
  internal::for_each_row(plan, [&](int64_t at_in, int64_t at_out, int64_t) {
    const T* x = in + at_in;
    T* o = out + at_out;
    if (inner.b_stride == 0) {
      if (op == ReduceOp::kMax) {
        *o = std::max(*o, max_block(x, n));
      } else {
        *o += sum(x, n);
      }
    } else if (op == ReduceOp::kMax) {
      for (int64_t i = 0; i < n; ++i) o[i] = x[i] > o[i] ? x[i] : o[i];
    } else {
      for (int64_t i = 0; i < n; ++i) o[i] += x[i];
    }
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
  for (int64_t o = 0; o < dims.outer; ++o) {
    const T* x = in + o * block;
    T* y = out + o * dims.inner;
    if (op == ReduceOp::kMax) {
      if (dims.inner == 1) {
        *y = max_block(x, dims.reduce);
      } else {
        max_rows_into(x, dims.reduce, dims.inner, y);
      }
    } else if (dims.inner == 1) {
      *y = sum(x, dims.reduce);
    } else {
      sum_rows_into(x, dims.reduce, dims.inner, y);
    }
  }
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

template <class T>
void row_sums(const T* in, int64_t m, int64_t n, T* out) {
  for (int64_t i = 0; i < m; ++i) out[i] = sum(in + i * n, n);
}

#define SR_INSTANTIATE(T)                                                                        \
  template T sum(const T*, int64_t);                                                             \
  template void reduce(ReduceOp, const T*, const ReduceDims&, T*);                               \
  template void reduce_axes(ReduceOp, const T*, const tensor::Shape&, std::span<const int>, T*); \
  template void bias_grad(const T*, int64_t, int64_t, T*);                                       \
  template void row_sums(const T*, int64_t, int64_t, T*);
SR_INSTANTIATE(float)
SR_INSTANTIATE(double)
#undef SR_INSTANTIATE

}  // namespace sidereal::kernels
