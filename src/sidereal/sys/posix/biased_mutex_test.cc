#include "sidereal/sys/posix/biased_mutex.h"

#include <gtest/gtest.h>

#include <latch>
#include <memory>
#include <thread>
#include <vector>

namespace sidereal::sys::posix {
namespace {

TEST(BiasedMutex, belongs_to_its_first_thread_until_another_one_comes) {
  BiasedMutex mutex;
  EXPECT_FALSE(mutex.is_biased());
  for (int i = 0; i < 3; ++i) {
    const std::lock_guard lock(mutex);
    EXPECT_TRUE(mutex.is_biased());
  }
  EXPECT_TRUE(mutex.is_biased());
  std::thread([&] { const std::lock_guard lock(mutex); }).join();
  EXPECT_FALSE(mutex.is_biased());
  const std::lock_guard lock(mutex);
}

TEST(BiasedMutex, belongs_to_nobody_after_its_thread) {
  BiasedMutex mutex;
  std::thread([&] { const std::lock_guard lock(mutex); }).join();
  const std::lock_guard lock(mutex);
  EXPECT_FALSE(mutex.is_biased());
}

TEST(BiasedMutex, keeps_others_out_while_its_thread_is_in) {
  BiasedMutex mutex;
  int value = 0;
  std::thread other;
  {
    const std::lock_guard lock(mutex);
    std::latch comes(1);
    other = std::thread([&] {
      comes.count_down();
      const std::lock_guard inner(mutex);
      EXPECT_EQ(value, 1);
      value = 2;
    });
    comes.wait();
    // Long enough for the other one to be there, mostly.
    for (int i = 0; i < 1000; ++i) std::this_thread::yield();
    EXPECT_EQ(value, 0);
    value = 1;
  }
  other.join();
  const std::lock_guard lock(mutex);
  EXPECT_EQ(value, 2);
}

/// Many mutexes, as each loses its owner once: that moment is what is tried.
TEST(BiasedMutex, counts_right_whenever_it_is_taken) {
  constexpr int kMutexes = 300;
  constexpr int kRounds = 2000;
  struct Counter {
    BiasedMutex mutex;
    int64_t value = 0;
  };
  std::vector<std::unique_ptr<Counter>> all;
  for (int i = 0; i < kMutexes; ++i) all.push_back(std::make_unique<Counter>());
  for (const auto& counter : all) {
    std::latch owned(1);
    std::thread owner([&] {
      for (int i = 0; i < kRounds; ++i) {
        const std::lock_guard lock(counter->mutex);
        if (i == 10) owned.count_down();
        ++counter->value;
      }
    });
    owned.wait();
    for (int i = 0; i < 10; ++i) {
      const std::lock_guard lock(counter->mutex);
      ++counter->value;
    }
    owner.join();
    ASSERT_EQ(counter->value, kRounds + 10);
  }
}

}  // namespace
}  // namespace sidereal::sys::posix
