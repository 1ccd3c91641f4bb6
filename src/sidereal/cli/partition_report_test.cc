#include "sidereal/cli/partition_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sidereal/cli/commands.h"
#include "sidereal/ir/text.h"
#include "sidereal/ops/ops.h"

namespace sidereal::cli {
namespace {

using ::testing::HasSubstr;

/// y = read(v) * x on the master, then v -= y.
constexpr const char* kGraph = R"(sidereal-graph 1
%0 = Variable() name="v" {dtype=float32, shape=shape[256], shared_name="v"} )"
                               R"(device="/job:ps/task:1" : string[]
%1 = VariableRead(%0) name="read" {dtype=float32, shape=shape[256]} : float32[256]
%2 = Placeholder() name="x" {dtype=float32, shape=shape[256]} : float32[256]
%3 = Mul(%1, %2) name="y" : float32[256]
%4 = VariableAssignSub(%0, %3) name="push" : float32[256]
)";

class PartitionReport : public ::testing::Test {
 protected:
  PartitionReport() { ops::register_all(&registry_); }

  Result<std::string> report(PartitionArguments arguments, const std::string& more = "") {
    if (arguments.cluster.empty()) arguments.cluster = R"({"ps": ["p0:1", "p1:1"], "w": ["w0:1"]})";
    arguments.master = "/job:w/task:0";
    auto graph = ir::from_text(std::string(kGraph) + more, registry_);
    if (!graph.ok()) return graph.status();
    return partition_report(*graph, arguments, registry_);
  }

  ir::OpRegistry registry_;
};

TEST_F(PartitionReport, shows_calls_rounds_messages_and_bytes) {
  const auto layers = report({.protocol = "star_server", .fetches = {"y"}, .targets = {"push"}});
  ASSERT_TRUE(layers.ok()) << layers.status();
  EXPECT_EQ(
      *layers,
      R"(star_server: 2 calls in 2 rounds: 4 messages, 2 values, 2.0 KiB known, 0 of unknown size
driver /job:w/replica:0/task:0/device:CPU:0
2 calls in 2 rounds to 1 devices; 2 nodes on the driver
/job:ps/replica:0/task:1/device:CPU:0
  round 1, call 0: 1 Variable, 1 VariableRead
    0 feeds
    1 fetch: float32[256]
  round 2, call 1: 1 Variable, 1 VariableAssignSub
    1 feed: float32[256]
    0 fetches
)");
  const auto lite = report({.protocol = "star_server_lite"});
  ASSERT_TRUE(lite.ok()) << lite.status();
  EXPECT_THAT(*lite, HasSubstr("2 calls in 2 rounds: 3 messages"));
  const auto passed = report({.protocol = "grpc", .fetches = {"y"}, .targets = {"push"}});
  ASSERT_TRUE(passed.ok()) << passed.status();
  EXPECT_EQ(*passed,
            R"(grpc: 2 calls in 2 rounds: 8 messages, 2 values, 2.0 KiB known, 0 of unknown size
/job:ps/replica:0/task:1/device:CPU:0
  3 nodes
  1 float32[256] from /job:w/replica:0/task:0/device:CPU:0
/job:w/replica:0/task:0/device:CPU:0
  2 nodes
  1 float32[256] from /job:ps/replica:0/task:1/device:CPU:0
)");
}

TEST_F(PartitionReport, shows_what_travels_together) {
  // Two values of the worker, read on the ps.
  const std::string more =
      R"(%5 = Neg(%2) name="n" : float32[256]
%6 = Exp(%2) name="e" : float32[256]
%7 = Add(%5, %6) name="sum" device="/job:ps/task:1" : float32[256]
)";
  for (const bool fuse : {false, true}) {
    const auto got = report({.protocol = "grpc++", .fetches = {"sum"}, .tensor_fuse = fuse}, more);
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_THAT(*got, HasSubstr(fuse ? "6 messages, 2 values" : "8 messages, 2 values"));
    EXPECT_THAT(*got, HasSubstr("  2 float32[256] from /job:w"));
    EXPECT_EQ(got->find("  fused: 2 of them in 1 from /job:w") != std::string::npos, fuse);
  }
}

TEST_F(PartitionReport, shows_the_lanes_of_tasks) {
  const std::string more = R"(%5 = Variable() name="t/part_1" {dtype=float32, shape=shape[64], )"
                           R"(shared_name="t/part_1"} device="/job:ps/task:1" : string[]
%6 = VariableRead(%5) name="one" {dtype=float32, shape=shape[64]} : float32[64]
%7 = Variable() name="t/part_3" {dtype=float32, shape=shape[64], )"
                           R"(shared_name="t/part_3"} device="/job:ps/task:1" : string[]
%8 = VariableRead(%7) name="three" {dtype=float32, shape=shape[64]} : float32[64]
)";
  const PartitionArguments asked = {.protocol = "star_server", .fetches = {"one", "three"}};
  const auto one = report(asked, more);
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_THAT(*one, HasSubstr("1 calls in 1 rounds to 1 devices"));
  // Of two tasks the second one has the parts 1 and 3: one for each of its lanes.
  PartitionArguments with_lanes = asked;
  with_lanes.lanes = 2;
  const auto two = report(with_lanes, more);
  ASSERT_TRUE(two.ok()) << two.status();
  EXPECT_THAT(*two, HasSubstr("2 calls in 1 rounds to 2 devices"));
  EXPECT_THAT(*two, HasSubstr("/job:ps/replica:0/task:1/device:CPU:0\n"));
  EXPECT_THAT(*two, HasSubstr("/job:ps/replica:0/task:1/device:CPU:0/lane:1\n"));
}

TEST_F(PartitionReport, says_what_is_missing_or_unknown) {
  ir::Graph graph;
  EXPECT_THAT(base::message_of(partition_report(graph, {.protocol = "grpc"}, registry_).status()),
              HasSubstr("--cluster"));
  EXPECT_EQ(report({.protocol = "grpc", .fetches = {"z"}}).status().code(), StatusCode::kNotFound);
  EXPECT_THAT(base::message_of(report({.protocol = "grpc", .targets = {"z"}}).status()),
              HasSubstr("no node 'z'"));
}

TEST_F(PartitionReport, is_an_option_of_dump) {
  EXPECT_THAT(parse({"graph", "dump", "--help"}).out, HasSubstr("--partition"));
  EXPECT_EQ(parse({"graph", "dump", "x", "--partition", "smoke"}).exit_code, 2);
  EXPECT_EQ(parse({"graph", "dump", "x", "--lanes", "0"}).exit_code, 2);
  EXPECT_TRUE(parse({"graph", "dump", "x", "--partition", "grpc++", "--cluster", "{}", "--fetch",
                     "a:0", "--fetch", "b:0"})
                  .action);
}

}  // namespace
}  // namespace sidereal::cli
