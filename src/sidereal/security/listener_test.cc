#include "sidereal/security/listener.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "sidereal/base/sanitizer.h"
#include "sidereal/security/testing/certificates.h"
#include "sidereal/security/testing/echo.h"
#include "sidereal/sys/posix/posix.h"

namespace sidereal::security {
namespace {

const std::string kSecret = "a secret for the tests, 32 bytes";
const std::string kHello("\x16\x03\x01\x02\x00\x01", 6);

std::shared_ptr<const Credentials> make(const SecurityOptions& options) {
  auto made = Credentials::create(options);
  EXPECT_TRUE(made.ok()) << made.status();
  return *std::move(made);
}

std::shared_ptr<const Credentials> secret() { return make({.secret = kSecret}); }

/// Connections that say something, or nothing, and stay open as long as this object lives.
class Silent {
 public:
  Silent(const std::string& address, int n, const std::string& bytes = "") {
    connect(address, n, bytes);
  }

 private:
  void connect(const std::string& address, int n, const std::string& bytes) {
    const auto network = sys::posix::create_network();
    auto poller = network->create_poller();
    for (int i = 0; i < n; ++i) {
      auto stream = network->connect(*sys::Address::parse(address));
      ASSERT_TRUE(stream.ok()) << stream.status();
      EXPECT_TRUE((*poller)->add(**stream, i, {.readable = false, .writable = true}).ok());
      std::array<sys::Event, 1> events;
      EXPECT_GT((*poller)->wait(events, 30 * sys::kSecond), 0u);
      EXPECT_TRUE((*stream)->connected().ok());
      const sys::ConstIoSlice slice{reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()};
      if (!bytes.empty()) {
        EXPECT_TRUE((*stream)->writev({&slice, 1}).ok());
      }
      (*poller)->remove(**stream);
      streams_.push_back(*std::move(stream));
    }
  }

  std::vector<std::unique_ptr<sys::Stream>> streams_;
};

/// Connections from another address of this host, open as long as this object lives.
class FromElsewhere {
 public:
  FromElsewhere(const std::string& address, int n, const std::string& bytes) {
    const auto name = [](uint32_t host, int port) {
      sockaddr_in out{};
      out.sin_family = AF_INET;
      out.sin_addr.s_addr = htonl(host);
      out.sin_port = htons(static_cast<uint16_t>(port));
      return out;
    };
    const sockaddr_in from = name(INADDR_LOOPBACK + 1, 0);
    const sockaddr_in to = name(INADDR_LOOPBACK, sys::Address::parse(address)->port);
    for (int i = 0; i < n; ++i) {
      const int fd = sockets_.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      EXPECT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&from), sizeof(from)), 0);
      EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
      EXPECT_EQ(send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL),
                static_cast<ssize_t>(bytes.size()));
    }
  }
  ~FromElsewhere() {
    for (const int fd : sockets_) close(fd);
  }
  FromElsewhere(const FromElsewhere&) = delete;
  FromElsewhere& operator=(const FromElsewhere&) = delete;

 private:
  std::vector<int> sockets_;
};

