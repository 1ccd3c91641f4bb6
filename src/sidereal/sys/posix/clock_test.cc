#include <gtest/gtest.h>

#include <algorithm>

#include "sidereal/sys/posix/posix.h"

namespace sidereal::sys::posix {
namespace {

TEST(Clock, ARecentReadingIsNeverAheadAndAtMostATenthOfAMillisecondBehind) {
  const auto clock = create_clock();
  Clock::Reading last;
  int64_t oldest_ns = 0;
  int64_t before = clock->now();
  for (const int64_t until = before + 20 * kMillisecond; before < until; before = clock->now()) {
    const int64_t recent = clock->recent(&last);
    ASSERT_LE(recent, clock->now());
    oldest_ns = std::max(oldest_ns, before - recent);
  }
  EXPECT_LE(oldest_ns, kMillisecond / 10);
}

}  // namespace
}  // namespace sidereal::sys::posix
