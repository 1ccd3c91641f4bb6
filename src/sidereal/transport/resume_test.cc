#include <map>

#include "sidereal/transport/testing/simulated_fixture.h"

/// Calls that outlive their connections.
namespace sidereal::transport {
namespace {

using sys::kMillisecond;
using sys::kSecond;
using sys::sim::Break;
using sys::sim::Death;
using tensor::DType;
using tensor::Tensor;
using testing::SimulatedTest;

constexpr uint16_t kLate = 1;  // a kind of call that is answered by release()

/// Counts how often each step was run, and answers with the feeds.
struct Counting : CallHandler {
  void on_call(const Connection& from, const Call& call, std::span<Tensor> feeds) override {
    ++runs[call.header.step];
    order.push_back(call.header.step);
    if (call.header.kind == kLate) {
      held.emplace_back(from.id, call.header.call_id);
    } else {
      acceptor->reply(from.id, call.header.call_id, feeds, {.extra = call.extra});
    }
  }
  void on_cancel(const Connection& from, uint64_t call_id) override {
    if (std::erase(held, std::pair(from.id, call_id)) > 0) {
      ++cancelled;
      acceptor->reply_error(from.id, call_id, base::cancelled("as asked"));
    }
  }
  void on_closed(const Connection&, const Status& why) override { closed.push_back(why); }
  void release(std::span<const Tensor> values = {}) {
    for (const auto& [to, call_id] : std::exchange(held, {})) acceptor->reply(to, call_id, values);
  }

  Acceptor* acceptor = nullptr;
  std::map<uint64_t, int> runs;
  std::vector<uint64_t> order;
  std::vector<std::pair<ConnectionId, uint64_t>> held;
  int cancelled = 0;
  std::vector<Status> closed;
};

struct Sink : CallSink {
  void on_aside(const Aside& aside) override { extra = aside.extra; }
  void done(const Status& outcome, std::span<Tensor> tensors) override {
    ++ended;
    status = outcome;
    fetches.assign(tensors.begin(), tensors.end());
  }
  int ended = 0;
  Status status;
  std::string extra;
  std::vector<Tensor> fetches;
};

bool contains(const Status& status, std::string_view part) {
  return base::message_of(status).find(part) != std::string::npos;
}

class ResumeTest : public SimulatedTest {
 protected:
  ResumeTest() { make_world({.delay_ns_min = 10 * kMillisecond, .short_io = 0}); }

  void start() {
    start_server(&counting_);
    counting_.acceptor = acceptor_.get();
    start_client();
    channel_ = Channel::create(client_->end.get(), peer(), Resume::draw(client_->node->random()));
    channel_->on_break([this](const Status& why) { breaks_.push_back(why); });
    Status connected = base::internal("not yet");
    channel_->connect(0, [&](const Status& status) { connected = status; });
    run(kSecond);
    ASSERT_TRUE(connected.ok()) << connected;
  }
  void start_server_again() {
    start_server(&counting_);
    counting_.acceptor = acceptor_.get();
  }
  /// Sends a call with one feed.
  void call(uint64_t step, Sink* sink, uint16_t kind = 0, bool is_repeatable = false) {
    const Tensor feed = Tensor::scalar<int64_t>(static_cast<int64_t>(step));
    const auto id = channel_->call({.step = step,
                                    .kind = kind,
                                    .deadline_ns = deadline_ns_,
                                    .extra = "extra",
                                    .is_repeatable = is_repeatable},
                                   std::span(&feed, 1), sink);
    ASSERT_TRUE(id.ok()) << id.status();
    call_ = *id;
  }
  static void expect_echo(const Sink& sink, int64_t value) {
    EXPECT_EQ(sink.ended, 1);
    EXPECT_TRUE(sink.status.ok()) << sink.status;
    ASSERT_EQ(sink.fetches.size(), 1u);
    EXPECT_EQ(sink.fetches[0].data<const int64_t>()[0], value);
    EXPECT_EQ(sink.extra, "extra");
  }

