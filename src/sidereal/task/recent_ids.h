#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "sidereal/base/check.h"

namespace sidereal::task {

/// Remembers the last numbers it was given, so that a request which comes twice is found out.
/// Thread: core-local. Limits: `capacity` numbers; the oldest is forgotten first.
/// Source: TensorFlow's RecentRequestIds.
class RecentIds {
 public:
  explicit RecentIds(size_t capacity) : capacity_(capacity) { SR_CHECK(capacity > 0); }

  /// False when `id` is remembered. 0 stands for no number, and is never remembered.
  bool add(uint64_t id) {
    if (id == 0) return true;
    if (!known_.insert(id).second) return false;
    if (ring_.size() < capacity_) {
      ring_.push_back(id);
      return true;
    }
    known_.erase(ring_[next_]);
    ring_[next_] = id;
    next_ = (next_ + 1) % capacity_;
    return true;
  }

 private:
  const size_t capacity_;
  std::vector<uint64_t> ring_;  // Grows to its capacity; then the oldest is at next_.
  size_t next_ = 0;
  absl::flat_hash_set<uint64_t> known_;
};

}  // namespace sidereal::task
