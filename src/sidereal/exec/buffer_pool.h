#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/tensor/tensor.h"

namespace sidereal::exec {

/// Buffers of one lane that are used again and again, so that a warm step takes no memory.
/// A buffer is free when the pool is its only holder. A step takes buffers in the order in which
/// they were made, and looks at each once however many it takes; where many are held, by steps that
/// wait, it goes on behind the buffer that was taken last, so that it need not look at all of them.
/// Thread: core-local. Limits: past `bytes_max` bytes, free buffers are given back to the machine,
/// and larger buffers than that are never kept; with 0 nothing is, and every buffer is a new one:
/// only for programs without planned buffers.
class BufferPool {
 public:
  explicit BufferPool(size_t bytes_max) : bytes_max_(bytes_max) {}

  /// A buffer of at least `bytes` bytes, contents unspecified. Aborts when the machine has none.
  tensor::Buffer::Ptr acquire(size_t bytes);
  /// A tensor in such a buffer; strings, empty ones, in memory of their own.
  tensor::Tensor tensor(tensor::DType dtype, const tensor::Shape& shape);
  /// The same for shapes that come from peers. Errors: RESOURCE_EXHAUSTED when the machine has no
  /// such memory.
  Result<tensor::Tensor> try_tensor(tensor::DType dtype, const tensor::Shape& shape);

  /// A step begins: buffers that were made first, which are warm, are looked at first again.
  void rewind() { ++round_; }
  /// Gives back free buffers that were not taken since this was last called; how many bytes.
  size_t trim();

  /// Buffers made since the start; stands still once the lane is warm.
  [[nodiscard]] size_t allocations() const { return allocations_; }

 private:
  struct Held {
    tensor::Buffer::Ptr buffer;
    bool was_taken = true;  ///< Since trim().
  };
  /// Buffers of as many bytes.
  struct Size {
    std::vector<Held> buffers;
    size_t next = 0;    ///< Where to look first: behind the one that was taken last.
    size_t looked = 0;  ///< At how many, since it began with the first of them,
    size_t taken = 0;   ///< and how many of these were taken.
    uint64_t round = 0;

    Held* find_free(uint64_t now);
  };
  tensor::Buffer::Ptr try_acquire(size_t bytes);
  template <class Which>
  void give_back(Which which);

  std::vector<Size> sizes_;
  uint64_t round_ = 0;
  size_t bytes_ = 0;
  size_t bytes_max_;
  size_t allocations_ = 0;
};

}  // namespace sidereal::exec
