#include "sidereal/sys/shared_stream.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <random>
#include <string>
#include <thread>

#include "sidereal/sys/clock.h"
#include "sidereal/sys/posix/posix.h"
#include "sidereal/sys/shared_ring.h"

namespace sidereal::sys {
namespace {

constexpr int64_t kPatience = 60 * kSecond;

/// One end, with a poller of its own.
struct End {
  void watch(Interest interest = {}) {
    poller = network->create_poller().value();
    EXPECT_TRUE(poller->add(*stream, 5, interest).ok());
  }
  void update(Interest interest) { EXPECT_TRUE(poller->update(*stream, 5, interest).ok()); }
  /// What comes next; wakes without an event are passed over.
  Event next(int64_t within_ns = kPatience) {
    std::array<Event, 4> events;
    const int64_t until = clock->now() + within_ns;
    do {
      if (poller->wait(events, until - clock->now()) > 0) return events[0];
    } while (clock->now() < until);
    return {};
  }
  Result<IoCount> write(std::string_view text) const {
    const ConstIoSlice slice = {reinterpret_cast<const std::byte*>(text.data()), text.size()};
    return stream->writev({&slice, 1});
  }
  [[nodiscard]] Result<IoCount> read(std::string* text, size_t bytes = 1 << 20) const {
    text->resize(bytes);
    const IoSlice slice = {reinterpret_cast<std::byte*>(text->data()), text->size()};
    const Result<IoCount> got = stream->readv({&slice, 1});
    text->resize(got.ok() ? got->bytes : 0);
    return got;
  }
  void switch_both() const {
    stream->switch_input();
    stream->switch_output();
  }

  Network* network = nullptr;
  std::unique_ptr<Clock> clock = posix::create_clock();
  std::unique_ptr<SharedStream> stream;
  std::unique_ptr<Poller> poller;
};

class SharedStreamTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto listener = network_->listen({"127.0.0.1", 0}).value();
    auto client = network_->connect(listener->address()).value();
    auto poller = network_->create_poller().value();
    ASSERT_TRUE(poller->add(*listener, 1, {}).ok());
    std::array<Event, 1> events;
    ASSERT_EQ(poller->wait(events, kPatience), 1u);
    auto server = listener->accept().value();
    poller->remove(*listener);
    ASSERT_TRUE(poller->add(*client, 2, {.readable = false, .writable = true}).ok());
    ASSERT_EQ(poller->wait(events, kPatience), 1u);
    ASSERT_TRUE(client->connected().value());
    EXPECT_TRUE(client->is_local());
    auto made = network_->share(kRingBytesMin).value();
    auto found = network_->find_shared(made->place()).value();
    made->hide();
    client_.network = server_.network = network_.get();
    client_.stream = std::make_unique<SharedStream>(std::move(client), std::move(made), true);
    server_.stream = std::make_unique<SharedStream>(std::move(server), std::move(found), false);
  }

  std::unique_ptr<Network> network_ = posix::create_network();
  End client_, server_;
};

TEST_F(SharedStreamTest, BytesGoOverTheStreamBelowUntilItIsSwitched) {
  server_.watch();
  std::string text;
  EXPECT_EQ(client_.write("before")->bytes, 6u);
  EXPECT_TRUE(server_.next().readable);
  EXPECT_EQ(server_.read(&text, 6)->bytes, 6u);
  EXPECT_EQ(text, "before");
  client_.stream->switch_output();
  server_.stream->switch_input();
  server_.update({});
  EXPECT_EQ(client_.write("after")->bytes, 5u);
  EXPECT_TRUE(server_.next().readable);
  EXPECT_EQ(server_.read(&text)->bytes, 5u);
  EXPECT_EQ(text, "after");
  EXPECT_TRUE(server_.read(&text)->would_block);
  // The other direction is as it was.
  client_.watch();
  EXPECT_EQ(server_.write("back")->bytes, 4u);
  EXPECT_TRUE(client_.next().readable);
  EXPECT_EQ(client_.read(&text)->bytes, 4u);
  EXPECT_EQ(text, "back");
}

