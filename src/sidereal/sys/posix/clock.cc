#include <sys/random.h>
#include <time.h>
#include <x86intrin.h>

#include "sidereal/base/check.h"
#include "sidereal/sys/posix/posix.h"

namespace sidereal::sys::posix {
namespace {

class MonotonicClock final : public Clock {
 public:
  int64_t now() override {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return int64_t{t.tv_sec} * kSecond + t.tv_nsec;
  }
  // The processor's counter is read in a fifth of the time. It counts at 1 GHz or faster; where it
  // jumps, the reading is a new one.
  int64_t recent(Reading* last) override {
    const uint64_t ticks = __rdtsc();
    if (ticks - last->ticks > kRecentTicks) *last = {now(), ticks};
    return last->ns;
  }

 private:
  static constexpr uint64_t kRecentTicks = 100'000;
};

class KernelRandom final : public Random {
 public:
  uint64_t next() override {
    uint64_t value = 0;
    // Eight bytes are never cut short, and only a signal before the pool is ready interrupts.
    while (getrandom(&value, sizeof(value), 0) != static_cast<ssize_t>(sizeof(value))) {
      SR_CHECK(errno == EINTR, "getrandom failed: errno {}", errno);
    }
    return value;
  }
};

}  // namespace

std::unique_ptr<Clock> create_clock() { return std::make_unique<MonotonicClock>(); }

std::unique_ptr<Random> create_random() { return std::make_unique<KernelRandom>(); }

}  // namespace sidereal::sys::posix
