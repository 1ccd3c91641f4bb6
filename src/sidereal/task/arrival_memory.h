#pragma once

#include <cstddef>
#include <memory>

#include "sidereal/tensor/buffer.h"

namespace sidereal::task {

/// Memory for large tensors that arrive over gRPC, used again and again: the system clears fresh
/// pages, which takes longer than what is copied into them. A buffer comes back when its last
/// holder lets go of it, on whatever thread, and may outlive this. Takes no lock.
/// Thread: any. Limits: 1 GiB of free memory, in 16 blocks; what is beyond goes back to the system.
class ArrivalMemory {
 public:
  ArrivalMemory();
  ~ArrivalMemory();
  ArrivalMemory(const ArrivalMemory&) = delete;
  ArrivalMemory& operator=(const ArrivalMemory&) = delete;

  /// At least `bytes` bytes, contents unspecified. Of new memory no page is touched. nullptr: the
  /// machine has none.
  tensor::Buffer::Ptr take(size_t bytes);
  /// Gives back what was free all the time since this was last called; how many bytes.
  size_t trim();

 private:
  class Shelf;
  const std::shared_ptr<Shelf> shelf_;  // Goes with this and the last of its buffers.
};

}  // namespace sidereal::task
