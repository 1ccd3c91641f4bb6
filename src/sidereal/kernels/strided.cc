#include "sidereal/kernels/strided.h"

#include <algorithm>
#include <cstring>

#include "sidereal/kernels/internal/constant.h"

namespace sidereal::kernels {
namespace {

using Numbers = StridedView::Numbers;

/// The view with extents of 1 left out and dimensions that run on into each other made one. When
/// the innermost is contiguous it becomes part of the element.
struct Plan {
  Numbers dims;
  Numbers strides;  // In bytes.
  int64_t start = 0;
  int64_t element = 1;
  bool empty = false;
};

Plan plan_of(const StridedView& view, int64_t bytes) {
  Plan plan;
  plan.start = view.start * bytes;
  plan.element = bytes;
  for (size_t i = 0; i < view.dims.size(); ++i) {
    const int64_t dim = view.dims[i];
    const int64_t stride = view.strides[i] * bytes;
    if (dim == 0) plan.empty = true;
    if (dim == 1) continue;
    if (!plan.dims.empty() && plan.strides.back() == dim * stride) {
      plan.dims.back() *= dim;
      plan.strides.back() = stride;
    } else {
      plan.dims.push_back(dim);
      plan.strides.push_back(stride);
    }
  }
  if (!plan.dims.empty() && plan.strides.back() == bytes) {
    plan.element *= plan.dims.back();
    plan.dims.pop_back();
    plan.strides.pop_back();
  }
  return plan;
}

/// Calls run(offset in the view, position of the dense array) for every index of all dimensions but
/// the last `inner`; `run` does those.
template <class Run>
void over_outer(const Plan& plan, size_t inner, int64_t dense_step, Run run) {
  const size_t outer = plan.dims.size() - inner;
  Numbers index(outer, 0);
  int64_t offset = plan.start;
  int64_t dense = 0;
  while (true) {
    run(offset, dense);
    dense += dense_step;
    size_t d = outer;
    for (; d > 0; --d) {
      offset += plan.strides[d - 1];
      if (++index[d - 1] < plan.dims[d - 1]) break;
      offset -= plan.strides[d - 1] * plan.dims[d - 1];
      index[d - 1] = 0;
    }
    if (d == 0) return;
  }
}

/// One row: `count` elements, `stride` bytes apart on the strided side.
template <int64_t kElement, bool kGather>
void move_row(const std::byte* from, std::byte* to, int64_t count, int64_t stride,
              int64_t element) {
  const int64_t step = kElement > 0 ? kElement : element;
  const int64_t from_step = kGather ? stride : step;
  const int64_t to_step = kGather ? step : stride;
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(to + i * to_step, from + i * from_step, step);
  }
}

/// Two dimensions, of which the outer is contiguous on the strided side: a transposition, done in
/// blocks so that both sides stay in the cache.
template <int64_t kElement, bool kGather>
void move_transposed(const std::byte* from, std::byte* to, int64_t rows, int64_t columns,
                     int64_t column_stride) {
  // What is in the first cache as a whole needs no blocks.
  constexpr int64_t kSmall = int64_t{1} << 13;
  const int64_t side = rows * columns * kElement <= kSmall ? std::max(rows, columns) : 16;
  for (int64_t r0 = 0; r0 < rows; r0 += side) {
    const int64_t r1 = std::min(r0 + side, rows);
    for (int64_t c0 = 0; c0 < columns; c0 += side) {
      const int64_t c1 = std::min(c0 + side, columns);
      for (int64_t r = r0; r < r1; ++r) {
        for (int64_t c = c0; c < c1; ++c) {
          const int64_t strided = r * kElement + c * column_stride;
          const int64_t dense = (r * columns + c) * kElement;
          std::memcpy(to + (kGather ? dense : strided), from + (kGather ? strided : dense),
                      kElement);
        }
      }
    }
  }
}

template <bool kGather>
void run_plan(const std::byte* from, const Plan& plan, std::byte* to) {
  if (plan.empty) return;
  const int64_t element = plan.element;
  const auto at = [&](int64_t offset, int64_t dense, auto body) {
    body(from + (kGather ? offset : dense), to + (kGather ? dense : offset));
  };
  if (plan.dims.empty()) {
    at(plan.start, 0, [&](const std::byte* f, std::byte* t) { std::memcpy(t, f, element); });
    return;
  }
  internal::with_constant<1, 2, 4, 8, 16>(element, [&](auto tag) {
    constexpr int64_t kElement = decltype(tag)::value;
    const int64_t columns = plan.dims.back();
    const int64_t column_stride = plan.strides.back();
    const size_t n = plan.dims.size();
    if constexpr (kElement > 0) {
      if (n >= 2 && plan.strides[n - 2] == kElement) {
        const int64_t rows = plan.dims[n - 2];
        over_outer(plan, 2, rows * columns * kElement, [&](int64_t offset, int64_t dense) {
          at(offset, dense, [&](const std::byte* f, std::byte* t) {
            move_transposed<kElement, kGather>(f, t, rows, columns, column_stride);
          });
        });
        return;
      }
    }
    over_outer(plan, 1, columns * element, [&](int64_t offset, int64_t dense) {
      at(offset, dense, [&](const std::byte* f, std::byte* t) {
        move_row<kElement, kGather>(f, t, columns, column_stride, element);
      });
    });
  });
}

}  // namespace

StridedView StridedView::dense(const tensor::Shape& shape) {
  StridedView view;
  view.dims.assign(shape.dims().begin(), shape.dims().end());
  view.strides.assign(view.dims.size(), 1);
  for (size_t i = view.dims.size(); i-- > 1;) {
    view.strides[i - 1] = view.strides[i] * std::max<int64_t>(view.dims[i], 1);
  }
  return view;
}

void StridedView::slice(int axis, int64_t begin, int64_t stride, int64_t extent) {
  start += begin * strides[axis];
  strides[axis] *= stride;
  dims[axis] = extent;
}

int64_t StridedView::num_elements() const {
  int64_t count = 1;
  for (const int64_t dim : dims) count *= dim;
  return count;
}

void gather_strided(const std::byte* from, const StridedView& view, int64_t bytes, std::byte* to) {
  run_plan<true>(from, plan_of(view, bytes), to);
}

void scatter_strided(const std::byte* from, const StridedView& view, int64_t bytes, std::byte* to) {
  run_plan<false>(from, plan_of(view, bytes), to);
}

void fill_bytes(const std::byte* value, int64_t bytes, int64_t count, std::byte* to) {
  const int64_t total = bytes * count;
  if (total == 0) return;
  std::memcpy(to, value, bytes);
  // Doubling copies: each one as long as what is there.
  for (int64_t done = bytes; done < total;) {
    const int64_t now = std::min(done, total - done);
    std::memcpy(to + done, to, now);
    done += now;
  }
}

}  // namespace sidereal::kernels