/// Looks until `holds` or ten seconds have passed. What is waited for is another thread's count.
bool soon(const std::function<bool()>& holds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

/// Bytes of memory this process holds; 0 where a sanitizer keeps what was freed.
int64_t resident_bytes() {
  if (base::kIsSanitized) return 0;
  std::ifstream file("/proc/self/statm");
  int64_t pages = 0;
  file >> pages >> pages;
  return pages * 4096;
}

TEST(Listener, ThePortIsChosenByTheSystemAndReported) {
  EchoServer server(secret());
  EchoServer other(secret());
  EXPECT_NE(server.address(), other.address());
  EXPECT_EQ(server.address().rfind("127.0.0.1:", 0), 0u);
  EXPECT_TRUE(say_hello(server.address(), *secret()).ok());
  EXPECT_TRUE(say_hello(other.address(), *secret()).ok());
  EXPECT_EQ(server.listener().counters().accepted, 1u);
  EXPECT_EQ(server.listener().counters().admitted, 1u);
}

TEST(Listener, APortInUseIsSaidToBeInUse) {
  const EchoServer server(secret());
  const auto second = Listener::create(server.address(), secret());
  EXPECT_EQ(second.status().code(), StatusCode::kAlreadyExists) << second.status();
  EXPECT_NE(base::message_of(second.status()).find(server.address()), std::string::npos);
}

TEST(Listener, AServerStartsAgainOnThePortItHad) {
  std::string address;
  {
    const EchoServer first(secret());
    address = first.address();
    EXPECT_TRUE(say_hello(address, *secret()).ok());
  }
  const EchoServer second(secret(), {}, address);
  EXPECT_EQ(second.address(), address);
  EXPECT_TRUE(say_hello(address, *secret()).ok());
}

TEST(Listener, OffLoopbackItWantsASecretBeforeItBinds) {
  EXPECT_EQ(Listener::create("0.0.0.0:0", make({})).status().code(),
            StatusCode::kFailedPrecondition);
  EXPECT_TRUE(Listener::create("0.0.0.0:0", secret()).ok());
  EXPECT_TRUE(Listener::create("0.0.0.0:0", make({.insecure = true})).ok());
}

TEST(Listener, StartingBeforeItIsAttachedIsAnError) {
  const auto made = Listener::create("127.0.0.1:0", secret());
  ASSERT_TRUE(made.ok());
  EXPECT_EQ((*made)->start().code(), StatusCode::kFailedPrecondition);
}

TEST(Listener, RandomBytesAndHttpAreClosedAndCountedWhileAnotherIsServed) {
  EchoServer server(secret());
  std::mt19937 random(17);
  for (int i = 0; i < 20; ++i) {
    std::string bytes(64, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    bytes[0] = 'x';
    send_and_wait_for_end(server.address(), bytes);
    if (i % 5 == 0) {
      EXPECT_TRUE(say_hello(server.address(), *secret()).ok());
    }
  }
  send_and_wait_for_end(server.address(), "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  send_and_wait_for_end(server.address(), "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
  EXPECT_EQ(server.listener().counters().refused_garbage, 22u);
  EXPECT_EQ(server.listener().counters().admitted, 4u);
}

TEST(Listener, HttpIsClosedAndCountedWithoutTlsToo) {
  EchoServer server(make({}));
  send_and_wait_for_end(server.address(), "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  send_and_wait_for_end(server.address(), kHello);
  EXPECT_EQ(server.listener().counters().refused_garbage, 2u);
  EXPECT_TRUE(say_hello(server.address(), *make({})).ok());
  EXPECT_EQ(server.listener().counters().admitted, 1u);
}

TEST(Listener, GarbageAfterAGoodBeginningOfHttp2IsCounted) {
  EchoServer server(make({}));
  const std::string preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  send_and_wait_for_end(server.address(), preface + "this is no frame of HTTP/2");
  EXPECT_EQ(server.listener().counters().refused_garbage, 1u);
  // What only gRPC sees through: headers that cannot be decoded.
  const std::string settings("\0\0\0\x04\0\0\0\0\0", 9);
  const std::string headers("\0\0\x04\x01\x04\0\0\0\x01\xff\xff\xff\xff", 13);
  const Silent nonmembers(server.address(), 3, preface + settings + headers);
  EXPECT_TRUE(soon([&] { return server.listener().counters().refused_garbage == 4; }));
  // Who leaves without a call, or after one, sent none.
  { const Silent left(server.address(), 1, preface + settings); }
  EXPECT_TRUE(soon([&] { return server.listener().counters().gone == 1; }));
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(say_hello(server.address(), *make({})).ok());
  EXPECT_EQ(server.listener().counters().refused_garbage, 4u);
  EXPECT_EQ(server.listener().counters().gone, 1u);
}

TEST(Listener, AWrongSecretIsCounted) {
  EchoServer server(secret());
  const auto nonmember = make({.secret = kSecret + "!"});
  EXPECT_FALSE(say_hello(server.address(), *nonmember).ok());
  EXPECT_TRUE(say_hello(server.address(), *secret()).ok());
  EXPECT_TRUE(soon([&] { return server.listener().counters().refused_certificate >= 1; }));
  EXPECT_EQ(server.listener().counters().admitted, 1u);
}

TEST(Listener, AHelloThatLeadsNowhereIsCountedWhenGrpcClosesIt) {
  EchoServer server(secret());
  send_and_wait_for_end(server.address(), kHello + std::string(600, 'x'));
  EXPECT_TRUE(soon([&] { return server.listener().counters().refused_certificate == 1; }));
  EXPECT_TRUE(say_hello(server.address(), *secret()).ok());
}

TEST(Listener, WhoSpeaksTlsAndHasNoCertificateIsRefusedAndCounted) {
  const TempFolder folder;
  const Authority authority("authority of the test");
  for (const auto& credentials : {secret(), make(authority.issue(folder, "task", "127.0.0.1"))}) {
    EchoServer server(credentials);
    EXPECT_FALSE(say_hello_without_certificate(server.address()).ok());
    EXPECT_TRUE(soon([&] { return server.listener().counters().refused_certificate >= 1; }));
    EXPECT_EQ(server.listener().counters().admitted, 0u);
    EXPECT_TRUE(say_hello(server.address(), *credentials).ok());
  }
}

TEST(Listener, AnUnknownAuthoritysCertificateIsCounted) {
  const TempFolder folder;
  const Authority ours("authority of the test");
  const Authority theirs("authority of unauthenticated peers");
  const SecurityOptions options = ours.issue(folder, "task", "127.0.0.1");
  SecurityOptions nonmember = theirs.issue(folder, "nonmember", "127.0.0.1");
  nonmember.ca_file = options.ca_file;
  EchoServer server(make(options));
  EXPECT_FALSE(say_hello(server.address(), *make(nonmember)).ok());
  EXPECT_TRUE(soon([&] { return server.listener().counters().refused_certificate >= 1; }));
  EXPECT_EQ(server.listener().counters().admitted, 0u);
}

TEST(Listener, HalfOpenConnectionsAreClosedAtTheirDeadlines) {
  EchoServer server(secret(), {.first_bytes_ms_max = 50, .handshake_ms_max = 200});
  send_and_wait_for_end(server.address(), "");
  send_and_wait_for_end(server.address(), kHello.substr(0, 3));
  EXPECT_EQ(server.listener().counters().idle_closed, 2u);
  send_and_wait_for_end(server.address(), kHello);
  EXPECT_TRUE(soon([&] { return server.listener().counters().refused_certificate == 1; }));
  EXPECT_TRUE(say_hello(server.address(), *secret()).ok());
}

TEST(Listener, SilentConnectionsMakeRoomForOneThatSpeaks) {
  EchoServer server(secret(), {.unproved_max = 8});
  const Silent silent(server.address(), 32);
  EXPECT_TRUE(say_hello(server.address(), *secret()).ok());
  EXPECT_GE(server.listener().counters().over_limit, 24u);
}

TEST(Listener, HandshakesThatDoNotGoOnMakeRoomForOneThatDoes) {
  EchoServer server(secret(), {.unproved_max = 8});
  const Silent silent(server.address(), 32, kHello);
  EXPECT_TRUE(soon([&] { return server.listener().counters().over_limit == 26; }));
  // No deadline has passed yet.
  EXPECT_TRUE(say_hello(server.address(), *secret()).ok());
  EXPECT_EQ(server.listener().counters().over_limit, 27u);
}

TEST(Listener, AHostLeavesRoomForOthers) {
  EchoServer server(secret(), {.unproved_max = 8});
  // The beginning of a long hello, whose first record is short: nothing says that they stand still.
  const std::string drips("\x16\x03\x01\x00\x04\x01\x00\x02\x00\x16\x03\x01\x01\x00xx", 16);
  const FromElsewhere nonmembers(server.address(), 32, drips);
  EXPECT_TRUE(soon([&] { return server.listener().counters().over_limit == 26; }));
  EXPECT_TRUE(say_hello(server.address(), *secret()).ok());
  EXPECT_EQ(server.listener().counters().over_limit, 26u);
}

TEST(Listener, UnfinishedHandshakesAreLimited) {
  EchoServer server(secret(), {.handshake_ms_max = 500, .unproved_max = 8});
  const Silent silent(server.address(), 32, kHello);
  EXPECT_TRUE(soon([&] { return server.listener().counters().over_limit == 26; }));
  // What stands in the way is gone after the deadline; then all is as before.
  EXPECT_TRUE(soon([&] { return server.listener().counters().refused_certificate == 6; }));
  EXPECT_TRUE(say_hello(server.address(), *secret()).ok());
}

TEST(Listener, ThousandsOfTinyConnectionsLeaveNoMemoryBehindAndOthersAreServed) {
  EchoServer server(secret());
  const auto client = secret();
  send_and_wait_for_end(server.address(), "x");
  EXPECT_TRUE(say_hello(server.address(), *client).ok());
  const int64_t before = resident_bytes();
  constexpr int kRounds = 10000;
  for (int i = 0; i < kRounds; ++i) {
    if (i % 2 == 0) {
      send_and_wait_for_end(server.address(), std::string(1 + i % 40, static_cast<char>(i)));
    } else {
      const Silent gone(server.address(), 1, i % 4 == 1 ? "" : "y");
    }
    if (i % 1000 == 0) {
      EXPECT_TRUE(say_hello(server.address(), *client).ok());
    }
  }
  const auto counted = [&server] {
    const ListenerCounters c = server.listener().counters();
    return c.gone + c.refused_garbage + c.refused_certificate + c.admitted;
  };
  EXPECT_TRUE(soon([&] { return counted() == kRounds + 12u; })) << counted();
  EXPECT_LT(resident_bytes() - before, 16 << 20);
}

TEST(Listener, ThousandsOfBrokenHandshakesLeaveNoMemoryAndFewLinesBehind) {
  testing::internal::CaptureStderr();
  log_less_of_grpc();
  EchoServer server(secret());
  const std::string broken = kHello + std::string(600, 'x');
  for (int i = 0; i < 50; ++i) send_and_wait_for_end(server.address(), broken);
  const int64_t before = resident_bytes();
  for (int i = 0; i < 1000; ++i) send_and_wait_for_end(server.address(), broken);
  EXPECT_TRUE(soon([&] { return server.listener().counters().refused_certificate == 1050; }));
  EXPECT_TRUE(say_hello(server.address(), *secret()).ok());
  EXPECT_LT(resident_bytes() - before, 16 << 20);
  const std::string lines = testing::internal::GetCapturedStderr();
  EXPECT_LT(std::ranges::count(lines, '\n'), 10) << lines;
}

TEST(Listener, ManyServersStartAndStopInOneProcess) {
  for (int i = 0; i < 20; ++i) {
    EchoServer one(secret());
    EchoServer two(make({}));
    EXPECT_TRUE(say_hello(one.address(), *secret()).ok());
    EXPECT_TRUE(say_hello(two.address(), *make({})).ok());
  }
}

}  // namespace
}  // namespace sidereal::security
