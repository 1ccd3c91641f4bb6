#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

/// Memory that two processes of one host and user have in common.
namespace sidereal::sys {

/// Where a process finds memory that another one offers to it. Value type.
struct SharedPlace {
  uint32_t process = 0;     ///< number of the process that made it
  uint32_t descriptor = 0;  ///< and of its descriptor there
  uint64_t key_high = 0;    ///< random; stands in the memory, too
  uint64_t key_low = 0;
  uint64_t ring_bytes = 0;  ///< bytes of each of the two rings in it

  friend bool operator==(const SharedPlace&, const SharedPlace&) = default;
};

/// Such memory, mapped; layout in shared_ring.h. The other side may change any byte of it at any
/// time, but cannot take it away. Unmapped when destroyed. Thread: one at a time.
class SharedMemory {
 public:
  virtual ~SharedMemory() = default;
  [[nodiscard]] virtual std::span<std::byte> bytes() const = 0;
  [[nodiscard]] virtual const SharedPlace& place() const = 0;
  /// Nobody else finds it from now on.
  virtual void hide() = 0;
  /// Gives back the memory of whole pages that hold nothing any more; they read as zeros.
  virtual void release(std::span<std::byte> pages) = 0;
};

}  // namespace sidereal::sys
