#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

namespace sidereal::sys::posix {

/// A mutex for what one thread uses nearly always: to that thread, the first that locks it, it
/// costs neither a lock nor an atomic read-modify-write, until another thread locks it; from then
/// on it is a mutex like others. Who takes it from its owner waits until the owner is out of it,
/// and makes all threads of the process pass a barrier, once (membarrier(2); where the system has
/// none, it is a mutex from the start).
/// Thread: any. Source: biased locking (Russell and Detlefs, OOPSLA 2006).
class BiasedMutex {
 public:
  BiasedMutex() = default;
  BiasedMutex(const BiasedMutex&) = delete;
  BiasedMutex& operator=(const BiasedMutex&) = delete;

  void lock() {
    if (owner_.load(std::memory_order_relaxed) != this_thread()) return lock_slowly();
    is_in_.store(true, std::memory_order_relaxed);
    // The processor may still read before it has written: take() sees to that with its barrier.
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (!is_taken_.load(std::memory_order_acquire)) return;
    is_in_.store(false, std::memory_order_release);
    mutex_.lock();
  }
  void unlock() {
    const bool is_owner = owner_.load(std::memory_order_relaxed) == this_thread();
    if (is_owner && is_in_.load(std::memory_order_relaxed)) {
      is_in_.store(false, std::memory_order_release);
    } else {
      mutex_.unlock();
    }
  }
  /// Whether it still belongs to the first thread that locked it. For tests.
  [[nodiscard]] bool is_biased() const {
    return owner_.load(std::memory_order_relaxed) != 0 &&
           !is_taken_.load(std::memory_order_relaxed);
  }

 private:
  /// A number of the calling thread, never that of another one; 0: of none.
  static uint32_t this_thread() { return this_thread_ != 0 ? this_thread_ : number_thread(); }
  static uint32_t number_thread();
  void lock_slowly();
  void take();

  inline static constinit thread_local uint32_t this_thread_ = 0;

  std::mutex mutex_;
  std::atomic<uint32_t> owner_ = 0;     // Changes once, with mutex_.
  std::atomic<bool> is_in_ = false;     // The owner, without mutex_. Written by the owner only.
  std::atomic<bool> is_taken_ = false;  // Changes once, with mutex_.
};

}  // namespace sidereal::sys::posix
