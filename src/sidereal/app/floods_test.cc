#include <cstdlib>
#include <fstream>

#include "sidereal/app/testing/hostile.h"
#include "sidereal/base/sanitizer.h"

// More than a server can do, while somebody works with it.

namespace sidereal::app {
namespace {

/// What a server may grow by while it is flooded. Sanitizers keep what was freed.
constexpr int64_t kFloodMemory = base::kIsSanitized ? int64_t{8} << 30 : int64_t{512} << 20;
constexpr int64_t kMemoryAfter = base::kIsSanitized ? kFloodMemory : kMemory;

/// Bytes of memory of a process.
int64_t resident_bytes(int64_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/statm");
  int64_t pages = 0;
  file >> pages >> pages;
  return pages * 4096;
}

/// What happens to the memory of a process while this object lives.
class MemoryWatch {
 public:
  explicit MemoryWatch(int64_t pid) : pid_(pid), before_(resident_bytes(pid)) {
    thread_ = std::thread([this] {
      while (!done_) {
        most_ = std::max<int64_t>(most_, resident_bytes(pid_));
        poll(nullptr, 0, 5);
      }
    });
  }
  ~MemoryWatch() {
    done_ = true;
    thread_.join();
  }
  [[nodiscard]] int64_t grown() const { return resident_bytes(pid_) - before_; }
  [[nodiscard]] int64_t most_grown() const { return most_ - before_; }

 private:
  const int64_t pid_;
  const int64_t before_;
  std::atomic<int64_t> most_ = 0;
  std::atomic<bool> done_ = false;
  std::thread thread_;
};

std::string literal(std::string_view text) {
  return static_cast<char>(text.size()) + std::string(text);
}

/// The headers of a call, without a dynamic table (RFC 7541).
std::string headers_of(std::string_view method) {
  return std::string("\x83\x86") + "\x04" + literal(method) + "\x01" + literal("x") +
         std::string("\x0f\x10") + literal("application/grpc") + std::string("\x00", 1) +
         literal("te") + literal("trailers");
}

constexpr std::string_view kWorker = "/sidereal.session.v1.Worker/";
constexpr std::string_view kMaster = "/sidereal.session.v1.Master/";

/// The frames of a call with one message at most, and END_STREAM (RFC 9113).
struct RawCall {
  RawCall(std::string_view service, std::string_view method, std::string message)
      : headers(headers_of(std::string(service).append(method))), message(std::move(message)) {}

  void append_to(std::string* bytes, uint32_t stream) const {
    *bytes += frame(static_cast<uint32_t>(headers.size()), 1, 4, stream, headers);
    const std::string prefix = {0, 0, 0, 0, static_cast<char>(message.size())};
    *bytes += frame(static_cast<uint32_t>(5 + message.size()), 0, 1, stream, prefix + message);
  }

  std::string headers;
  std::string message;
};

/// Sends and receives what there is, waiting a moment at most. False at the end of the connection.
bool exchange(const RawPeer& peer, std::string* out, std::string* in) {
  pollfd one{.fd = peer.fd(), .events = POLLIN, .revents = 0};
  if (!out->empty()) one.events |= POLLOUT;
  poll(&one, 1, 100);
  if ((one.revents & POLLIN) != 0) {
    const size_t had = in->size();
    in->resize(had + 65536);
    const ssize_t count = recv(peer.fd(), in->data() + had, 65536, MSG_DONTWAIT);
    if (count <= 0) return false;
    in->resize(had + static_cast<size_t>(count));
  }
  if ((one.revents & POLLOUT) != 0) {
    const ssize_t count = ::send(peer.fd(), out->data(), out->size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0 && errno != EAGAIN) return false;
    out->erase(0, static_cast<size_t>(std::max<ssize_t>(count, 0)));
  }
  return (one.revents & (POLLERR | POLLHUP)) == 0;
}

/// Calls that begin and are cancelled at once, as fast as a connection takes them (CVE-2023-44487);
/// a connection that is closed is followed by the next.
class RapidReset {
 public:
  RapidReset(std::string address, RawCall call)
      : address_(std::move(address)), call_(std::move(call)) {
    thread_ = std::thread([this] {
      while (!done_) {
        ++connections_;
        attack();
      }
    });
  }
  ~RapidReset() { stop(); }
  void stop() {
    done_ = true;
    if (thread_.joinable()) thread_.join();
  }
  [[nodiscard]] int64_t calls() const { return calls_; }
  [[nodiscard]] int64_t connections() const { return connections_; }

 private:
  static constexpr int kAtOnce = 256;

