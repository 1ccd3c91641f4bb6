#include "sidereal/scrape/scrape_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "sidereal/metrics/lane_metrics.h"
#include "sidereal/security/tls.h"
#include "sidereal/sys/posix/posix.h"

namespace sidereal::scrape {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kSecret = "0123456789abcdef0123456789abcdef";
constexpr const char* kGet = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
constexpr int64_t kPatience = 20 * sys::kSecond;

std::shared_ptr<const security::Credentials> credentials_of(const security::SecurityOptions& of) {
  return security::Credentials::create(of).value();
}

/// A client of the server that waits for what it says.
class Client {
 public:
  explicit Client(const std::string& address, const security::Credentials* credentials = nullptr) {
    poller_ = network_->create_poller().value();
    stream_ = network_->connect(sys::Address::parse(address).value()).value();
    if (credentials != nullptr) {
      tls_ = security::Tls::create(*credentials).value();
      stream_ = tls_->connect(std::move(stream_), "127.0.0.1").value();
    }
    EXPECT_TRUE(poller_->add(*stream_, 1, {.readable = false, .writable = true}).ok());
  }
  ~Client() { poller_->remove(*stream_); }

  /// Sends `text` and gives back what comes until the end; what fails is the end.
  std::string ask(const std::string& text) {
    if (!connect()) return "";
    std::string left = text;
    while (!left.empty() || stream_->holds_output()) {
      const std::array<sys::ConstIoSlice, 1> slice = {
          sys::ConstIoSlice{reinterpret_cast<const std::byte*>(left.data()), left.size()}};
      const Result<sys::IoCount> wrote = stream_->writev(slice);
      if (!wrote.ok()) break;
      left.erase(0, wrote->bytes);
      if (wrote->would_block && !wait({.readable = false, .writable = true})) return "";
    }
    return rest();
  }
  /// What comes until the end.
  std::string rest() {
    std::string out;
    std::array<std::byte, 4096> buffer;
    const std::array<sys::IoSlice, 1> slice = {sys::IoSlice{buffer.data(), buffer.size()}};
    while (true) {
      const Result<sys::IoCount> got = stream_->readv(slice);
      if (!got.ok() || got->end) return out;
      out.append(reinterpret_cast<const char*>(buffer.data()), got->bytes);
      if (got->would_block && !wait({})) return out + " (nothing more, and no end)";
    }
  }
  bool connect() {
    while (true) {
      const Result<bool> connected = stream_->connected();
      if (!connected.ok()) return false;
      if (*connected) return true;
      if (!wait(stream_->connecting_interest())) return false;
    }
  }

 private:
  bool wait(sys::Interest interest) {
    EXPECT_TRUE(poller_->update(*stream_, 1, interest).ok());
    std::array<sys::Event, 1> events;
    return poller_->wait(events, kPatience) > 0;
  }

  const std::unique_ptr<sys::Network> network_ = sys::posix::create_network();
  std::shared_ptr<const security::Tls> tls_;
  std::unique_ptr<sys::Poller> poller_;
  std::unique_ptr<sys::Stream> stream_;
};

class ScrapeServerTest : public ::testing::Test {
 protected:
  void serve(ScrapeOptions options = {}) {
    if (options.credentials == nullptr) options.credentials = credentials_of({});
    options.listen = "127.0.0.1:0";
    options.text = [this] { return text_; };
    server_ = ScrapeServer::create(std::move(options)).value();
    ASSERT_TRUE(server_->start().ok());
  }
  [[nodiscard]] std::string ask(const std::string& text,
                                const security::Credentials* credentials = nullptr) const {
    return Client(server_->address(), credentials).ask(text);
  }
  /// Waits until the figure is that.
  void expect_series(const std::string& series, int64_t expected) const {
    int64_t now = 0;
    const std::unique_ptr<sys::Clock> clock = sys::posix::create_clock();
    const int64_t until = clock->now() + kPatience;
    do {
      metrics::Readings readings;
      server_->figures().read(&readings);
      now = readings.series(series);
    } while (now != expected && clock->now() < until);
    EXPECT_EQ(now, expected) << series;
  }

