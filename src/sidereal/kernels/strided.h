#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "sidereal/tensor/shape.h"

/// Moving elements by their size, whatever their dtype: what transposing, slicing, broadcasting and
/// reversing have in common.
namespace sidereal::kernels {

/// Elements at `start + i . strides` for every index i below `dims`, row-major. Strides and start
/// are in elements; strides may be zero (repeated elements) or negative.
struct StridedView {
  using Numbers = tensor::Shape::Dims;
  Numbers dims;
  Numbers strides;
  int64_t start = 0;

  /// All elements of a dense array.
  static StridedView dense(const tensor::Shape& shape);
  /// Dimension `axis` becomes every `stride`-th of it from `begin` on, `extent` of them.
  void slice(int axis, int64_t begin, int64_t stride, int64_t extent);
  [[nodiscard]] int64_t num_elements() const;
};

/// Copies the elements of the view (from `from` on, each of `bytes` bytes) to the dense array `to`.
void gather_strided(const std::byte* from, const StridedView& view, int64_t bytes, std::byte* to);

/// Copies the dense array `from` to the elements of the view (from `to` on, each of `bytes` bytes).
/// No two of them may be the same.
void scatter_strided(const std::byte* from, const StridedView& view, int64_t bytes, std::byte* to);

/// Fills `count` elements of `bytes` bytes with copies of `value`.
void fill_bytes(const std::byte* value, int64_t bytes, int64_t count, std::byte* to);

}  // namespace sidereal::kernels
