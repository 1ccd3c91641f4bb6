#include "sidereal/ops/ops.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "sidereal/ir/text.h"
#include "sidereal/ir/verify.h"

namespace sidereal::ops {
namespace {

using ir::DType;
using ir::Output;
using ir::Shape;
using ir::Tensor;

class OpsTest : public ::testing::Test {
 protected:
  OpsTest() { register_all(&registry_); }

  Output input(const Shape& shape, DType dtype = DType::kFloat32) {
    return placeholder(b_, "x", dtype, shape);
  }
  std::string shape_of(Output o) const {
    return b_.status().ok() ? to_string(b_.spec(o)) : base::message_of(b_.status());
  }
  std::string error() const { return base::message_of(b_.status()); }

  ir::OpRegistry registry_;
  ir::Graph graph_;
  ir::Builder b_{&graph_, &registry_};
};

TEST_F(OpsTest, binary_ops_broadcast_known_and_unknown_extents) {
  EXPECT_EQ(shape_of(add(b_, input({-1, 3}), input({3}))), "float32[?,3]");
  EXPECT_EQ(shape_of(add(b_, input({-1, 1}), input({4, 3}))), "float32[4,3]");
  EXPECT_EQ(shape_of(add(b_, input({-1, 3}), input({1, 3}))), "float32[?,3]");
  EXPECT_EQ(shape_of(add(b_, input({-1, 3}), input({-1, 3}))), "float32[?,3]");
  EXPECT_EQ(shape_of(mul(b_, input({}), input({2, 0}))), "float32[2,0]");
  EXPECT_EQ(shape_of(sub(b_, input(Shape::unknown_rank()), input({2}))), "float32?");
}

TEST_F(OpsTest, binary_ops_say_which_extents_differ) {
  add(b_, input({2, 3}), input({4}), "sum");
  EXPECT_EQ(error(),
            "Add 'sum' (float32[2,3], float32[4]): shapes [2,3] and [4] cannot be broadcast "
            "together: extents 3 and 4 differ and neither is 1");
}

TEST_F(OpsTest, arithmetic_takes_one_float_dtype) {
  add(b_, input({2}), input({2}, DType::kFloat64), "sum");
  EXPECT_EQ(error(),
            "Add 'sum' (float32[2], float64[2]): inputs are of dtypes float32 and float64; cast "
            "them to one dtype");
}

TEST_F(OpsTest, first_values_of_parts_have_every_so_many_rows) {
  const ops::Initializer how{"uniform", -1, 1, 7};
  const auto part = [&](const Shape& whole, int64_t i, int64_t parts) {
    return shape_of(initial_value(b_, how, "w", whole, i, parts));
  };
  EXPECT_EQ(part({}, 0, 1), "float32[]");
  EXPECT_EQ(part({7, 3}, 0, 1), "float32[7,3]");
  EXPECT_EQ(part({7, 3}, 0, 3), "float32[3,3]");
  EXPECT_EQ(part({7, 3}, 1, 3), "float32[2,3]");
  EXPECT_EQ(part({2}, 1, 3), "float32[1]");
  EXPECT_EQ(part({2}, 2, 3), "float32[0]");
  initial_value(b_, how, "w", {-1, 3}, 0, 1, "first");
  EXPECT_NE(error().find("InitialValue 'first'"), std::string::npos) << error();
  EXPECT_NE(error().find("[?,3]"), std::string::npos) << error();
}

TEST_F(OpsTest, mat_mul_says_which_extents_differ) {
  {
    const ir::Builder::Scope scope = b_.scope("tower");
    mat_mul(b_, input({-1, 8}), input({9, 4}), false, false, "0");
  }
  EXPECT_EQ(error(),
            "MatMul 'tower/0' (float32[?,8], float32[9,4]): inner extents 8 and 9 differ; the "
            "columns of the first matrix must be the rows of the second (transpose_a=false, "
            "transpose_b=false)");
}

TEST_F(OpsTest, mat_mul_infers_what_transposes_leave) {
  EXPECT_EQ(shape_of(mat_mul(b_, input({-1, 8}), input({8, 4}))), "float32[?,4]");
  EXPECT_EQ(shape_of(mat_mul(b_, input({8, -1}), input({4, 8}), true, true)), "float32[?,4]");
}

TEST_F(OpsTest, reductions_drop_or_keep_axes) {
  EXPECT_EQ(shape_of(reduce_sum(b_, input({-1, 3, 2}), {1})), "float32[?,2]");
  EXPECT_EQ(shape_of(reduce_sum(b_, input({-1, 3, 2}), {-1, 0}, true)), "float32[1,3,1]");
  EXPECT_EQ(shape_of(reduce_mean(b_, input({-1, 3, 2}))), "float32[]");
}

TEST_F(OpsTest, reductions_reject_axes_named_twice) {
  reduce_sum(b_, input({2, 3}), {1, -1}, false, "r");
  EXPECT_EQ(error(), "ReduceSum 'r' (float32[2,3]): axis 1 is named twice");
}

TEST_F(OpsTest, reshape_copies_and_fills_extents) {
  EXPECT_EQ(shape_of(reshape(b_, input({-1, 26, 16}), {0, 416})), "float32[?,416]");
  EXPECT_EQ(shape_of(reshape(b_, input({-1, 26, 16}), {0, -1})), "float32[?,416]");
  EXPECT_EQ(shape_of(reshape(b_, input({-1, 26, 16}), {-1, 416})), "float32[?,416]");
  EXPECT_EQ(shape_of(reshape(b_, input({6}), {2, -1})), "float32[2,3]");
  EXPECT_EQ(shape_of(reshape(b_, input({}), {1, 1})), "float32[1,1]");
}

TEST_F(OpsTest, reshape_says_what_does_not_fit) {
  reshape(b_, input({-1, 26, 16}), {0, 400}, "flat");
  EXPECT_EQ(error(),
            "Reshape 'flat' (float32[?,26,16]): 416 elements cannot be laid out as "
            "[?,400]");
}

TEST_F(OpsTest, concat_adds_up_extents) {
  EXPECT_EQ(shape_of(concat(b_, {input({-1, 3}), input({-1, 4})}, 1)), "float32[?,7]");
  EXPECT_EQ(shape_of(concat(b_, {input({-1, 3}), input({2, 3})}, 0)), "float32[?,3]");
  EXPECT_EQ(shape_of(concat(b_, {input({-1, 3}), input({2, -1})}, -1)), "float32[2,?]");
}

TEST_F(OpsTest, slice_and_pad_change_one_axis) {
  EXPECT_EQ(shape_of(slice_axis(b_, input({-1, 5}), 1, 1, 3)), "float32[?,3]");
  EXPECT_EQ(shape_of(pad_axis(b_, input({-1, 5}), -1, 1, 3)), "float32[?,9]");
  slice_axis(b_, input({-1, 5}), 1, 3, 3, "cut");
  EXPECT_EQ(error(),
            "SliceAxis 'cut' (float32[?,5]): 3 elements from 3 on are not in an axis of extent 5");
}

TEST_F(OpsTest, bias_add_takes_the_last_extent) {
  EXPECT_EQ(shape_of(bias_add(b_, input({-1, -1}), input({4}))), "float32[?,4]");
  bias_add(b_, input({-1, 3}), input({4}), "bias");
  EXPECT_EQ(error(),
            "BiasAdd 'bias' (float32[?,3], float32[4]): the bias has 4 elements; the last extent "
            "is 3");
}

TEST_F(OpsTest, dropout_wants_a_rate_below_one) {
  EXPECT_EQ(shape_of(dropout(b_, input({-1, 3}), 0.5, 1, true)), "float32[?,3]");
  dropout(b_, input({-1, 3}), 1, 1, true, "drop");
  EXPECT_EQ(error(),
            "Dropout 'drop' (float32[?,3]): rate is 1; it must be at least 0 and less than 1");
}

TEST_F(OpsTest, route_has_an_output_per_shard_and_one_for_the_positions) {
  const ir::NodeId route =
      b_.add_node("Route", {input({-1}, DType::kInt64)},
                  {{"rows", int64_t{10}}, {"lanes", std::vector<int64_t>{2, 1}}});
  ASSERT_TRUE(route.valid()) << error();
  EXPECT_EQ(graph_.node(route).outputs.size(), 4);
}

TEST_F(OpsTest, every_graph_a_builder_made_verifies) {
  const Output x = input({-1, 3});
  const Output y = relu(b_, bias_add(b_, mat_mul(b_, x, input({3, 4})), input({4})));
  no_op(b_, {y.node});
  ASSERT_TRUE(b_.status().ok()) << error();
  EXPECT_TRUE(ir::verify(graph_, registry_).ok());
}

TEST_F(OpsTest, the_example_of_the_text_format_is_a_graph) {
  const std::ifstream file("docs/formats/graph_text.md");
  ASSERT_TRUE(file.is_open()) << "run from the root of the repository";
  std::stringstream page;
  page << file.rdbuf();
  const std::string all = page.str();
  const size_t begin = all.find("```\n") + 4;
  const std::string example = all.substr(begin, all.find("```", begin) - begin);
  const auto graph = ir::from_text(example, registry_);
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(ir::to_text(*graph), example);
}

}  // namespace
}  // namespace sidereal::ops