  void attack() {
    const RawPeer peer(address_);
    std::string out = std::string(kPreface) + frame(0, 4, 0, 0, "");
    std::string in;
    uint32_t stream = 1;
    do {
      in.clear();
      if (!out.empty()) continue;
      for (int i = 0; i < kAtOnce; ++i, stream += 2) {
        call_.append_to(&out, stream);
        out += frame(4, 3, 0, stream, std::string("\0\0\0\x08", 4));
      }
      calls_ += kAtOnce;
    } while (!done_ && exchange(peer, &out, &in));
  }

  const std::string address_;
  const RawCall call_;
  std::atomic<bool> done_ = false;
  std::atomic<int64_t> calls_ = 0;
  std::atomic<int64_t> connections_ = 0;
  std::thread thread_;
};

/// Makes calls of many kinds on one connection, `kOpen` at a time, with little work for each.
class Caller {
 public:
  static constexpr int64_t kOpen = 128;
  struct Kind {
    RawCall call;
    grpc::StatusCode code;  ///< What it is answered.
  };

  Caller(const std::string& address, const std::vector<Kind>& kinds)
      : peer_(address), kinds_(kinds) {}

  /// Makes that many calls, or fewer if that would take longer than `seconds`; how many were
  /// answered as they should be.
  int64_t run(int64_t count, double seconds) {
    const Stopwatch watch;
    // No dynamic table, and room for all replies.
    const std::string settings("\0\1\0\0\0\0\0\4\x7f\xff\xff\xff", 12);
    std::string out = std::string(kPreface) + frame(12, 4, 0, 0, settings) +
                      frame(4, 8, 0, 0, std::string("\x7f\xfe\0\0", 4));
    std::string in;
    int64_t begun = 0;
    while (ended_ < count) {
      if (watch.seconds() > seconds) count = begun;
      for (; begun < count && begun - ended_ < kOpen && out.size() < 65536; ++begun) {
        kind_of(begun).call.append_to(&out, static_cast<uint32_t>(2 * begun + 1));
      }
      if (!exchange(peer_, &out, &in)) break;
      read_frames(&in, &out);
    }
    made_ = begun;
    return right_;
  }
  [[nodiscard]] int64_t made() const { return made_; }

 private:
  [[nodiscard]] const Kind& kind_of(int64_t call) const {
    return kinds_[static_cast<size_t>(call) % kinds_.size()];
  }

  void read_frames(std::string* in, std::string* out) {
    size_t at = 0;
    const auto byte = [&](size_t i) { return static_cast<uint8_t>((*in)[at + i]); };
    while (in->size() - at >= 9) {
      const size_t length = byte(0) << 16 | byte(1) << 8 | byte(2);
      if (in->size() - at < 9 + length) break;
      const int type = byte(3);
      const int flags = byte(4);
      const int64_t stream = byte(5) << 24 | byte(6) << 16 | byte(7) << 8 | byte(8);
      const std::string_view payload = std::string_view(*in).substr(at + 9, length);
      if (type == 4 && flags == 0) *out += frame(0, 4, 1, 0, "");
      if (type == 6 && flags == 0) *out += frame(8, 6, 1, 0, payload);
      if (type == 1 && (flags & 1) != 0) end(stream / 2, payload);
      if (type == 3) ADD_FAILURE() << "the server has reset call " << stream;
      at += 9 + length;
    }
    in->erase(0, at);
  }

  void end(int64_t call, std::string_view trailers) {
    ++ended_;
    constexpr std::string_view kName = "grpc-status";
    const size_t at = trailers.find(kName);
    if (at == trailers.npos) return;
    const std::string_view value = trailers.substr(at + kName.size());
    const int code = std::atoi(std::string(value.substr(1, static_cast<size_t>(value[0]))).c_str());
    if (code == kind_of(call).code) ++right_;
    if (code != kind_of(call).code && ++wrong_ < 5) {
      ADD_FAILURE() << "call " << call % static_cast<int64_t>(kinds_.size()) << ": " << code;
    }
  }

