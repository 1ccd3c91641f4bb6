#include <atomic>
#include <map>

#include "sidereal/transport/transport_fixture.h"

/// Memory stays bounded however many push at once, and nobody starves.
namespace sidereal::transport {
namespace {

using namespace testing;  // NOLINT: the fixture of this module.

/// Counts the memory that is out there for feeds.
struct CountingServer : Server {
  Result<Tensor> allocate(const Connection&, const wire::FrameHeader&, int, DType dtype,
                          const Shape& shape) override {
    const auto bytes = static_cast<size_t>(shape.num_elements()) * tensor::size_of(dtype);
    live += static_cast<int64_t>(bytes);
    live_max = std::max(live_max, live);
    auto memory = std::make_shared<std::vector<std::byte>>(bytes);
    auto buffer = tensor::Buffer::wrap(
        memory->data(), bytes, [this, memory, bytes] { live -= static_cast<int64_t>(bytes); });
    return Tensor(dtype, shape, std::move(buffer));
  }
  void on_call(const Connection& from, const Call& call, std::span<Tensor>) override {
    ++calls_of[from.id.value];
    acceptor->reply(from.id, call.header.call_id, {});
  }
  int64_t live = 0;
  int64_t live_max = 0;
  std::map<uint64_t, int> calls_of;
};

class PressureTest : public TransportTest {
 protected:
  void start_counting() {
    server_end_ =
        Endpoint::create(server_lane_.get(), {.cluster_id = kCluster, .task = kServer}, options_)
            .value();
    acceptor_ = Acceptor::create(server_end_.get(), {"127.0.0.1", 0}, &counting_).value();
    counting_.acceptor = acceptor_.get();
    address_ = acceptor_->address();
    server_lane_->start();
  }
  void expect_used(uint64_t bytes) {
    uint64_t used = 0;
    const int64_t until = clock_->now() + 60 * sys::kSecond;
    while (used != bytes && clock_->now() < until) {
      on(server_lane_, [&] { used = server_end_->budget().used(); });
    }
    EXPECT_EQ(used, bytes);
  }
  CountingServer counting_;
};

TEST_F(PressureTest, AThousandClientsThatPushAtOnceShareABoundedMemory) {
  constexpr size_t kClients = 1000;
  constexpr int64_t kBytes = 192 << 10;
  options_.lane_receive_bytes_max = 8 << 20;
  start_counting();
  const std::string push = hello_frame() + call_frame(1, pattern(kBytes, 1));
  std::vector<std::unique_ptr<sys::Stream>> clients;
  // Everybody is in the middle of a push at the same time: 188 MiB, were there room for all.
  for (size_t i = 0; i < kClients; ++i) {
    clients.push_back(raw_connection());
    write_raw(*clients.back(), std::string_view(push).substr(0, 100'000));
  }
  expect_used((8 << 20) / kBytes * kBytes);
  on(server_lane_, [&] {
    EXPECT_EQ(acceptor_->connection_count(), static_cast<int>(kClients));
    EXPECT_EQ(server_end_->budget().waiting(), kClients - (8 << 20) / kBytes);
  });
  for (auto& client : clients) write_raw(*client, std::string_view(push).substr(100'000));
  const int64_t until = clock_->now() + 60 * sys::kSecond;
  size_t served = 0;
  while (served < kClients && clock_->now() < until) {
    on(server_lane_, [&] { served = counting_.calls_of.size(); });
  }
  EXPECT_EQ(served, kClients);
  on(server_lane_, [&] {
    for (const auto& [id, calls] : counting_.calls_of) EXPECT_EQ(calls, 1);
    EXPECT_EQ(counting_.live, 0);
    EXPECT_EQ(server_end_->budget().used(), 0u);
    EXPECT_LE(counting_.live_max, options_.lane_receive_bytes_max);
    EXPECT_GT(counting_.live_max, options_.lane_receive_bytes_max / 2);
  });
  RecordProperty("live_bytes_max", std::to_string(counting_.live_max));
}

TEST_F(PressureTest, WhoWaitsForRoomStaysAliveAndKeepsItsOrder) {
  options_.lane_receive_bytes_max = 1 << 20;
  options_.keepalive_timeout_ms = 400;
  start_counting();
  make_client({kServer, 0, address_});
  const Status status = connect();
  ASSERT_TRUE(status.ok()) << status;
  // Somebody takes all room and sends nothing more, but says that he lives.
  auto holder = raw_connection();
  const std::string big = call_frame(1, pattern(1 << 20, 1));
  write_raw(*holder, hello_frame() + big.substr(0, 100'000));
  expect_used(1 << 20);
  Sink sink;
  ASSERT_TRUE(call(1, {pattern(100'000, 2)}, &sink).ok());
  for (size_t at = 100'000; at < 1'000'000; at += 100'000) {
    // More than a timeout in all.
    const int64_t until = clock_->now() + 100 * sys::kMillisecond;
    while (clock_->now() < until) std::this_thread::yield();
    write_raw(*holder, std::string_view(big).substr(at, 100'000));
  }
  EXPECT_EQ(sink.left, 1);
  write_raw(*holder, std::string_view(big).substr(1'000'000));
  ASSERT_TRUE(sink.wait());
  EXPECT_TRUE(sink.status.ok()) << sink.status;
}

TEST_F(PressureTest, RoomOfWhoGoesAwayIsGivenBack) {
  options_.lane_receive_bytes_max = 1 << 20;
  start_counting();
  make_client({kServer, 0, address_});
  ASSERT_TRUE(connect().ok());
  const std::string big = call_frame(1, pattern(1 << 20, 1));
  auto holder = raw_connection();
  write_raw(*holder, hello_frame() + big.substr(0, 100'000));
  expect_used(1 << 20);
  auto waiter = raw_connection();
  write_raw(*waiter, hello_frame() + big.substr(0, 100'000));
  Sink sink;
  ASSERT_TRUE(call(1, {pattern(100'000, 2)}, &sink).ok());
  waiter.reset();
  holder.reset();
  ASSERT_TRUE(sink.wait());
  EXPECT_TRUE(sink.status.ok()) << sink.status;
  on(server_lane_, [&] { EXPECT_EQ(server_end_->budget().used(), 0u); });
}

TEST_F(PressureTest, AClientIsToldWhenThereIsRoomToSendAgain) {
  options_.send_buffer_bytes_max = 1 << 20;
  start_both();
  constexpr int kCalls = 200;
  const Tensor block = pattern(1 << 19, 1);
  Sink sink(kCalls);
  int sent = 0;
  int refused = 0;
  const auto send = [&] {
    while (sent < kCalls) {
      const auto id = channel_->call({.program = kEcho}, std::span(&block, 1), &sink);
      if (!id.ok()) {
        EXPECT_EQ(id.status().code(), StatusCode::kResourceExhausted);
        ++refused;
        return;
      }
      ++sent;
    }
  };
  on(client_lane_, [&] {
    channel_->on_room(send);
    send();
  });
  ASSERT_TRUE(sink.wait());
  EXPECT_TRUE(sink.status.ok()) << sink.status;
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace sidereal::transport