  Counting counting_;
  std::vector<Status> breaks_;
  int64_t deadline_ns_ = kNoDeadline;
  uint64_t call_ = 0;
};

TEST_F(ResumeTest, ACallThatIsLostOnItsWayIsSentAgain) {
  start();
  Sink sink;
  call(7, &sink);
  run(kMillisecond);  // It has left, and has not arrived.
  EXPECT_TRUE(world_->break_any(Break::kBoth));
  run(5 * kSecond);
  expect_echo(sink, 7);
  EXPECT_EQ(counting_.runs[7], 1);
  EXPECT_EQ(channel_->resumed(), 1);
  EXPECT_TRUE(breaks_.empty());
  EXPECT_EQ(acceptor_->answer_bytes(), 0u);
}

TEST_F(ResumeTest, ACallWhoseAnswerIsLostGetsItAgainAndIsNotRunTwice) {
  start();
  Sink sink;
  call(7, &sink);
  while (counting_.runs.empty()) run(kMillisecond);
  EXPECT_TRUE(world_->break_any(Break::kBoth));
  EXPECT_EQ(sink.ended, 0);
  EXPECT_GT(acceptor_->answer_bytes(), 0u);
  run(5 * kSecond);
  expect_echo(sink, 7);
  EXPECT_EQ(counting_.runs[7], 1);
  EXPECT_EQ(acceptor_->answer_bytes(), 0u);
}

TEST_F(ResumeTest, ACallThatStillRunsIsAnsweredOverTheNewConnection) {
  start();
  Sink sink;
  call(7, &sink, kLate);
  run(kSecond);
  EXPECT_TRUE(world_->break_any(Break::kBoth));
  run(3 * kSecond);
  EXPECT_EQ(channel_->resumed(), 1);
  EXPECT_EQ(sink.ended, 0);
  counting_.release();
  run(kSecond);
  EXPECT_EQ(sink.ended, 1);
  EXPECT_TRUE(sink.status.ok()) << sink.status;
  EXPECT_EQ(counting_.runs[7], 1);
  EXPECT_TRUE(counting_.closed.empty());
}

TEST_F(ResumeTest, AnAnswerThatIsMadeWhileNobodyIsConnectedIsKept) {
  start();
  Sink sink;
  call(7, &sink, kLate);
  run(kSecond);
  world_->cut(server_host_);
  EXPECT_TRUE(world_->break_any(Break::kBoth));
  run(kSecond);
  counting_.release();
  run(kSecond);
  EXPECT_EQ(sink.ended, 0);
  world_->heal(server_host_);
  run(3 * kSecond);
  EXPECT_EQ(sink.ended, 1);
  EXPECT_TRUE(sink.status.ok()) << sink.status;
}

TEST_F(ResumeTest, CallsKeepTheirOrderOverTheBreak) {
  start();
  std::vector<std::unique_ptr<Sink>> sinks;
  for (uint64_t step = 1; step <= 50; ++step) {
    sinks.push_back(std::make_unique<Sink>());
    call(step, sinks.back().get());
    run(kMillisecond);
    if (step % 10 == 5) {
      EXPECT_TRUE(world_->break_any(Break::kOne));
    }
  }
  run(10 * kSecond);
  for (uint64_t step = 1; step <= 50; ++step) expect_echo(*sinks[step - 1], step);
  ASSERT_EQ(counting_.order.size(), 50u);
  for (uint64_t i = 0; i < 50; ++i) EXPECT_EQ(counting_.order[i], i + 1);
  EXPECT_GT(channel_->resumed(), 0);
}

TEST_F(ResumeTest, WhatARestartedPeerWasSentIsUnknownAndTheRestWasNotDone) {
  start();
  Sink sent, waiting;
  call(7, &sent, kLate);
  run(kSecond);
  end_server(Death::kKilled);
  run(500 * kMillisecond);
  call(8, &waiting);
  EXPECT_FALSE(channel_->connected());
  EXPECT_TRUE(channel_->accepts_calls());
  start_server_again();
  run(3 * kSecond);
  EXPECT_EQ(sent.status.code(), StatusCode::kAborted);
  EXPECT_TRUE(contains(sent.status, "was restarted: whether")) << sent.status;
  EXPECT_EQ(waiting.status.code(), StatusCode::kUnavailable);
  EXPECT_TRUE(contains(waiting.status, "it was restarted")) << waiting.status;
  EXPECT_EQ(sent.ended + waiting.ended, 2);
  EXPECT_EQ(counting_.runs[7], 1);
  EXPECT_EQ(counting_.runs[8], 0);
  EXPECT_EQ(breaks_.size(), 1u);
  // It is used again as any other.
  Status connected = base::internal("not yet");
  channel_->connect(0, [&](const Status& status) { connected = status; });
  run(kSecond);
  EXPECT_TRUE(connected.ok()) << connected;
  Sink fine;
  call(9, &fine);
  run(kSecond);
  expect_echo(fine, 9);
}

TEST_F(ResumeTest, APeerThatIsNotReachedAgainEndsTheCalls) {
  options_.resume_ms = 2000;
  start();
  Sink sink;
  call(7, &sink, kLate);
  run(kSecond);
  end_server(Death::kSilent);
  run(2 * kSecond);
  EXPECT_EQ(sink.ended, 0);  // It is silent for a second before it counts as lost.
  run(2 * kSecond);
  EXPECT_EQ(sink.ended, 1);
  EXPECT_EQ(sink.status.code(), StatusCode::kUnavailable);
  EXPECT_TRUE(contains(sink.status, "not reached again within 2.0 s")) << sink.status;
  ASSERT_EQ(breaks_.size(), 1u);
  EXPECT_FALSE(channel_->accepts_calls());
}

/// Over a network that brings less in a keepalive timeout than a frame must (Link).
class SlowNetwork : public ResumeTest {
 protected:
  SlowNetwork() {
    make_world({.delay_ns_min = 50 * kMillisecond, .buffer_bytes = 2 << 10, .short_io = 0});
  }
  void expect_gave_up(const Sink& sink) {
    EXPECT_EQ(sink.ended, 1);
    EXPECT_EQ(sink.status.code(), StatusCode::kUnavailable) << sink.status;
    EXPECT_TRUE(contains(sink.status, "no message came through wholly")) << sink.status;
    EXPECT_TRUE(contains(sink.status, "/job:ps/task:0")) << sink.status;
    EXPECT_EQ(breaks_.size(), 1u);
  }
  const Tensor large_ = Tensor::empty(DType::kUInt8, {300'000});
};

TEST_F(SlowNetwork, ACallThatNeverComesThroughEnds) {
  start();
  Sink sink, small;
  ASSERT_TRUE(channel_->call({.step = 7, .deadline_ns = kNoDeadline}, {&large_, 1}, &sink).ok());
  call(8, &small);
  run(60 * kSecond);
  expect_gave_up(sink);
  EXPECT_EQ(small.status.code(), StatusCode::kUnavailable) << small.status;
  EXPECT_TRUE(counting_.runs.empty());
}

TEST_F(SlowNetwork, AnAnswerThatNeverComesThroughEndsItsCall) {
  start();
  Sink sink;
  call(7, &sink, kLate);
  run(kSecond);
  counting_.release({&large_, 1});
  run(60 * kSecond);
  expect_gave_up(sink);
  EXPECT_EQ(counting_.runs[7], 1);
}

TEST_F(SlowNetwork, WhatIsSmallComesThroughForEver) {
  start();
  for (int i = 0; i < 30; ++i) {
    Sink sink;
    call(7, &sink);
    run(kMillisecond);
    EXPECT_TRUE(world_->break_any(Break::kBoth));
    run(2 * kSecond);
    expect_echo(sink, 7);
  }
  EXPECT_TRUE(breaks_.empty());
}

TEST_F(SlowNetwork, ALongCallOutlivesManyConnections) {
  start();
  Sink sink;
  call(7, &sink, kLate);
  for (int i = 0; i < 30; ++i) {
    run(kSecond);
    EXPECT_TRUE(world_->break_any(Break::kBoth));
  }
  run(kSecond);
  EXPECT_EQ(sink.ended, 0);
  counting_.release();
  run(kSecond);
  EXPECT_EQ(sink.ended, 1);
  EXPECT_TRUE(sink.status.ok()) << sink.status;
}

TEST_F(ResumeTest, DeadlinesHoldWithoutAConnection) {
  start();
  Sink sink;
  deadline_ns_ = client_->lane->now() + kSecond;
  call(7, &sink, kLate);
  run(100 * kMillisecond);
  world_->cut(server_host_);
  EXPECT_TRUE(world_->break_any(Break::kBoth));
  run(950 * kMillisecond);
  EXPECT_EQ(sink.ended, 1);
  EXPECT_EQ(sink.status.code(), StatusCode::kDeadlineExceeded);
  // The peer hears of it when it is reached again.
  EXPECT_EQ(counting_.cancelled, 0);
  world_->heal(server_host_);
  run(3 * kSecond);
  EXPECT_EQ(counting_.cancelled, 1);
  EXPECT_EQ(channel_->resumed(), 1);
  EXPECT_EQ(acceptor_->answer_bytes(), 0u);
}

TEST_F(ResumeTest, CallsMadeWithoutAConnectionWaitAndAreBounded) {
  options_.send_buffer_bytes_max = 64 << 10;
  start();
  world_->cut(server_host_);
  EXPECT_TRUE(world_->break_any(Break::kBoth));
  run(kSecond);
  const Tensor feed = Tensor::zeros(DType::kUInt8, {30 << 10});
  Sink sinks[3];
  for (Sink& sink : sinks) {
    ASSERT_TRUE(channel_->call({.step = 1}, std::span(&feed, 1), &sink).ok());
  }
  Sink none;
  EXPECT_EQ(channel_->call({.step = 1}, std::span(&feed, 1), &none).status().code(),
            StatusCode::kResourceExhausted);
  int room = 0;
  channel_->on_room([&] { ++room; });
  world_->heal(server_host_);
  run(3 * kSecond);
  EXPECT_EQ(counting_.runs[1], 3);
  for (const Sink& sink : sinks) EXPECT_TRUE(sink.status.ok()) << sink.status;
  EXPECT_EQ(room, 1);
}

TEST_F(ResumeTest, ACallThatMayBeRepeatedIsRunAgainAndItsAnswerIsNotKept) {
  start();
  Sink sink;
  call(7, &sink, 0, true);
  while (counting_.runs.empty()) run(kMillisecond);
  EXPECT_EQ(acceptor_->answer_bytes(), 0u);
  EXPECT_TRUE(world_->break_any(Break::kBoth));
  run(5 * kSecond);
  expect_echo(sink, 7);
  EXPECT_EQ(counting_.runs[7], 2);
}

TEST_F(ResumeTest, AClientThatDoesNotComeBackIsForgotten) {
  options_.resume_ms = 2000;
  start();
  Sink sink;
  call(7, &sink, kLate);
  run(kSecond);
  world_->kill(client_->node, Death::kKilled);
  run(kSecond);
  EXPECT_TRUE(counting_.closed.empty());
  counting_.release();
  EXPECT_GT(acceptor_->answer_bytes(), 0u);
  run(2 * kSecond);
  EXPECT_EQ(counting_.closed.size(), 1u);
  EXPECT_EQ(acceptor_->answer_bytes(), 0u);
  channel_.reset();
}

TEST_F(ResumeTest, GoodbyeForgetsAtOnce) {
  start();
  channel_->close();
  run(kSecond);
  EXPECT_EQ(counting_.closed.size(), 1u);
}

TEST_F(ResumeTest, ATaskThatWasStartedAnewIsNotWaitedFor) {
  start();
  Sink sink;
  call(7, &sink, kLate);
  run(kSecond);
  world_->kill(client_->node, Death::kKilled);
  run(100 * kMillisecond);
  EXPECT_TRUE(counting_.closed.empty());
  channel_.reset();
  client_.reset();
  start_client();
  channel_ = Channel::create(client_->end.get(), peer(), Resume::draw(client_->node->random()));
  channel_->connect(0, [](const Status&) {});
  run(kSecond);
  EXPECT_TRUE(channel_->connected());
  EXPECT_EQ(counting_.closed.size(), 1u);
}

TEST_F(ResumeTest, WhoWasForgottenIsToldThatNobodyKnows) {
  options_.lane_answer_bytes_max = 64 << 10;
  start();
  // The answer does not fit what is kept, and is lost with its connection.
  const Tensor feed = Tensor::zeros(DType::kUInt8, {100 << 10});
  Sink sink;
  ASSERT_TRUE(
      channel_->call({.step = 7, .deadline_ns = kNoDeadline}, std::span(&feed, 1), &sink).ok());
  while (counting_.runs.empty()) run(kMillisecond);
  EXPECT_EQ(acceptor_->answer_bytes(), 0u);
  EXPECT_TRUE(world_->break_any(Break::kBoth));
  run(3 * kSecond);
  EXPECT_EQ(sink.ended, 1);
  EXPECT_EQ(sink.status.code(), StatusCode::kAborted);
  EXPECT_TRUE(contains(sink.status, "has forgotten this client: whether")) << sink.status;
  EXPECT_EQ(counting_.runs[7], 1);
  // The connection goes on as a new client's.
  Sink fine;
  call(8, &fine);
  run(kSecond);
  expect_echo(fine, 8);
}

// Found by the simulation: the handshake that would have told it was lost, and at the next one the
// peer knew it, as a client without calls.
TEST_F(ResumeTest, WhoWasForgottenLearnsItFromWhicheverHandshakeArrives) {
  options_.lane_answer_bytes_max = 64 << 10;
  start();
  const Tensor feed = Tensor::zeros(DType::kUInt8, {100 << 10});
  Sink before, sink;
  call(1, &before);
  run(kSecond);
  ASSERT_TRUE(
      channel_->call({.step = 7, .deadline_ns = kNoDeadline}, std::span(&feed, 1), &sink).ok());
  while (counting_.runs[7] == 0) run(kMillisecond);
  EXPECT_TRUE(world_->break_any(Break::kBoth));
  while (counting_.closed.empty()) run(kMillisecond / 10);
  while (acceptor_->connection_count() == 0) run(kMillisecond / 10);
  EXPECT_FALSE(channel_->connected());
  EXPECT_TRUE(world_->break_any(Break::kBoth));
  run(5 * kSecond);
  EXPECT_EQ(sink.ended, 1);
  EXPECT_EQ(sink.status.code(), StatusCode::kAborted) << sink.status;
  EXPECT_EQ(counting_.runs[7], 1);
}

}  // namespace
}  // namespace sidereal::transport
