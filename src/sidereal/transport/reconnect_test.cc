#include <atomic>
#include <mutex>

#include "sidereal/transport/testing/fixture.h"

/// Channels that find their peers again, names that are looked up, and IPv6.
namespace sidereal::transport {
namespace {

using namespace testing;  // NOLINT: the fixture of this module.

/// What a channel that keeps itself connected has said.
class Heard {
 public:
  base::Function<void(const Status&)> hook() {
    return [this](const Status& status) {
      const std::lock_guard lock(mutex_);
      all_.push_back(status);
    };
  }
  /// Waits for message number `i`.
  Status at(size_t i) {
    for (;;) {
      {
        const std::lock_guard lock(mutex_);
        if (all_.size() > i) return all_[i];
      }
      std::this_thread::yield();
    }
  }

 private:
  std::mutex mutex_;
  std::vector<Status> all_;
};

class ReconnectTest : public TransportTest {
 protected:
  void start_again(const sys::Address& address) {
    ASSERT_TRUE(server_lane_->stop().ok());
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
  }
};

TEST_F(ReconnectTest, AChannelThatIsKeptFindsARestartedServerByItself) {
  Heard heard;
  start_server();
  make_client({kServer, 0, address_});
  on(client_lane_, [&] { channel_->keep_connected(heard.hook()); });
  EXPECT_TRUE(heard.at(0).ok());
  Sink lost, fine;
  ASSERT_TRUE(call({.program = kNever, .deadline_ns = kNoDeadline}, {}, &lost).ok());
  const sys::Address address = address_;
  start_again(address);
  EXPECT_EQ(heard.at(1).code(), StatusCode::kUnavailable);
  EXPECT_TRUE(heard.at(2).ok()) << heard.at(2);
  ASSERT_TRUE(lost.wait());
  EXPECT_EQ(lost.status.code(), StatusCode::kUnavailable);
  on(client_lane_, [&] { EXPECT_EQ(channel_->peer_incarnation(), 78u); });
  ASSERT_TRUE(call_fine(&fine));
  on(client_lane_, [&] {
    channel_->close();
    EXPECT_FALSE(channel_->connected());
  });
}

TEST_F(ReconnectTest, AChannelThatIsKeptSaysThatItWasRefused) {
  Heard heard;
  start_server();
  make_client({kServer, 3, address_});
  on(client_lane_, [&] {
    channel_->keep_connected([this, hook = heard.hook()](const Status& status) mutable {
      hook(status);
      channel_->close();
    });
  });
  EXPECT_EQ(heard.at(0).code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(contains(heard.at(0), "wants lane 3")) << heard.at(0);
}

TEST_F(ReconnectTest, AHostMayHaveAName) {
  start_server();
  make_client({kServer, 0, {"localhost", address_.port}});
  const Status status = connect();
  ASSERT_TRUE(status.ok()) << status;
  Sink sink;
  EXPECT_TRUE(call_fine(&sink));
}

TEST_F(ReconnectTest, AnUnknownHostIsNamed) {
  make_client({kServer, 0, {"no-such-host.invalid", 1}});
  const Status status = connect(500 * sys::kMillisecond);
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_TRUE(contains(status, "no-such-host.invalid")) << status;
}

/// The real network with a name service of its own, for the host "ps".
class NamedNetwork final : public sys::Network {
 public:
  explicit NamedNetwork(sys::Network* inner) : inner_(inner) {}

  Result<std::unique_ptr<sys::Poller>> create_poller() override { return inner_->create_poller(); }
  Result<sys::Address> resolve(const sys::Address& address) override {
    return inner_->resolve(address);
  }
  [[nodiscard]] bool needs_look_up(const sys::Address& address) const override {
    return address.host == "ps";
  }
  void look_up(const sys::Address&,
               std::function<void(const Result<std::vector<sys::Address>>&)> done) override {
    ++asked;
    Result<std::vector<sys::Address>> answer = base::not_found("no such host");
    {
      const std::lock_guard lock(mutex_);
      if (!addresses_.empty()) answer = addresses_;
    }
    done(answer);
  }
  Result<std::unique_ptr<sys::Listener>> listen(const sys::Address& address) override {
    return inner_->listen(address);
  }
  Result<std::unique_ptr<sys::Stream>> connect(const sys::Address& address) override {
    return inner_->connect(address);
  }
  void set(std::vector<sys::Address> addresses) {
    const std::lock_guard lock(mutex_);
    addresses_ = std::move(addresses);
  }

  std::atomic<int> asked = 0;

 private:
  sys::Network* inner_;
  std::mutex mutex_;
  std::vector<sys::Address> addresses_;
};

TEST_F(ReconnectTest, ANameIsLookedUpAgainForEveryTry) {
  start_server();
  NamedNetwork named(network_.get());
  client_lane_ =
      lane::Lane::create({.name = "client", .network = &named, .clock = clock_.get()}).value();
  Heard heard;
  make_client({kServer, 0, {"ps", 1}});
  on(client_lane_, [&] { channel_->keep_connected(heard.hook()); });
  // Not known yet; then two addresses of which one is dead.
  while (named.asked < 3) std::this_thread::yield();
  const sys::Address dead = network_->listen({"127.0.0.1", 0}).value()->address();
  named.set({dead, address_});
  EXPECT_TRUE(heard.at(0).ok()) << heard.at(0);
  // It moves to another address.
  start_again({"127.0.0.2", 0});
  EXPECT_FALSE(heard.at(1).ok());
  named.set({acceptor_->address()});
  EXPECT_TRUE(heard.at(2).ok()) << heard.at(2);
  on(client_lane_, [&] { EXPECT_EQ(channel_->peer_incarnation(), 78u); });
  EXPECT_TRUE(client_lane_->stop().ok());
  channel_.reset();
  client_end_.reset();
  client_lane_ = make_lane("none");
}

TEST_F(ReconnectTest, Ipv6Works) {
  if (!network_->listen({"::1", 0}).ok()) GTEST_SKIP() << "skipped: this machine has no IPv6";
  server_end_ =
      Endpoint::create(server_lane_.get(), {.cluster_id = kCluster, .task = kServer}, options_)
          .value();
  acceptor_ = Acceptor::create(server_end_.get(), {"::1", 0}, &server_).value();
  server_.acceptor = acceptor_.get();
  server_lane_->start();
  address_ = acceptor_->address();
  EXPECT_TRUE(address_.to_string().starts_with("[::1]:")) << address_.to_string();
  make_client({kServer, 0, sys::Address::parse(address_.to_string()).value()});
  const Status status = connect();
  ASSERT_TRUE(status.ok()) << status;
  Sink sink;
  EXPECT_TRUE(call_fine(&sink));
}

}  // namespace
}  // namespace sidereal::transport
