#pragma once

#include <atomic>
#include <cstdint>

namespace sidereal::metrics {

class Figures;
struct Declaration;

/// A number that one thread writes and any thread may read. An addition is a plain load, add and
/// store: no locked instruction. Two writers would lose additions: give each lane its own.
/// Thread: one writer; any reader (relaxed: a reader sees some recent value).
class Counter {
 public:
  Counter() = default;
  /// One of `in`, which is read as long as this is there.
  Counter(Figures* in, Declaration what);
  Counter(const Counter&) = delete;
  Counter& operator=(const Counter&) = delete;

  /// Adds `n`. Writer only.
  void add(int64_t n = 1) {
    value_.store(value_.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }
  /// Sets the value (for gauges such as "connections open"). Writer only.
  void set(int64_t value) { value_.store(value, std::memory_order_relaxed); }
  /// The value now.
  [[nodiscard]] int64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> value_{0};
};

}  // namespace sidereal::metrics