  const RawPeer peer_;
  const std::vector<Kind>& kinds_;
  int64_t made_ = 0;
  int64_t ended_ = 0;
  int64_t right_ = 0;
  int64_t wrong_ = 0;
};

class Floods : public Hostile {
 protected:
  void reset_rapidly(const RawCall& call, double seconds, int attackers = 1) {
    std::vector<std::unique_ptr<RapidReset>> all;
    const MemoryWatch memory(before_.pid());
    const Stopwatch watch;
    for (int i = 0; i < attackers; ++i) {
      all.push_back(std::make_unique<RapidReset>(cluster_->address(), call));
    }
    while (watch.seconds() < seconds) poll(nullptr, 0, 20);
    int64_t calls = 0;
    int64_t connections = 0;
    for (const auto& one : all) {
      one->stop();
      calls += one->calls();
      connections += one->connections();
    }
    const int64_t most = memory.most_grown();
    RecordProperty("calls", std::to_string(calls));
    RecordProperty("connections", std::to_string(connections));
    RecordProperty("most_grown_bytes", std::to_string(most));
    EXPECT_GT(calls, 1000);
    EXPECT_LT(most, kFloodMemory);
    EXPECT_TRUE(eventually([&] { return memory.grown() < kMemoryAfter; })) << memory.grown();
  }
};

RawCall receive_request() {
  v1::RecvTensorsRequest request;
  request.set_step(7);
  request.add_keys()->set_edge(1);
  return {kWorker, "RecvTensors", request.SerializeAsString()};
}

TEST_F(Floods, of_questions_that_are_taken_back_are_ended) {
  reset_rapidly(receive_request(), 5);
  EXPECT_TRUE(eventually([&] { return refused("flood") >= 1; }));
}
TEST_F(Floods, of_steps_that_are_cancelled_are_ended) {
  reset_rapidly({kMaster, "RunStep", ""}, 2);
}
TEST_F(Floods, on_many_connections_are_ended) { reset_rapidly(receive_request(), 3, 16); }

/// Small calls that are answered, and how.
std::vector<Caller::Kind> small_calls() {
  using enum grpc::StatusCode;
  const auto bytes = [](const auto& request) { return request.SerializeAsString(); };
  v1::GetStatusRequest status;
  status.set_version(service::kSessionVersion);
  v1::StepRequest step;
  step.mutable_head()->set_session(1);
  v1::ProgramRequest piece;
  piece.mutable_piece()->set_bytes(1);
  v1::ProgramRequest program;
  program.mutable_head()->set_session(1);
  v1::RecvTensorsRequest nothing;
  nothing.set_step(1);
  v1::RecvTensorsRequest from_another = nothing;
  from_another.set_incarnation(1);
  v1::AttachRequest attach;
  attach.set_program("no program");
  v1::CloseSessionRequest close;
  close.set_session(1);
  v1::KeepSessionAliveRequest hold;
  hold.set_session(1);
  v1::ExtendSessionRequest extend;
  extend.set_session(1);
  v1::ListDevicesRequest devices;
  devices.set_session(1);
  v1::SetLogLevelRequest level;
  level.set_level("loud");
  v1::ResetRequest reset;
  reset.add_containers("none");
  return {{{kWorker, "GetStatus", bytes(status)}, OK},
          {{kMaster, "RunStep", bytes(step)}, ABORTED},
          {{kWorker, "RunProgram", bytes(program)}, ABORTED},
          {{kWorker, "RecvTensors", bytes(nothing)}, OK},
          {{kWorker, "RecvTensors", bytes(from_another)}, ABORTED},
          {{kWorker, "RunProgram", bytes(piece)}, INVALID_ARGUMENT},
          {{kWorker, "Attach", bytes(attach)}, INVALID_ARGUMENT},
          {{kMaster, "CloseSession", bytes(close)}, ABORTED},
          {{kMaster, "KeepSessionAlive", bytes(hold)}, OK},
          {{kWorker, "GetStatus", ""}, FAILED_PRECONDITION},
          {{kMaster, "CreateSession", ""}, FAILED_PRECONDITION},
          {{kMaster, "ExtendSession", bytes(extend)}, ABORTED},
          {{kMaster, "ListDevices", bytes(devices)}, ABORTED},
          {{kWorker, "SetLogLevel", bytes(level)}, INVALID_ARGUMENT},
          {{kWorker, "ResetContainers", bytes(reset)}, OK},
          {{kMaster, "NoMethod", ""}, UNIMPLEMENTED}};
}

TEST_F(Floods, of_a_million_tiny_requests_are_answered) {
  constexpr int64_t kCallers = 4;
  constexpr double kSeconds = 50;  // A slow machine makes fewer of them.
  const bool all = std::getenv("CI") != nullptr;
  const int64_t each = (all ? 1'000'000 : 50'000) / kCallers;
  const std::vector<Caller::Kind> kinds = small_calls();
  const MemoryWatch memory(before_.pid());
  const Stopwatch watch;
  std::atomic<int64_t> right = 0;
  std::atomic<int64_t> made = 0;
  std::vector<std::thread> threads;
  for (int64_t i = 0; i < kCallers; ++i) {
    threads.emplace_back([&] {
      Caller caller(cluster_->address(), kinds);
      right += caller.run(each, kSeconds);
      made += caller.made();
    });
  }
  for (std::thread& thread : threads) thread.join();
  const double seconds = watch.seconds();
  EXPECT_EQ(right, made);
  EXPECT_GE(right, 50'000);
  RecordProperty("requests", std::to_string(right));
  RecordProperty("requests_per_s", std::to_string(static_cast<double>(right) / seconds));
  RecordProperty("most_grown_bytes", std::to_string(memory.most_grown()));
  EXPECT_LT(memory.most_grown(), kFloodMemory);
  EXPECT_GE(refused("requests"), right / 4);
}

}  // namespace
}  // namespace sidereal::app