TEST_F(SharedStreamTest, ASleepingReaderIsWokenAndAFullWriterToo) {
  client_.switch_both();
  server_.switch_both();
  server_.watch();
  client_.watch({.readable = false, .writable = true});
  std::thread reader([&] {
    std::string text;
    EXPECT_TRUE(server_.next().readable);
    EXPECT_TRUE(server_.read(&text)->bytes > 0);
    client_.poller->wake();
    size_t total = text.size();
    while (total < 3 * kRingBytesMin) {
      if (!server_.next().readable) break;
      while (server_.read(&text)->bytes > 0) total += text.size();
    }
    EXPECT_EQ(total, 3 * kRingBytesMin);
  });
  size_t left = 3 * kRingBytesMin;
  while (left > 0) {
    const Result<IoCount> sent = client_.write(std::string(left, 'x'));
    ASSERT_TRUE(sent.ok());
    left -= sent->bytes;
    if (left > 0) {
      ASSERT_TRUE(client_.next().writable);
    }
  }
  reader.join();
}

TEST_F(SharedStreamTest, AWriterThatNobodyCanRingYetLooksForItself) {
  client_.stream->switch_output();
  server_.stream->switch_input();
  EXPECT_EQ(client_.write(std::string(2 * kRingBytesMin, 'x'))->bytes, kRingBytesMin);
  // What the peer has sent before is not wanted now, and a bell would lie behind it.
  EXPECT_EQ(server_.write("unread")->bytes, 6u);
  client_.watch({.readable = false, .writable = true});
  std::thread reader([&] {
    std::string text;
    EXPECT_EQ(server_.read(&text, kRingBytesMin)->bytes, kRingBytesMin);
  });
  EXPECT_TRUE(client_.next().writable);
  reader.join();
}

TEST_F(SharedStreamTest, WhatTheSystemToldASleeperIsToldAgainWhenItLooks) {
  server_.watch();  // looked at, and still over the stream below
  EXPECT_EQ(client_.write("bytes")->bytes, 5u);
  std::array<Event, 1> one;
  std::array<Event, 4> events;
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(server_.poller->wait(one, kPatience), 1u);
    EXPECT_EQ(server_.poller->wait(events, 0), 1u);
  }
}

TEST_F(SharedStreamTest, WhatWasWrittenBeforeTheEndIsReadFirst) {
  client_.switch_both();
  server_.switch_both();
  server_.watch();
  EXPECT_EQ(client_.write("last words")->bytes, 10u);
  client_.stream.reset();
  std::string text;
  EXPECT_TRUE(server_.next().readable);
  EXPECT_EQ(server_.read(&text)->bytes, 10u);
  EXPECT_TRUE(server_.next().readable);
  const Result<IoCount> got = server_.read(&text);
  EXPECT_TRUE(!got.ok() || got->end || got->would_block);
  while (server_.read(&text).ok() && !server_.read(&text)->end) {
    ASSERT_TRUE(server_.next().any());
  }
}

TEST_F(SharedStreamTest, AnEndIsToldOfOnceWhenNobodyReads) {
  client_.switch_both();
  server_.switch_both();
  server_.watch({.readable = false, .writable = false});
  client_.stream.reset();
  std::array<Event, 4> events;
  // The end itself wakes the poller; then there is nothing more to see until somebody reads.
  EXPECT_EQ(server_.poller->wait(events, kPatience), 0u);
  EXPECT_EQ(server_.poller->wait(events, 50 * kMillisecond), 0u);
  server_.update({});
  EXPECT_TRUE(server_.next().readable);
  std::string text;
  EXPECT_TRUE(server_.read(&text)->end);
}

