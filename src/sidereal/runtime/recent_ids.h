#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "sidereal/base/check.h"

namespace sidereal::runtime {

/// Remembers the last numbers it was given, so that a request which comes twice is found out.
/// Thread: core-local. Limits: `capacity` numbers; the oldest is forgotten first.
/// Source: TensorFlow's RecentRequestIds.
class RecentIds {
 public:
  explicit RecentIds(size_t capacity) : ring_(capacity, 0) {
    SR_CHECK(capacity > 0);
    known_.reserve(capacity);
  }

  /// False when `id` is remembered. 0 stands for no number, and is never remembered.
  bool add(uint64_t id) {
    if (id == 0) return true;
    if (!known_.insert(id).second) return false;
    if (ring_[next_] != 0) known_.erase(ring_[next_]);
    ring_[next_] = id;
    next_ = (next_ + 1) % ring_.size();
    return true;
  }

 private:
  std::vector<uint64_t> ring_;
  size_t next_ = 0;
  absl::flat_hash_set<uint64_t> known_;
};

}  // namespace sidereal::runtime
