#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "sidereal/ir/component_specs.h"
#include "sidereal/ir/needed.h"
#include "sidereal/ir/testing/ops.h"
#include "sidereal/ir/verify.h"

namespace sidereal::ir {
namespace {

class BuilderTest : public ::testing::Test {
 protected:
  Output source(const Shape& shape, std::string_view name = {}) {
    return builder_.add("Source", {}, {{"shape", shape}}, name);
  }
  std::string message() const { return base::message_of(builder_.status()); }

  OpRegistry registry_ = testing::registry();
  Graph graph_;
  Builder builder_{&graph_, &registry_};
};

TEST_F(BuilderTest, names_nodes_after_their_op_and_numbers_repeats) {
  source({2});
  source({2});
  source({2}, "x");
  source({2}, "x");
  EXPECT_EQ(graph_.nodes()[0].name, "Source");
  EXPECT_EQ(graph_.nodes()[1].name, "Source_1");
  EXPECT_EQ(graph_.nodes()[3].name, "x_1");
}

TEST_F(BuilderTest, puts_the_scope_in_front_of_nodes) {
  {
    const Builder::Scope tower = builder_.scope("tower");
    const Builder::Scope layer = builder_.scope("0");
    source({2}, "x");
  }
  source({2}, "x");
  EXPECT_EQ(graph_.nodes()[0].name, "tower/0/x");
  EXPECT_EQ(graph_.nodes()[1].name, "x");
}

TEST_F(BuilderTest, keeps_the_first_error_and_does_nothing_afterwards) {
  const Output bad = builder_.add("Pair", {source({2}, "a"), source({3}, "b")}, {}, "pair");
  EXPECT_FALSE(bad.valid());
  EXPECT_EQ(message(), "Pair 'pair' (float32[2], float32[3]): the shapes differ");
  EXPECT_FALSE(builder_.add("Pair", {bad, bad}).valid());
  EXPECT_FALSE(source({1}).valid());
  EXPECT_EQ(graph_.size(), 2);
  EXPECT_EQ(message(), "Pair 'pair' (float32[2], float32[3]): the shapes differ");
}

TEST_F(BuilderTest, names_a_wrong_attribute_and_what_the_op_takes) {
  builder_.add("Source", {}, {{"shape", Shape{1}}, {"shapes", true}}, "x");
  EXPECT_EQ(message(), "Source 'x' (): no attribute 'shapes' is known; the op takes: shape");
}

TEST_F(BuilderTest, takes_attributes_that_begin_with_an_underscore_on_every_op) {
  AttrMap attrs = {{"shape", Shape{2}}, {"_class", std::vector<std::string>{"loc:@y"}}};
  const Output x = builder_.add("Source", {}, attrs, "x");
  EXPECT_TRUE(builder_.status().ok()) << message();
  EXPECT_EQ(graph_.node(x.node).attrs.size(), 2U);
  attrs["_shape"] = Shape{-2};
  builder_.add("Source", {}, attrs, "y");
  EXPECT_EQ(message(), "Source 'y' (): attribute '_shape': shape [?] has a negative extent");
}

TEST_F(BuilderTest, wants_required_attributes_of_the_right_type) {
  builder_.add("Source", {}, {{"shape", int64_t{3}}}, "x");
  EXPECT_EQ(message(), "Source 'x' (): attribute 'shape' is of type int; it must be of type shape");
}

TEST_F(BuilderTest, takes_an_int_where_a_float_is_wanted) {
  const NodeId id = builder_.add_node("Anything", {}, {{"float_attr", int64_t{3}}});
  ASSERT_TRUE(id.valid()) << message();
  EXPECT_EQ(attr_or<double>(graph_.node(id).attrs, "float_attr", 0), 3.0);
}

TEST_F(BuilderTest, counts_inputs) {
  builder_.add("Pair", {source({2}, "a")}, {}, "p");
  EXPECT_EQ(message(), "Pair 'p' (float32[2]): 1 inputs given; exactly 2 needed");
}

TEST_F(BuilderTest, rejects_outputs_that_do_not_exist) {
  const Output x = source({2}, "a");
  builder_.add("Pair", {x, Output{x.node, 1}}, {}, "p");
  EXPECT_EQ(message(), "Pair 'p': input 1 is not an output of this graph");
}

TEST_F(BuilderTest, rejects_unknown_ops_and_illegal_names) {
  builder_.add("Sauce", {});
  EXPECT_EQ(builder_.status().code(), StatusCode::kNotFound);
  Builder other(&graph_, &registry_);
  other.add("Source", {}, {{"shape", Shape{1}}}, "a b");
  EXPECT_EQ(other.status().code(), StatusCode::kInvalidArgument);
}

TEST_F(BuilderTest, rejects_shapes_whose_elements_cannot_be_counted) {
  source({int64_t{1} << 40, int64_t{1} << 40});
  EXPECT_EQ(builder_.status().code(), StatusCode::kInvalidArgument);
}

TEST_F(BuilderTest, finds_outputs_by_name) {
  const Output x = source({2}, "x");
  const Output pair = builder_.add("Pair", {x, x}, {}, "pair");
  EXPECT_EQ(*graph_.find_output("pair"), pair);
  EXPECT_EQ(graph_.find_output("pair:1")->index, 1);
  EXPECT_EQ(graph_.output_name(*graph_.find_output("pair:1")), "pair:1");
  EXPECT_EQ(graph_.find_output("pair:2").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(graph_.find_output("pair:-1").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(graph_.find_output("pears").status().code(), StatusCode::kNotFound);
}

TEST(Names, are_what_tensorflow_allows) {
  EXPECT_TRUE(is_legal_name("tower/0/mat_mul-1.x\\>"));
  EXPECT_TRUE(is_legal_name(".hidden"));
  EXPECT_FALSE(is_legal_name(""));
  EXPECT_FALSE(is_legal_name("_x"));
  EXPECT_FALSE(is_legal_name("a:0"));
  EXPECT_FALSE(is_legal_name(std::string(kMaxNameBytes + 1, 'a')));
}

TEST(Attributes, are_equal_bit_by_bit) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(attr_equal(nan, nan));
  EXPECT_FALSE(attr_equal(0.0, -0.0));
  EXPECT_FALSE(attr_equal(int64_t{1}, 1.0));
  EXPECT_TRUE(attr_equal(Tensor::scalar(1.5F), Tensor::scalar(1.5F)));
  EXPECT_FALSE(attr_equal(Tensor::scalar(1.5F), Tensor::scalar(2.5F)));
  EXPECT_FALSE(attr_equal(Tensor::of<float>({2}, std::vector<float>{1, 2}),
                          Tensor::of<float>({1, 2}, std::vector<float>{1, 2})));
}

TEST(ComponentSpecs, come_back_from_their_attributes) {
  const std::vector<TensorSpec> specs = {{DType::kFloat32, Shape({2, -1})},
                                         {DType::kString, Shape::unknown_rank()},
                                         {DType::kInt64, Shape({})}};
  const Result<std::vector<TensorSpec>> again = component_specs(component_attrs(specs));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*again, specs);
}

TEST_F(BuilderTest, what_is_needed_is_found_through_data_and_where_asked_for_through_order) {
  const Output x = source({2}, "x");
  const Output first = source({2}, "first");
  const Output pair = builder_.add("Pair", {x, x}, {}, "pair");
  const Output unused = source({2}, "unused");
  graph_.mutable_node(pair.node).control_inputs = {first.node};
  const std::vector<Output> wanted = {{pair.node, 1}};
  EXPECT_EQ(needed_for(graph_, wanted), (std::vector<bool>{true, true, true, false}));
  EXPECT_EQ(needed_for(graph_, wanted, {}, Edges::kData),
            (std::vector<bool>{true, false, true, false}));
  EXPECT_EQ(needed_for(graph_, {}, std::vector<NodeId>{unused.node}),
            (std::vector<bool>{false, false, false, true}));
}

class VerifyTest : public BuilderTest {
 protected:
  void expect_error(std::string_view part) {
    const Status status = verify(graph_, registry_);
    EXPECT_NE(base::message_of(status).find(part), std::string::npos) << status;
  }
  Output x_ = source({2}, "x");
  Output pair_ = builder_.add("Pair", {x_, x_}, {}, "pair");
};

TEST_F(VerifyTest, accepts_what_a_builder_made) { EXPECT_TRUE(verify(graph_, registry_).ok()); }

TEST_F(VerifyTest, finds_edges_to_later_nodes) {
  graph_.mutable_node(x_.node).inputs = {pair_};
  expect_error("input 0 is not an earlier node\n  in: %0 = Source(%1) name=\"x\"");
}

TEST_F(VerifyTest, finds_outputs_that_do_not_exist) {
  graph_.mutable_node(pair_.node).inputs[1].index = 7;
  expect_error("input 1 is output 7 of 'x', which has 1 outputs");
}

TEST_F(VerifyTest, finds_shapes_that_are_not_what_the_op_makes) {
  graph_.mutable_node(pair_.node).outputs[0].shape = Shape{3};
  expect_error("output 0 is recorded as float32[3]; the op makes float32[2]");
}

TEST_F(VerifyTest, finds_repeated_names) {
  Node copy = graph_.node(x_.node);
  graph_.append(copy);
  expect_error("another node is named 'x' too");
}

TEST_F(VerifyTest, finds_unknown_ops) {
  graph_.mutable_node(x_.node).op = "Sauce";
  expect_error("there is no op named 'Sauce'");
}

}  // namespace
}  // namespace sidereal::ir
