#include "sidereal/kernels/internal/broadcast.h"

#include <algorithm>

#include "sidereal/base/check.h"
#include "sidereal/kernels/elementwise.h"

namespace sidereal::kernels::internal {
namespace {

// Extent of dimension `i` of a shape of rank `rank`, with ones put in front.
int64_t extent_at(const tensor::Shape& shape, int i, int rank) {
  const int own = i - (rank - shape.rank());
  return own < 0 ? 1 : shape.dim(own);
}

}  // namespace

LoopPlan plan_loops(const tensor::Shape& a, const tensor::Shape& b) {
  const int rank = std::max(a.rank(), b.rank());
  LoopPlan plan;
  int64_t a_stride = 1;
  int64_t b_stride = 1;
  // Innermost first; reversed at the end.
  for (int i = rank - 1; i >= 0; --i) {
    const int64_t ea = extent_at(a, i, rank);
    const int64_t eb = extent_at(b, i, rank);
    SR_CHECK(ea == eb || ea == 1 || eb == 1, "shapes {} and {} do not broadcast", a.to_string(),
             b.to_string());
    const int64_t extent = ea == 1 ? eb : ea;
    if (extent == 0) plan.empty = true;
    if (extent != 1) {
      const LoopPlan::Loop loop{extent, ea == 1 ? 0 : a_stride, eb == 1 ? 0 : b_stride};
      LoopPlan::Loop* inner = plan.loops.empty() ? nullptr : &plan.loops.back();
      if (inner != nullptr && loop.a_stride == inner->a_stride * inner->extent &&
          loop.b_stride == inner->b_stride * inner->extent &&
          (loop.a_stride == 0) == (inner->a_stride == 0) &&
          (loop.b_stride == 0) == (inner->b_stride == 0)) {
        inner->extent *= extent;
      } else {
        plan.loops.push_back(loop);
      }
    }
    a_stride *= ea;
    b_stride *= eb;
  }
  if (plan.loops.empty()) plan.loops.push_back({1, 1, 1});
  std::reverse(plan.loops.begin(), plan.loops.end());
  return plan;
}

}  // namespace sidereal::kernels::internal

namespace sidereal::kernels {

RowOffsets::RowOffsets(const tensor::Shape& from, const tensor::Shape& to) {
  int64_t stride = 1;
  for (int i = 1; i <= to.rank(); ++i) {
    const int64_t extent = i <= from.rank() ? from.dim(-i) : 1;
    dims_.push_back({to.dim(-i), extent == 1 ? 0 : stride});
    stride *= extent;
  }
}

int64_t RowOffsets::operator()(int64_t index) const {
  int64_t offset = 0;
  for (const Dim& dim : dims_) {
    offset += index % dim.extent * dim.stride;
    index /= dim.extent;
  }
  return offset;
}

}  // namespace sidereal::kernels
