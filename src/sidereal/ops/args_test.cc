#include <gtest/gtest.h>

#include "sidereal/ir/verify.h"
#include "sidereal/ops/ops.h"

// Arguments that are integers: attributes, constants and computed inputs.
namespace sidereal::ops {
namespace {

using ir::DType;
using ir::Output;
using ir::Shape;
using Ints = std::vector<int64_t>;

class ArgsTest : public testing::Test {
 protected:
  ArgsTest() { register_all(&registry_); }

  Output constant(const Ints& values) {
    const Shape shape{static_cast<int64_t>(values.size())};
    return b_.add("Const", {}, {{"value", ir::Tensor::of(shape, values)}});
  }
  Shape shape_of(Output o) const { return b_.spec(o).shape; }

  ir::OpRegistry registry_;
  ir::Graph graph_;
  ir::Builder b_{&graph_, &registry_};
};

TEST_F(ArgsTest, a_shape_is_known_from_an_attribute_and_from_a_constant) {
  const Output x = placeholder(b_, "x", DType::kFloat32, {-1, 6});
  EXPECT_EQ(shape_of(b_.add("Reshape", {x}, {{"shape", Ints{-1, 2, 3}}})), (Shape{-1, 2, 3}));
  EXPECT_EQ(shape_of(b_.add("Reshape", {x, constant({-1, 2, 3})})), (Shape{-1, 2, 3}));
  const Output computed = placeholder(b_, "shape", DType::kInt64, {3});
  EXPECT_EQ(shape_of(b_.add("Reshape", {x, computed})), (Shape{-1, -1, -1}));
  const Output unknown = placeholder(b_, "ints", DType::kInt32, Shape::unknown_rank());
  EXPECT_EQ(shape_of(b_.add("BroadcastTo", {x, unknown})), Shape::unknown_rank());
  EXPECT_EQ(shape_of(b_.add("BroadcastTo", {x, computed})), (Shape{-1, -1, 6}));
  EXPECT_TRUE(b_.status().ok()) << b_.status();
}

TEST_F(ArgsTest, an_argument_is_given_once) {
  const Output x = placeholder(b_, "x", DType::kFloat32, {6});
  b_.add("Reshape", {x, constant({2, 3})}, {{"shape", Ints{2, 3}}});
  EXPECT_NE(base::message_of(b_.status()).find("both as attribute and as input 1"),
            std::string::npos)
      << b_.status();
  ir::Builder again(&graph_, &registry_);
  again.add("Tile", {x});
  EXPECT_NE(base::message_of(again.status()).find("neither as attribute nor as input 1"),
            std::string::npos)
      << again.status();
}

TEST_F(ArgsTest, wrong_constants_are_errors_when_the_graph_is_built) {
  const Output x = placeholder(b_, "x", DType::kFloat32, {4, 6});
  b_.add("Slice", {x, constant({0, 5}), constant({4, 2})});
  EXPECT_NE(base::message_of(b_.status()).find("not in dimension 1 of extent 6"), std::string::npos)
      << b_.status();
}

TEST_F(ArgsTest, a_graph_stays_good_when_a_constant_becomes_another_node) {
  const Output x = placeholder(b_, "x", DType::kFloat32, {6});
  const Output shape = constant({2, 3});
  const Output computed = placeholder(b_, "shape", DType::kInt64, {2});
  const Output y = b_.add("Reshape", {x, shape});
  ASSERT_LT(computed.node.value, y.node.value);
  graph_.mutable_node(y.node).inputs[1] = computed;
  EXPECT_EQ(shape_of(y), (Shape{2, 3}));
  EXPECT_TRUE(ir::verify(graph_, registry_).ok()) << ir::verify(graph_, registry_);
  graph_.mutable_node(y.node).outputs[0].shape = Shape{2, 3, 1};
  EXPECT_FALSE(ir::verify(graph_, registry_).ok());
}

}  // namespace
}  // namespace sidereal::ops
