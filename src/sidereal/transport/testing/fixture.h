#pragma once

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "sidereal/sys/posix/posix.h"
#include "sidereal/tensor/strings.h"
#include "sidereal/transport/acceptor.h"
#include "sidereal/transport/channel.h"
#include "sidereal/wire/checksum.h"

/// For tests: a server and a client on a lane each, over loopback TCP.
namespace sidereal::transport::testing {

using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

inline constexpr auto kPatience = std::chrono::seconds(60);
inline constexpr uint64_t kCluster = 0xc0ffee;
inline const std::string kServer = "/job:ps/task:0";
inline const std::string kClient = "/job:worker/task:0";

// Programs the test server knows.
inline constexpr uint64_t kEcho = 1;    // the feeds come back
inline constexpr uint64_t kHold = 2;    // answered by release(), last first
inline constexpr uint64_t kFail = 3;    // an error
inline constexpr uint64_t kNever = 4;   // no answer
inline constexpr uint64_t kRefuse = 5;  // allocate() refuses
inline constexpr uint64_t kPull = 6;    // feed: int64 count; fetch: that many int32

inline Tensor pattern(int64_t bytes, int seed) {
  Tensor t = Tensor::empty(DType::kUInt8, {bytes});
  for (int64_t i = 0; i < bytes; ++i) {
    t.raw()[i] = static_cast<std::byte>((i * 131 + seed * 17 + (i >> 9)) & 0xff);
  }
  return t;
}

struct Server : CallHandler {
  Result<Tensor> allocate(const Connection&, const wire::FrameHeader& call, int, DType dtype,
                          const Shape& shape) override {
    if (call.program == kRefuse) return base::resource_exhausted("no room for a feed");
    return Tensor::empty(dtype, shape);
  }
  void on_call(const Connection& from, const Call& called, std::span<Tensor> feeds) override {
    const wire::FrameHeader& call = called.header;
    last_call = call;
    EXPECT_EQ(from.task, kClient);
    switch (call.program) {
      case kEcho: {
        std::vector<uint32_t> numbers;
        for (const auto& slot : called.slots) numbers.push_back(slot.slot);
        return acceptor->reply(from.id, call.call_id, feeds,
                               {.slots = numbers, .forms = reply_forms, .extra = called.extra});
      }
      case kHold:
        held.push_back({from.id, call.call_id, {feeds.begin(), feeds.end()}});
        return on_held ? on_held() : void();
      case kFail:
        return acceptor->reply_error(from.id, call.call_id, base::not_found("{}", error_text),
                                     is_derived);
      case kPull: {
        // The fuzz test sends anything.
        const bool is_count = feeds.size() == 1 && feeds[0].defined() &&
                              feeds[0].dtype() == DType::kInt64 && feeds[0].num_elements() == 1;
        const int64_t count = is_count ? feeds[0].data<int64_t>()[0] : -1;
        if (count < 0 || count > (1 << 22)) {
          return acceptor->reply_error(from.id, call.call_id, base::invalid_argument("count"));
        }
        Tensor out = Tensor::empty(DType::kInt32, {count});
        auto values = out.data<int32_t>();
        std::iota(values.begin(), values.end(), static_cast<int32_t>(call.step));
        return acceptor->reply(from.id, call.call_id, std::span(&out, 1));
      }
      default:
        held.push_back({from.id, call.call_id, {}});
        return on_held ? on_held() : void();
    }
  }
  void on_cancel(const Connection&, uint64_t call_id) override {
    cancelled.push_back(call_id);
    if (on_cancelled) on_cancelled();
  }
  void on_closed(const Connection&, const Status& why) override {
    close_reasons.push_back(why);
    if (on_close) on_close();
  }
  void release() {
    for (; !held.empty(); held.pop_back()) {
      acceptor->reply(held.back().from, held.back().call_id, held.back().feeds);
    }
  }

  struct Held {
    ConnectionId from;
    uint64_t call_id;
    std::vector<Tensor> feeds;
  };
  Acceptor* acceptor = nullptr;
  std::string error_text = "no such row";
  bool is_derived = false;
  std::vector<wire::Form> reply_forms;
  wire::FrameHeader last_call;
  std::vector<uint64_t> cancelled;
  std::function<void()> on_cancelled;
  std::deque<Held> held;
  std::vector<Status> close_reasons;
  std::function<void()> on_held;
  std::function<void()> on_close;
};

/// Waits for any number of calls.
struct Sink : CallSink {
  explicit Sink(int count = 1) : left(count) {}
  void on_aside(const Aside& aside) override {
    extra = aside.extra;
    derived = aside.derived;
  }
  void done(const Status& outcome, std::span<Tensor> tensors) override {
    status = outcome;
    fetches.assign(tensors.begin(), tensors.end());
    if (check) check(outcome, tensors);
    if (--left == 0) all.set_value();
  }
  bool wait() { return all_done.wait_for(kPatience) == std::future_status::ready; }

