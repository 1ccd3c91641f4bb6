#pragma once

#include <cstdint>
#include <span>

#include "sidereal/base/status.h"
#include "sidereal/tensor/shape.h"

namespace sidereal::tensor {

/// What stands between the brackets of x[1:, ..., None, 3, ::-1]: one term per entry, and bit masks
/// over the terms, as in tf.strided_slice. Spans are borrowed.
struct SliceTerms {
  std::span<const int64_t> begin;
  std::span<const int64_t> end;
  std::span<const int64_t> strides;
  int64_t begin_mask = 0;        ///< Terms without a begin.
  int64_t end_mask = 0;          ///< Terms without an end.
  int64_t ellipsis_mask = 0;     ///< The term "...": as many whole dimensions as fit. At most one.
  int64_t new_axis_mask = 0;     ///< Terms that insert a dimension of extent 1.
  int64_t shrink_axis_mask = 0;  ///< Terms that are one index: the dimension goes away.
};

/// What the terms say of each dimension of a value.
struct ResolvedSlice {
  Shape::Dims begin;   ///< First index taken, by dimension of the value.
  Shape::Dims stride;  ///< Step, by dimension; never 0.
  Shape::Dims extent;  ///< Number taken, by dimension; -1: not known.
  Shape shape;         ///< Of the result: extents less shrunk dimensions, with new ones.
};

/// Applies NumPy's rules (tf.strided_slice: ValidateStridedSliceOp) to a value of shape `value`,
/// whose rank must be known. Extents of -1 give extents of -1 where they matter.
/// kInvalidArgument: a stride of 0, two ellipses, more terms than dimensions, a single index
/// outside its dimension.
Result<ResolvedSlice> resolve_slice(const SliceTerms& terms, const Shape& value);

/// The shape of the result when only the number of terms is known, not their begins and ends.
Result<Shape> shape_of_unknown_slice(int64_t num_terms, const SliceTerms& masks,
                                     const Shape& value);

}  // namespace sidereal::tensor
