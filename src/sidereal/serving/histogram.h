#pragma once

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <vector>

namespace sidereal::serving {

/// Bounds of times, in seconds.
inline std::vector<double> seconds_bounds() {
  return {0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10};
}

/// How often values came that are at most each bound, and their sum. Thread: any.
class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds)
      : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}

  void observe(double value) {
    const auto place = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
    const std::lock_guard lock(mutex_);
    ++counts_[place];
    sum_ += value;
  }

  [[nodiscard]] const std::vector<double>& bounds() const { return bounds_; }
  /// By bound, then what is above all.
  [[nodiscard]] std::vector<uint64_t> counts() const {
    const std::lock_guard lock(mutex_);
    return counts_;
  }
  [[nodiscard]] double sum() const {
    const std::lock_guard lock(mutex_);
    return sum_;
  }

 private:
  const std::vector<double> bounds_;
  mutable std::mutex mutex_;
  std::vector<uint64_t> counts_;
  double sum_ = 0;
};

}  // namespace sidereal::serving