  std::string text_ = "a 1\n";
  std::unique_ptr<ScrapeServer> server_;
};

TEST_F(ScrapeServerTest, answers_with_the_text_and_closes) {
  serve();
  EXPECT_EQ(ask(kGet),
            "HTTP/1.1 200 OK\r\n"
            "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
            "Content-Length: 4\r\n"
            "Connection: close\r\n\r\na 1\n");
  text_ = "b 2\n";
  EXPECT_THAT(ask("GET /metrics?x=1 HTTP/1.0\r\n\r\n"), EndsWith("\r\n\r\nb 2\n"));
  EXPECT_THAT(ask("HEAD /metrics HTTP/1.1\r\n\r\n"), EndsWith("Connection: close\r\n\r\n"));
  expect_series("sidereal_scrapes_total", 3);
}

TEST_F(ScrapeServerTest, sends_texts_that_are_longer_than_buffers) {
  text_ = std::string(8 << 20, 'x') + "end";
  serve();
  const std::string answer = ask(kGet);
  EXPECT_GT(answer.size(), text_.size());
  EXPECT_THAT(answer.substr(answer.size() - 10), EndsWith("xend"));
}

TEST_F(ScrapeServerTest, says_that_it_is_healthy) {
  serve();
  const std::string answer = ask("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(answer, EndsWith("ok\n"));
}

TEST_F(ScrapeServerTest, refuses_what_it_does_not_have) {
  serve();
  EXPECT_THAT(ask("GET / HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(ask("POST /metrics HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 405 "));
  EXPECT_THAT(ask("metrics\r\n\r\n"), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(ask(std::string(3, '\0') + "\r\n\r\n"), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(ask(std::string(2 * ScrapeServer::kRequestBytesMax, 'x')),
              StartsWith("HTTP/1.1 431 "));
  EXPECT_THAT(ask(kGet), StartsWith("HTTP/1.1 200 "));
  expect_series("sidereal_refused_total{why=\"requests\"}", 5);
}

TEST_F(ScrapeServerTest, answers_members_only_where_there_is_a_secret) {
  const auto ours = credentials_of({.secret = kSecret});
  serve({.credentials = ours});
  EXPECT_THAT(ask(kGet, ours.get()), EndsWith("\r\n\r\na 1\n"));
  const auto others = credentials_of({.secret = std::string(kSecret) + "!"});
  EXPECT_EQ(ask(kGet, others.get()), "");
  EXPECT_EQ(ask(kGet).find("a 1"), std::string::npos);
  expect_series("sidereal_refused_total{why=\"certificate\"}", 1);
  expect_series("sidereal_refused_total{why=\"garbage\"}", 1);
  expect_series("sidereal_scrapes_total", 1);
}

TEST_F(ScrapeServerTest, ends_connections_that_say_too_little_for_too_long) {
  serve({.patience_ms = 50});
  Client client(server_->address());
  ASSERT_TRUE(client.connect());
  EXPECT_EQ(client.rest(), "");
  expect_series("sidereal_refused_total{why=\"idle\"}", 1);
}

TEST_F(ScrapeServerTest, has_few_connections_of_which_the_oldest_makes_room) {
  serve({.connections_max = 3});
  std::vector<std::unique_ptr<Client>> silent;
  for (int i = 0; i < 10; ++i) {
    silent.push_back(std::make_unique<Client>(server_->address()));
    ASSERT_TRUE(silent.back()->connect());
  }
  EXPECT_THAT(ask(kGet), StartsWith("HTTP/1.1 200 "));
  expect_series("sidereal_refused_total{why=\"over_limit\"}", 8);
  EXPECT_EQ(silent.front()->rest(), "");
}

TEST_F(ScrapeServerTest, stops_with_connections_open) {
  serve();
  Client client(server_->address());
  ASSERT_TRUE(client.connect());
  server_->stop();
  server_->stop();
  EXPECT_EQ(client.rest(), "");
}

TEST(ScrapeServer, listens_off_loopback_only_with_something_that_keeps_unauthenticated_peers_out) {
  const auto create = [](const security::SecurityOptions& of, const std::string& listen) {
    return ScrapeServer::create(
               {.listen = listen, .credentials = credentials_of(of), .text = [] { return ""; }})
        .status();
  };
  EXPECT_EQ(create({}, "0.0.0.0:0").code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(create({.secret = kSecret}, "0.0.0.0:0").ok());
  EXPECT_EQ(create({}, "nonsense").code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace sidereal::scrape
