#include "sidereal/transport/testing/fixture.h"

/// Peers whose numbers lie.
namespace sidereal::transport {
namespace {

using namespace testing;  // NOLINT: the fixture of this module.

class NumberedTest : public TransportTest {
 protected:
  static std::string named_hello(uint64_t client, uint32_t attempt) {
    const std::string meta = wire::encode_hello({.cluster_id = kCluster,
                                                 .incarnation = 5,
                                                 .lane = 0,
                                                 .task = kClient,
                                                 .peer_task = kServer,
                                                 .client_high = client,
                                                 .client_low = 1,
                                                 .attempt = attempt,
                                                 .resume_ms = 60'000});
    wire::FrameHeader header;
    header.method = wire::Method::kHello;
    header.meta_bytes = static_cast<uint32_t>(meta.size());
    return frame(header, meta);
  }
  /// A call without feeds; number 0: none.
  static std::string numbered_call(uint64_t number, uint64_t confirmed, uint16_t flags = 0) {
    wire::FrameHeader header;
    header.method = wire::Method::kCall;
    header.flags = flags | (number != 0 ? wire::kNumbered : 0);
    header.call_id = 1 + number;
    header.program = kEcho;
    header.number = number;
    header.confirmed = confirmed;
    std::string meta;
    if (number != 0) {
      meta.resize(wire::kOrderBytes);
      wire::encode_order(header, reinterpret_cast<std::byte*>(meta.data()));
    }
    header.meta_bytes = static_cast<uint32_t>(meta.size());
    return frame(header, meta);
  }
  static std::string confirm(uint64_t number) {
    wire::FrameHeader header;
    header.method = wire::Method::kConfirm;
    header.call_id = number;
    return frame(header, "");
  }
  void wait_for_connections(int wanted) {
    int count = 0;
    while (count < wanted) on(server_lane_, [&] { count = acceptor_->connection_count(); });
  }
  /// What the server says to these bytes before it closes the connection.
  std::string told(const std::string& bytes) {
    auto stream = raw_connection();
    write_raw(*stream, bytes);
    return read_raw(*stream);
  }
};

TEST_F(NumberedTest, WhoLiesWithNumbersLosesTheConnectionAndNobodyElse) {
  start_both();
  const auto expect_refused = [this](const std::string& bytes, const std::string& why) {
    EXPECT_NE(told(bytes).find(why), std::string::npos) << why;
  };
  uint64_t client = 100;
  expect_refused(hello_frame() + numbered_call(1, 0), "a call with a number");
  expect_refused(named_hello(++client, 1) + numbered_call(0, 0), "a call without a number");
  expect_refused(named_hello(++client, 1) + numbered_call(2, 0) + numbered_call(2, 0),
                 "call 2 after call 2");
  expect_refused(named_hello(++client, 1) + numbered_call(2, 0) + numbered_call(1, 0),
                 "call 1 after call 2");
  expect_refused(named_hello(++client, 1) + numbered_call(1, 7), "answer 7 is confirmed, of 0");
  expect_refused(named_hello(++client, 1) + confirm(1), "answer 1 is confirmed, of 0");
  expect_refused(hello_frame() + confirm(0), "Confirm from a client");
  Sink sink;
  EXPECT_TRUE(call_fine(&sink));
}

TEST_F(NumberedTest, AHelloThatWasLongOnItsWayDoesNotEndALaterConnection) {
  start_both();
  auto current = raw_connection();
  write_raw(*current, named_hello(7, 3));
  wait_for_connections(2);
  EXPECT_NE(told(named_hello(7, 2)).find("comes after connection 3"), std::string::npos);
  write_raw(*current, numbered_call(1, 0) + goodbye_frame());
  // HelloAck, and the answer.
  EXPECT_GT(read_raw(*current).size(), 2 * wire::kHeaderBytes);
}

TEST_F(NumberedTest, ANameThatIsSomebodyElsesIsRefused) {
  start_both();
  auto mine = raw_connection();
  write_raw(*mine, named_hello(9, 1));
  wait_for_connections(2);
  const std::string meta = wire::encode_hello({.cluster_id = kCluster,
                                               .incarnation = 6,
                                               .lane = 0,
                                               .task = "/job:worker/task:1",
                                               .peer_task = kServer,
                                               .client_high = 9,
                                               .client_low = 1,
                                               .attempt = 2});
  wire::FrameHeader header;
  header.method = wire::Method::kHello;
  header.meta_bytes = static_cast<uint32_t>(meta.size());
  EXPECT_NE(told(frame(header, meta)).find("has the name of a client of " + kClient),
            std::string::npos);
}

}  // namespace
}  // namespace sidereal::transport
