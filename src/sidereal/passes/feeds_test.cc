#include "sidereal/passes/feeds.h"

#include <gtest/gtest.h>

#include "sidereal/ir/verify.h"
#include "sidereal/ops/ops.h"

namespace sidereal::passes {
namespace {

using ir::DType;
using ir::Output;

class FeedsTest : public testing::Test {
 protected:
  FeedsTest() { ops::register_all(&registry_); }

  ir::OpRegistry registry_;
  ir::Graph graph_;
  ir::Builder b_{&graph_, &registry_};
};

TEST_F(FeedsTest, readers_of_a_fed_value_read_a_placeholder) {
  const Output x = ops::placeholder(b_, "x", DType::kFloat32, {-1, 2});
  const Output y = b_.add("Square", {x}, {}, "y");
  const Output z = b_.add("Neg", {y}, {}, "z");
  const auto fed = cut_at_feeds(graph_, {y, x}, {z, y}, {z.node});
  ASSERT_TRUE(fed.ok()) << fed.status();
  EXPECT_TRUE(ir::verify(fed->graph, registry_).ok());
  const ir::Node& feed = fed->graph.node(fed->feeds[0].node);
  EXPECT_EQ(feed.op, "Placeholder");
  EXPECT_EQ(feed.name, "y/fed");
  EXPECT_EQ(feed.outputs[0].shape.to_string(), graph_.spec(y).shape.to_string());
  EXPECT_EQ(fed->graph.node(fed->feeds[1].node).name, "x");
  EXPECT_EQ(fed->graph.node(fed->fetches[0].node).inputs[0], fed->feeds[0]);
  EXPECT_EQ(fed->fetches[1], fed->feeds[0]);
  EXPECT_EQ(fed->graph.node(fed->targets[0]).name, "z");
}

TEST_F(FeedsTest, one_output_of_several_is_fed) {
  const Output x = ops::placeholder(b_, "x", DType::kFloat32, {4});
  const ir::NodeId parts =
      b_.add_node("Unstack", {x}, {{"axis", int64_t{0}}, {"num", int64_t{4}}}, {}, "parts");
  ASSERT_TRUE(b_.status().ok()) << b_.status();
  const Output sum = b_.add("Add", {Output{parts, 1}, Output{parts, 2}}, {}, "sum");
  const auto fed = cut_at_feeds(graph_, {Output{parts, 2}}, {sum}, {});
  ASSERT_TRUE(fed.ok()) << fed.status();
  EXPECT_TRUE(ir::verify(fed->graph, registry_).ok());
  const ir::Node& made = fed->graph.node(fed->fetches[0].node);
  EXPECT_EQ(fed->graph.node(made.inputs[0].node).op, "Unstack");
  EXPECT_EQ(made.inputs[1], fed->feeds[0]);
}

TEST_F(FeedsTest, a_value_fed_twice_is_an_error) {
  const Output x = ops::placeholder(b_, "x", DType::kFloat32, {});
  EXPECT_EQ(cut_at_feeds(graph_, {x, x}, {x}, {}).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace sidereal::passes
