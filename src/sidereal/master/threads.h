#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace sidereal::master {

/// Threads for what takes long and is rare. Thread: any.
class Threads {
 public:
  Threads() = default;
  /// Waits until all have ended.
  ~Threads() {
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [this] { return running_ == 0; });
  }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

  /// Runs `fn` on a thread of its own.
  void run(std::function<void()> fn) {
    {
      const std::lock_guard lock(mutex_);
      ++running_;
    }
    std::thread([this, fn = std::move(fn)]() mutable {
      fn();
      fn = nullptr;
      const std::lock_guard lock(mutex_);
      --running_;
      ended_.notify_all();
    }).detach();
  }

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  int running_ = 0;
};

}  // namespace sidereal::master
