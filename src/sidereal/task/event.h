#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>

/// For the .cc files of task.
namespace sidereal::task {

/// How often a waiting call asks whether it is to end.
inline constexpr std::chrono::milliseconds kLook(50);

/// Something that is waited for. Thread: any.
class Event {
 public:
  void set() {
    const std::lock_guard lock(mutex_);
    set_ = true;
    changed_.notify_all();
  }
  /// Waits for it, for `limit` at most.
  void wait_for(std::chrono::milliseconds limit) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, limit, [this] { return set_; });
  }
  /// Calls `interrupted` now and then; once it says true, `cancel`.
  void wait(const std::function<bool()>& interrupted, const std::function<void()>& cancel) {
    std::unique_lock lock(mutex_);
    bool cancelled = false;
    while (!set_) {
      if (changed_.wait_for(lock, kLook, [this] { return set_; })) break;
      if (cancelled || !interrupted) continue;
      lock.unlock();
      cancelled = interrupted();
      if (cancelled) cancel();
      lock.lock();
    }
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool set_ = false;
};

}  // namespace sidereal::task
