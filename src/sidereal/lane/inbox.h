#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "sidereal/base/function.h"

namespace sidereal::lane {

/// A bounded lock-free queue of functions: many producers, one consumer. Every cell carries a
/// sequence number that says whose turn it is (D. Vyukov's bounded MPMC queue, one consumer).
/// Thread: push() and close() any; the rest the consumer only.
class Inbox {
 public:
  /// `slots` is rounded up to a power of two.
  explicit Inbox(size_t slots);

  /// Moves `fn` in. False, with `fn` untouched, when full or closed.
  bool push(base::Function<void()>& fn);
  /// From now on push() refuses. What push() had accepted can still be popped.
  void close();
  /// Takes the oldest function. False when there is none that is ready.
  bool pop(base::Function<void()>* fn);
  /// True when nothing was accepted that has not been popped.
  [[nodiscard]] bool empty() const;

 private:
  struct Cell {
    std::atomic<uint64_t> turn{0};
    base::Function<void()> fn;
  };
  static constexpr uint64_t kClosed = uint64_t{1} << 63;

  const uint64_t mask_;
  std::unique_ptr<Cell[]> cells_;
  alignas(64) std::atomic<uint64_t> tail_{0};  // next position to fill, and the closed bit
  alignas(64) std::atomic<uint64_t> head_{0};  // next position to empty; written by the consumer
};

}  // namespace sidereal::lane