  int left;
  Status status;
  std::vector<Tensor> fetches;
  std::string extra;
  bool derived = false;
  std::function<void(const Status&, std::span<Tensor>)> check;
  std::promise<void> all;
  std::future<void> all_done = all.get_future();
};

class TransportTest : public ::testing::Test {
 protected:
  void SetUp() override {
    server_lane_ = make_lane("server");
    client_lane_ = make_lane("client");
    options_.connect_deadline_ms = 60'000;
    options_.keepalive_timeout_ms = 60'000;
  }
  void TearDown() override {
    // Stopped first: then this thread may take apart what lived on the lanes.
    EXPECT_TRUE(client_lane_->stop().ok());
    EXPECT_TRUE(server_lane_->stop().ok());
    channel_.reset();
    acceptor_.reset();
  }

  std::unique_ptr<lane::Lane> make_lane(const std::string& name) {
    lane::LaneOptions options;
    options.name = name;
    options.network = network_.get();
    options.clock = clock_.get();
    options.spin_us = spin_us_;
    return lane::Lane::create(options).value();
  }
  void start_server() {
    server_end_ = Endpoint::create(
                      server_lane_.get(),
                      {.cluster_id = kCluster, .task = kServer, .incarnation = 77, .lane_count = 1},
                      options_, credentials_)
                      .value();
    acceptor_ = Acceptor::create(server_end_.get(), {"127.0.0.1", 0}, &server_).value();
    server_.acceptor = acceptor_.get();
    address_ = acceptor_->address();
    server_lane_->start();
  }
  void make_client(Peer peer, uint64_t cluster = kCluster) {
    client_end_ =
        Endpoint::create(client_lane_.get(),
                         {.cluster_id = cluster, .task = kClient, .incarnation = 5}, options_,
                         client_credentials_ != nullptr ? client_credentials_ : credentials_)
            .value();
    channel_ = Channel::create(client_end_.get(), std::move(peer));
    client_lane_->start();
  }
  Status connect(int64_t within_ns = 0) {
    std::promise<Status> result;
    auto future = result.get_future();
    on(client_lane_, [&] {
      channel_->connect(within_ns == 0 ? 0 : client_lane_->now() + within_ns,
                        [&](const Status& status) { result.set_value(status); });
    });
    if (future.wait_for(kPatience) != std::future_status::ready) return base::internal("hang");
    return future.get();
  }
  void start_both() {
    start_server();
    make_client({kServer, 0, address_});
    const Status status = connect();
    ASSERT_TRUE(status.ok()) << status;
  }
  /// Runs `fn` on the lane and waits for it.
  void on(std::unique_ptr<lane::Lane>& lane, std::function<void()> fn) {
    std::promise<void> done;
    auto future = done.get_future();
    ASSERT_TRUE(lane->post([&] {
      fn();
      done.set_value();
    }));
    ASSERT_EQ(future.wait_for(kPatience), std::future_status::ready);
  }
  Status call(uint64_t program, const std::vector<Tensor>& feeds, Sink* sink, int64_t within_ns = 0,
              uint64_t step = 0) {
    Status status;
    on(client_lane_, [&] {
      status = channel_
                   ->call({.program = program,
                           .step = step,
                           .deadline_ns = within_ns == 0 ? 0 : client_lane_->now() + within_ns},
                          feeds, sink)
                   .status();
    });
    return status;
  }
  /// As call(), with all that a call can have.
  Result<uint64_t> call(const CallOptions& what, const std::vector<Tensor>& feeds, Sink* sink) {
    Result<uint64_t> id = base::internal("not called");
    on(client_lane_, [&] { id = channel_->call(what, feeds, sink); });
    return id;
  }
  bool call_fine(Sink* sink) {
    return call(kEcho, {pattern(1000, 1)}, sink).ok() && sink->wait() && sink->status.ok();
  }
  /// A connected stream of raw bytes to the server.
  std::unique_ptr<sys::Stream> raw_connection() {
    auto stream = network_->connect(address_).value();
    auto poller = network_->create_poller().value();
    EXPECT_TRUE(poller->add(*stream, 1, {.readable = false, .writable = true}).ok());
    std::array<sys::Event, 1> events;
    EXPECT_EQ(poller->wait(events, 60 * sys::kSecond), 1u);
    EXPECT_TRUE(stream->connected().value());
    return stream;
  }
  static void write_raw(sys::Stream& stream, std::string_view bytes) {
    const std::array<sys::ConstIoSlice, 1> slice = {
        sys::ConstIoSlice{reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()}};
    EXPECT_EQ(stream.writev(slice)->bytes, bytes.size());
  }
  /// Reads until the other side closes.
  std::string read_raw(sys::Stream& stream) {
    auto poller = network_->create_poller().value();
    EXPECT_TRUE(poller->add(stream, 1, {}).ok());
    std::string out;
    std::array<sys::Event, 1> events;
    std::array<std::byte, 4096> buffer;
    const std::array<sys::IoSlice, 1> slice = {sys::IoSlice{buffer.data(), buffer.size()}};
    while (poller->wait(events, 60 * sys::kSecond) == 1) {
      const auto got = stream.readv(slice);
      if (!got.ok() || got->end) return out;
      out.append(reinterpret_cast<const char*>(buffer.data()), got->bytes);
    }
    ADD_FAILURE() << "the server did not close the connection";
    return out;
  }
  static std::string hello_frame(uint16_t version = wire::kVersion) {
    const std::string meta = wire::encode_hello({.version_min = version,
                                                 .version_max = version,
                                                 .cluster_id = kCluster,
                                                 .incarnation = 1,
                                                 .lane = 0,
                                                 .task = kClient,
                                                 .peer_task = kServer});
    wire::FrameHeader header;
    header.method = wire::Method::kHello;
    header.meta_bytes = static_cast<uint32_t>(meta.size());
    return frame(header, meta);
  }
  static std::string frame(const wire::FrameHeader& header, const std::string& meta) {
    std::string out(wire::kHeaderBytes, '\0');
    wire::encode_header(header, reinterpret_cast<std::byte*>(out.data()));
    return out + meta;
  }

