#pragma once

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <thread>

#include "sidereal/app/testing/figures.h"
#include "sidereal/app/testing/processes.h"
#include "sidereal/base/sanitizer.h"
#include "sidereal/ir/text.h"

/// For tests: a server that somebody works with while unauthenticated peers and liars use its port.
namespace sidereal::app {

namespace v1 = session::v1;

/// What a server may grow by under attack. gRPC keeps some memory for connections that were there.
inline constexpr int64_t kMemory = int64_t{128} << 20;
inline constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A connection without gRPC.
class RawPeer {
 public:
  explicit RawPeer(const std::string& address) {
    const size_t colon = address.rfind(':');
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(colon + 1))));
    inet_pton(AF_INET, address.substr(0, colon).c_str(), &to.sin_addr);
    fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    is_open_ = connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0;
  }
  ~RawPeer() { close(fd_); }
  RawPeer(const RawPeer&) = delete;
  RawPeer& operator=(const RawPeer&) = delete;

  [[nodiscard]] bool is_open() const { return is_open_; }
  [[nodiscard]] int fd() const { return fd_; }
  void send(std::string_view bytes) const {
    static_cast<void>(::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL));
  }
  /// Whether the other side closes within `seconds`; reads what it says.
  bool is_closed_within(double seconds) const {
    pollfd one{.fd = fd_, .events = POLLIN, .revents = 0};
    const Stopwatch watch;
    while (true) {
      if (poll(&one, 1, seconds > 0 ? 100 : 0) <= 0) {
        if (watch.seconds() >= seconds) return false;
        continue;
      }
      std::array<char, 4096> bytes;
      if (recv(fd_, bytes.data(), bytes.size(), 0) <= 0) return true;
    }
  }

 private:
  int fd_ = -1;
  bool is_open_ = false;
};

/// What somebody works at.
struct HonestWork {
  int64_t elements = 1;              ///< Of what is fed.
  std::vector<std::string> targets;  ///< Run with each step.
  double worst_s = 10;               ///< Seconds that no step takes.
};

/// Somebody who works: steps one after the other, and how long the slowest took.
class HonestClient {
 public:
  HonestClient(const std::string& target, const ir::Graph& graph,
               const service::SessionOptions& options = patient(), HonestWork work = {})
      : work_(std::move(work)) {
    auto made = service::Session::create(target, graph, options);
    EXPECT_TRUE(made.ok()) << made.status();
    if (!made.ok()) return;
    session_ = *std::move(made);
    thread_ = std::thread([this] {
      const service::Session::Feed feed = feed_of_x(work_.elements);
      while (!done_) {
        const Stopwatch watch;
        const auto got = session_->run({feed}, {"back"}, work_.targets);
        if (status_.ok() && !got.ok()) status_ = got.status();
        seconds_.push_back(watch.seconds());
      }
    });
  }
  ~HonestClient() {
    if (thread_.joinable()) stop();
  }

  /// Nothing failed, most steps were quick, and none waited for ever: attackers of the tests take
  /// the same processors. Returns how many steps there were.
  int64_t stop() {
    done_ = true;
    if (!thread_.joinable()) return 0;
    thread_.join();
    EXPECT_TRUE(status_.ok()) << status_;
    std::sort(seconds_.begin(), seconds_.end());
    const double p99 = seconds_[seconds_.size() * 99 / 100];
    ::testing::Test::RecordProperty("steps", std::to_string(seconds_.size()));
    ::testing::Test::RecordProperty("p50_us", std::to_string(seconds_[seconds_.size() / 2] * 1e6));
    ::testing::Test::RecordProperty("p99_us", std::to_string(p99 * 1e6));
    ::testing::Test::RecordProperty("max_us", std::to_string(seconds_.back() * 1e6));
    EXPECT_LT(seconds_[seconds_.size() / 2], 1);
    EXPECT_LT(seconds_.back(), lateness_.allows(work_.worst_s));
    return static_cast<int64_t>(seconds_.size());
  }
  [[nodiscard]] service::Session& session() { return *session_; }

 private:
  const Lateness lateness_;
  const HonestWork work_;
  std::unique_ptr<service::Session> session_;
  std::atomic<bool> done_ = false;
  std::vector<double> seconds_;
  Status status_;
  std::thread thread_;
};

