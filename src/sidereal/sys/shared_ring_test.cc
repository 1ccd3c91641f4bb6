#include "sidereal/sys/shared_ring.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

namespace sidereal::sys {
namespace {

/// Memory of this process only.
class OwnMemory final : public SharedMemory {
 public:
  explicit OwnMemory(uint64_t ring_bytes = kRingBytesMin)
      : place_{.process = 1, .key_high = 2, .key_low = 3, .ring_bytes = ring_bytes},
        pages_(shared_bytes(ring_bytes) / kRingData) {
    begin_shared(bytes(), place_);
  }
  [[nodiscard]] std::span<std::byte> bytes() const override {
    return {reinterpret_cast<std::byte*>(pages_.data()), pages_.size() * kRingData};
  }
  [[nodiscard]] const SharedPlace& place() const override { return place_; }
  void hide() override {}
  void release(std::span<std::byte>) override {}

  [[nodiscard]] RingControl& control(int ring) const {
    return reinterpret_cast<SharedHeader*>(bytes().data())->rings[ring];
  }

 private:
  struct alignas(kRingData) Page {
    std::byte bytes[kRingData];
  };
  SharedPlace place_;
  mutable std::vector<Page> pages_;
};

struct CountingBell final : Bell {
  void ring() override { ++rings; }
  int rings = 0;
};

struct Ring {
  explicit Ring(uint64_t bytes = kRingBytesMin) : memory(bytes) {}
  Result<size_t> write(std::string_view text) {
    const ConstIoSlice slice = {reinterpret_cast<const std::byte*>(text.data()), text.size()};
    return writer.write({&slice, 1});
  }
  Result<std::string> read(size_t bytes) {
    std::string out(bytes, '\0');
    const IoSlice slice = {reinterpret_cast<std::byte*>(out.data()), bytes};
    SR_ASSIGN_OR_RETURN(const size_t got, reader.read({&slice, 1}));
    out.resize(got);
    return out;
  }
  OwnMemory memory;
  CountingBell reader_wakes, writer_wakes;
  RingWriter writer{memory, 0, &reader_wakes};
  RingReader reader{memory, 0, &writer_wakes};
};

TEST(SharedRing, HasItsNumbersWhereTheSpecificationSays) {
  const OwnMemory memory;
  const std::span<std::byte> bytes = memory.bytes();
  EXPECT_EQ(std::memcmp(bytes.data(), "SDRLRING", 8), 0);
  EXPECT_EQ(bytes[8], std::byte{2});
  EXPECT_EQ(bytes[16], std::byte{3});
  EXPECT_EQ(bytes[26], std::byte{1});  // 65536, little-endian
  EXPECT_EQ(bytes.size(), 4096u + 2 * 65536);
  for (const int ring : {0, 1}) {
    CountingBell bell;
    RingWriter writer(memory, ring, &bell);
    RingReader reader(memory, ring, &bell);
    const std::byte letter{'x'};
    const ConstIoSlice slice = {&letter, 1};
    ASSERT_EQ(*writer.write({&slice, 1}), 1u);
    EXPECT_TRUE(reader.has_bytes());
    std::byte in{};
    const IoSlice into = {&in, 1};
    ASSERT_EQ(*reader.read({&into, 1}), 1u);
    EXPECT_TRUE(reader.wait());
    const size_t control = 256 + 256 * static_cast<size_t>(ring);
    EXPECT_EQ(bytes[control], std::byte{1});        // written
    EXPECT_EQ(bytes[control + 64], std::byte{1});   // read
    EXPECT_EQ(bytes[control + 128], std::byte{1});  // the reader waits
    EXPECT_EQ(bytes[control + 192], std::byte{0});  // the writer does not
    EXPECT_EQ(bytes[4096 + 65536 * static_cast<size_t>(ring)], letter);
  }
}

TEST(SharedRing, BytesComeOutAsTheyWentInWhateverThePieces) {
  std::mt19937_64 random(7);
  Ring ring;
  std::string written, read;
  for (int i = 0; i < 4000; ++i) {
    std::string text[3];
    std::vector<ConstIoSlice> from;
    for (std::string& piece : text) {
      piece.resize(random() % (random() % 8 == 0 ? 90'000 : 300));
      for (char& c : piece) c = static_cast<char>(random());
      from.push_back({reinterpret_cast<const std::byte*>(piece.data()), piece.size()});
    }
    const Result<size_t> sent = ring.writer.write(from);
    ASSERT_TRUE(sent.ok());
    written += (text[0] + text[1] + text[2]).substr(0, *sent);
    const Result<std::string> got = ring.read(random() % (random() % 8 == 0 ? 90'000 : 600));
    ASSERT_TRUE(got.ok());
    ASSERT_EQ(written.compare(read.size(), got->size(), *got), 0);
    read += *got;
    ASSERT_LE(written.size() - read.size(), kRingBytesMin);
    EXPECT_EQ(ring.reader.has_bytes(), written.size() > read.size());
    EXPECT_EQ(ring.writer.is_empty(), written.size() == read.size());
  }
  EXPECT_GT(read.size(), 20 * kRingBytesMin);
  EXPECT_EQ(ring.reader_wakes.rings + ring.writer_wakes.rings, 0);  // nobody waited
}

TEST(SharedRing, AFullRingTakesNothingMore) {
  Ring ring;
  EXPECT_EQ(*ring.write(std::string(kRingBytesMin + 5, 'a')), kRingBytesMin);
  EXPECT_EQ(*ring.write("b"), 0u);
  EXPECT_FALSE(ring.writer.has_room());
  EXPECT_EQ(ring.read(100)->size(), 100u);
  EXPECT_FALSE(ring.writer.has_room());  // too little to be woken for
  EXPECT_EQ(*ring.write("b"), 1u);
  EXPECT_EQ(ring.read(kRingBytesMin / 2)->size(), kRingBytesMin / 2);
  EXPECT_TRUE(ring.writer.has_room());
}

TEST(SharedRing, WhoWaitsIsWokenOnce) {
  Ring ring;
  EXPECT_TRUE(ring.reader.wait());
  EXPECT_EQ(*ring.write("one"), 3u);
  EXPECT_EQ(*ring.write("two"), 3u);
  EXPECT_EQ(ring.reader_wakes.rings, 1);
  EXPECT_FALSE(ring.reader.wait());  // there is something
  EXPECT_EQ(*ring.read(10), "onetwo");
  EXPECT_EQ(*ring.write("three"), 5u);
  EXPECT_EQ(ring.reader_wakes.rings, 1);
  EXPECT_FALSE(ring.writer.wait());  // there is room
  EXPECT_EQ(*ring.write(std::string(kRingBytesMin, 'a')), kRingBytesMin - 5);
  EXPECT_TRUE(ring.writer.wait());
  EXPECT_EQ(ring.read(1000)->size(), 1000u);
  EXPECT_EQ(ring.writer_wakes.rings, 0);  // not for so little
  EXPECT_EQ(ring.read(kRingBytesMin / 2)->size(), kRingBytesMin / 2);
  EXPECT_EQ(ring.writer_wakes.rings, 1);
  EXPECT_EQ(ring.read(1000)->size(), 1000u);
  EXPECT_EQ(ring.writer_wakes.rings, 1);
}

TEST(SharedRing, AWriterThatLiesIsFoundOut) {
  for (const uint64_t lie : {uint64_t{2}, kRingBytesMin + 12, ~uint64_t{0}}) {
    Ring ring;
    ASSERT_TRUE(ring.write("ten letters").ok());
    ASSERT_EQ(ring.read(10)->size(), 10u);
    ASSERT_EQ(ring.read(10)->size(), 1u);
    ring.memory.control(0).written.store(lie);
    EXPECT_TRUE(ring.reader.has_bytes());  // so that somebody reads
    const Result<std::string> got = ring.read(100);
    ASSERT_FALSE(got.ok());
    EXPECT_EQ(got.status().code(), StatusCode::kDataLoss) << got.status();
  }
}

TEST(SharedRing, AReaderThatLiesIsFoundOut) {
  for (const uint64_t lie : {uint64_t{4}, kRingBytesMin + 11, ~uint64_t{0}}) {
    Ring ring;
    ASSERT_TRUE(ring.write("ten bytes.").ok());
    ASSERT_EQ(ring.read(10)->size(), 10u);
    ASSERT_EQ(*ring.write(std::string(kRingBytesMin + 1, 'a')), kRingBytesMin);
    ring.memory.control(0).read.store(lie);
    EXPECT_TRUE(ring.writer.has_room());  // so that somebody writes
    const Result<size_t> sent = ring.write("x");
    ASSERT_FALSE(sent.ok());
    EXPECT_EQ(sent.status().code(), StatusCode::kDataLoss) << sent.status();
  }
}

TEST(SharedRing, NoNumbersInTheMemoryLeadOutOfIt) {
  std::mt19937_64 random(11);
  std::string text(kRingBytesMin, 'x');
  for (int i = 0; i < 20'000; ++i) {
    static thread_local std::unique_ptr<Ring> ring;
    if (ring == nullptr || i % 16 == 0) ring = std::make_unique<Ring>();
    RingControl& control = ring->memory.control(0);
    const uint64_t near = kRingBytesMin * (random() % 3) + random() % 7 - 3;
    if (random() % 4 == 0) control.written.store(random() % 2 == 0 ? near : random());
    if (random() % 4 == 0) control.read.store(random() % 2 == 0 ? near : random());
    if (random() % 4 == 0) control.reader_waits.store(static_cast<uint32_t>(random()));
    if (random() % 4 == 0) control.writer_waits.store(static_cast<uint32_t>(random()));
    const size_t wanted = random() % (2 * kRingBytesMin);
    const Result<std::string> got = ring->read(wanted);
    if (got.ok()) {
      EXPECT_LE(got->size(), wanted);
    }
    const Result<size_t> sent = ring->write(text.substr(0, random() % text.size()));
    if (sent.ok()) {
      EXPECT_LE(*sent, text.size());
    }
    (void)ring->reader.wait();
    (void)ring->writer.wait();
  }
}

TEST(SharedRing, MemoryThatIsNotTheOneOfferedIsRefused) {
  const OwnMemory memory;
  EXPECT_TRUE(check_shared(memory.bytes(), memory.place()).ok());
  SharedPlace other = memory.place();
  other.key_low = 4;
  EXPECT_EQ(check_shared(memory.bytes(), other).code(), StatusCode::kDataLoss);
  EXPECT_FALSE(check_shared(memory.bytes().first(100), memory.place()).ok());
  other = memory.place();
  other.ring_bytes = 2 * kRingBytesMin;
  EXPECT_FALSE(check_shared(memory.bytes(), other).ok());
  EXPECT_FALSE(is_ring_size(0));
  EXPECT_FALSE(is_ring_size(kRingBytesMin + 8));
  EXPECT_FALSE(is_ring_size(kRingBytesMax * 2));
}

}  // namespace
}  // namespace sidereal::sys
