#pragma once

#include <chrono>
#include <cmath>
#include <cstdint>
#include <future>
#include <mutex>
#include <string>
#include <vector>

#include "sidereal/base/status.h"

namespace sidereal::bench {

inline int64_t steady_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// Counts the steps of workers that end within a window, and how long they took. Thread: any.
class Tally {
 public:
  /// Steps of a twentieth of a power of two: how finely times are told apart.
  static constexpr double kFineness = 20;

  /// Begins a window, after which the promise is kept once all workers have stopped.
  void begin(size_t workers, int64_t warm_ns, int64_t measure_ns, std::promise<Status>* ended) {
    const std::lock_guard lock(mutex_);
    steps_.assign(workers, 0);
    times_.assign(64 * static_cast<size_t>(kFineness), 0);
    running_ = workers;
    from_ = steady_ns() + warm_ns;
    to_ = from_ + measure_ns;
    ended_ = ended;
  }

  /// A step of `worker` that began at `began` has ended. Whether it begins another one.
  bool count(size_t worker, int64_t began) {
    const int64_t now = steady_ns();
    const std::lock_guard lock(mutex_);
    if (now >= from_ && now < to_) {
      ++steps_[worker];
      const double us = std::max(1.0, static_cast<double>(now - began) * 1e-3);
      ++times_[static_cast<size_t>(std::log2(us) * kFineness)];
    }
    if (now < to_ && ended_ != nullptr) return true;
    stop({});
    return false;
  }

  /// A worker cannot go on.
  void fail(const Status& why) {
    const std::lock_guard lock(mutex_);
    stop(why);
  }

  /// Of each worker, in the window.
  [[nodiscard]] const std::vector<int64_t>& steps() const { return steps_; }
  /// How many steps took 2^(i / kFineness) microseconds.
  [[nodiscard]] const std::vector<int64_t>& times() const { return times_; }

 private:
  void stop(const Status& why) {
    if (running_ > 0) --running_;
    if (ended_ == nullptr || (why.ok() && running_ > 0)) return;
    ended_->set_value(why);
    ended_ = nullptr;
  }

  std::mutex mutex_;
  std::vector<int64_t> steps_;
  std::vector<int64_t> times_;
  size_t running_ = 0;
  int64_t from_ = 0;
  int64_t to_ = 0;
  std::promise<Status>* ended_ = nullptr;
};

}  // namespace sidereal::bench
