#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

#include "sidereal/data/batch.h"

namespace sidereal::data {

/// A bounded queue of batches between two threads. Waiting is on an eventfd, so a poller can wait
/// for it too.
///
/// Thread: one thread pushes and closes, one thread pops and waits.
/// Limits: push() on a full ring returns false and leaves the batch alone.
class BatchRing {
 public:
  explicit BatchRing(int64_t capacity);
  ~BatchRing();
  BatchRing(const BatchRing&) = delete;
  BatchRing& operator=(const BatchRing&) = delete;

  /// Moves `batch` in; false when full.
  bool push(Batch* batch);
  /// Swaps the oldest batch with `batch` (which must hold nothing of value); false when empty.
  bool pop(Batch* batch);
  /// No more pushes; wakes the other side. What is in the ring can still be popped.
  void close();
  /// True after close(); look again whether the ring is empty after seeing this.
  [[nodiscard]] bool closed() const;

  /// Wakes whoever is in wait(). Any thread.
  void wake();
  /// Waits until something was pushed, the ring was closed or wake() was called since the last
  /// wait, or `deadline` has passed (then false). May return early.
  bool wait(std::chrono::steady_clock::time_point deadline);
  [[nodiscard]] int fd() const { return fd_; }

 private:
  std::vector<Batch> slots_;
  // Batches ever popped and pushed. Each is written by one thread with release order and read by
  // the other with acquire order, which hands the slot over.
  alignas(64) std::atomic<int64_t> popped_{0};
  alignas(64) std::atomic<int64_t> pushed_{0};
  // Release on close, acquire on read: whatever was written before the close can be read after.
  std::atomic<bool> closed_{false};
  int fd_;
};

}  // namespace sidereal::data
