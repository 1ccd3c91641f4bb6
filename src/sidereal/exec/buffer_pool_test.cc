#include "sidereal/exec/buffer_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "sidereal/base/ref_counted.h"

namespace sidereal::exec {
namespace {

using tensor::Buffer;

TEST(BufferPool, gives_a_buffer_again_only_when_nobody_holds_it) {
  BufferPool pool(1 << 20);
  auto a = pool.acquire(1000);
  const std::byte* const memory = a->data();
  auto b = pool.acquire(1000);
  EXPECT_NE(b->data(), memory);
  EXPECT_EQ(pool.allocations(), 2U);
  a.reset();
  EXPECT_EQ(pool.acquire(900)->data(), memory);
  EXPECT_EQ(pool.allocations(), 2U);
}

TEST(BufferPool, gives_first_what_was_let_go_of_last) {
  BufferPool pool(1 << 20);
  std::vector<Buffer::Ptr> waiting;
  for (int i = 0; i < 500; ++i) waiting.push_back(pool.acquire(64));
  std::vector<const std::byte*> memory;
  for (const size_t i : {200, 100, 400}) {
    memory.push_back(waiting[i]->data());
    waiting[i].reset();
  }
  for (const size_t i : {2, 1, 0}) {
    waiting.push_back(pool.acquire(64));
    EXPECT_EQ(waiting.back()->data(), memory[i]);
  }
  EXPECT_EQ(pool.allocations(), 500U);
}

TEST(BufferPool, gets_back_what_others_let_go_of) {
  BufferPool pool(1 << 20);
  Buffer::Ptr buffer = pool.acquire(1000);
  const std::byte* const memory = buffer->data();
  std::thread([held = std::move(buffer)]() mutable { held.reset(); }).join();
  EXPECT_EQ(pool.acquire(1000)->data(), memory);
  // RefCounted by a thread of its own, as a lane's are.
  std::thread([&] {
    const base::CountOwner counts([] {});
    Buffer::Ptr mine = pool.acquire(1000);
    EXPECT_EQ(mine->data(), memory);
    mine.reset();
    EXPECT_EQ(pool.acquire(1000)->data(), memory);
  }).join();
  EXPECT_EQ(pool.acquire(1000)->data(), memory);
  EXPECT_EQ(pool.allocations(), 1U);
}

TEST(BufferPool, buffers_outlive_it) {
  auto pool = std::make_unique<BufferPool>(1 << 20);
  Buffer::Ptr one = pool->acquire(1000);
  Buffer::Ptr other = pool->acquire(1000);
  pool->acquire(2000).reset();
  pool = nullptr;
  std::memset(one->data(), 1, one->bytes());
  one.reset();
  std::thread([held = std::move(other)]() mutable { held.reset(); }).join();
}

TEST(BufferPool, many_threads_let_go_while_it_goes) {
  constexpr int kThreads = 4;
  for (int round = 0; round < 50; ++round) {
    auto pool = std::make_unique<BufferPool>(1 << 20);
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      std::vector<Buffer::Ptr> held;
      for (int j = 0; j < 50; ++j) held.push_back(pool->acquire(static_cast<size_t>(64 * i)));
      threads.emplace_back([held = std::move(held)]() mutable {
        while (!held.empty()) held.pop_back();
      });
    }
    for (int i = 0; i < 100; ++i) pool->acquire(64).reset();
    pool = nullptr;
    for (std::thread& one : threads) one.join();
  }
}

TEST(BufferPool, does_not_waste_a_large_buffer_on_a_small_value) {
  BufferPool pool(1 << 20);
  pool.acquire(500'000).reset();
  EXPECT_LT(pool.acquire(8)->bytes(), 1000U);
}

TEST(BufferPool, gives_free_memory_back_past_its_limit) {
  BufferPool pool(100'000);
  pool.acquire(60'000).reset();
  const auto held = pool.acquire(80'000);
  const size_t before = pool.allocations();
  const auto again = pool.acquire(60'000);
  EXPECT_EQ(pool.allocations(), before + 1);
}

TEST(BufferPool, keeps_nothing_that_is_larger_than_its_limit) {
  BufferPool pool(100'000);
  pool.acquire(60'000).reset();
  pool.acquire(200'000).reset();
  EXPECT_EQ(pool.allocations(), 2U);
  pool.acquire(60'000).reset();
  EXPECT_EQ(pool.allocations(), 2U);
  pool.acquire(200'000).reset();
  EXPECT_EQ(pool.allocations(), 3U);
}

TEST(BufferPool, says_that_the_machine_has_no_such_memory) {
  BufferPool pool(1 << 20);
  const auto none = pool.try_tensor(tensor::DType::kFloat32, tensor::Shape{int64_t{1} << 55});
  EXPECT_EQ(none.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(none.status().message(), testing::HasSubstr("float32[36028797018963968]"));
  EXPECT_TRUE(pool.try_tensor(tensor::DType::kFloat32, tensor::Shape{3}).ok());
}

TEST(BufferPool, gives_back_what_was_not_taken_since_it_was_last_asked_to) {
  BufferPool pool(1 << 20);
  const auto take_two = [&] {
    const auto first = pool.acquire(1000);
    const auto second = pool.acquire(1000);
  };
  std::vector<Buffer::Ptr> held;
  for (int i = 0; i < 5; ++i) held.push_back(pool.acquire(1000));
  const size_t one = held[0]->bytes();
  const auto in_use = held.back();
  held.clear();
  EXPECT_EQ(pool.trim(), 0U);
  take_two();
  // Two were taken, and one is in use.
  EXPECT_EQ(pool.trim(), 2 * one);
  take_two();
  EXPECT_EQ(pool.allocations(), 5U);
  EXPECT_EQ(pool.trim(), 0U);
  EXPECT_EQ(pool.trim(), 2 * one);
}

}  // namespace
}  // namespace sidereal::exec
