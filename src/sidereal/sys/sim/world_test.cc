#include "sidereal/sys/sim/world.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

namespace sidereal::sys::sim {
namespace {

constexpr int64_t kLong = 300 * kSecond;

/// What a stream gives, and how it ended.
struct Got {
  std::string bytes;
  bool end = false;
  std::string error;
};

std::string text_of(const Got& got) { return got.bytes + (got.end ? "|end" : "") + got.error; }

class WorldTest : public testing::Test {
 protected:
  WorldTest() { start({}); }

  void start(const WorldOptions& options, uint64_t seed = 1) {
    client_stream_.reset();
    server_stream_.reset();
    listener_.reset();
    world_ = std::make_unique<World>(seed, options);
    server_ = world_->add_node(world_->add_host());
    client_ = world_->add_node(world_->add_host());
    listener_ = server_->listen({server_->host()->address(), 2222}).value();
  }
  void connect() {
    client_stream_ = client_->connect(listener_->address()).value();
    run(kSecond);
    server_stream_ = listener_->accept().value();
    ASSERT_NE(server_stream_, nullptr);
    EXPECT_TRUE(client_stream_->connected().value());
  }
  void run(int64_t ns) { world_->run_until(world_->now() + ns); }
  static size_t write(Stream& stream, std::string_view bytes) {
    const std::array slices = {
        ConstIoSlice{reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()}};
    const Result<IoCount> wrote = stream.writev(slices);
    return wrote.ok() ? wrote->bytes : 0;
  }
  static void read(Stream& stream, Got* got) {
    std::array<std::byte, 1000> buffer;
    const std::array slices = {IoSlice{buffer.data(), 7}, IoSlice{buffer.data() + 7, 900}};
    for (;;) {
      const Result<IoCount> count = stream.readv(slices);
      if (!count.ok()) {
        got->error = base::message_of(count.status());
        return;
      }
      got->end |= count->end;
      if (count->would_block || count->end) return;
      got->bytes.append(reinterpret_cast<const char*>(buffer.data()), count->bytes);
    }
  }
  static std::string read(Stream& stream) {
    Got got;
    read(stream, &got);
    return text_of(got);
  }

