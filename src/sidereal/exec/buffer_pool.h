#pragma once

#include <cstddef>
#include <cstdint>

#include "sidereal/base/status.h"
#include "sidereal/tensor/tensor.h"

namespace sidereal::exec {

/// Buffers of one lane that are used again and again, so that a warm step takes no memory.
/// A buffer comes back when its last holder lets go of it, on whatever thread, and what came back
/// last, which is warm, is given first. Buffers may outlive their pool.
/// Thread: core-local. Limits: past `bytes_max` bytes, free buffers are given back to the machine,
/// and larger buffers than that are never kept; with 0 nothing is, and every buffer is a new one.
class BufferPool {
 public:
  explicit BufferPool(size_t bytes_max);
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  /// A buffer of at least `bytes` bytes, contents unspecified. Throws OutOfMemory.
  tensor::Buffer::Ptr acquire(size_t bytes);
  /// A tensor in such a buffer; strings, empty ones, in memory of their own.
  tensor::Tensor tensor(tensor::DType dtype, const tensor::Shape& shape);
  /// The same for shapes that come from peers. Errors: RESOURCE_EXHAUSTED when the machine has no
  /// such memory.
  Result<tensor::Tensor> try_tensor(tensor::DType dtype, const tensor::Shape& shape);

  /// Gives back the buffers that were free all the time since this was last called; how many bytes.
  size_t trim();

  /// Buffers made since the start; stands still once the lane is warm.
  [[nodiscard]] size_t allocations() const { return allocations_; }

 private:
  class Shelf;
  tensor::Buffer::Ptr try_acquire(size_t bytes);

  Shelf* const shelf_;  // Goes with the pool and the last of its buffers.
  const size_t bytes_max_;
  size_t allocations_ = 0;
};

}  // namespace sidereal::exec
