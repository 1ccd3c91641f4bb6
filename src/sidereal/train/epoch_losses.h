#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>

/// Mean losses of epochs. Internal to train.
namespace sidereal::train {

/// Adds up the losses of steps by their epochs, which lanes end at different times.
/// Thread: core-local.
class EpochLosses {
 public:
  void add(int64_t epoch, double sum, int64_t steps) {
    auto& [total, count] = losses_[epoch];
    total += sum;
    count += steps;
  }
  /// Hands the mean of each epoch below `end` that has steps to `take`, once, in order.
  void take_below(int64_t end, const std::function<void(int64_t epoch, double mean)>& take) {
    while (!losses_.empty() && losses_.begin()->first < end) {
      const auto [epoch, losses] = *losses_.begin();
      losses_.erase(losses_.begin());
      take(epoch, losses.first / static_cast<double>(losses.second));
    }
  }

 private:
  std::map<int64_t, std::pair<double, int64_t>> losses_;
};

}  // namespace sidereal::train
