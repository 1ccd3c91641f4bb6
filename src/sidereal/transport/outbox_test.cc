#include "sidereal/transport/outbox.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <random>
#include <string>

namespace sidereal::transport {
namespace {

TEST(Outbox, GivesBackWhatWasAppendedInOrderHoweverItIsSent) {
  std::mt19937 random(7);
  ChunkPool pool;
  Outbox outbox(&pool);
  std::string expected, seen;
  const auto shared = tensor::Buffer::allocate(200'000);
  std::memset(shared->data(), 's', 200'000);
  for (int round = 0; round < 3000; ++round) {
    if (random() % 4 == 0) {
      const size_t bytes = random() % 100'000;
      outbox.append_shared(shared->data(), bytes, shared);
      expected.append(bytes, 's');
    } else {
      const size_t bytes = 1 + random() % (random() % 50 == 0 ? 100'000 : 300);
      const char fill = static_cast<char>('a' + round % 17);
      std::memset(outbox.append(bytes), fill, bytes);
      expected.append(bytes, fill);
    }
    ASSERT_EQ(outbox.bytes(), expected.size() - seen.size());
    std::array<sys::ConstIoSlice, 8> slices;
    const size_t count = outbox.peek(slices);
    size_t budget = random() % 60'000;
    if (round > 2500) budget *= 20;
    size_t taken = 0;
    for (size_t i = 0; i < count; ++i) {
      const size_t n = std::min(slices[i].bytes, budget - taken);
      seen.append(reinterpret_cast<const char*>(slices[i].data), n);
      taken += n;
    }
    outbox.consume(taken);
  }
  ASSERT_EQ(seen, expected.substr(0, seen.size()));
  outbox.clear();
  EXPECT_EQ(outbox.bytes(), 0u);
  EXPECT_EQ(pool.taken(), 0);
  EXPECT_EQ(shared->holders(), 1);
}

TEST(Outbox, SmallPiecesShareOneSlice) {
  ChunkPool pool;
  Outbox outbox(&pool);
  for (int i = 0; i < 100; ++i) std::memset(outbox.append(64), i, 64);
  std::array<sys::ConstIoSlice, 8> slices;
  EXPECT_EQ(outbox.peek(slices), 1u);
  EXPECT_EQ(slices[0].bytes, 6400u);
}

}  // namespace
}  // namespace sidereal::transport
