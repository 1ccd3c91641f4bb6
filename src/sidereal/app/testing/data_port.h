#pragma once

#include <netinet/tcp.h>

#include <filesystem>
#include <fstream>
#include <mutex>
#include <optional>

#include "sidereal/app/testing/figures.h"
#include "sidereal/app/testing/hostile.h"
#include "sidereal/base/bytes.h"
#include "sidereal/base/sanitizer.h"
#include "sidereal/task/data_port.h"
#include "sidereal/wire/frame.h"

/// For tests: servers with data ports that somebody works with while unauthenticated peers and
/// liars use them.
namespace sidereal::app {

inline constexpr const char* kWorker = "/job:w/replica:0/task:0";
inline constexpr const char* kNonmember = "/job:w/replica:0/task:7";
inline constexpr const char* kPs = "/job:w/replica:0/task:1";

/// Whoever writes to it waits for nobody's word that the last bytes have arrived.
inline void send_at_once(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

/// Connects to `address` ("127.0.0.1:PORT"); -1 when that fails.
inline int connect_to(const std::string& address) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  send_at_once(fd);
  if (connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0) return fd;
  close(fd);
  return -1;
}

/// A frame as it was read.
struct Frame {
  wire::FrameHeader header;
  std::string meta;
  std::string payload;
};

inline std::string bytes_of(const wire::FrameHeader& header) {
  std::string out(wire::kHeaderBytes, '\0');
  wire::encode_header(header, reinterpret_cast<std::byte*>(out.data()));
  return out;
}

inline std::string hello_bytes(const wire::Hello& hello) {
  const std::string meta = wire::encode_hello(hello);
  return bytes_of(
             {.method = wire::Method::kHello, .meta_bytes = static_cast<uint32_t>(meta.size())}) +
         meta;
}

/// Who a lane that is not of the cluster says it is.
inline wire::Hello hello_of_nonmember() {
  return {.incarnation = 5, .task = kNonmember, .peer_task = kPs};
}

inline wire::FrameHeader call_of(task::DataCall kind, uint64_t id) {
  return {.method = wire::Method::kCall, .kind = static_cast<uint16_t>(kind), .call_id = id};
}

/// A call with whole tensors as feeds, in the order of their slots.
inline std::string call_bytes(wire::FrameHeader header, const std::vector<tensor::Tensor>& feeds,
                              std::string_view extra = {}) {
  const wire::FrameSize size = wire::size_of(feeds);
  header.flags = extra.empty() ? 0 : wire::kExtra;
  header.slot_count = static_cast<uint32_t>(feeds.size());
  header.meta_bytes = static_cast<uint32_t>(size.meta_bytes + extra.size());
  header.payload_bytes = size.payload_bytes;
  std::string slots(size.meta_bytes, '\0');
  std::string payload;
  auto* at = reinterpret_cast<std::byte*>(slots.data());
  for (size_t i = 0; i < feeds.size(); ++i) {
    at += wire::encode_slot(static_cast<uint32_t>(i), feeds[i], at);
    if (!feeds[i].defined()) continue;
    payload.append(reinterpret_cast<const char*>(feeds[i].raw()), feeds[i].nbytes());
    payload.resize(wire::padded(payload.size()));
  }
  return bytes_of(header) + slots + std::string(extra) + payload;
}

/// Speaks frames on a connection of its own.
class LanePeer {
 public:
  explicit LanePeer(const std::string& address) : raw_(address) {}

  void send(std::string_view bytes) const { raw_.send(bytes); }
  [[nodiscard]] const RawPeer& raw() const { return raw_; }
  /// Says hello; whether that was accepted.
  bool shake(const wire::Hello& hello = hello_of_nonmember()) {
    send(hello_bytes(hello));
    const std::optional<Frame> answer = read();
    return answer && answer->header.method == wire::Method::kHelloAck;
  }
  /// The next frame, but for pings, which it answers; none at the end of the connection, or when
  /// nothing comes for `seconds`.
  std::optional<Frame> read(double seconds = 10) {
    while (true) {
      Frame out;
      std::string head;
      if (!fill(wire::kHeaderBytes, seconds, &head)) return std::nullopt;
      const auto header =
          wire::decode_header(reinterpret_cast<const std::byte*>(head.data()), wire::Limits());
      EXPECT_TRUE(header.ok()) << header.status();
      if (!header.ok()) return std::nullopt;
      out.header = *header;
      if (!fill(header->meta_bytes, seconds, &out.meta)) return std::nullopt;
      if (!fill(header->payload_bytes, seconds, &out.payload)) return std::nullopt;
      if (out.header.method == wire::Method::kPing) {
        send(bytes_of({.method = wire::Method::kPong}));
      } else if (out.header.method != wire::Method::kPong) {
        return out;
      }
    }
  }
  /// What the next answer says: the code of an Error, or of the failure that a Reply tells.
  grpc::StatusCode code(double seconds = 10) {
    const std::optional<Frame> answer = read(seconds);
    if (!answer) return grpc::StatusCode::DO_NOT_USE;
    if (answer->header.method == wire::Method::kError) {
      return static_cast<grpc::StatusCode>(answer->header.status);
    }
    std::vector<wire::SlotEntry> slots;
    const auto meta = wire::decode_meta(answer->header, answer->meta, &slots);
    EXPECT_TRUE(meta.ok()) << meta.status();
    v1::ProgramTail tail;
    EXPECT_TRUE(meta.ok() && tail.ParseFromString(std::string(meta->extra)));
    return static_cast<grpc::StatusCode>(tail.failure().code());
  }

