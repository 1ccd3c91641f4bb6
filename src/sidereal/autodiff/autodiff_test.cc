#include "sidereal/autodiff/autodiff.h"

#include <gtest/gtest.h>

#include "sidereal/ir/text.h"
#include "sidereal/ops/ops.h"
#include "sidereal/reference/reference.h"

namespace sidereal::autodiff {
namespace {

using ir::DType;
using ir::Output;
using ir::Shape;
using ir::Tensor;
using reference::Values;

class AutodiffTest : public ::testing::Test {
 protected:
  AutodiffTest() { ops::register_all(&registry_); }

  Output input(const Shape& shape, std::string_view name = "x", DType dtype = DType::kFloat32) {
    return ops::placeholder(b_, name, dtype, shape);
  }
  std::vector<float> run(Output fetch, const Values& feeds) {
    const auto result = reference::evaluate(
        graph_, {.feeds = feeds, .fetches = {fetch}, .targets = {}, .variables = &variables_});
    EXPECT_TRUE(result.ok()) << result.status();
    if (!result.ok()) return {};
    const auto data = (*result)[0].data<float>();
    return {data.begin(), data.end()};
  }
  static Tensor floats(const Shape& shape, const std::vector<float>& values) {
    return Tensor::of<float>(shape, values);
  }
  static Tensor ids(const std::vector<int64_t>& values) {
    return Tensor::of<int64_t>({static_cast<int64_t>(values.size())}, values);
  }
  /// A table of rows {1, 2}, {3, 4}, {5, 6}, {7, 8}.
  Output make_table() {
    variables_["table"] = floats({4, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
    return ops::variable(b_, "table", DType::kFloat32, {4, 2});
  }
  using Floats = std::vector<float>;

  Values variables_;
  ir::OpRegistry registry_;
  ir::Graph graph_;
  ir::Builder b_{&graph_, &registry_};
};

TEST_F(AutodiffTest, sums_the_gradients_of_a_value_used_twice) {
  const Output x = input({2});
  const Output loss = ops::add(b_, ops::square(b_, x), ops::mul(b_, x, x));
  const auto grads = gradients(b_, loss, {x});
  ASSERT_TRUE(grads.ok()) << grads.status();
  EXPECT_EQ(run((*grads)[0], {{"x", floats({2}, {1, 3})}}), (Floats{4, 12}));
}

TEST_F(AutodiffTest, differentiates_by_values_inside_the_graph) {
  const Output x = input({});
  const Output y = ops::square(b_, x);
  const Output loss = ops::exp(b_, y);
  const auto grads = gradients(b_, loss, {y, loss, x});
  ASSERT_TRUE(grads.ok()) << grads.status();
  const Values feeds = {{"x", floats({}, {1})}};
  EXPECT_EQ(run((*grads)[1], feeds), (Floats{1}));
  EXPECT_FLOAT_EQ(run((*grads)[0], feeds)[0], 2.7182818F);
  EXPECT_FLOAT_EQ(run((*grads)[2], feeds)[0], 2 * 2.7182818F);
}

TEST_F(AutodiffTest, gives_nothing_where_no_gradient_flows) {
  const Output x = input({2}, "x");
  const Output unused = input({2}, "unused");
  const Output stopped = input({2}, "stopped");
  const Output whole = input({2}, "whole", DType::kInt64);
  const Output loss =
      ops::add_n(b_, {x, ops::stop_gradient(b_, stopped), ops::cast(b_, whole, DType::kFloat32)});
  const auto grads = gradients(b_, loss, {x, unused, stopped, whole, Output{}});
  ASSERT_TRUE(grads.ok()) << grads.status();
  EXPECT_TRUE((*grads)[0].valid());
  for (size_t i = 1; i < grads->size(); ++i) EXPECT_FALSE((*grads)[i].valid()) << i;
}

TEST_F(AutodiffTest, names_the_op_without_gradient_on_a_path) {
  const Output x = input({2});
  const Output g = b_.add("Trigamma", {x}, {}, "odd");
  const auto grads = gradients(b_, g, {x});
  EXPECT_EQ(grads.status().code(), StatusCode::kUnimplemented);
  EXPECT_EQ(base::message_of(grads.status()),
            "Trigamma 'odd' lies between the loss and what it is differentiated by, and Trigamma "
            "has no gradient; put StopGradient before or after it if none should flow");
}

TEST_F(AutodiffTest, does_not_mind_ops_without_gradient_off_the_path) {
  const Output x = input({2}, "x");
  const Output other = input({2}, "other");
  const Output loss = ops::mul(b_, x, b_.add("Trigamma", {other}));
  EXPECT_TRUE(gradients(b_, loss, {x}).ok());
}

TEST_F(AutodiffTest, rejects_a_loss_that_is_not_a_float) {
  const Output whole = input({}, "whole", DType::kInt64);
  EXPECT_EQ(base::message_of(gradients(b_, whole, {whole}).status()),
            "the loss is int64; it must be an output of a float dtype");
  EXPECT_FALSE(gradients(b_, Output{}, {}).ok());
}

TEST_F(AutodiffTest, makes_the_same_nodes_in_every_run) {
  std::string texts[2];
  for (std::string& text : texts) {
    ir::Graph graph;
    ir::Builder b(&graph, &registry_);
    const Output x = ops::placeholder(b, "x", DType::kFloat32, {-1, 3});
    Output y = x;
    for (int i = 0; i < 5; ++i) y = ops::add(b, ops::tanh(b, y), ops::mul(b, x, y));
    ASSERT_TRUE(gradients(b, y, {x}).ok());
    text = ir::to_text(graph);
  }
  EXPECT_EQ(texts[0], texts[1]);
}

TEST_F(AutodiffTest, sums_several_reads_of_a_variable) {
  const Output w = ops::variable(b_, "w", DType::kFloat32, {2});
  variables_["w"] = floats({2}, {5, 7});
  const Output first = ops::variable_read(b_, w);
  const Output second = ops::variable_read(b_, w);
  const auto grads = variable_gradients(b_, ops::mul(b_, first, second), {w});
  ASSERT_TRUE(grads.ok()) << grads.status();
  ASSERT_EQ(grads->size(), 1U);
  EXPECT_EQ((*grads)[0].handle, w);
  EXPECT_FALSE((*grads)[0].sparse);
  EXPECT_EQ(run((*grads)[0].grad, {}), (Floats{10, 14}));
}

TEST_F(AutodiffTest, gives_ids_and_rows_for_one_look_up) {
  const Output table = make_table();
  const Output wanted = input({-1}, "ids", DType::kInt64);
  const Output rows = ops::embedding_lookup(b_, wanted, {table}, 4, 2);
  const auto grads = variable_gradients(b_, ops::square(b_, rows), {table});
  ASSERT_TRUE(grads.ok()) << grads.status();
  ASSERT_EQ(grads->size(), 1U);
  EXPECT_TRUE((*grads)[0].sparse);
  EXPECT_EQ((*grads)[0].ids, wanted);
  EXPECT_EQ(run((*grads)[0].grad, {{"ids", ids({2, -1})}}), (Floats{10, 12, 0, 0}));
}

TEST_F(AutodiffTest, joins_several_look_ups_in_one_table) {
  const Output table = make_table();
  const Output one = input({-1}, "one", DType::kInt64);
  const Output two = input({-1, 1}, "two", DType::kInt64);
  const auto look_up = [&](Output at) { return ops::embedding_lookup(b_, at, {table}, 4, 2); };
  const Output first = ops::reduce_sum(b_, look_up(one));
  const Output second = ops::reduce_sum(b_, ops::square(b_, look_up(two)));
  const auto grads = variable_gradients(b_, ops::add(b_, first, second), {table});
  ASSERT_TRUE(grads.ok()) << grads.status();
  ASSERT_EQ(grads->size(), 1U);
  EXPECT_EQ(to_string(b_.spec((*grads)[0].ids)), "int64[?]");
  EXPECT_EQ(to_string(b_.spec((*grads)[0].grad)), "float32[?,2]");
  const Values feeds = {{"one", ids({3, 0})},
                        {"two", Tensor::of<int64_t>({1, 1}, std::vector<int64_t>{3})}};
  EXPECT_EQ(run((*grads)[0].grad, feeds), (Floats{1, 1, 1, 1, 14, 16}));
}

TEST_F(AutodiffTest, leaves_variables_alone_that_are_not_asked_for) {
  const Output w = ops::variable(b_, "w", DType::kFloat32, {2});
  const Output v = ops::variable(b_, "v", DType::kFloat32, {2});
  const Output loss = ops::mul(b_, ops::variable_read(b_, w), ops::variable_read(b_, v));
  const auto grads = variable_gradients(b_, loss, {v});
  ASSERT_TRUE(grads.ok()) << grads.status();
  ASSERT_EQ(grads->size(), 1U);
  EXPECT_EQ((*grads)[0].handle, v);
  const auto none = variable_gradients(b_, ops::square(b_, input({}, "x")), {v});
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_TRUE(none->empty());
}

TEST_F(AutodiffTest, differentiates_joins_and_cuts_of_unknown_extents) {
  const Output x = input({-1, 2});
  const Output rows = ops::concat(b_, {x, x}, 0, "rows");
  const Output loss = ops::slice_axis(b_, ops::pad_axis(b_, rows, 0, 1, 2), 0, 0, 1);
  const auto grads = gradients(b_, loss, {x});
  ASSERT_TRUE(grads.ok()) << grads.status();
  EXPECT_EQ(b_.spec((*grads)[0]).shape, (ir::Shape{-1, 2}));
}

TEST_F(AutodiffTest, names_the_node_when_its_gradient_needs_a_rank) {
  const Output x = input(ir::Shape::unknown_rank());
  const Output loss = ops::slice_axis(b_, x, 0, 0, 1, "row");
  EXPECT_EQ(base::message_of(gradients(b_, loss, {x}).status()),
            "gradient of SliceAxis 'row': the gradient of SliceAxis needs a known rank");
}

}  // namespace
}  // namespace sidereal::autodiff
