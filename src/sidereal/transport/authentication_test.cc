#include <openssl/bio.h>
#include <openssl/ssl.h>

#include "sidereal/transport/testing/fixture.h"

/// Who may connect: TLS with a cluster's secret, and what becomes of everybody else.
namespace sidereal::transport {
namespace {

using namespace testing;  // NOLINT: the fixture of this module.

constexpr const char* kSecret = "0123456789abcdef0123456789abcdef";

std::shared_ptr<const security::Credentials> with_secret(const std::string& secret) {
  return security::Credentials::create({.secret = secret}).value();
}

class AuthenticationTest : public TransportTest {
 protected:
  AuthenticationTest() { credentials_ = with_secret(kSecret); }

  /// Waits until the server has counted `expected` of something.
  void expect_count(const metrics::Counter& counter, int64_t expected) {
    const int64_t until = clock_->now() + 60 * sys::kSecond;
    while (counter.value() < expected && clock_->now() < until) std::this_thread::yield();
    EXPECT_EQ(counter.value(), expected);
  }
  metrics::LaneMetrics& counted() { return server_lane_->metrics(); }
  /// An honest client still gets in.
  void expect_service() {
    make_client({kServer, 0, address_});
    const Status status = connect();
    ASSERT_TRUE(status.ok()) << status;
    Sink sink;
    EXPECT_TRUE(call_fine(&sink));
  }
};

TEST_F(AuthenticationTest, CallsOfEverySizeGoThroughTls) {
  start_both();
  for (const int64_t bytes : {0, 1, 4097, 16'384, 65'536, 1'048'577, 20'000'000}) {
    Sink sink;
    const Tensor sent = pattern(bytes, 1);
    ASSERT_TRUE(call(kEcho, {sent, pattern(3, 2), sent}, &sink).ok());
    ASSERT_TRUE(sink.wait()) << bytes;
    ASSERT_TRUE(sink.status.ok()) << sink.status;
    EXPECT_TRUE(same(sink.fetches[0], sent)) << bytes;
    EXPECT_TRUE(same(sink.fetches[2], sent)) << bytes;
  }
  constexpr int kCalls = 300;
  std::deque<Sink> sinks(kCalls);
  std::vector<Tensor> sent;
  for (int i = 0; i < kCalls; ++i) sent.push_back(pattern((i * 7919) % 100'000, i));
  on(client_lane_, [&] {
    for (int i = 0; i < kCalls; ++i) {
      ASSERT_TRUE(channel_->call({.program = kEcho}, std::span(&sent[i], 1), &sinks[i]).ok());
    }
  });
  for (int i = 0; i < kCalls; ++i) {
    ASSERT_TRUE(sinks[i].wait());
    ASSERT_TRUE(sinks[i].status.ok()) << sinks[i].status;
    EXPECT_TRUE(same(sinks[i].fetches[0], sent[i])) << i;
  }
}

TEST_F(AuthenticationTest, AServerWhoseClientDoesNotReadStopsReadingAndGoesOnLater) {
  options_.send_buffer_bytes_max = 1 << 20;
  start_both();
  constexpr int kCalls = 32;
  std::deque<Sink> sinks(kCalls);
  const Tensor count = Tensor::scalar<int64_t>(1 << 20);
  on(client_lane_, [&] {
    for (int i = 0; i < kCalls; ++i) {
      ASSERT_TRUE(channel_
                      ->call({.program = kPull, .step = static_cast<uint64_t>(i)},
                             std::span(&count, 1), &sinks[i])
                      .ok());
    }
  });
  for (int i = 0; i < kCalls; ++i) {
    ASSERT_TRUE(sinks[i].wait());
    ASSERT_TRUE(sinks[i].status.ok()) << sinks[i].status;
    EXPECT_EQ(sinks[i].fetches[0].data<int32_t>().back(), i + (1 << 20) - 1);
  }
}

TEST_F(AuthenticationTest, AnotherSecretIsRefusedAtOnceAndCounted) {
  start_server();
  client_credentials_ = with_secret("another secret of 32 bytes......");
  make_client({kServer, 0, address_});
  const Status status = connect();
  EXPECT_EQ(status.code(), StatusCode::kUnauthenticated) << status;
  EXPECT_TRUE(contains(status, kServer + " at " + address_.to_string())) << status;
  EXPECT_TRUE(contains(status, "same secret")) << status;
  expect_count(counted().refused_certificate, 1);
}

TEST_F(AuthenticationTest, AClientWithoutACertificateIsRefusedAndCounted) {
  start_server();
  const std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context(SSL_CTX_new(TLS_client_method()),
                                                             SSL_CTX_free);
  const std::unique_ptr<BIO, void (*)(BIO*)> bio(BIO_new_ssl_connect(context.get()), BIO_free_all);
  BIO_set_conn_hostname(bio.get(), address_.to_string().c_str());
  ASSERT_EQ(BIO_do_connect(bio.get()), 1);
  // The client's side of TLS 1.3 is done before the server has seen that there is no certificate.
  const std::string hello = hello_frame();
  BIO_write(bio.get(), hello.data(), static_cast<int>(hello.size()));
  std::array<char, 100> answer;
  EXPECT_LE(BIO_read(bio.get(), answer.data(), 100), 0);
  expect_count(counted().refused_certificate, 1);
  EXPECT_EQ(counted().calls.value(), 0);
  expect_service();
}

TEST_F(AuthenticationTest, PlainTextToATlsPortIsGarbage) {
  start_server();
  auto stream = raw_connection();
  write_raw(*stream, hello_frame() + call_frame(kEcho, pattern(10, 1)));
  read_raw(*stream);
  expect_count(counted().refused_garbage, 1);
  client_credentials_ = security::Credentials::create({}).value();
  make_client({kServer, 0, address_});
  const Status status = connect(300 * sys::kMillisecond);
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_TRUE(contains(status, "does it want a secret")) << status;
  EXPECT_EQ(counted().calls.value(), 0);
}

TEST_F(AuthenticationTest, TlsToAPlainPortIsGarbage) {
  credentials_ = nullptr;
  start_server();
  client_credentials_ = with_secret(kSecret);
  make_client({kServer, 0, address_});
  const Status status = connect();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss) << status;
  EXPECT_TRUE(contains(status, "on one side only")) << status;
  expect_count(counted().refused_garbage, 1);
}

TEST_F(AuthenticationTest, ARecordedHandshakeIsOfNoUse) {
  auto listener = network_->listen({"127.0.0.1", 0}).value();
  make_client({kServer, 0, listener->address()});
  on(client_lane_, [&] { channel_->connect(0, [](const Status&) {}); });
  auto client = accept_raw(*listener);
  std::array<std::byte, 4096> first;
  const std::array<sys::IoSlice, 1> slice = {sys::IoSlice{first.data(), first.size()}};
  Result<sys::IoCount> got = client->readv(slice);
  while (got.ok() && got->would_block) got = client->readv(slice);
  ASSERT_TRUE(got.ok() && got->bytes > 100);
  const std::string hello(reinterpret_cast<const char*>(first.data()), got->bytes);
  on(client_lane_, [&] { channel_->close(); });

  start_server();
  auto stream = raw_connection();
  // After the hello anything: the keys are others than those of the recording.
  std::string record = {0x17, 3, 3, 0, 100};
  write_raw(*stream, hello + record + std::string(100, 'r'));
  read_raw(*stream);
  expect_count(counted().refused_certificate, 1);
  EXPECT_EQ(counted().connections.value(), 0);
}

TEST_F(AuthenticationTest, WhoDripsBytesIsClosedAtTheDeadlineOfTheHandshake) {
  options_.connect_deadline_ms = 200;
  start_server();
  auto stream = raw_connection();
  auto poller = network_->create_poller().value();
  ASSERT_TRUE(poller->add(*stream, 1, {}).ok());
  const std::string hello = {0x16, 3, 1, 2, 0, 1};
  const int64_t from = clock_->now();
  std::array<sys::Event, 1> events;
  for (size_t i = 0; poller->wait(events, 20 * sys::kMillisecond) == 0; ++i) {
    const char byte = i < hello.size() ? hello[i] : 'x';
    const std::array<sys::ConstIoSlice, 1> slice = {
        sys::ConstIoSlice{reinterpret_cast<const std::byte*>(&byte), 1}};
    if (!stream->writev(slice).ok()) break;
    ASSERT_LT(clock_->now() - from, 30 * sys::kSecond);
  }
  expect_count(counted().refused_idle, 1);
}

TEST_F(AuthenticationTest, AFloodOfSilentConnectionsHoldsFewPlacesAndHonestClientsGetIn) {
  options_.unproved_max = 8;
  start_server();
  std::vector<std::unique_ptr<sys::Stream>> flood;
  for (int i = 0; i < 100; ++i) flood.push_back(raw_connection());
  expect_count(counted().refused_over_limit, 92);
  expect_service();
  EXPECT_EQ(counted().refused_over_limit.value(), 93);
  // Those that are left go away.
  flood.clear();
  expect_count(counted().gone, 7);
}

TEST_F(AuthenticationTest, OffLoopbackIsServedWithCredentialsOnly) {
  const auto listen = [&](std::shared_ptr<const security::Credentials> credentials) {
    auto endpoint =
        Endpoint::create(server_lane_.get(), {.task = kServer}, options_, credentials).value();
    return Acceptor::create(endpoint.get(), {"0.0.0.0", 0}, &server_).status();
  };
  EXPECT_TRUE(listen(with_secret(kSecret)).ok());
  EXPECT_TRUE(listen(security::Credentials::create({.insecure = true}).value()).ok());
  EXPECT_EQ(listen(security::Credentials::create({}).value()).code(),
            StatusCode::kFailedPrecondition);
  EXPECT_EQ(listen(nullptr).code(), StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace sidereal::transport