inline std::string frame(uint32_t length, uint8_t type, uint8_t flags, uint32_t stream,
                         std::string_view payload) {
  std::string out;
  for (const int shift : {16, 8, 0}) out += static_cast<char>(length >> shift);
  out += static_cast<char>(type);
  out += static_cast<char>(flags);
  for (const int shift : {24, 16, 8, 0}) out += static_cast<char>(stream >> shift);
  return out.append(payload);
}

inline std::string random_bytes(std::mt19937_64* random, size_t count) {
  std::string out(count, '\0');
  for (char& c : out) c = static_cast<char>((*random)());
  return out;
}

class Hostile : public ::testing::Test {
 protected:
  void SetUp() override {
    if (server_program().empty()) GTEST_SKIP() << "skipped: the program sidereal is not built";
    cluster_ = std::make_unique<ProcessCluster>(1);
    master_ = v1::Master::NewStub(cluster_->channel());
    worker_ = v1::Worker::NewStub(cluster_->channel());
    client_ = std::make_unique<HonestClient>(cluster_->target(), model_.graph());
    ASSERT_TRUE(eventually([&] { return task_figure(cluster_->status(), "steps_total") > 50; }));
    before_ = cluster_->status();
  }
  void TearDown() override {
    if (client_ == nullptr) return;
    for (const uint64_t session : sessions_) {
      v1::CloseSessionRequest request;
      request.set_session(session);
      v1::CloseSessionReply closed;
      grpc::ClientContext context;
      EXPECT_TRUE(master_->CloseSession(&context, request, &closed).ok());
    }
    client_->stop();
    client_ = nullptr;
    master_ = nullptr;
    worker_ = nullptr;
    EXPECT_TRUE(eventually([&] {
      const v1::TaskStatus now = cluster_->status();
      return now.pid() == before_.pid() && task_figure(now, "sessions") == 0 &&
             task_figure(now, "programs") == 0 && task_figure(now, "steps_running") == 0;
    })) << cluster_->status().DebugString();
    const auto grown = [&] {
      return task_figure(cluster_->status(), "memory_bytes") - task_figure(before_, "memory_bytes");
    };
    if (!base::kIsSanitized) {
      EXPECT_TRUE(eventually([&] { return grown() < kMemory; })) << grown();
    }
    RecordProperty("grown_bytes", std::to_string(grown()));
  }
  [[nodiscard]] int64_t refused(const std::string& why) const {
    return refused_for(cluster_->status(), why);
  }

  uint64_t make_session() {
    v1::CreateSessionRequest request;
    request.set_version(service::kSessionVersion);
    request.set_graph(ir::to_text(model_.graph()));
    v1::CreateSessionReply made;
    grpc::ClientContext context;
    EXPECT_TRUE(master_->CreateSession(&context, request, &made).ok());
    sessions_.push_back(made.session());
    return made.session();
  }
  /// How a stream ends that says these things, then waits for the end.
  template <class Stream, class Request>
  static grpc::Status say(Stream stream, const std::vector<Request>& requests) {
    for (const Request& request : requests) {
      if (!stream->Write(request)) break;
    }
    typename std::decay_t<decltype(reply_of(*stream))> reply;
    while (stream->Read(&reply)) {
    }
    return stream->Finish();
  }
  template <class Request, class Reply>
  static Reply reply_of(grpc::ClientReaderWriter<Request, Reply>&);
  grpc::Status run_step(const std::vector<v1::StepRequest>& requests) {
    grpc::ClientContext context;
    return say(master_->RunStep(&context), requests);
  }
  grpc::Status run_program(const std::vector<v1::ProgramRequest>& requests) {
    grpc::ClientContext context;
    return say(worker_->RunProgram(&context), requests);
  }
  grpc::Status attach(const std::vector<v1::AttachRequest>& requests) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    return say(worker_->Attach(&context), requests);
  }
  grpc::Status follow(const std::vector<v1::FollowRequest>& requests) {
    grpc::ClientContext context;
    return say(worker_->FollowChanges(&context), requests);
  }
  grpc::Status receive(const v1::RecvTensorsRequest& request) {
    grpc::ClientContext context;
    const auto stream = worker_->RecvTensors(&context, request);
    v1::TensorGroupPieces message;
    while (stream->Read(&message)) {
    }
    return stream->Finish();
  }

  SpreadModel model_{1};
  std::unique_ptr<ProcessCluster> cluster_;
  std::unique_ptr<v1::Master::Stub> master_;
  std::unique_ptr<v1::Worker::Stub> worker_;
  std::unique_ptr<HonestClient> client_;
  std::vector<uint64_t> sessions_;
  v1::TaskStatus before_;
};

}  // namespace sidereal::app
