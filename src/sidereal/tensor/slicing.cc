#include "sidereal/tensor/slicing.h"

#include <algorithm>

namespace sidereal::tensor {
namespace {

constexpr int64_t kTermsMax = 62;  // Masks are bits of an int64.

bool has_bit(int64_t mask, int64_t i) { return (mask >> i & 1) != 0; }

/// What one dimension of the value becomes.
struct Taken {
  int64_t begin = 0;
  int64_t stride = 1;
  int64_t extent = -1;
};

/// Walks over terms and dimensions side by side: what the ellipsis stands for, new dimensions.
/// `take(term, dimension)` says what a term takes of a dimension.
template <class Take>
Status walk(int64_t num_terms, const SliceTerms& masks, const Shape& value, ResolvedSlice* out,
            Take take) {
  if (num_terms > kTermsMax) {
    return base::invalid_argument("{} slicing terms are too many", num_terms);
  }
  const int rank = value.rank();
  int64_t consuming = 0;
  int64_t ellipses = 0;
  for (int64_t i = 0; i < num_terms; ++i) {
    if (has_bit(masks.ellipsis_mask, i)) {
      ++ellipses;
    } else if (!has_bit(masks.new_axis_mask, i)) {
      ++consuming;
    }
  }
  if (ellipses > 1) return base::invalid_argument("a slice has more than one ellipsis");
  if (consuming > rank) {
    return base::invalid_argument(
        "{} indices or slices for a value of shape {}, which has {} "
        "dimensions",
        consuming, value.to_string(), rank);
  }
  int dimension = 0;
  const auto take_whole = [&](int64_t count) {
    for (; count > 0; --count, ++dimension) {
      out->begin.push_back(0);
      out->stride.push_back(1);
      out->extent.push_back(value.dim(dimension));
      out->shape.append(value.dim(dimension));
    }
  };
  for (int64_t i = 0; i < num_terms; ++i) {
    if (has_bit(masks.ellipsis_mask, i)) {
      take_whole(rank - consuming);
    } else if (has_bit(masks.new_axis_mask, i)) {
      out->shape.append(1);
    } else {
      Result<Taken> taken = take(i, dimension);
      if (!taken.ok()) return taken.status();
      out->begin.push_back(taken->begin);
      out->stride.push_back(taken->stride);
      out->extent.push_back(taken->extent);
      if (!has_bit(masks.shrink_axis_mask, i)) out->shape.append(taken->extent);
      ++dimension;
    }
  }
  take_whole(rank - dimension);
  return {};
}

Result<Taken> take_index(int64_t index, int64_t stride, int64_t extent, int dimension) {
  if (stride <= 0) return base::invalid_argument("a single index has stride {}", stride);
  if (extent < 0) return Taken{index, 1, 1};
  if (index < -extent || index >= extent) {
    return base::invalid_argument("index {} is not in [{}, {}) of dimension {}", index, -extent,
                                  extent, dimension);
  }
  return Taken{index < 0 ? index + extent : index, 1, 1};
}

/// The index an end of a range means: counted from the end when negative, held within the range.
int64_t clamp_end(int64_t index, int64_t extent, int64_t stride) {
  const int64_t low = stride > 0 ? 0 : -1;
  const int64_t high = stride > 0 ? extent : extent - 1;
  return std::clamp(index < 0 ? index + extent : index, low, high);
}

Result<Taken> take_range(const SliceTerms& terms, int64_t i, int64_t extent) {
  const int64_t stride = terms.strides[i];
  if (stride == 0) return base::invalid_argument("the stride of slicing term {} is 0", i);
  if (extent < 0) return Taken{0, stride, -1};
  const bool no_begin = has_bit(terms.begin_mask, i);
  const bool no_end = has_bit(terms.end_mask, i);
  const int64_t begin =
      no_begin ? (stride > 0 ? 0 : extent - 1) : clamp_end(terms.begin[i], extent, stride);
  const int64_t end = no_end ? (stride > 0 ? extent : -1) : clamp_end(terms.end[i], extent, stride);
  const int64_t length = end - begin;
  if (length == 0 || (length < 0) != (stride < 0)) return Taken{0, 1, 0};
  // Never overflows: stride's magnitude is compared, not added.
  const int64_t count = length / stride + (length % stride != 0 ? 1 : 0);
  // A stride that is not used must not overflow when it becomes bytes.
  return Taken{begin, count == 1 ? 1 : stride, count};
}

}  // namespace

Result<ResolvedSlice> resolve_slice(const SliceTerms& terms, const Shape& value) {
  const size_t count = terms.begin.size();
  if (terms.end.size() != count || terms.strides.size() != count) {
    return base::invalid_argument("{} begins, {} ends and {} strides; there must be as many", count,
                                  terms.end.size(), terms.strides.size());
  }
  ResolvedSlice out;
  SR_RETURN_IF_ERROR(walk(static_cast<int64_t>(count), terms, value, &out,
                          [&](int64_t i, int dimension) -> Result<Taken> {
                            const int64_t extent = value.dim(dimension);
                            if (has_bit(terms.shrink_axis_mask, i)) {
                              return take_index(terms.begin[i], terms.strides[i], extent,
                                                dimension);
                            }
                            return take_range(terms, i, extent);
                          }));
  return out;
}

Result<Shape> shape_of_unknown_slice(int64_t num_terms, const SliceTerms& masks,
                                     const Shape& value) {
  ResolvedSlice out;
  SR_RETURN_IF_ERROR(
      walk(num_terms, masks, value, &out, [&](int64_t, int) -> Result<Taken> { return Taken{}; }));
  return out.shape;
}

}  // namespace sidereal::tensor