 private:
  bool fill(size_t count, double seconds, std::string* out) {
    const Stopwatch watch;
    while (buffer_.size() < count) {
      pollfd one{.fd = raw_.fd(), .events = POLLIN, .revents = 0};
      const double left = seconds - watch.seconds();
      if (left <= 0 || poll(&one, 1, static_cast<int>(left * 1000) + 1) <= 0) return false;
      std::array<char, 65536> bytes;
      const ssize_t got = recv(raw_.fd(), bytes.data(), bytes.size(), 0);
      if (got <= 0) return false;
      buffer_.append(bytes.data(), static_cast<size_t>(got));
    }
    *out = buffer_.substr(0, count);
    buffer_.erase(0, count);
    return true;
  }

  const RawPeer raw_;
  std::string buffer_;
};

/// Between a client and a server: keeps what the client says, and may change what the server does.
class Proxy {
 public:
  /// Changes what came from the server; false: the connection ends.
  using Change = std::function<bool(std::string* bytes)>;

  Proxy() {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&at), sizeof(at)), 0);
    EXPECT_EQ(listen(listener_, 16), 0);
    socklen_t length = sizeof(at);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&at), &length);
    address_ = "127.0.0.1:" + std::to_string(ntohs(at.sin_port));
  }
  ~Proxy() {
    done_ = true;
    if (thread_.joinable()) thread_.join();
    close(listener_);
  }
  Proxy(const Proxy&) = delete;
  Proxy& operator=(const Proxy&) = delete;

  [[nodiscard]] const std::string& address() const { return address_; }
  void start(const std::string& server) {
    thread_ = std::thread([this, server] { relay(server); });
  }
  /// nullptr: nothing is changed.
  void change(Change change) {
    const std::lock_guard lock(mutex_);
    change_ = std::move(change);
  }
  /// What clients have said since the last connection was made.
  [[nodiscard]] std::string recorded() {
    const std::lock_guard lock(mutex_);
    return recorded_;
  }

 private:
  struct Pair {
    int client;
    int server;
  };

  void relay(const std::string& server) {
    std::vector<Pair> pairs;
    while (!done_) {
      std::vector<pollfd> all = {{.fd = listener_, .events = POLLIN, .revents = 0}};
      for (const Pair& pair : pairs) {
        all.push_back({.fd = pair.client, .events = POLLIN, .revents = 0});
        all.push_back({.fd = pair.server, .events = POLLIN, .revents = 0});
      }
      if (poll(all.data(), all.size(), 20) <= 0) continue;
      std::vector<Pair> left;
      for (size_t i = 0; i < pairs.size(); ++i) {
        const bool said = all[2 * i + 1].revents == 0 || pass(pairs[i], true);
        const bool answered = said && (all[2 * i + 2].revents == 0 || pass(pairs[i], false));
        if (answered) {
          left.push_back(pairs[i]);
        } else {
          close(pairs[i].client);
          close(pairs[i].server);
        }
      }
      pairs = left;
      if (all[0].revents == 0) continue;
      const Pair pair{.client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC),
                      .server = connect_to(server)};
      send_at_once(pair.client);
      pairs.push_back(pair);
      const std::lock_guard lock(mutex_);
      recorded_.clear();
    }
    for (const Pair& pair : pairs) {
      close(pair.client);
      close(pair.server);
    }
  }

  bool pass(const Pair& pair, bool from_client) {
    std::string bytes(65536, '\0');
    const ssize_t got =
        recv(from_client ? pair.client : pair.server, bytes.data(), bytes.size(), 0);
    if (got <= 0) return false;
    bytes.resize(static_cast<size_t>(got));
    bool goes_on = true;
    {
      const std::lock_guard lock(mutex_);
      if (from_client) {
        recorded_ += bytes;
      } else if (change_) {
        goes_on = change_(&bytes);
      }
    }
    const int to = from_client ? pair.server : pair.client;
    for (size_t at = 0; at < bytes.size();) {
      const ssize_t sent = ::send(to, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
      if (sent <= 0) return false;
      at += static_cast<size_t>(sent);
    }
    return goes_on;
  }

  int listener_ = -1;
  std::string address_;
  std::atomic<bool> done_ = false;
  std::mutex mutex_;
  Change change_;
  std::string recorded_;
  std::thread thread_;
};