TEST_F(SharedStreamTest, APeerThatLiesIsFoundOut) {
  client_.switch_both();
  server_.switch_both();
  server_.watch({.readable = true, .writable = true});
  EXPECT_EQ(client_.write("some bytes")->bytes, 10u);
  // As the client: it has the same memory.
  auto* const pages = const_cast<std::byte*>(client_.stream->memory().bytes().data());
  reinterpret_cast<SharedHeader*>(pages)->rings[0].written.store(uint64_t{1} << 40);
  reinterpret_cast<SharedHeader*>(pages)->rings[1].read.store(uint64_t{1} << 40);
  EXPECT_TRUE(server_.next().any());
  std::string text;
  EXPECT_EQ(server_.read(&text).status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(server_.write(std::string(kRingBytesMin, 'x'))->bytes, kRingBytesMin);
  EXPECT_EQ(server_.write("x").status().code(), StatusCode::kDataLoss);
}

TEST_F(SharedStreamTest, AFloodOfBellsHoldsNobodyUp) {
  client_.switch_both();
  server_.switch_both();
  server_.watch();
  const std::string bells(100'000, '\x55');
  const ConstIoSlice slice = {reinterpret_cast<const std::byte*>(bells.data()), bells.size()};
  EXPECT_TRUE(client_.stream->below().writev({&slice, 1}).ok());
  std::array<Event, 4> events;
  EXPECT_EQ(server_.poller->wait(events, kPatience), 0u);
  EXPECT_EQ(client_.write("sense")->bytes, 5u);
  EXPECT_TRUE(server_.next().readable);
  std::string text;
  EXPECT_EQ(server_.read(&text)->bytes, 5u);
  EXPECT_EQ(text, "sense");
}

TEST_F(SharedStreamTest, AnIdleStreamGivesItsMemoryBackAndGoesOn) {
  client_.switch_both();
  server_.switch_both();
  std::string text;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(client_.write("words")->bytes, 5u);
    client_.stream->trim();  // not yet read: stays
    EXPECT_EQ(server_.read(&text)->bytes, 5u);
    EXPECT_EQ(text, "words");
    client_.stream->trim();
    const std::span<std::byte> all = client_.stream->memory().bytes();
    for (const std::byte b : all.subspan(kRingData, kRingBytesMin)) ASSERT_EQ(b, std::byte{0});
  }
}

/// Sends and receives so many bytes that follow from a seed, in pieces of all sizes, and sleeps
/// whenever nothing moves.
void exchange(End* end, uint64_t seed, uint64_t peer_seed, size_t total) {
  std::mt19937_64 sizes(seed ^ 0x5555), out(seed), in(peer_seed);
  const auto bytes_of = [](std::mt19937_64* random, size_t n) {
    std::string text(n, '\0');
    for (char& c : text) c = static_cast<char>((*random)());
    return text;
  };
  end->watch({.readable = true, .writable = true});
  std::string waiting;
  size_t sent = 0, received = 0, made = 0;
  while (sent < total || received < total) {
    if (waiting.empty() && made < total) {
      const size_t most = sizes() % 16 == 0 ? 150'000 : 500;
      waiting = bytes_of(&out, std::min(total - made, 1 + sizes() % most));
      made += waiting.size();
    }
    bool moved = false;
    if (!waiting.empty()) {
      const Result<IoCount> count = end->write(waiting);
      ASSERT_TRUE(count.ok()) << count.status();
      waiting.erase(0, count->bytes);
      sent += count->bytes;
      moved = count->bytes > 0;
    }
    std::string got;
    const Result<IoCount> count = end->read(&got, 1 + sizes() % 100'000);
    ASSERT_TRUE(count.ok()) << count.status();
    ASSERT_FALSE(count->end);
    ASSERT_EQ(got, bytes_of(&in, got.size())) << "behind byte " << received;
    received += got.size();
    if (moved || !got.empty() || (sent == total && received == total)) continue;
    end->update({.readable = received < total, .writable = !waiting.empty()});
    ASSERT_TRUE(end->next().any()) << "sent " << sent << ", received " << received;
  }
}

TEST_F(SharedStreamTest, TwoSidesThatSleepAndWakeLoseNothing) {
  client_.switch_both();
  server_.switch_both();
  std::thread other([&] { exchange(&server_, 1, 2, 8 << 20); });
  exchange(&client_, 2, 1, 8 << 20);
  other.join();
}

TEST_F(SharedStreamTest, AProcessThatIsKilledEndsTheStream) {
  client_.switch_both();
  server_.switch_both();
  // The child keeps the client's end of the connection; the memory it does not have any more.
  const pid_t child = ::fork();
  if (child == 0) {
    for (;;) ::pause();
  }
  EXPECT_EQ(client_.write("unread")->bytes, 6u);
  client_.stream.reset();
  server_.watch();
  std::string text;
  EXPECT_TRUE(server_.next().readable);
  EXPECT_EQ(server_.read(&text)->bytes, 6u);
  EXPECT_TRUE(server_.read(&text)->would_block);  // somebody has the connection still
  ::kill(child, SIGKILL);
  EXPECT_TRUE(server_.next().readable);
  EXPECT_TRUE(server_.read(&text)->end);
  ::waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace sidereal::sys
