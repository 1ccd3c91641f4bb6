#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "sidereal/app/cluster_coordinator.h"
#include "sidereal/base/status.h"
#include "sidereal/metrics/histogram.h"
#include "sidereal/resources/changes_made.h"
#include "sidereal/task/event.h"
#include "sidereal/tensor/tensor.h"

/// What a coordinator is made of that does not know it.
namespace sidereal::app::coordinator {

/// Thread: any.
class Timings {
 public:
  void record(Timing what, std::chrono::nanoseconds took) {
    const std::lock_guard lock(mutex_);
    all_[static_cast<size_t>(what)].record(took.count());
  }
  /// Counts the time since `begin`.
  void record_since(Timing what, std::chrono::steady_clock::time_point begin) {
    record(what, std::chrono::steady_clock::now() - begin);
  }
  [[nodiscard]] metrics::HistogramSnapshot of(Timing what) const {
    return all_[static_cast<size_t>(what)].snapshot();
  }

 private:
  std::mutex mutex_;  ///< Taken by threads that record.
  std::array<metrics::Histogram, kTimings.size()> all_;
};

/// Thread: any.
class Value final : public RemoteValue {
 public:
  /// `waits`, if it is there, is called whenever somebody waits, by who does.
  explicit Value(std::shared_ptr<Timings> timings, std::function<void()> waits = nullptr)
      : timings_(std::move(timings)), waits_(std::move(waits)) {}
  [[nodiscard]] bool is_ready() const override {
    const std::lock_guard lock(mutex_);
    return is_ready_;
  }
  Result<std::vector<tensor::Tensor>> wait(std::chrono::milliseconds timeout,
                                           const std::function<bool()>& interrupt) override {
    const std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
    const std::chrono::steady_clock::time_point until = begin + timeout;
    if (waits_ && !is_ready()) waits_();
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, task::kLook, [this] { return is_ready_; })) {
      if (timeout.count() > 0 && std::chrono::steady_clock::now() >= until) {
        return base::deadline_exceeded("the value was not there after {} ms", timeout.count());
      }
      lock.unlock();
      const bool is_interrupted = interrupt && interrupt();
      if (waits_) waits_();
      lock.lock();
      if (is_interrupted) return base::cancelled("waiting for the value was interrupted");
    }
    timings_->record_since(Timing::kRemoteValueFetch, begin);
    SR_RETURN_IF_ERROR(status_);
    return fetches_;
  }
  void set(const Status& status, std::vector<tensor::Tensor> fetches) {
    const std::lock_guard lock(mutex_);
    status_ = status;
    fetches_ = std::move(fetches);
    is_ready_ = true;
    changed_.notify_all();
  }

 private:
  const std::shared_ptr<Timings> timings_;
  const std::function<void()> waits_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool is_ready_ = false;
  Status status_;
  std::vector<tensor::Tensor> fetches_;
};

/// Numbers of closures that may be run again: places (resources::ClosureKey), of which each is that
/// of one closure at a time.
class ClosureNumbers {
 public:
  /// kResourceExhausted when there is no place.
  Result<uint64_t> take() {
    if (free_.empty()) {
      if (turns_.size() >> resources::kClosurePlaceBits != 0) {
        return base::resource_exhausted(
            "{} closures have been run and wait to be run again, as many as effectively_once takes",
            turns_.size());
      }
      free_.push_back(turns_.size());
      turns_.push_back(0);
    }
    const uint64_t place = free_.back();
    free_.pop_back();
    return resources::closure_number(place, ++turns_[place]);
  }
  /// The closure has ended.
  void give_back(uint64_t number) {
    const uint64_t place = resources::place_of_closure(number);
    if (turns_[place] < resources::kClosureTurnsMax) free_.push_back(place);
  }

 private:
  std::vector<uint64_t> turns_;  // By place: how many have had it.
  std::vector<uint64_t> free_;   // Those that were used last are last: few are used.
};

}  // namespace sidereal::app::coordinator
