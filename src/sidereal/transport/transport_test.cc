#include "sidereal/transport/testing/fixture.h"

namespace sidereal::transport {
namespace {

using namespace testing;  // NOLINT: the fixture of this module.

TEST_F(TransportTest, EchoesTensorsOfEverySize) {
  start_both();
  EXPECT_EQ(channel_->peer_incarnation(), 77u);
  EXPECT_EQ(channel_->peer_lane_count(), 1u);
  for (const int64_t bytes : {0, 1, 7, 8, 63, 4095, 4096, 4097, 16'383, 16'385, 65'536, 131'073,
                              524'288, 1'048'577, 8'388'608}) {
    Sink sink;
    const Tensor sent = pattern(bytes, 1);
    ASSERT_TRUE(call(kEcho, {sent, pattern(3, 2), sent}, &sink).ok());
    ASSERT_TRUE(sink.wait()) << bytes;
    ASSERT_TRUE(sink.status.ok()) << sink.status;
    ASSERT_EQ(sink.fetches.size(), 3u);
    EXPECT_TRUE(same(sink.fetches[0], sent)) << bytes;
    EXPECT_TRUE(same(sink.fetches[1], pattern(3, 2))) << bytes;
    EXPECT_TRUE(same(sink.fetches[2], sent)) << bytes;
  }
}

TEST_F(TransportTest, CarriesScalarsManyRanksDeadSlotsAndNoTensorAtAll) {
  start_both();
  Sink none;
  ASSERT_TRUE(call(kEcho, {}, &none).ok());
  ASSERT_TRUE(none.wait());
  EXPECT_TRUE(none.status.ok());
  EXPECT_TRUE(none.fetches.empty());
  Sink sink;
  const std::vector<Tensor> feeds = {Tensor::scalar(2.5f), Tensor(),
                                     Tensor::of<int64_t>({2, 1, 3}, {1, 2, 3, 4, 5, 6}),
                                     Tensor::of<bool>({3}, std::array<bool, 3>{true, false, true}),
                                     Tensor::zeros(DType::kFloat64, {0, 5})};
  ASSERT_TRUE(call(kEcho, feeds, &sink).ok());
  ASSERT_TRUE(sink.wait());
  ASSERT_EQ(sink.fetches.size(), feeds.size());
  EXPECT_FALSE(sink.fetches[1].defined());
  for (const size_t i : {0, 2, 3, 4}) EXPECT_TRUE(same(sink.fetches[i], feeds[i])) << i;
}

TEST_F(TransportTest, ManyCallsOfMixedSizesAreOutstandingAtOnce) {
  start_both();
  constexpr int kCalls = 400;
  std::deque<Sink> sinks;
  std::vector<Tensor> sent;
  for (int i = 0; i < kCalls; ++i) {
    sinks.emplace_back();
    sent.push_back(pattern((i * 7919) % 200'000 / (i % 3 == 0 ? 1 : 500), i));
  }
  on(client_lane_, [&] {
    for (int i = 0; i < kCalls; ++i) {
      ASSERT_TRUE(channel_->call({.program = kEcho}, std::span(&sent[i], 1), &sinks[i]).ok());
    }
    EXPECT_EQ(channel_->pending(), kCalls);
  });
  for (int i = 0; i < kCalls; ++i) {
    ASSERT_TRUE(sinks[i].wait());
    ASSERT_TRUE(sinks[i].status.ok());
    EXPECT_TRUE(same(sinks[i].fetches[0], sent[i])) << i;
  }
  EXPECT_EQ(client_lane_->metrics().calls.value(), kCalls);
  on(client_lane_, [&] {
    EXPECT_EQ(channel_->bytes_in(), client_lane_->metrics().bytes_in.value());
    EXPECT_EQ(channel_->bytes_out(), client_lane_->metrics().bytes_out.value());
    EXPECT_GT(channel_->bytes_out(), 0);
  });
  EXPECT_EQ(server_lane_->metrics().calls.value(), kCalls);
}

TEST_F(TransportTest, RepliesMayComeLaterAndInAnotherOrder) {
  start_both();
  std::deque<Sink> sinks(20);
  std::promise<void> all_held;
  auto held = all_held.get_future();
  server_.on_held = [&] {
    if (server_.held.size() == 20) all_held.set_value();
  };
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(call(kHold, {pattern(100 * i, i)}, &sinks[i]).ok());
  ASSERT_EQ(held.wait_for(kPatience), std::future_status::ready);
  on(server_lane_, [&] { server_.release(); });
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(sinks[i].wait());
    EXPECT_TRUE(same(sinks[i].fetches[0], pattern(100 * i, i)));
  }
}

TEST_F(TransportTest, ErrorsOfTheHandlerReachTheCallerAndTheConnectionLivesOn) {
  start_both();
  Sink failed, refused, fine;
  ASSERT_TRUE(call(kFail, {pattern(10, 1)}, &failed).ok());
  ASSERT_TRUE(call(kRefuse, {pattern(1'000'000, 1)}, &refused).ok());
  ASSERT_TRUE(call(kEcho, {pattern(1000, 1)}, &fine).ok());
  ASSERT_TRUE(failed.wait() && refused.wait() && fine.wait());
  EXPECT_EQ(failed.status, base::not_found("no such row"));
  EXPECT_EQ(refused.status, base::resource_exhausted("no room for a feed"));
  EXPECT_TRUE(same(fine.fetches[0], pattern(1000, 1)));
}

struct RefusingSink : Sink {
  Result<Tensor> allocate(int, DType, const Shape&) override {
    return base::resource_exhausted("no room for a fetch");
  }
};

TEST_F(TransportTest, ASinkThatRefusesAFetchFailsItsCallOnly) {
  start_both();
  RefusingSink refused;
  Sink fine;
  ASSERT_TRUE(call(kEcho, {pattern(300'000, 1)}, &refused).ok());
  ASSERT_TRUE(call(kEcho, {pattern(300'000, 2)}, &fine).ok());
  ASSERT_TRUE(refused.wait() && fine.wait());
  EXPECT_EQ(refused.status, base::resource_exhausted("no room for a fetch"));
  EXPECT_TRUE(same(fine.fetches[0], pattern(300'000, 2)));
}

TEST_F(TransportTest, ADeadlineNamesTheTaskAndTheLateReplyIsSkipped) {
  start_both();
  Sink late, fine;
  std::promise<void> arrived;
  auto held = arrived.get_future();
  server_.on_held = [&] { arrived.set_value(); };
  ASSERT_TRUE(call(kHold, {pattern(500'000, 1)}, &late, 50 * sys::kMillisecond).ok());
  ASSERT_TRUE(late.wait());
  EXPECT_EQ(late.status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(contains(late.status, kServer + " at " + address_.to_string())) << late.status;
  ASSERT_EQ(held.wait_for(kPatience), std::future_status::ready);
  on(server_lane_, [&] { server_.release(); });
  ASSERT_TRUE(call(kEcho, {pattern(5000, 3)}, &fine).ok());
  ASSERT_TRUE(fine.wait());
  EXPECT_TRUE(same(fine.fetches[0], pattern(5000, 3)));
  EXPECT_EQ(client_lane_->metrics().replies_late.value(), 1);
}

TEST_F(TransportTest, ACallCanBeCancelled) {
  start_both();
  Sink sink;
  on(client_lane_, [&] {
    const auto id = channel_->call({.program = kNever}, {}, &sink);
    ASSERT_TRUE(id.ok());
    EXPECT_TRUE(channel_->cancel(*id));
    EXPECT_FALSE(channel_->cancel(*id));
    EXPECT_EQ(channel_->pending(), 0);
  });
  EXPECT_EQ(sink.status.code(), StatusCode::kCancelled);
}

TEST_F(TransportTest, AServerThatStopsEndsEveryPendingCallNamingItself) {
  start_both();
  std::deque<Sink> sinks(10);
  for (Sink& sink : sinks) ASSERT_TRUE(call(kNever, {pattern(100, 1)}, &sink).ok());
  std::promise<Status> broke;
  auto broken = broke.get_future();
  on(client_lane_,
     [&] { channel_->on_break([&](const Status& status) { broke.set_value(status); }); });
  ASSERT_TRUE(server_lane_->stop().ok());
  for (Sink& sink : sinks) {
    ASSERT_TRUE(sink.wait());
    EXPECT_EQ(sink.status.code(), StatusCode::kUnavailable);
    EXPECT_TRUE(contains(sink.status, kServer + " at " + address_.to_string())) << sink.status;
  }
  ASSERT_EQ(broken.wait_for(kPatience), std::future_status::ready);
  Sink after;
  EXPECT_EQ(call(kEcho, {}, &after).code(), StatusCode::kUnavailable);
}

TEST_F(TransportTest, AClientLaneThatStopsCancelsItsCallsAndTheServerForgetsIt) {
  start_both();
  Sink sink;
  std::promise<void> closed;
  auto is_closed = closed.get_future();
  on(server_lane_, [&] { server_.on_close = [&] { closed.set_value(); }; });
  ASSERT_TRUE(call(kNever, {}, &sink).ok());
  ASSERT_TRUE(client_lane_->stop().ok());
  ASSERT_TRUE(sink.wait());
  EXPECT_EQ(sink.status.code(), StatusCode::kCancelled);
  ASSERT_EQ(is_closed.wait_for(kPatience), std::future_status::ready);
  on(server_lane_, [&] {
    ASSERT_EQ(server_.close_reasons.size(), 1u);
    EXPECT_TRUE(contains(server_.close_reasons[0], kClient));
    EXPECT_EQ(acceptor_->connection_count(), 0);
    // A reply that comes now has nowhere to go.
    ASSERT_EQ(server_.held.size(), 1u);
    server_.release();
  });
  EXPECT_EQ(server_lane_->metrics().replies_dropped.value(), 1);
  EXPECT_EQ(server_lane_->metrics().connections.value(), 0);
}

TEST_F(TransportTest, AChannelConnectsAgainAfterABreak) {
  start_both();
  std::promise<void> broke;
  auto broken = broke.get_future();
  on(client_lane_, [&] { channel_->on_break([&](const Status&) { broke.set_value(); }); });
  const sys::Address address = address_;
  ASSERT_TRUE(server_lane_->stop().ok());
  ASSERT_EQ(broken.wait_for(kPatience), std::future_status::ready);
  on(client_lane_, [&] { channel_->on_break(nullptr); });
  acceptor_.reset();
  server_end_.reset();
  server_lane_ = make_lane("server2");
  server_end_ =
      Endpoint::create(server_lane_.get(),
                       {.cluster_id = kCluster, .task = kServer, .incarnation = 78}, options_)
          .value();
  acceptor_ = Acceptor::create(server_end_.get(), address, &server_).value();
  server_.acceptor = acceptor_.get();
  server_lane_->start();
  const Status again = connect();
  ASSERT_TRUE(again.ok()) << again;
  EXPECT_EQ(channel_->peer_incarnation(), 78u);
  Sink sink;
  ASSERT_TRUE(call(kEcho, {pattern(10, 1)}, &sink).ok());
  ASSERT_TRUE(sink.wait());
  EXPECT_TRUE(sink.status.ok());
}

TEST_F(TransportTest, AnUnreachableServerIsNamedWithTheReasonAfterTheDeadline) {
  address_ = network_->listen({"127.0.0.1", 0}).value()->address();  // free again at once
  make_client({kServer, 0, address_});
  const Status status = connect(200 * sys::kMillisecond);
  EXPECT_EQ(base::message_of(status), "cannot reach " + kServer + " at " + address_.to_string() +
                                          " within 0.2 s: Connection refused");
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
}

TEST_F(TransportTest, ConnectingWaitsForAServerThatStartsLate) {
  address_ = network_->listen({"127.0.0.1", 0}).value()->address();
  make_client({kServer, 0, address_});
  std::promise<Status> result;
  auto future = result.get_future();
  on(client_lane_,
     [&] { channel_->connect(0, [&](const Status& status) { result.set_value(status); }); });
  server_end_ =
      Endpoint::create(server_lane_.get(), {.cluster_id = kCluster, .task = kServer}, options_)
          .value();
  acceptor_ = Acceptor::create(server_end_.get(), address_, &server_).value();
  server_.acceptor = acceptor_.get();
  server_lane_->start();
  ASSERT_EQ(future.wait_for(kPatience), std::future_status::ready);
  const Status status = future.get();
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(TransportTest, AServerOfAnotherClusterTaskOrLaneRefusesAtOnce) {
  start_server();
  make_client({"/job:ps/task:9", 0, address_});
  Status status = connect();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(contains(status, "wants /job:ps/task:9 but reached " + kServer)) << status;
  const auto refused_by_another = [&](Peer peer, uint64_t cluster, const std::string& part) {
    on(client_lane_, [&] { channel_.reset(); });
    client_end_ =
        Endpoint::create(client_lane_.get(), {.cluster_id = cluster, .task = kClient}, options_)
            .value();
    on(client_lane_, [&] { channel_ = Channel::create(client_end_.get(), peer); });
    status = connect();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_TRUE(contains(status, part)) << status;
  };
  refused_by_another({kServer, 3, address_}, kCluster, "wants lane 3");
  refused_by_another({kServer, 0, address_}, 0xbad, "0000000000000bad");
  EXPECT_EQ(server_lane_->metrics().handshakes_refused.value(), 3);
  on(client_lane_, [&] { channel_.reset(); });
}

TEST_F(TransportTest, AnotherProtocolVersionIsRefusedNamingBoth) {
  start_server();
  auto stream = raw_connection();
  write_raw(*stream, hello_frame(9));
  const std::string answer = read_raw(*stream);
  EXPECT_NE(answer.find("speaks 9 to 9"), std::string::npos);
  EXPECT_NE(answer.find("speaks 4 to 4"), std::string::npos);
}

TEST_F(TransportTest, GarbageCostsTheConnectionAndACounterOnly) {
  start_both();
  const std::string good = hello_frame();
  wire::FrameHeader call;
  call.method = wire::Method::kCall;
  call.call_id = 1;
  wire::FrameHeader huge = call;
  huge.slot_count = 1;
  huge.meta_bytes = 24;
  huge.payload_bytes = uint64_t{1} << 60;
  wire::FrameHeader liar = call;
  liar.slot_count = 1;
  liar.meta_bytes = 24;
  liar.payload_bytes = 16;
  const std::vector<std::string> attacks = {
      std::string(64, 'x'),  // no frame
      "GET / HTTP/1.1\r\nHost: somewhere.example\r\nAccept: everything/at-all\r\n\r\n",
      frame(call, ""),                              // a call before the handshake
      good + good,                                  // hello twice
      good + frame(huge, ""),                       // a length past every limit
      good + frame(liar, std::string(24, '\x01')),  // a slot table that lies
  };
  int64_t expected = 0;
  for (const std::string& attack : attacks) {
    auto stream = raw_connection();
    write_raw(*stream, attack);
    read_raw(*stream);
    EXPECT_EQ(server_lane_->metrics().malformed.value(), ++expected);
  }
  Sink sink;
  ASSERT_TRUE(call_fine(&sink));
}

TEST_F(TransportTest, APeerThatClosesInTheMiddleOfAFrameHarmsNobody) {
  start_both();
  std::promise<void> closed;
  auto is_closed = closed.get_future();
  on(server_lane_, [&] { server_.on_close = [&] { closed.set_value(); }; });
  const std::string call = call_frame(kEcho, pattern(1 << 20, 1));
  {
    auto stream = raw_connection();
    write_raw(*stream, hello_frame() + call.substr(0, 100'000));
  }
  ASSERT_EQ(is_closed.wait_for(kPatience), std::future_status::ready);
  on(server_lane_, [&] { server_.on_close = nullptr; });
  Sink sink;
  ASSERT_TRUE(call_fine(&sink));
}

TEST_F(TransportTest, FramesMayArriveByteByByte) {
  start_server();
  auto stream = raw_connection();
  const Tensor feed = pattern(20, 1);
  std::string bytes = hello_frame() + call_frame(kEcho, feed);
  wire::FrameHeader goodbye;
  goodbye.method = wire::Method::kGoodbye;
  bytes += frame(goodbye, "");
  for (const char& c : bytes) {
    write_raw(*stream, {&c, 1});
    on(server_lane_, [] {});  // the lane has been round once more
  }
  const std::string answer = read_raw(*stream);
  EXPECT_NE(answer.find(std::string(reinterpret_cast<const char*>(feed.raw()), 20)),
            std::string::npos);
  EXPECT_EQ(server_lane_->metrics().malformed.value(), 0);
}

TEST_F(TransportTest, MutatedStreamsNeverHarmTheServer) {
  options_.frame_bytes_max = 1 << 20;
  start_both();
  const char* text = std::getenv("SIDEREAL_SEED");
  const uint64_t seed = text == nullptr ? 20240601 : std::strtoull(text, nullptr, 10);
  SCOPED_TRACE("SIDEREAL_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < 300; ++round) {
    std::string bytes;
    for (int frames = 1 + static_cast<int>(random() % 3); frames > 0; --frames) {
      bytes += call_frame(kEcho, pattern(static_cast<int64_t>(random() % 40'000), round));
    }
    for (int changes = 1 + static_cast<int>(random() % 3); changes > 0; --changes) {
      // Heads matter most.
      const size_t at = random() % (random() % 2 == 0 ? 96 : bytes.size());
      bytes[at] = static_cast<char>(random());
    }
    if (random() % 3 == 0) bytes.resize(random() % bytes.size());
    bytes = hello_frame() + bytes;
    auto stream = raw_connection();
    const std::array<sys::ConstIoSlice, 1> slice = {
        sys::ConstIoSlice{reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()}};
    (void)stream->writev(slice);  // the server may have closed already
  }
  Sink sink;
  ASSERT_TRUE(call_fine(&sink));
  EXPECT_GT(server_lane_->metrics().malformed.value(), 0);
}

TEST_F(TransportTest, AServerThatAnswersGarbageIsLostAndItsCallsEnd) {
  auto listener = network_->listen({"127.0.0.1", 0}).value();
  make_client({kServer, 0, listener->address()});
  std::promise<Status> result;
  auto future = result.get_future();
  on(client_lane_,
     [&] { channel_->connect(0, [&](const Status& status) { result.set_value(status); }); });
  auto stream = accept_raw(*listener);
  const std::string meta = wire::encode_hello_ack({.incarnation = 1, .task = kServer});
  wire::FrameHeader ack;
  ack.method = wire::Method::kHelloAck;
  ack.meta_bytes = static_cast<uint32_t>(meta.size());
  write_raw(*stream, frame(ack, meta));
  ASSERT_EQ(future.wait_for(kPatience), std::future_status::ready);
  const Status connected = future.get();
  ASSERT_TRUE(connected.ok()) << connected;
  Sink sink;
  ASSERT_TRUE(call(kEcho, {pattern(10, 1)}, &sink).ok());
  write_raw(*stream, std::string(64, 'x'));
  ASSERT_TRUE(sink.wait());
  EXPECT_EQ(sink.status.code(), StatusCode::kUnavailable);
  EXPECT_TRUE(contains(sink.status, "it sent a wrong frame")) << sink.status;
  EXPECT_EQ(client_lane_->metrics().malformed.value(), 1);
}

TEST_F(TransportTest, AServerThatNeverAnswersTheHandshakeIsGivenUp) {
  auto listener = network_->listen({"127.0.0.1", 0}).value();  // connects, never accepted
  make_client({kServer, 0, listener->address()});
  const Status status = connect(200 * sys::kMillisecond);
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_TRUE(contains(status, "did not answer the handshake")) << status;
}

TEST_F(TransportTest, ALaneThatComputesForLongIsNotHeldToItsDeadline) {
  start_server();
  // Its number is looked up, by another thread.
  make_client({kServer, 0, {"localhost", address_.port}});
  std::promise<Status> result;
  ASSERT_TRUE(client_lane_->post([&] {
    channel_->connect(client_lane_->now() + 100 * sys::kMillisecond,
                      [&](const Status& status) { result.set_value(status); });
    // As a step does that has much to do, and looks at sockets in between.
    const int64_t until = clock_->now() + 700 * sys::kMillisecond;
    while (clock_->now() < until) client_lane_->poll_io();
  }));
  std::future<Status> future = result.get_future();
  ASSERT_EQ(future.wait_for(kPatience), std::future_status::ready);
  const Status status = future.get();
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(TransportTest, AClientThatNeverSaysHelloIsDropped) {
  options_.connect_deadline_ms = 100;
  start_server();
  auto stream = raw_connection();
  EXPECT_NE(read_raw(*stream).find("no hello within 0.1 s"), std::string::npos);
  EXPECT_EQ(server_lane_->metrics().refused_idle.value(), 1);
}

TEST_F(TransportTest, ConnectionsPastTheLimitAreRefused) {
  options_.connections_max = 1;
  start_both();
  auto stream = raw_connection();
  write_raw(*stream, hello_frame());
  EXPECT_NE(read_raw(*stream).find("connections_max"), std::string::npos);
  Sink sink;
  ASSERT_TRUE(call_fine(&sink));
}

TEST_F(TransportTest, APeerThatFallsSilentIsLostWithinTheKeepaliveTimeout) {
  options_.keepalive_timeout_ms = 200;
  start_both();
  Sink sink;
  std::promise<void> release;
  auto released = release.get_future().share();
  ASSERT_TRUE(call(kNever, {}, &sink).ok());
  // The server lane stops looking at its sockets, as a stopped process would.
  ASSERT_TRUE(server_lane_->post([released] { released.wait(); }));
  const int64_t from = clock_->now();
  ASSERT_TRUE(sink.wait());
  EXPECT_LT(clock_->now() - from, 30 * sys::kSecond);
  EXPECT_EQ(sink.status.code(), StatusCode::kUnavailable);
  EXPECT_TRUE(contains(sink.status, "no sign of life")) << sink.status;
  release.set_value();
}

TEST_F(TransportTest, AnIdleConnectionStaysAliveThroughPings) {
  options_.keepalive_timeout_ms = 400;
  start_both();
  // Until more pings went out than fit into one timeout.
  while (client_lane_->metrics().frames_out.value() < 10) std::this_thread::yield();
  Sink sink;
  ASSERT_TRUE(call_fine(&sink));
}

TEST_F(TransportTest, AFullSendQueueRefusesCallsOnTheClient) {
  options_.send_buffer_bytes_max = 1 << 20;
  start_both();
  std::promise<void> release;
  auto released = release.get_future().share();
  ASSERT_TRUE(server_lane_->post([released] { released.wait(); }));
  std::deque<Sink> sinks;
  Status status;
  const Tensor block = pattern(1 << 20, 1);
  int sent = 0;
  for (; sent < 1000 && status.ok(); ++sent) {
    sinks.emplace_back();
    status = call(kEcho, {block}, &sinks.back());
  }
  --sent;
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(contains(status, "send_buffer_bytes_max is 1048576")) << status;
  release.set_value();
  for (int i = 0; i < sent; ++i) {
    ASSERT_TRUE(sinks[i].wait());
    EXPECT_TRUE(same(sinks[i].fetches[0], block));
  }
}

TEST_F(TransportTest, AServerWhoseClientDoesNotReadStopsReadingAndGoesOnLater) {
  options_.send_buffer_bytes_max = 1 << 20;
  start_both();
  constexpr int kCalls = 64;
  std::deque<Sink> sinks(kCalls);
  std::promise<void> release, blocked;
  auto released = release.get_future().share();
  const Tensor count = Tensor::scalar<int64_t>(1 << 20);
  ASSERT_TRUE(client_lane_->post([&] {
    for (int i = 0; i < kCalls; ++i) {
      ASSERT_TRUE(channel_
                      ->call({.program = kPull, .step = static_cast<uint64_t>(i)},
                             std::span(&count, 1), &sinks[i])
                      .ok());
    }
  }));
  ASSERT_TRUE(client_lane_->post([&, released] {
    blocked.set_value();
    released.wait();
  }));
  ASSERT_EQ(blocked.get_future().wait_for(kPatience), std::future_status::ready);
  release.set_value();
  for (int i = 0; i < kCalls; ++i) {
    ASSERT_TRUE(sinks[i].wait());
    ASSERT_TRUE(sinks[i].status.ok()) << sinks[i].status;
    const auto values = sinks[i].fetches[0].data<int32_t>();
    EXPECT_EQ(values.front(), i);
    EXPECT_EQ(values.back(), i + (1 << 20) - 1);
  }
}

/// Answers, and notes what has left when each call comes.
struct LeavingServer : Server {
  void on_call(const Connection& from, const Call& call, std::span<Tensor> feeds) override {
    if (call.header.program == kEcho) sent.push_back(end->metrics().bytes_out.value());
    Server::on_call(from, call, feeds);
  }
  Endpoint* end = nullptr;
  std::vector<int64_t> sent;
};

class LeavingTest : public TransportTest {
 protected:
  /// What had left when each of so many calls, which come at once, was handled.
  std::vector<int64_t> sent_at(int calls) {
    LeavingServer server;
    server_end_ =
        Endpoint::create(server_lane_.get(), {.cluster_id = kCluster, .task = kServer}, options_)
            .value();
    acceptor_ = Acceptor::create(server_end_.get(), {"127.0.0.1", 0}, &server).value();
    server.acceptor = acceptor_.get();
    server.end = server_end_.get();
    address_ = acceptor_->address();
    std::promise<void> last;
    server.on_held = [&last] { last.set_value(); };
    server_lane_->start();
    const auto stream = raw_connection();
    std::string bytes = hello_frame();
    for (int i = 0; i < calls; ++i) bytes += call_frame(kEcho, pattern(64, i));
    write_raw(*stream, bytes + call_frame(kNever, pattern(64, 0)));
    EXPECT_EQ(last.get_future().wait_for(kPatience), std::future_status::ready);
    EXPECT_TRUE(server_lane_->stop().ok());
    acceptor_.reset();
    return server.sent;
  }
};

TEST_F(LeavingTest, WhatTheFirstOfManyMessagesAskedForLeavesBeforeTheLastAreHandled) {
  const std::vector<int64_t> sent = sent_at(80);
  ASSERT_EQ(sent.size(), 80u);
  EXPECT_LT(sent.front(), sent.back());
}

TEST_F(LeavingTest, WhatAFewMessagesAskedForLeavesAtOnce) {
  const std::vector<int64_t> sent = sent_at(40);
  ASSERT_EQ(sent.size(), 40u);
  EXPECT_EQ(sent.front(), sent.back());
}

TEST_F(TransportTest, AMessageLargerThanTheLimitIsRefusedBeforeItIsSent) {
  options_.frame_bytes_max = 1 << 20;
  options_.slots_max = 4;
  start_both();
  Sink sink;
  Status status = call(kEcho, {pattern((1 << 20) + 1, 1)}, &sink);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(contains(status, "frame_bytes_max is 1048576")) << status;
  status = call(kEcho, std::vector<Tensor>(5), &sink);
  EXPECT_TRUE(contains(status, "slots_max is 4")) << status;
  // A reply that is too long becomes an error of its call.
  ASSERT_TRUE(call(kPull, {Tensor::scalar<int64_t>(1 << 20)}, &sink).ok());
  ASSERT_TRUE(sink.wait());
  EXPECT_EQ(sink.status.code(), StatusCode::kInvalidArgument);
  Sink fine;
  ASSERT_TRUE(call_fine(&fine));
}

TEST_F(TransportTest, OnlyLoopbackAddressesAreServed) {
  auto endpoint = Endpoint::create(server_lane_.get(), {.task = kServer}, options_).value();
  for (const char* host : {"0.0.0.0", "::"}) {
    const Status status = Acceptor::create(endpoint.get(), {host, 0}, &server_).status();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << host;
    EXPECT_TRUE(contains(status, "nothing keeps unauthenticated peers out")) << status;
  }
}

TEST_F(TransportTest, APortInUseIsNamed) {
  start_server();
  auto other = make_lane("other");
  auto endpoint = Endpoint::create(other.get(), {.task = "/job:ps/task:1"}, options_).value();
  const Status status = Acceptor::create(endpoint.get(), address_, &server_).status();
  EXPECT_EQ(status.code(), StatusCode::kAlreadyExists);
  EXPECT_TRUE(contains(status, address_.to_string())) << status;
}

TEST_F(TransportTest, OptionsOutOfRangeAreRefused) {
  options_.slots_max = 0;
  EXPECT_EQ(Endpoint::create(server_lane_.get(), {}, options_).status().code(),
            StatusCode::kInvalidArgument);
}

TEST_F(TransportTest, SeveralClientsOfOneServerDoNotMixTheirReplies) {
  start_both();
  constexpr int kClients = 5;
  std::vector<std::unique_ptr<Channel>> channels;
  std::deque<Sink> sinks(kClients * 20);
  std::atomic<int> connected{0};
  std::promise<void> all_connected;
  on(client_lane_, [&] {
    for (int c = 0; c < kClients; ++c) {
      channels.push_back(Channel::create(client_end_.get(), {kServer, 0, address_}));
      channels.back()->connect(0, [&](const Status& status) {
        EXPECT_TRUE(status.ok()) << status;
        if (++connected == kClients) all_connected.set_value();
      });
    }
  });
  ASSERT_EQ(all_connected.get_future().wait_for(kPatience), std::future_status::ready);
  on(client_lane_, [&] {
    for (int i = 0; i < 20; ++i) {
      for (int c = 0; c < kClients; ++c) {
        const Tensor feed = pattern(1000 * i, c);
        ASSERT_TRUE(channels[c]
                        ->call({.program = kEcho}, std::span(&feed, 1), &sinks[i * kClients + c])
                        .ok());
      }
    }
  });
  for (int i = 0; i < 20; ++i) {
    for (int c = 0; c < kClients; ++c) {
      ASSERT_TRUE(sinks[i * kClients + c].wait());
      EXPECT_TRUE(same(sinks[i * kClients + c].fetches[0], pattern(1000 * i, c)));
    }
  }
  on(client_lane_, [&] { channels.clear(); });
}

}  // namespace
}  // namespace sidereal::transport
