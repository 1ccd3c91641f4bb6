#include "sidereal/sys/posix/biased_mutex.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <thread>

#include "sidereal/base/check.h"

namespace sidereal::sys::posix {

namespace {

int64_t membarrier(int command) { return syscall(SYS_membarrier, command, 0, 0); }

/// Whether all threads of this process can be made to pass a barrier.
bool has_barrier() {
  static const bool has = membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0;
  return has;
}

}  // namespace

uint32_t BiasedMutex::number_thread() {
  static std::atomic<uint32_t> last = 0;
  this_thread_ = last.fetch_add(1, std::memory_order_relaxed) + 1;
  return this_thread_;
}

void BiasedMutex::lock_slowly() {
  mutex_.lock();
  if (is_taken_.load(std::memory_order_relaxed)) return;
  if (owner_.load(std::memory_order_relaxed) != 0) return take();
  if (!has_barrier()) {
    is_taken_.store(true, std::memory_order_relaxed);
    return;
  }
  is_in_.store(true, std::memory_order_relaxed);
  owner_.store(this_thread(), std::memory_order_relaxed);
  mutex_.unlock();
}

void BiasedMutex::take() {
  is_taken_.store(true, std::memory_order_seq_cst);
  // Behind this, an owner that does not know yet that it was taken is seen to be in it. A child of
  // fork() has to register again.
  if (membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) != 0) {
    SR_CHECK(membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0 &&
             membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0);
  }
  // As long as what the owner does there lasts, like a wait for any mutex; but once in its life.
  while (is_in_.load(std::memory_order_acquire)) std::this_thread::yield();
}

}  // namespace sidereal::sys::posix
