#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sidereal/sys/shared_ring.h"
#include "sidereal/sys/shared_stream.h"
#include "sidereal/transport/testing/fixture.h"

/// Connections that go through memory that both ends share.
namespace sidereal::transport {
namespace {

using namespace testing;  // NOLINT: the fixture of this module.

class SharedTest : public TransportTest {
 protected:
  void wait_for(const metrics::Counter& counter, int64_t expected) {
    const int64_t until = clock_->now() + 60 * sys::kSecond;
    while (counter.value() != expected && clock_->now() < until) std::this_thread::yield();
    EXPECT_EQ(counter.value(), expected);
  }
  metrics::LaneMetrics& server_counts() { return server_lane_->metrics(); }
  metrics::LaneMetrics& client_counts() { return client_lane_->metrics(); }
  /// Calls with so many bytes each; all that comes back must be what went.
  void echo(int calls, int64_t bytes) {
    std::deque<Sink> sinks(static_cast<size_t>(calls));
    std::vector<Tensor> sent;
    for (int i = 0; i < calls; ++i) sent.push_back(pattern((bytes + i * 37) % (2 * bytes + 1), i));
    on(client_lane_, [&] {
      for (int i = 0; i < calls; ++i) {
        const auto at = static_cast<size_t>(i);
        ASSERT_TRUE(channel_->call({.program = kEcho}, std::span(&sent[at], 1), &sinks[at]).ok());
      }
    });
    for (size_t i = 0; i < sinks.size(); ++i) {
      ASSERT_TRUE(sinks[i].wait()) << i;
      ASSERT_TRUE(sinks[i].status.ok()) << sinks[i].status;
      ASSERT_TRUE(same(sinks[i].fetches[0], sent[i])) << i;
    }
  }
  /// So much that the connection has moved to shared memory, if it may.
  void use() {
    echo(100, 2000);
    echo(10, 2000);
  }
};

TEST_F(SharedTest, AConnectionThatIsUsedGoesThroughSharedMemory) {
  start_both();
  EXPECT_EQ(server_counts().rings.value(), 0);
  use();
  wait_for(server_counts().rings, 1);
  wait_for(client_counts().rings, 1);
  const uint64_t bytes = sys::shared_bytes(static_cast<uint64_t>(options_.shared_ring_bytes));
  on(server_lane_, [&] { EXPECT_EQ(server_end_->shared_bytes(), bytes); });
  for (const int64_t size : {1, 64, 5'000, 70'000, 1'000'000}) echo(50, size);
  echo(2, 30'000'000);
  EXPECT_EQ(client_counts().rings_declined.value() + server_counts().rings_declined.value(), 0);
  on(client_lane_, [&] { channel_->close(); });
  wait_for(server_counts().rings, 0);
  EXPECT_EQ(client_counts().rings.value(), 0);
  on(server_lane_, [&] { EXPECT_EQ(server_end_->shared_bytes(), 0u); });
  EXPECT_EQ(server_counts().malformed.value(), 0);
}

TEST_F(SharedTest, BytesThatAreUnderWayWhenItMovesComeInOrder) {
  for (int round = 0; round < 5; ++round) {
    if (round > 0) {
      TearDown();
      server_ = Server();
      SetUp();
    }
    options_.shared_ring_bytes = 1 << 16;
    start_both();
    echo(400, 3'000 * (round + 1));
    wait_for(server_counts().rings, 1);
    EXPECT_EQ(server_counts().malformed.value(), 0);
  }
}

/// Lanes that never look: every message is a bell.
class SleepingTest : public SharedTest {
 protected:
  void SetUp() override {
    spin_us_ = 0;
    SharedTest::SetUp();
    options_.keepalive_timeout_ms = 3'600'000;  // nothing else wakes them
  }
};

TEST_F(SleepingTest, NoMessageWaitsForAWakeThatDoesNotCome) {
  start_both();
  use();
  wait_for(client_counts().rings, 1);
  struct PingPong : CallSink {
    void done(const Status& status, std::span<Tensor>) override {
      EXPECT_TRUE(status.ok()) << status;
      send();
    }
    void send() {
      if (--left < 0) return all.set_value();
      EXPECT_TRUE(
          channel->call({.program = kEcho, .deadline_ns = kNoDeadline}, std::span(&feed, 1), this)
              .ok());
    }
    Channel* channel = nullptr;
    int left = 20'000;
    Tensor feed = pattern(64, 1);
    std::promise<void> all;
  } ping;
  ping.channel = channel_.get();
  ASSERT_TRUE(client_lane_->post([&] { ping.send(); }));
  ASSERT_EQ(ping.all.get_future().wait_for(kPatience), std::future_status::ready);
}

TEST_F(SharedTest, OneThatIsHardlyUsedDoesNot) {
  start_both();
  echo(10, 500);
  EXPECT_EQ(client_counts().rings.value(), 0);
  on(client_lane_, [&] { EXPECT_EQ(client_end_->shared_bytes(), 0u); });
}

TEST_F(SharedTest, AClientThatDoesNotWantItNeverOffersIt) {
  start_server();
  options_.shared_memory = 0;
  make_client({kServer, 0, address_});
  ASSERT_TRUE(connect().ok());
  use();
  EXPECT_EQ(client_counts().rings.value() + client_counts().rings_declined.value(), 0);
}

TEST_F(SharedTest, AServerThatDoesNotWantItGoesOnOverTheConnection) {
  options_.shared_memory = 0;
  start_server();
  options_.shared_memory = 1;
  make_client({kServer, 0, address_});
  ASSERT_TRUE(connect().ok());
  use();
  wait_for(server_counts().rings_declined, 1);
  wait_for(client_counts().rings_declined, 1);
  EXPECT_EQ(client_counts().rings.value() + server_counts().rings.value(), 0);
  on(client_lane_, [&] { EXPECT_EQ(client_end_->shared_bytes(), 0u); });
  use();
}

TEST_F(SharedTest, ALaneSharesNoMoreMemoryThanItMay) {
  options_.lane_shared_bytes_max = static_cast<int64_t>(
      sys::shared_bytes(static_cast<uint64_t>(options_.shared_ring_bytes)) - 1);
  start_both();
  use();
  wait_for(client_counts().rings_declined, 1);
  EXPECT_EQ(client_counts().rings.value(), 0);
}

TEST_F(SharedTest, ALargerRingThanTheServersIsDeclined) {
  options_.shared_ring_bytes = 1 << 16;
  start_server();
  options_.shared_ring_bytes = 1 << 17;
  make_client({kServer, 0, address_});
  ASSERT_TRUE(connect().ok());
  use();
  wait_for(server_counts().rings_declined, 1);
}

TEST_F(SharedTest, AConnectionWithTlsMovesTheSameWay) {
  credentials_ =
      security::Credentials::create({.secret = "0123456789abcdef0123456789abcdef"}).value();
  start_both();
  use();
  wait_for(server_counts().rings, 1);
  for (const int64_t size : {64, 70'000, 1'000'000}) echo(50, size);
  // Both lanes sleep in between: bells go through TLS.
  for (int i = 0; i < 50; ++i) echo(1, 100);
  EXPECT_EQ(server_counts().malformed.value() + client_counts().malformed.value(), 0);
}

TEST_F(SharedTest, AClientThatComesBackMovesAgain) {
  start_server();
  make_client({kServer, 0, address_});
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(connect().ok());
    use();
    wait_for(server_counts().rings, 1);
    on(client_lane_, [&] { channel_->close(); });
    wait_for(server_counts().rings, 0);
  }
}

// ---- Peers that mean harm ----------------------------------------------------------------------

/// A client that writes its own frames, and stays honest up to the handshake.
class HostileTest : public SharedTest {
 protected:
  void SetUp() override {
    SharedTest::SetUp();
    start_server();
    stream_ = raw_connection();
    poller_ = network_->create_poller().value();
    ASSERT_TRUE(poller_->add(*stream_, 1, {}).ok());
    write_raw(*stream_, hello_frame());
    EXPECT_EQ(next_frame().method, wire::Method::kHelloAck);
  }
  /// The header of the next frame; its meta is dropped. A connection that ended: version 0.
  wire::FrameHeader next_frame() {
    while (true) {
      if (bytes_.size() >= wire::kHeaderBytes) {
        const auto header =
            wire::decode_header(reinterpret_cast<const std::byte*>(bytes_.data()), wire::Limits());
        EXPECT_TRUE(header.ok());
        const size_t whole = wire::kHeaderBytes + header->meta_bytes;
        if (bytes_.size() >= whole) {
          bytes_.erase(0, whole);
          return *header;
        }
      }
      std::array<sys::Event, 1> events;
      EXPECT_EQ(poller_->wait(events, 60 * sys::kSecond), 1u);
      std::array<std::byte, 4096> buffer;
      const sys::IoSlice slice = {buffer.data(), buffer.size()};
      const auto got = stream_->readv({&slice, 1});
      if (!got.ok() || got->end) return {.version = 0};
      bytes_.append(reinterpret_cast<const char*>(buffer.data()), got->bytes);
    }
  }
  static std::string switch_frame() {
    wire::FrameHeader header;
    header.method = wire::Method::kSwitch;
    return frame(header, "");
  }
  static std::string offer_frame(const sys::SharedPlace& place) {
    const std::string meta = wire::encode_offer({.process = place.process,
                                                 .descriptor = place.descriptor,
                                                 .key_high = place.key_high,
                                                 .key_low = place.key_low,
                                                 .ring_bytes = place.ring_bytes});
    wire::FrameHeader header;
    header.method = wire::Method::kOffer;
    header.meta_bytes = static_cast<uint32_t>(meta.size());
    return frame(header, meta);
  }
  /// Offers memory, and is told that the server has switched; so has this side.
  void share() {
    memory_ = network_->share(sys::kRingBytesMin).value();
    write_raw(*stream_, offer_frame(memory_->place()));
    EXPECT_EQ(next_frame().method, wire::Method::kSwitch);
    write_raw(*stream_, switch_frame());
    header_ = reinterpret_cast<sys::SharedHeader*>(memory_->bytes().data());
  }
  void expect_closed() {
    EXPECT_EQ(next_frame().version, 0);
    wait_for(server_counts().connections, 0);
    EXPECT_EQ(server_counts().rings.value(), 0);
    expect_service();
  }
  /// Another client is served, as ever.
  void expect_service() {
    make_client({kServer, 0, address_});
    ASSERT_TRUE(connect().ok());
    use();
  }

  std::unique_ptr<sys::Stream> stream_;
  std::unique_ptr<sys::Poller> poller_;
  std::string bytes_;
  std::unique_ptr<sys::SharedMemory> memory_;
  sys::SharedHeader* header_ = nullptr;
};

TEST_F(HostileTest, AnOfferOfWhatIsNotThereIsDeclinedAndTheConnectionGoesOn) {
  write_raw(*stream_, offer_frame({.process = 1, .descriptor = 1, .ring_bytes = 1 << 16}));
  EXPECT_EQ(next_frame().method, wire::Method::kDecline);
  write_raw(*stream_, call_frame(kEcho, pattern(100, 1)));
  EXPECT_EQ(next_frame().method, wire::Method::kReply);
  EXPECT_EQ(server_counts().rings_declined.value(), 1);
}

TEST_F(HostileTest, ASecondOfferEndsTheConnection) {
  const std::string offer = offer_frame({.process = 1, .descriptor = 1, .ring_bytes = 1 << 16});
  write_raw(*stream_, offer + offer);
  EXPECT_EQ(next_frame().method, wire::Method::kDecline);
  EXPECT_EQ(next_frame().method, wire::Method::kError);
  expect_closed();
}

TEST_F(HostileTest, ASwitchWithoutMemoryEndsTheConnection) {
  write_raw(*stream_, switch_frame());
  EXPECT_EQ(next_frame().method, wire::Method::kError);
  expect_closed();
}

TEST_F(HostileTest, AWriterThatLiesEndsItsConnectionOnly) {
  share();
  header_->rings[0].written.store(sys::kRingBytesMin + 1);
  write_raw(*stream_, "\1");
  expect_closed();
}

TEST_F(HostileTest, AReaderThatLiesEndsItsConnectionOnly) {
  share();
  header_->rings[1].read.store(uint64_t{1} << 40);
  const Tensor feed = pattern(3 * sys::kRingBytesMin / 4, 1);
  const std::string call = call_frame(kEcho, feed);
  // False once the server has ended the connection, which it may do at any time.
  const auto ring = [&] {
    const std::byte bell{1};
    const sys::ConstIoSlice slice = {&bell, 1};
    return stream_->writev({&slice, 1}).ok();
  };
  for (size_t at = 0; at < call.size();) {
    // As a writer does.
    const uint64_t written = header_->rings[0].written.load();
    const size_t n = std::min<size_t>(call.size() - at, 1000);
    if (written + n - header_->rings[0].read.load() > sys::kRingBytesMin) {
      if (!ring()) break;
      continue;
    }
    for (size_t i = 0; i < n; ++i) {
      memory_->bytes()[sys::kRingData + ((written + i) & (sys::kRingBytesMin - 1))] =
          static_cast<std::byte>(call[at + i]);
    }
    header_->rings[0].written.store(written + n);
    if (!ring()) break;
    at += n;
    if (at == call.size() && server_counts().calls.value() < 2) at = 0;
  }
  expect_closed();
}

TEST_F(HostileTest, GarbageInTheMemoryEndsTheConnectionAsOnAnyOther) {
  share();
  memset(memory_->bytes().data() + sys::kRingData, 0x5a, 4096);
  header_->rings[0].written.store(4096);
  write_raw(*stream_, "\1");
  wait_for(server_counts().malformed, 1);
  expect_closed();
}

// ---- Two processes -----------------------------------------------------------------------------

/// The server is a process of its own.
class SharedByTwo : public SharedTest {
 protected:
  void start_child() {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    child_ = ::fork();
    if (child_ == 0) {
      start_server();
      const int32_t port = address_.port;
      (void)!::write(ends[1], &port, sizeof(port));
      for (;;) ::pause();
    }
    int32_t port = 0;
    ASSERT_EQ(::read(ends[0], &port, sizeof(port)), static_cast<ssize_t>(sizeof(port)));
    ::close(ends[0]);
    ::close(ends[1]);
    make_client({kServer, 0, {"127.0.0.1", port}});
    ASSERT_TRUE(connect().ok());
    use();
    wait_for(client_counts().rings, 1);
  }
  void TearDown() override {
    if (child_ > 0) {
      ::kill(child_, SIGKILL);
      ::waitpid(child_, nullptr, 0);
    }
    SharedTest::TearDown();
  }
  pid_t child_ = 0;
};

TEST_F(SharedByTwo, CallsOfEverySizeGoBetweenProcesses) {
  start_child();
  for (const int64_t size : {1, 5'000, 1'000'000}) echo(50, size);
}

TEST_F(SharedByTwo, AServerThatIsKilledEndsCallsAtOnce) {
  start_child();
  Sink sink;
  ASSERT_TRUE(call(kNever, {pattern(10, 1)}, &sink).ok());
  ::kill(child_, SIGKILL);
  ASSERT_TRUE(sink.wait());
  EXPECT_EQ(sink.status.code(), StatusCode::kUnavailable) << sink.status;
  wait_for(client_counts().rings, 0);
}

TEST_F(SharedByTwo, AServerThatStandsStillIsNoticedByItsSilence) {
  options_.keepalive_timeout_ms = 400;
  start_child();
  Sink sink;
  // More than the ring takes, so that the rest waits here. With a sanitizer it takes a while to
  // make, in which a server that stands still would be noticed before it is called.
  const Tensor much = pattern(8 << 20, 1);
  ::kill(child_, SIGSTOP);
  ASSERT_TRUE(call(kNever, {much}, &sink).ok());
  ASSERT_TRUE(sink.wait());
  EXPECT_EQ(sink.status.code(), StatusCode::kUnavailable) << sink.status;
  EXPECT_TRUE(contains(sink.status, "no sign of life")) << sink.status;
}

}  // namespace
}  // namespace sidereal::transport