/// The model of SpreadModel, with counters on task 1 and something to put into its queue.
class CountingModel : public SpreadModel {
 public:
  CountingModel() : SpreadModel(2) {
    using tensor::DType;
    using tensor::Shape;
    for (const std::string name : {"honest", "other"}) {
      const ir::Output v = add(
          "Variable", {}, {{"shared_name", name}, {"dtype", DType::kFloat32}, {"shape", Shape{1}}},
          name, "/task:1");
      add("VariableAssign", {v, constant({0})}, {}, "init_" + name);
      add("VariableAssignAdd", {v, constant({1})}, {}, "count_" + name);
      add("VariableRead", {v}, {{"dtype", DType::kFloat32}, {"shape", Shape{1}}}, "read_" + name);
    }
    const ir::AttrMap queue = {{"dtypes", std::vector<std::string>{"float32"}},
                               {"shared_name", std::string("q")}};
    add_node("QueueEnqueue", {add("Queue", {}, queue, "q_to_put", "/task:1"), constant({5})}, {},
             "put");
  }
};

/// Task 0 works with task 1, whose data port is attacked; task 2 reaches that through a proxy.
/// The parameter: whether the cluster has a secret.
class DataHostile : public ::testing::TestWithParam<bool> {
 protected:
  static constexpr const char* kSecret = "0123456789abcdef0123456789abcdef";
  static constexpr int64_t kMemoryMax = int64_t{256} << 20;
  static constexpr double kWorst = base::kIsSanitized ? 10 : 1;

  /// What no honest step takes.
  [[nodiscard]] virtual double worst_s() const { return kWorst; }
  [[nodiscard]] virtual int keepalive_ms() const { return 4000; }

  void SetUp() override {
    if (server_program().empty()) GTEST_SKIP() << "skipped: the program sidereal is not built";
    std::string name = ::testing::TempDir() + "data_hostile_XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    std::vector<std::string> options = {
        "--protocol", "star_server",
        "--option",   "connect_deadline_ms=2000",
        "--option",   "keepalive_timeout_ms=" + std::to_string(keepalive_ms())};
    if (GetParam()) {
      std::ofstream(folder_ / "secret") << kSecret;
      options.insert(options.end(), {"--secret-file", (folder_ / "secret").string()});
      options_.security.secret = kSecret;
    }
    options_.operation_timeout = std::chrono::seconds(30);
    cluster_ = std::make_unique<ProcessCluster>(3, options, options_.security);
    address_ = "127.0.0.1:" + std::to_string(cluster_->status(1).data_port());
    proxy_.start(address_);
    std::ofstream(folder_ / ".endpoint_map") << cluster_->address(1) << "=" << proxy_.address();
    cluster_->kill(2);
    cluster_->start(2, {"--endpoint-map", folder_.string()});
    ASSERT_TRUE(cluster_->is_up(2));
    ASSERT_TRUE(session(0)->run({}, {}, {"init_honest", "init_other"}).ok());
    client_ = std::make_unique<HonestClient>(
        cluster_->target(0), model_.graph(), options_,
        HonestWork{.elements = 10'000, .targets = {"count_honest"}, .worst_s = worst_s()});
    ASSERT_TRUE(eventually([&] { return task_figure(cluster_->status(0), "steps_total") > 50; }));
    before_ = cluster_->status(1);
  }
  void TearDown() override {
    if (client_ != nullptr) {
      const int64_t steps = client_->stop();
      EXPECT_EQ(value_of("honest"), static_cast<float>(steps));
      client_ = nullptr;
      EXPECT_TRUE(eventually([&] {
        const v1::TaskStatus now = cluster_->status(1);
        return now.pid() == before_.pid() && task_figure(now, "sessions") == 0 &&
               task_figure(now, "steps_running") == 0 &&
               task_figure(now, "open_files") < task_figure(before_, "open_files") + 20;
      })) << cluster_->status(1).DebugString();
      const int64_t grown =
          task_figure(cluster_->status(1), "memory_bytes") - task_figure(before_, "memory_bytes");
      RecordProperty("grown_bytes", std::to_string(grown));
      if (!base::kIsSanitized) {
        EXPECT_LT(grown, kMemoryMax);
      }
    }
    std::filesystem::remove_all(folder_);
  }

  std::unique_ptr<service::Session> session(int master) {
    auto made = service::Session::create(cluster_->target(master), model_.graph(), options_);
    EXPECT_TRUE(made.ok()) << made.status();
    return *std::move(made);
  }
  float value_of(const std::string& counter) {
    const auto got = session(0)->run({}, {"read_" + counter});
    EXPECT_TRUE(got.ok()) << got.status();
    return got.ok() ? floats((*got)[0])[0] : -1;
  }
  [[nodiscard]] int64_t refused(const std::string& why, int task = 1) const {
    return refused_for(cluster_->status(task), why);
  }
  /// That many more than before the test began.
  bool counts(const std::string& why, int64_t more) {
    const int64_t before = refused_for(before_, why);
    return eventually([&] { return refused(why) >= before + more; });
  }

  const CountingModel model_;
  service::SessionOptions options_ = patient();
  std::filesystem::path folder_;
  std::unique_ptr<ProcessCluster> cluster_;
  std::string address_;
  Proxy proxy_;
  std::unique_ptr<HonestClient> client_;
  v1::TaskStatus before_;
};

}  // namespace sidereal::app
