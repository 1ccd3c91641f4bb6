#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <thread>
#include <vector>

#include "sidereal/sys/posix/posix.h"

namespace sidereal::sys::posix {
namespace {

constexpr int64_t kPatience = 20 * kSecond;

struct Pair {
  std::unique_ptr<Stream> client;
  std::unique_ptr<Stream> server;
};

Pair connect_pair(Network& network, const std::string& host = "127.0.0.1") {
  auto listener = network.listen({host, 0}).value();
  Pair pair;
  pair.client = network.connect(listener->address()).value();
  auto poller = network.create_poller().value();
  EXPECT_TRUE(poller->add(*listener, 1, {}).ok());
  EXPECT_TRUE(poller->add(*pair.client, 2, {.readable = false, .writable = true}).ok());
  std::array<Event, 4> events;
  bool connected = false;
  while (!connected || pair.server == nullptr) {
    const size_t n = poller->wait(events, kPatience);
    if (n == 0) {
      ADD_FAILURE() << "no connection";
      break;
    }
    for (size_t i = 0; i < n; ++i) {
      if (events[i].token == 1 && pair.server == nullptr) pair.server = *listener->accept();
      if (events[i].token == 2) connected = pair.client->connected().value();
    }
  }
  return pair;
}

TEST(PosixNetwork, ListensOnAPortTheSystemChoosesAndMovesBytesBothWays) {
  auto network = create_network();
  for (const char* host : {"127.0.0.1", "localhost"}) {
    Pair pair = connect_pair(*network, host);
    ASSERT_NE(pair.server, nullptr);
    std::string text = "two slices";
    const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
    const std::array<ConstIoSlice, 2> out = {ConstIoSlice{bytes, 4}, ConstIoSlice{bytes + 4, 6}};
    EXPECT_EQ(pair.client->writev(out)->bytes, 10u);
    std::array<std::byte, 32> in{};
    auto poller = network->create_poller().value();
    ASSERT_TRUE(poller->add(*pair.server, 7, {}).ok());
    std::array<Event, 2> events;
    ASSERT_EQ(poller->wait(events, kPatience), 1u);
    EXPECT_EQ(events[0].token, 7u);
    const std::array<IoSlice, 2> into = {IoSlice{in.data(), 3}, IoSlice{in.data() + 3, 29}};
    EXPECT_EQ(pair.server->readv(into)->bytes, 10u);
    EXPECT_EQ(std::memcmp(in.data(), text.data(), 10), 0);
    EXPECT_TRUE(pair.server->readv(into)->would_block);
    pair.client.reset();
    ASSERT_EQ(poller->wait(events, kPatience), 1u);
    EXPECT_TRUE(pair.server->readv(into)->end);
  }
}

TEST(PosixNetwork, APortInUseIsNamedWithWhatToDo) {
  auto network = create_network();
  auto first = network->listen({"127.0.0.1", 0}).value();
  const Status status = network->listen(first->address()).status();
  EXPECT_EQ(status.code(), StatusCode::kAlreadyExists);
  EXPECT_NE(base::message_of(status).find(first->address().to_string()), std::string::npos);
  EXPECT_NE(base::message_of(status).find("port 0"), std::string::npos);
}

TEST(PosixNetwork, ARefusedConnectionSaysSo) {
  auto network = create_network();
  const Address gone = network->listen({"127.0.0.1", 0}).value()->address();
  auto stream = network->connect(gone);
  Status status = stream.status();
  if (stream.ok()) {
    auto poller = network->create_poller().value();
    ASSERT_TRUE(poller->add(**stream, 1, {.readable = false, .writable = true}).ok());
    std::array<Event, 1> events;
    ASSERT_EQ(poller->wait(events, kPatience), 1u);
    status = (*stream)->connected().status();
  }
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(base::message_of(status), "Connection refused");
}

TEST(PosixNetwork, AnUnknownHostIsNamed) {
  auto network = create_network();
  const Status status = network->resolve({"no such host", 1}).status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_NE(base::message_of(status).find("no such host"), std::string::npos);
}

TEST(PosixNetwork, WakeEndsAWaitFromAnotherThreadAndIsNotLostBefore) {
  auto network = create_network();
  auto poller = network->create_poller().value();
  std::array<Event, 1> events;
  poller->wake();
  EXPECT_EQ(poller->wait(events, -1), 0u);
  std::thread waker([&] { poller->wake(); });
  EXPECT_EQ(poller->wait(events, -1), 0u);
  waker.join();
}

TEST(PosixNetwork, AFullSocketWouldBlockInsteadOfWaiting) {
  auto network = create_network();
  Pair pair = connect_pair(*network);
  std::vector<std::byte> block(1 << 20);
  const std::array<ConstIoSlice, 1> out = {ConstIoSlice{block.data(), block.size()}};
  bool blocked = false;
  for (int i = 0; i < 1000 && !blocked; ++i) blocked = pair.client->writev(out)->would_block;
  EXPECT_TRUE(blocked);
}

TEST(PosixClock, GoesForwardOnly) {
  auto clock = create_clock();
  const int64_t first = clock->now();
  EXPECT_GE(clock->now(), first);
}

TEST(PosixRandom, DoesNotRepeat) {
  auto random = create_random();
  EXPECT_NE(random->next(), random->next());
}

}  // namespace
}  // namespace sidereal::sys::posix
