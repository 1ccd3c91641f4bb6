#include <random>

#include "sidereal/app/testing/data_port.h"
#include "sidereal/app/testing/figures.h"

// What unauthenticated peers and liars send to the data port of a server, while somebody works with
// it.

namespace sidereal::app {
namespace {

using grpc::StatusCode;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;
using ::testing::HasSubstr;

std::string secrecy(const ::testing::TestParamInfo<bool>& info) {
  return info.param ? "with_a_secret" : "in_plain_text";
}
INSTANTIATE_TEST_SUITE_P(Ports, DataHostile, ::testing::Bool(), secrecy);

/// What needs a handshake, which unauthenticated peers to a secret do not have.
class DataLiars : public DataHostile {
 protected:
  /// A connection that has shaken hands.
  std::unique_ptr<LanePeer> friendly() {
    auto out = std::make_unique<LanePeer>(address_);
    EXPECT_TRUE(out->shake());
    return out;
  }
  StatusCode code_of(const std::string& call) {
    const auto peer = friendly();
    peer->send(call);
    return peer->code();
  }
  /// What a session of task 2 says to task 1 in a few steps.
  std::string recording() {
    const auto one = session(2);
    for (int i = 0; i < 2; ++i) {
      EXPECT_TRUE(one->run({feed_of_x(3)}, {"back"}, {"count_other"}).ok());
    }
    return proxy_.recorded();
  }
};
INSTANTIATE_TEST_SUITE_P(Ports, DataLiars, ::testing::Values(false), secrecy);

TEST_P(DataHostile, bytes_that_are_no_frames_are_closed_and_counted) {
  std::mt19937_64 random(17);
  const std::vector<std::string> garbage = {
      "GET / HTTP/1.1\r\nHost: x\r\n\r\n" + std::string(64, ' '), std::string(100, '\0'),
      std::string(kPreface) + std::string(60, 'x')};
  constexpr int kRounds = 40;
  std::vector<std::unique_ptr<RawPeer>> peers;
  for (int i = 0; i < kRounds; ++i) {
    for (const std::string& bytes : garbage) {
      peers.push_back(std::make_unique<RawPeer>(address_));
      peers.back()->send(bytes);
    }
    peers.push_back(std::make_unique<RawPeer>(address_));
    peers.back()->send(random_bytes(&random, 100 + random() % 5000));
  }
  for (const auto& peer : peers) EXPECT_TRUE(peer->is_closed_within(10));
  EXPECT_TRUE(counts("garbage", 4 * kRounds)) << cluster_->status(1).DebugString();
}

TEST_P(DataHostile, a_conversation_cut_anywhere_ends_there) {
  std::string said;
  const auto one = session(2);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(one->run({feed_of_x(3)}, {"back"}).ok());
  said = proxy_.recorded();
  ASSERT_GT(said.size(), 300);
  RecordProperty("recorded_bytes", std::to_string(said.size()));
  const size_t step = said.size() / 2000 + 1;
  for (size_t at = 0; at < said.size(); at += step) RawPeer(address_).send(said.substr(0, at));
  EXPECT_EQ(cluster_->status(1).pid(), before_.pid());
}

TEST_P(DataHostile, a_recorded_conversation_is_of_no_use) {
  constexpr int kSteps = 3;
  constexpr int kReplays = 30;
  const auto one = session(2);
  for (int i = 0; i < kSteps; ++i) {
    ASSERT_TRUE(one->run({feed_of_x(3)}, {"back"}, {"count_other"}).ok());
  }
  const std::string said = proxy_.recorded();
  std::vector<std::unique_ptr<LanePeer>> peers;
  for (int i = 0; i < kReplays; ++i) {
    peers.push_back(std::make_unique<LanePeer>(address_));
    peers.back()->send(said);
  }
  for (const auto& peer : peers) {
    if (GetParam()) {
      EXPECT_TRUE(peer->raw().is_closed_within(10));
      continue;
    }
    // It has the name of a client whose connection came before.
    const std::optional<Frame> answer = peer->read();
    ASSERT_TRUE(answer.has_value());
    EXPECT_EQ(answer->header.method, wire::Method::kError);
    EXPECT_TRUE(peer->raw().is_closed_within(10));
  }
  EXPECT_TRUE(counts(GetParam() ? "certificate" : "handshake", kReplays));
  EXPECT_EQ(value_of("other"), static_cast<float>(kSteps));
}

TEST_P(DataHostile, who_drips_bytes_is_closed_at_the_deadline) {
  constexpr int kDrips = 50;
  const std::string hello =
      GetParam() ? std::string("\x16\x03\x01\x02\x00\x01", 6) : hello_bytes(hello_of_nonmember());
  std::vector<std::unique_ptr<RawPeer>> peers;
  for (int i = 0; i < kDrips; ++i) peers.push_back(std::make_unique<RawPeer>(address_));
  const Stopwatch watch;
  size_t at = 0;
  size_t closed = 0;
  while (closed < kDrips && watch.seconds() < 20) {
    closed = 0;
    for (const auto& peer : peers) {
      if (peer->is_closed_within(0)) {
        ++closed;
      } else {
        peer->send(hello.substr(at % 6, 1));
      }
    }
    ++at;
    poll(nullptr, 0, 100);
  }
  EXPECT_EQ(closed, kDrips);
  EXPECT_TRUE(counts("idle", kDrips));
}

TEST_P(DataHostile, thousands_of_silent_connections_keep_nobody_out) {
  constexpr int kMany = 3000;
  std::vector<std::unique_ptr<RawPeer>> silent;
  const std::string begin =
      GetParam() ? std::string("\x16\x03\x01\x02\x00", 5) : hello_bytes(hello_of_nonmember());
  for (int i = 0; i < kMany; ++i) {
    // No more open here than a process usually may have.
    if (silent.size() == 700) silent.erase(silent.begin(), silent.begin() + 100);
    silent.push_back(std::make_unique<RawPeer>(address_));
    ASSERT_TRUE(silent.back()->is_open());
    if (i % 2 == 0) silent.back()->send(begin.substr(0, static_cast<size_t>(i) % begin.size()));
  }
  // A newcomer gets in.
  const Stopwatch watch;
  const auto fresh = session(2);
  EXPECT_TRUE(fresh->run({feed_of_x()}, {"back"}).ok());
  EXPECT_LT(watch.seconds(), cluster_->allows(5));
  EXPECT_TRUE(eventually([&] {
    return refused("idle") + refused("over_limit") >=
           refused_for(before_, "idle") + refused_for(before_, "over_limit") + 600;
  })) << cluster_->status(1).DebugString();
}

TEST_P(DataLiars, heads_that_lie_end_their_connections) {
  const auto header = [](const std::function<void(wire::FrameHeader*)>& lie) {
    wire::FrameHeader out = call_of(task::DataCall::kRun, 1);
    lie(&out);
    return bytes_of(out);
  };
  const std::vector<std::string> lies = {
      header([](auto* h) { h->meta_bytes = 0xffffffff; }),
      header([](auto* h) { h->slot_count = 0xffffffff; }),
      header([](auto* h) { h->slot_count = 16'384; }),
      header([](auto* h) { h->payload_bytes = uint64_t{1} << 63; }),
      header([](auto* h) { h->payload_bytes = ~uint64_t{7}; }),
      header([](auto* h) { h->payload_bytes = 7; }),
      header([](auto* h) { h->payload_bytes = 1 << 20; }),
      header([](auto* h) { h->flags = 0xffff; }),
      header([](auto* h) { h->flags = wire::kSummed; }),
      header([](auto* h) { h->status = 3; }),
      header([](auto* h) { h->version = 1; }),
      header([](auto* h) { h->version = 0xffff; }),
      header([](auto* h) { h->call_id = 0; }),
      header([](auto* h) { h->method = wire::Method::kHello; }),
      header([](auto* h) { h->method = wire::Method::kReply; }),
      header([](auto* h) { h->method = static_cast<wire::Method>(77); }),
      std::string("SDRM") + std::string(60, '\0'),
  };
  for (size_t i = 0; i < lies.size(); ++i) {
    // Before the handshake and after it.
    LanePeer nonmember(address_);
    nonmember.send(lies[i]);
    EXPECT_TRUE(nonmember.raw().is_closed_within(10)) << i;
    const auto peer = friendly();
    peer->send(lies[i]);
    EXPECT_TRUE(peer->raw().is_closed_within(10)) << i;
  }
  EXPECT_TRUE(counts("garbage", static_cast<int64_t>(lies.size())));
  EXPECT_TRUE(counts("frames", static_cast<int64_t>(lies.size())));
}

TEST_P(DataLiars, tensors_that_lie_end_their_connections) {
  struct Slot {
    uint32_t slot = 0;
    DType dtype = DType::kFloat32;
    uint8_t rank = 1;
    uint16_t flags = 0;
    uint64_t nbytes = 4;
    std::vector<int64_t> extents = {1};
  };
  const auto call = [](const std::vector<Slot>& slots, uint64_t payload_bytes,
                       const std::string& payload = std::string(64, 'x')) {
    base::ByteWriter meta;
    for (const Slot& slot : slots) {
      meta.put(slot.slot);
      meta.put(static_cast<uint8_t>(slot.dtype));
      meta.put(slot.rank);
      meta.put(slot.flags);
      meta.put(slot.nbytes);
      for (const int64_t extent : slot.extents) meta.put(extent);
    }
    wire::FrameHeader header = call_of(task::DataCall::kRun, 1);
    header.slot_count = static_cast<uint32_t>(slots.size());
    header.meta_bytes = static_cast<uint32_t>(meta.bytes().size());
    header.payload_bytes = payload_bytes;
    return bytes_of(header) + meta.bytes() + payload;
  };
  const int64_t big = int64_t{1} << 62;
  const uint64_t all = ~uint64_t{0};
  const std::string lengths("\xff\xff\xff\xff\xff\xff\xff\xff\x11\0\0\0\0\0\0\0", 16);
  const std::vector<std::string> lies = {
      call({{.extents = {-1}}}, 8),
      call({{.nbytes = all, .extents = {-1}}}, 8),
      call({{.rank = 2, .nbytes = 0, .extents = {big, 4}}}, 8),
      call({{.rank = 3, .nbytes = 0, .extents = {big, 4, 0}}}, 0),
      call({{.rank = 200}}, 8),
      call({{.rank = 17, .extents = std::vector<int64_t>(17, 1)}}, 8),
      call({{.nbytes = all}}, 8),
      call({{.nbytes = 8}}, 8),
      call({{}, {}}, 8),
      call({{.nbytes = all - 6, .extents = {big}}, {.nbytes = 8, .extents = {2}}}, 0),
      call({{.dtype = static_cast<DType>(99)}}, 8),
      call({{.flags = 0xff}}, 8),
      call({{.flags = 1}}, 8),
      call({{.flags = 6, .nbytes = 2}}, 8),
      call({{.dtype = DType::kInt32, .flags = 2, .nbytes = 2}}, 8),
      call({{.dtype = DType::kBool, .nbytes = 1}}, 8),
      call({{.dtype = DType::kString, .nbytes = 4}}, 8),
      call({{.dtype = DType::kString, .nbytes = 7, .extents = {big}}}, 8),
      // Lengths of strings whose sum is right modulo 2^64, and one beyond the end.
      call({{.dtype = DType::kString, .nbytes = 32, .extents = {2}}}, 32,
           lengths + std::string(16, 's')),
      call({{.dtype = DType::kString, .nbytes = 16, .extents = {1}}}, 16, lengths),
  };
  for (size_t i = 0; i < lies.size(); ++i) {
    const auto peer = friendly();
    peer->send(lies[i]);
    EXPECT_TRUE(peer->raw().is_closed_within(10)) << i;
  }
  EXPECT_TRUE(counts("frames", static_cast<int64_t>(lies.size())));
}

TEST_P(DataLiars, tensors_that_no_machine_has_room_for_are_refused) {
  constexpr uint64_t kBytes = uint64_t{1} << 39;
  base::ByteWriter meta;
  meta.put(uint32_t{0});
  meta.put(static_cast<uint8_t>(DType::kFloat32));
  meta.put(uint8_t{1});
  meta.put(uint16_t{0});
  meta.put(kBytes);
  meta.put(static_cast<int64_t>(kBytes / sizeof(float)));
  wire::FrameHeader header = call_of(task::DataCall::kRun, 1);
  header.slot_count = 1;
  header.meta_bytes = static_cast<uint32_t>(meta.bytes().size());
  header.payload_bytes = kBytes;
  EXPECT_EQ(code_of(bytes_of(header) + meta.bytes()), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(cluster_->status(1).pid(), before_.pid());
}

TEST_P(DataLiars, who_means_another_server_is_told_so) {
  const auto answer = [&](const std::function<void(wire::Hello*)>& lie) {
    wire::Hello hello = hello_of_nonmember();
    lie(&hello);
    LanePeer peer(address_);
    peer.send(hello_bytes(hello));
    const std::optional<Frame> frame = peer.read();
    EXPECT_TRUE(frame && frame->header.method == wire::Method::kError &&
                frame->header.call_id == 0);
    EXPECT_TRUE(peer.raw().is_closed_within(10));
    return frame ? frame->meta : "";
  };
  EXPECT_THAT(answer([](auto* hello) { hello->cluster_id = 99; }), HasSubstr("cluster"));
  EXPECT_THAT(answer([](auto* hello) { hello->peer_task = kWorker; }), HasSubstr(kPs));
  EXPECT_THAT(answer([](auto* hello) { hello->lane = 77; }), HasSubstr("lane"));
  EXPECT_THAT(answer([](auto* hello) { hello->version_min = hello->version_max = 99; }),
              HasSubstr("99"));
  EXPECT_THAT(answer([](auto* hello) { hello->version_min = hello->version_max = 0; }),
              HasSubstr("version"));
  EXPECT_TRUE(counts("handshake", 5));
}

TEST_P(DataLiars, calls_that_make_no_sense_are_answered) {
  const std::string run = task::encode_run({.whole = true});
  EXPECT_EQ(code_of(call_bytes(call_of(task::DataCall::kRun, 1), {}, run)), StatusCode::ABORTED);
  EXPECT_EQ(code_of(call_bytes(call_of(task::DataCall::kRun, 1), {}, task::encode_run({}))),
            StatusCode::ABORTED);
  EXPECT_EQ(code_of(call_bytes(call_of(task::DataCall::kRun, 1), {}, "short")),
            StatusCode::DATA_LOSS);
  EXPECT_EQ(code_of(call_bytes(call_of(task::DataCall::kRun, 1), {}, std::string(100'000, '\xff'))),
            StatusCode::DATA_LOSS);
  EXPECT_EQ(code_of(call_bytes(call_of(task::DataCall::kRun, 1), {Tensor()}, run)),
            StatusCode::INVALID_ARGUMENT);
  for (const int kind : {4, 255, 0xffff}) {
    EXPECT_EQ(code_of(call_bytes(call_of(static_cast<task::DataCall>(kind), 1), {})),
              StatusCode::UNIMPLEMENTED);
  }
  EXPECT_EQ(code_of(call_bytes(call_of(task::DataCall::kTensors, 1), {}, "x")),
            StatusCode::DATA_LOSS);
  EXPECT_EQ(code_of(call_bytes(call_of(task::DataCall::kTensors, 1), {},
                               task::encode_tensors({.incarnation = 1, .keys = {{.edge = 1}}}))),
            StatusCode::ABORTED);
  EXPECT_EQ(code_of(call_bytes(call_of(task::DataCall::kTensors, 1), {},
                               task::encode_tensors({.keys = {{.edge = 1}, {.edge = 1}}}))),
            StatusCode::INVALID_ARGUMENT);
  for (const task::DataCall kind : {task::DataCall::kEndStep, task::DataCall::kCancelStep}) {
    EXPECT_EQ(code_of(call_bytes(call_of(kind, 1), {Tensor::scalar<int32_t>(1)}, "more")),
              StatusCode::OK);
  }
  // Feeds in one place, or in places that are none.
  const auto peer = friendly();
  std::string two = call_bytes(call_of(task::DataCall::kRun, 1),
                               {Tensor::scalar<int32_t>(1), Tensor::scalar<int32_t>(1)}, run);
  two[wire::kHeaderBytes + 16] = 0;
  peer->send(two);
  EXPECT_EQ(peer->code(), StatusCode::INVALID_ARGUMENT);
  two[wire::kHeaderBytes + 16] = 9;
  peer->send(two);
  EXPECT_EQ(peer->code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_TRUE(counts("requests", 9)) << refused("requests");
}

TEST_P(DataLiars, steps_of_others_cannot_be_ended) {
  const auto one = session(2);
  Result<std::vector<Tensor>> got = base::internal("not yet");
  std::thread runner([&] { got = one->run({}, {"taken"}); });
  EXPECT_TRUE(eventually([&] { return task_figure(cluster_->status(1), "steps_blocked") > 0; }));
  // What the call said: its last frame, without feeds.
  const std::string said = proxy_.recorded();
  std::vector<wire::FrameHeader> heads;
  for (size_t at = 0; at + wire::kHeaderBytes <= said.size();) {
    const auto head =
        wire::decode_header(reinterpret_cast<const std::byte*>(said.data() + at), wire::Limits());
    ASSERT_TRUE(head.ok()) << head.status();
    heads.push_back(*head);
    at += wire::kHeaderBytes + head->meta_bytes + head->payload_bytes;
  }
  const auto peer = friendly();
  for (const wire::FrameHeader& head : heads) {
    peer->send(bytes_of({.method = wire::Method::kCancel, .call_id = head.call_id}));
    for (const task::DataCall kind : {task::DataCall::kCancelStep, task::DataCall::kEndStep}) {
      wire::FrameHeader call = call_of(kind, 1000);
      call.step = head.step;
      peer->send(call_bytes(call, {}));
      EXPECT_EQ(peer->code(), StatusCode::OK);
    }
  }
  EXPECT_TRUE(session(0)->run({}, {}, {"put"}).ok());
  runner.join();
  EXPECT_TRUE(got.ok()) << got.status();
}

TEST_P(DataLiars, questions_without_end_are_bounded_and_forgotten) {
  task::TensorsExtra many;
  for (int64_t i = 0; i < 16'000; ++i) many.keys.push_back({.edge = i, .step = 0});
  const std::string extra = task::encode_tensors(many);
  // More than a frame may say.
  many.keys.resize(20'000);
  EXPECT_EQ(
      code_of(call_bytes(call_of(task::DataCall::kTensors, 1), {}, task::encode_tensors(many))),
      StatusCode::RESOURCE_EXHAUSTED);
  const auto ask = [&](LanePeer& peer, uint64_t id, uint64_t step) {
    wire::FrameHeader call = call_of(task::DataCall::kTensors, id);
    call.step = step;
    peer.send(call_bytes(call, {}, extra));
  };
  for (int round = 0; round < 8; ++round) {
    const auto peer = friendly();
    constexpr uint64_t kReceiveRequests = 40;
    for (uint64_t i = 1; i <= kReceiveRequests; ++i) ask(*peer, i, 1000 + i);
    // As many as are allowed wait, the others are told: none but those of this connection.
    for (int i = 0; i < 24; ++i) EXPECT_EQ(peer->code(), StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_FALSE(peer->read(0.05).has_value());
    peer->send(bytes_of({.method = wire::Method::kGoodbye}));
    EXPECT_TRUE(peer->raw().is_closed_within(10));
  }
  // One id for all: the second is a lie.
  const auto peer = friendly();
  ask(*peer, 7, 2001);
  ask(*peer, 7, 2002);
  EXPECT_EQ(peer->code(), StatusCode::ALREADY_EXISTS);
}

TEST_P(DataLiars, floods_of_calls_leave_others_room) {
  constexpr double kSeconds = 2;
  std::atomic<int64_t> answered = 0;
  std::vector<std::thread> attackers;
  for (uint64_t kind = 0; kind < 3; ++kind) {
    attackers.emplace_back([&, kind] {
      std::mt19937_64 random(kind);
      const auto peer = friendly();
      const Stopwatch watch;
      uint64_t id = 0;
      while (watch.seconds() < kSeconds) {
        std::string calls;
        constexpr int kAtOnce = 64;
        for (int i = 0; i < kAtOnce; ++i) {
          wire::FrameHeader call = call_of(static_cast<task::DataCall>(kind), ++id);
          call.step = random();
          if (kind == 0) calls += call_bytes(call, {}, task::encode_run({.whole = i % 2 == 0}));
          if (kind == 1)
            calls += call_bytes(call, {}, task::encode_tensors({.keys = {{.edge = 1}}}));
          if (kind == 1) calls += bytes_of({.method = wire::Method::kCancel, .call_id = id});
          if (kind == 2) calls += call_bytes(call, {});
        }
        peer->send(calls);
        for (int i = 0; kind != 1 && i < kAtOnce; ++i) {
          if (!peer->read()) return;
          ++answered;
        }
      }
    });
  }
  for (std::thread& attacker : attackers) attacker.join();
  RecordProperty("answered", std::to_string(answered));
  EXPECT_GT(answered, 100);
}

/// Honest payloads wait for room that somebody else holds, until that one is ended.
class DataDrips : public DataLiars {
 protected:
  [[nodiscard]] double worst_s() const override { return 10; }
};
INSTANTIATE_TEST_SUITE_P(Ports, DataDrips, ::testing::Values(false), secrecy);

TEST_P(DataDrips, of_a_payload_do_not_hold_room_for_ever) {
  // As large as what a lane receives at a time.
  wire::FrameHeader header = call_of(task::DataCall::kRun, 1);
  header.slot_count = 1;
  header.payload_bytes = uint64_t{1} << 30;
  header.meta_bytes = 24;
  base::ByteWriter slot;
  slot.put<uint32_t>(0);
  slot.put(static_cast<uint8_t>(DType::kUInt8));
  slot.put<uint8_t>(1);
  slot.put<uint16_t>(0);
  slot.put(header.payload_bytes);
  slot.put(static_cast<int64_t>(header.payload_bytes));
  const auto peer = friendly();
  peer->send(bytes_of(header) + slot.bytes());
  const Stopwatch watch;
  while (!peer->raw().is_closed_within(0.1) && watch.seconds() < 30) peer->send("d");
  EXPECT_LT(watch.seconds(), cluster_->allows(8));
  EXPECT_TRUE(counts("idle", 1));
  const int64_t steps = task_figure(cluster_->status(0), "steps_total");
  EXPECT_TRUE(
      eventually([&] { return task_figure(cluster_->status(0), "steps_total") > steps + 20; }));
}

/// Answers of task 1 that are not what it said.
class LyingServers : public DataLiars {
 protected:
  [[nodiscard]] double worst_s() const override { return 3; }
  [[nodiscard]] int keepalive_ms() const override { return 2000; }

  enum class Lie { kFlips, kCuts, kInserts, kTwice, kHead, kSilence, kLast };

  Proxy::Change change(Lie lie, uint64_t seed) {
    return [this, lie, random = std::mt19937_64(seed)](std::string* bytes) mutable {
      const size_t at = random() % bytes->size();
      switch (lie) {
        case Lie::kFlips:
          for (int i = 0; i < 3; ++i) (*bytes)[random() % bytes->size()] ^= 1 << (random() % 8);
          return true;
        case Lie::kCuts:
          bytes->resize(at);
          return false;
        case Lie::kInserts:
          bytes->insert(at, random_bytes(&random, 1 + random() % 200));
          return true;
        case Lie::kTwice:
          *bytes += *bytes;
          return true;
        case Lie::kHead:
          // Lengths and ids.
          if (bytes->size() >= 56) {
            (*bytes)[(random() % 2 == 0 ? 16 : 40) + random() % 16] ^= static_cast<char>(random());
          }
          return true;
        default:
          bytes->clear();
          return true;
      }
    };
  }
};
INSTANTIATE_TEST_SUITE_P(Ports, LyingServers, ::testing::Values(false), secrecy);

TEST_P(LyingServers, end_calls_of_honest_drivers_in_time) {
  const bool all = std::getenv("CI") != nullptr;
  constexpr double kTimeout = 0.5;
  const int64_t pid = cluster_->status(2).pid();
  int failed = 0;
  int done = 0;
  double worst = 0;
  double worst_after = 0;
  auto one = session(2);
  for (uint64_t i = 0; i < (all ? 24 : 6); ++i) {
    const auto lie = static_cast<Lie>(i % static_cast<uint64_t>(Lie::kLast));
    proxy_.change(change(lie, i));
    const Stopwatch of_lie;
    service::RunOptions options;
    options.timeout = std::chrono::milliseconds(static_cast<int64_t>(kTimeout * 1000));
    const bool is_done = one->run({feed_of_x(3)}, {"back"}, {}, options).ok();
    worst = std::max(worst, of_lie.seconds());
    ++(is_done ? done : failed);
    proxy_.change(nullptr);
    // The session goes on, or a new one does; both servers live.
    const Stopwatch watch;
    if (!one->run({feed_of_x(3)}, {"back"}).ok()) {
      one = session(2);
      const auto got = one->run({feed_of_x(3)}, {"back"});
      EXPECT_TRUE(got.ok()) << got.status() << " after lie " << static_cast<int>(lie);
    }
    worst_after = std::max(worst_after, watch.seconds());
  }
  RecordProperty("failed", std::to_string(failed));
  RecordProperty("done", std::to_string(done));
  RecordProperty("worst_s", std::to_string(worst));
  RecordProperty("worst_after_s", std::to_string(worst_after));
  EXPECT_LT(worst, cluster_->allows(kTimeout + 2));
  EXPECT_LT(worst_after, cluster_->allows(10));
  EXPECT_GT(failed, 0);
  EXPECT_EQ(cluster_->status(2).pid(), pid);
  EXPECT_GT(refused("frames", 2), 0);
}

}  // namespace
}  // namespace sidereal::app
