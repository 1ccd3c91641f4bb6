#include "sidereal/task/arrival_memory.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

namespace sidereal::task {
namespace {

using tensor::Buffer;

constexpr size_t kMiB = size_t{1} << 20;

TEST(ArrivalMemory, WhatNobodyHoldsAnyMoreIsTakenAgain) {
  ArrivalMemory memory;
  Buffer::Ptr one = memory.take(8 * kMiB);
  const std::byte* const where = one->data();
  const Buffer::Ptr other = memory.take(8 * kMiB);
  EXPECT_NE(other->data(), where);
  Buffer::Ptr held = one;
  one.reset();
  const Buffer::Ptr third = memory.take(8 * kMiB);
  EXPECT_NE(third->data(), where);
  held.reset();
  // A little less will do, much less or more will not.
  EXPECT_EQ(memory.take(7 * kMiB)->data(), where);
  EXPECT_NE(memory.take(9 * kMiB)->data(), where);
  EXPECT_NE(memory.take(3 * kMiB)->data(), where);
  EXPECT_GE(memory.take(9 * kMiB)->bytes(), 9 * kMiB);
}

TEST(ArrivalMemory, WhatIsNotUsedGoesBackToTheSystem) {
  ArrivalMemory memory;
  memory.take(8 * kMiB);
  EXPECT_EQ(memory.trim(), 0U);
  memory.take(8 * kMiB);
  EXPECT_EQ(memory.trim(), 0U);
  EXPECT_EQ(memory.trim(), 8 * kMiB);
  EXPECT_EQ(memory.trim(), 0U);
}

TEST(ArrivalMemory, BuffersOutliveIt) {
  Buffer::Ptr last;
  {
    ArrivalMemory memory;
    last = memory.take(4 * kMiB);
    memory.take(4 * kMiB);
  }
  last->data()[4 * kMiB - 1] = std::byte{1};
}

TEST(ArrivalMemory, ThereIsNoEndOfBlocks) {
  ArrivalMemory memory;
  std::vector<Buffer::Ptr> all(100);
  for (Buffer::Ptr& one : all) ASSERT_NE(one = memory.take(2 * kMiB), nullptr);
  all.clear();
  EXPECT_EQ(memory.trim(), 0U);
  EXPECT_EQ(memory.trim(), 16 * 2 * kMiB);
  EXPECT_EQ(memory.take(size_t{1} << 50), nullptr);
}

TEST(ArrivalMemory, ThreadsNeverGetTheSameMemory) {
  ArrivalMemory memory;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&memory, t] {
      for (int i = 0; i < 300; ++i) {
        const Buffer::Ptr mine = memory.take((2 + static_cast<size_t>(i % 3)) * kMiB);
        auto* const at = reinterpret_cast<int*>(mine->data());
        *at = t;
        if (i % 50 == 0) static_cast<void>(memory.trim());
        std::this_thread::yield();
        ASSERT_EQ(*at, t);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace sidereal::task
