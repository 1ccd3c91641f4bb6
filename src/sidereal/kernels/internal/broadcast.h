#pragma once

#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "sidereal/tensor/shape.h"

namespace sidereal::kernels::internal {

/// A broadcast pair of shapes as the fewest loops that walk it: neighbouring dimensions that both
/// operands treat alike are one, dimensions of extent 1 are gone.
struct LoopPlan {
  struct Loop {
    int64_t extent;
    int64_t a_stride;  ///< In elements; 0 where a is repeated.
    int64_t b_stride;
  };
  /// Outermost first; never empty. The innermost strides are 0 or 1.
  absl::InlinedVector<Loop, 6> loops;
  /// True when there is no element at all.
  bool empty = false;
};

/// The plan for two shapes that fit (see broadcast_shape).
LoopPlan plan_loops(const tensor::Shape& a, const tensor::Shape& b);

/// Where the elements of an operand lie for indices of the shape of rank `rank` it is broadcast to.
class Strides {
 public:
  Strides(const tensor::Shape& shape, int rank) : strides_(rank, 0) {
    int64_t stride = 1;
    for (int i = 1; i <= shape.rank(); ++i) {
      const int64_t extent = shape.dim(-i);
      strides_[rank - i] = extent == 1 ? 0 : stride;
      stride *= extent;
    }
  }
  /// Offset of the element at `index`, in elements.
  [[nodiscard]] int64_t offset(const absl::InlinedVector<int64_t, 8>& index) const {
    int64_t sum = 0;
    for (size_t i = 0; i < strides_.size(); ++i) sum += index[i] * strides_[i];
    return sum;
  }
  /// Of the innermost dimension; 0 or 1.
  [[nodiscard]] int64_t last() const { return strides_.empty() ? 0 : strides_.back(); }

 private:
  absl::InlinedVector<int64_t, 8> strides_;
};

/// Calls row(a_offset, b_offset, out_offset) for every innermost loop of the plan, in index order.
template <class Row>
void for_each_row(const LoopPlan& plan, Row row) {
  if (plan.empty) return;
  const int outer = static_cast<int>(plan.loops.size()) - 1;
  const int64_t width = plan.loops.back().extent;
  absl::InlinedVector<int64_t, 6> at(plan.loops.size(), 0);
  int64_t a = 0;
  int64_t b = 0;
  int64_t out = 0;
  while (true) {
    row(a, b, out);
    out += width;
    int i = outer - 1;
    for (; i >= 0; --i) {
      const LoopPlan::Loop& loop = plan.loops[i];
      a += loop.a_stride;
      b += loop.b_stride;
      if (++at[i] < loop.extent) break;
      a -= loop.a_stride * loop.extent;
      b -= loop.b_stride * loop.extent;
      at[i] = 0;
    }
    if (i < 0) return;
  }
}

}  // namespace sidereal::kernels::internal
