#include "sidereal/ir/dot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sidereal/ir/testing/ops.h"

namespace sidereal::ir {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Graph sample(const OpRegistry& registry) {
  Graph graph;
  Builder b(&graph, &registry);
  const Output x = b.add("Source", {}, {{"shape", Shape{-1, 3}}}, "in/x");
  const Output pair = b.add("Pair", {x, x}, {}, "pair");
  const NodeId touch =
      b.add_node("Touch", {}, {{"shared_name", std::string("w")}}, {pair.node}, "touch");
  EXPECT_TRUE(b.status().ok());
  graph.mutable_node(touch).device = "/job:ps/task:1";
  return graph;
}

TEST(Dot, HasNodesWithOpNameAndResourceAndEdgesWithShapes) {
  const OpRegistry registry = testing::registry();
  const auto dot = to_dot(sample(registry), {.title = "a \"title\""});
  ASSERT_TRUE(dot.ok());
  EXPECT_THAT(*dot, HasSubstr("label=\"Pair\\npair\""));
  EXPECT_THAT(*dot, HasSubstr("label=\"Touch\\ntouch\\nshared_name w\""));
  EXPECT_THAT(*dot, HasSubstr("g0 -> g1 [label=\"float32[?,3]\"]"));
  EXPECT_THAT(*dot, HasSubstr("g1 -> g2 [style=dashed]"));
  EXPECT_THAT(*dot, HasSubstr("label=\"a \\\"title\\\"\""));
}

TEST(Dot, GivesEachDeviceAColourAndALegend) {
  const OpRegistry registry = testing::registry();
  Graph graph = sample(registry);
  const auto dot = to_dot(graph);
  ASSERT_TRUE(dot.ok());
  EXPECT_THAT(*dot, HasSubstr("legend0 [label=\"anywhere\", fillcolor=\"#dbe9f6\"]"));
  EXPECT_THAT(*dot, HasSubstr("legend1 [label=\"/job:ps/task:1\", fillcolor=\"#fde2c4\"]"));
  graph.mutable_node(NodeId(2)).device = "";
  EXPECT_THAT(*to_dot(graph), Not(HasSubstr("legend")));
}

TEST(Dot, DrawsFunctionsInBoxes) {
  const OpRegistry registry = testing::registry();
  Graph body;
  const Output arg = *add_arg(&body, registry, {DType::kFloat32, {2}}, "a");
  Graph graph;
  const FunctionPtr function = *Function::make(std::move(body), {arg});
  ASSERT_TRUE(graph.add_function("twice", function).ok());
  EXPECT_THAT(*to_dot(graph), HasSubstr("label=\"function twice\""));
  EXPECT_THAT(*to_dot(graph), HasSubstr("f0n0 -> f0nout0 [label=\"float32[2]\"]"));
  EXPECT_THAT(*to_dot(graph, {.functions = false}), Not(HasSubstr("twice")));
}

TEST(Dot, OfAGraphThatIsTooLargeIsRefused) {
  const OpRegistry registry = testing::registry();
  const auto dot = to_dot(sample(registry), {.nodes_max = 2});
  ASSERT_FALSE(dot.ok());
  EXPECT_THAT(base::message_of(dot.status()), HasSubstr("has 3 nodes"));
}

}  // namespace
}  // namespace sidereal::ir