  /// A Call with one feed, payload and all.
  static std::string call_frame(uint64_t program, const Tensor& feed) {
    std::string out = call_head(program, feed, "");
    out.append(reinterpret_cast<const char*>(feed.raw()), feed.nbytes());
    return out.append(wire::padded(feed.nbytes()) - feed.nbytes(), '\0');
  }
  static std::string goodbye_frame() {
    wire::FrameHeader goodbye;
    goodbye.method = wire::Method::kGoodbye;
    return frame(goodbye, "");
  }
  /// A Call of kEcho with one feed of strings.
  static std::string string_call_frame(const Tensor& feed) {
    std::string out = call_head(kEcho, feed, "");
    const std::string bytes = tensor::strings_to_bytes(feed);
    return out + bytes + std::string(wire::padded(bytes.size()) - bytes.size(), '\0');
  }
  /// A Call of kEcho with checksums.
  static std::string summed_call_frame(const Tensor& feed) {
    std::string out = call_head(kEcho, feed, std::string(sizeof(wire::Checksums), '\0'));
    wire::Checksum sum;
    wire::Checksums sums;
    sum.add(out.data(), out.size() - sizeof(sums));
    sums.head = sum.value();
    sum.clear();
    sum.add(feed.raw(), feed.nbytes());
    sums.payload = sum.value();
    std::memcpy(out.data() + out.size() - sizeof(sums), &sums, sizeof(sums));
    out.append(reinterpret_cast<const char*>(feed.raw()), feed.nbytes());
    return out.append(wire::padded(feed.nbytes()) - feed.nbytes(), '\0');
  }
  /// The header and meta of a Call with one feed; `sums` follows the slots.
  static std::string call_head(uint64_t program, const Tensor& feed, const std::string& sums) {
    const wire::FrameSize size = wire::size_of(std::span(&feed, 1));
    wire::FrameHeader header;
    header.method = wire::Method::kCall;
    header.flags = sums.empty() ? 0 : wire::kSummed;
    header.call_id = 1;
    header.program = program;
    header.slot_count = 1;
    header.meta_bytes = static_cast<uint32_t>(size.meta_bytes + sums.size());
    header.payload_bytes = size.payload_bytes;
    std::string meta(size.meta_bytes, '\0');
    wire::encode_slot(0, feed, reinterpret_cast<std::byte*>(meta.data()));
    return frame(header, meta + sums);
  }
  /// Takes the next connection of `listener`.
  std::unique_ptr<sys::Stream> accept_raw(sys::Listener& listener) {
    auto poller = network_->create_poller().value();
    EXPECT_TRUE(poller->add(listener, 1, {}).ok());
    std::array<sys::Event, 1> events;
    EXPECT_EQ(poller->wait(events, 60 * sys::kSecond), 1u);
    return listener.accept().value();
  }

  std::unique_ptr<sys::Network> network_ = sys::posix::create_network();
  std::unique_ptr<sys::Clock> clock_ = sys::posix::create_clock();
  config::Options options_;
  int64_t spin_us_ = lane::kSpinAdaptive;
  std::shared_ptr<const security::Credentials> credentials_;         // of both
  std::shared_ptr<const security::Credentials> client_credentials_;  // others of the client
  Server server_;
  sys::Address address_;
  std::unique_ptr<lane::Lane> server_lane_, client_lane_;
  std::unique_ptr<Endpoint> server_end_, client_end_;
  std::unique_ptr<Acceptor> acceptor_;
  std::unique_ptr<Channel> channel_;
};

inline bool same(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         std::memcmp(a.raw(), b.raw(), a.nbytes()) == 0;
}

inline bool contains(const Status& status, const std::string& part) {
  return base::message_of(status).find(part) != std::string::npos;
}

}  // namespace sidereal::transport::testing