  std::unique_ptr<World> world_;
  Node* server_ = nullptr;
  Node* client_ = nullptr;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<Stream> client_stream_, server_stream_;
};

TEST_F(WorldTest, BytesArriveInOrderWhateverIsLostOnTheWay) {
  start({.loss = 0.3, .buffer_bytes = 1000, .short_io = 0.5});
  connect();
  std::string sent;
  for (int i = 0; i < 20'000; ++i) sent += static_cast<char>('a' + i % 23);
  size_t at = 0;
  Got got;
  for (int i = 0; i < 100'000 && got.bytes.size() < sent.size(); ++i) {
    at += write(*client_stream_, std::string_view(sent).substr(at));
    EXPECT_LE(at, got.bytes.size() + 1000);
    run(10 * kMillisecond);
    read(*server_stream_, &got);
  }
  EXPECT_EQ(got.bytes, sent);
}

TEST_F(WorldTest, NobodyWhoListensIsARefusal) {
  auto stream = client_->connect({server_->host()->address(), 1}).value();
  run(kSecond);
  EXPECT_EQ(base::message_of(stream->connected().status()), "Connection refused");
  EXPECT_EQ(server_->listen({server_->host()->address(), 2222}).status().code(),
            StatusCode::kAlreadyExists);
}

TEST_F(WorldTest, WhatWasWrittenArrivesBeforeTheEnd) {
  connect();
  write(*client_stream_, "last words");
  client_stream_.reset();
  run(kSecond);
  EXPECT_EQ(read(*server_stream_), "last words|end");
}

TEST_F(WorldTest, WhoClosesWithoutReadingResets) {
  connect();
  write(*client_stream_, "hello");
  run(kSecond);
  server_stream_.reset();
  run(kSecond);
  EXPECT_EQ(read(*client_stream_), "Connection reset by peer");
}

TEST_F(WorldTest, AProcessThatIsKilledClosesWhatItHas) {
  connect();
  write(*server_stream_, "bye");
  world_->kill(server_, Death::kKilled);
  EXPECT_EQ(write(*server_stream_, "from the grave"), 0u);
  run(kSecond);
  EXPECT_EQ(read(*client_stream_), "bye|end");
  auto late = client_->connect({server_->host()->address(), 2222}).value();
  run(kSecond);
  EXPECT_EQ(base::message_of(late->connected().status()), "Connection refused");
}

TEST_F(WorldTest, AHostThatVanishesIsNoticedByWhoSendsOnceItIsBack) {
  connect();
  world_->kill(server_, Death::kSilent);
  write(*client_stream_, "are you there?");
  run(10 * kSecond);
  EXPECT_EQ(read(*client_stream_), "");
  world_->revive(server_->host());
  run(60 * kSecond);
  EXPECT_EQ(read(*client_stream_), "Connection reset by peer");
}

TEST_F(WorldTest, ACutDelaysAndHealingLetsThrough) {
  connect();
  world_->cut(server_->host(), client_->host());
  write(*client_stream_, "late");
  run(10 * kSecond);
  EXPECT_EQ(read(*server_stream_), "");
  world_->heal(server_->host(), client_->host());
  run(30 * kSecond);
  EXPECT_EQ(read(*server_stream_), "late");
}

TEST_F(WorldTest, AConnectionBreaksForBothForOneOrForNobody) {
  connect();
  EXPECT_TRUE(world_->break_any(Break::kBoth));
  run(kLong);
  EXPECT_EQ(read(*client_stream_) + read(*server_stream_),
            "Connection reset by peerConnection reset by peer");
  start({});
  connect();
  EXPECT_TRUE(world_->break_any(Break::kOne));
  run(kLong);
  EXPECT_EQ((read(*client_stream_) + read(*server_stream_)), "Connection reset by peer");
  write(*client_stream_, "x");
  write(*server_stream_, "x");
  run(kSecond);
  EXPECT_EQ(read(*client_stream_) + read(*server_stream_),
            "Connection reset by peerConnection reset by peer");
  start({});
  connect();
  EXPECT_TRUE(world_->break_any(Break::kSilent));
  run(kLong);
  write(*client_stream_, "x");
  run(60 * kSecond);
  EXPECT_EQ(read(*client_stream_) + read(*server_stream_), "");
  run(kLong);
  EXPECT_EQ(read(*client_stream_), "Connection timed out");
}

TEST_F(WorldTest, APollerTellsAsLongAsItHolds) {
  connect();
  auto poller = server_->create_poller().value();
  std::array<Event, 4> events;
  ASSERT_TRUE(poller->add(*server_stream_, 5, {.readable = true, .writable = false}).ok());
  EXPECT_EQ(poller->wait(events, 0), 0u);
  write(*client_stream_, "x");
  run(kSecond);
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(poller->wait(events, 0), 1u);
    EXPECT_TRUE(events[0].readable);
    EXPECT_FALSE(events[0].writable);
    EXPECT_EQ(events[0].token, 5u);
  }
  EXPECT_EQ(read(*server_stream_), "x");
  EXPECT_EQ(poller->wait(events, 0), 0u);
  poller->remove(*server_stream_);
}

/// Sends what it gets back until it has had enough.
class Echo final : public Runner {
 public:
  Echo(Node* node, std::unique_ptr<Stream>* stream) : node_(node), stream_(stream) {
    node->drive(this);
  }
  bool step() override {
    std::array<std::byte, 64> buffer;
    const std::array slices = {IoSlice{buffer.data(), buffer.size()}};
    const Result<IoCount> got = (*stream_)->readv(slices);
    if (!got.ok() || got->bytes == 0) return false;
    const std::array out = {ConstIoSlice{buffer.data(), got->bytes}};
    steps += (*stream_)->writev(out).ok() ? 1 : 0;
    return true;
  }
  int64_t next_wake() override { return node_->now() + kMillisecond; }
  int64_t steps = 0;

 private:
  Node* const node_;
  std::unique_ptr<Stream>* const stream_;
};

TEST_F(WorldTest, TheSameSeedIsTheSameHistory) {
  std::array<uint64_t, 3> hashes;
  std::array<int64_t, 3> steps;
  for (size_t i = 0; i < 3; ++i) {
    start({.loss = 0.05, .short_io = 0.5}, i < 2 ? 7 : 8);
    connect();
    Echo one(client_, &client_stream_);
    Echo other(server_, &server_stream_);
    write(*client_stream_, std::string(100, 'x'));
    run(5 * kSecond);
    hashes[i] = world_->hash();
    steps[i] = one.steps + other.steps;
    world_->kill(client_, Death::kKilled);
    world_->kill(server_, Death::kKilled);
  }
  EXPECT_GT(steps[0], 100);
  EXPECT_EQ(hashes[0], hashes[1]);
  EXPECT_EQ(steps[0], steps[1]);
  EXPECT_NE(hashes[0], hashes[2]);
}

}  // namespace
}  // namespace sidereal::sys::sim
