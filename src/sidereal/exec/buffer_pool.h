#pragma once

#include <cstddef>
#include <vector>

#include "sidereal/tensor/tensor.h"

namespace sidereal::exec {

/// Buffers of one lane that are used again and again, so that a warm step takes no memory.
/// A buffer is free when the pool is its only holder. To take one costs the same however many there
/// are, as long as they come back in about the order in which they were taken.
/// Thread: core-local. Limits: past `bytes_max` bytes, free buffers are given back to the machine;
/// with 0 nothing is kept, and every buffer is a new one: only for programs without planned
/// buffers.
class BufferPool {
 public:
  explicit BufferPool(size_t bytes_max) : bytes_max_(bytes_max) {}

  /// A buffer of at least `bytes` bytes, contents unspecified.
  tensor::Buffer::Ptr acquire(size_t bytes);
  /// A tensor in such a buffer; strings, empty ones, in memory of their own.
  tensor::Tensor tensor(tensor::DType dtype, const tensor::Shape& shape);

  /// Buffers made since the start; stands still once the lane is warm.
  [[nodiscard]] size_t allocations() const { return allocations_; }

 private:
  /// Buffers of as many bytes.
  struct Size {
    std::vector<tensor::Buffer::Ptr> buffers;
    size_t next = 0;  ///< Where to look first: behind the one that was taken last.

    tensor::Buffer::Ptr* find_free();
  };
  void give_back();

  std::vector<Size> sizes_;
  size_t bytes_ = 0;
  size_t bytes_max_;
  size_t allocations_ = 0;
};

}  // namespace sidereal::exec
