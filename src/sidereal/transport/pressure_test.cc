#include <malloc.h>

#include <atomic>
#include <map>

#include "sidereal/base/sanitizer.h"
#include "sidereal/transport/testing/fixture.h"

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
  void wait_until(const std::function<bool()>& is_so) {
    const int64_t until = clock_->now() + 60 * sys::kSecond;
    while (!is_so() && clock_->now() < until) {
    }
  }
  void expect_used(uint64_t bytes) {
    uint64_t used = 0;
    wait_until([&] {
      on(server_lane_, [&] { used = server_end_->budget().used(); });
      return used == bytes;
    });
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
  size_t waiting = 0;
  wait_until([&] {
    on(server_lane_, [&] { waiting = server_end_->budget().waiting(); });
    return waiting == kClients - (8 << 20) / kBytes;
  });
  EXPECT_EQ(waiting, kClients - (8 << 20) / kBytes);
  for (auto& client : clients) write_raw(*client, std::string_view(push).substr(100'000));
  size_t served = 0;
  wait_until([&] {
    on(server_lane_, [&] { served = counting_.calls_of.size(); });
    return served == kClients;
  });
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
  expect_used(0);
}

TEST_F(PressureTest, ClientsThatDoNotTakeTheirAnswersDoNotFillTheLane) {
  options_.lane_send_bytes_max = 8 << 20;
  start_both();
  constexpr int kGreedy = 8;
  constexpr int kAsked = 50;
  const Tensor count = Tensor::scalar<int64_t>(1 << 20);
  std::vector<std::unique_ptr<sys::Stream>> greedy;
  std::string asks = hello_frame();
  for (int i = 0; i < kAsked; ++i) asks += call_frame(kPull, count);
  for (int i = 0; i < kGreedy; ++i) {
    greedy.push_back(raw_connection());
    write_raw(*greedy.back(), asks);
  }
  // 1.6 GiB of answers are wanted, and honest calls go on.
  uint64_t most = 0;
  for (int i = 0; i < 50; ++i) {
    Sink sink;
    ASSERT_TRUE(call_fine(&sink));
    on(server_lane_, [&] { most = std::max(most, server_end_->send_bytes()); });
  }
  EXPECT_GT(most, uint64_t{8} << 20);
  // Who finds the lane full has one more answer at most.
  EXPECT_LE(most, (uint64_t{8} << 20) + kGreedy * (uint64_t{4} << 20) + (1 << 20));
}

TEST_F(PressureTest, AnIdleConnectionHoldsLittleMemory) {
  if (base::kIsSanitized) GTEST_SKIP() << "skipped: sanitizers have a heap of their own";
  constexpr int kClients = 500;
  start_both();
  std::vector<std::unique_ptr<Channel>> channels;
  std::atomic<int> connected = 0;
  std::promise<void> all_connected;
  const size_t before = mallinfo2().uordblks;
  on(client_lane_, [&] {
    for (int i = 0; i < kClients; ++i) {
      channels.push_back(Channel::create(client_end_.get(), {kServer, 0, address_}));
      channels.back()->connect(0, [&](const Status& status) {
        EXPECT_TRUE(status.ok()) << status;
        if (++connected == kClients) all_connected.set_value();
      });
    }
  });
  ASSERT_EQ(all_connected.get_future().wait_for(kPatience), std::future_status::ready);
  Sink sink(kClients);
  const Tensor feed = pattern(100'000, 1);
  on(client_lane_, [&] {
    for (auto& channel : channels) {
      ASSERT_TRUE(channel->call({.program = kEcho}, std::span(&feed, 1), &sink).ok());
    }
  });
  ASSERT_TRUE(sink.wait());
  sink.fetches.clear();
  // Behind the answers, both sides talk about shared memory.
  size_t taken = 1;
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (taken > 0 && std::chrono::steady_clock::now() < deadline) {
    on(server_lane_, [&] { taken = server_end_->chunks().taken(); });
  }
  EXPECT_EQ(taken, 0U);
  const size_t each = (mallinfo2().uordblks - before) / kClients;
  RecordProperty("bytes_of_both_ends", std::to_string(each));
  EXPECT_LE(each, 32u << 10);
  on(client_lane_, [&] { channels.clear(); });
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
