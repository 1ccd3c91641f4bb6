#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sidereal/ir/text.h"
#include "sidereal/ir/verify.h"
#include "sidereal/ops/ops.h"
#include "sidereal/passes/broadcasts.h"
#include "sidereal/passes/fold.h"
#include "sidereal/passes/fuse.h"
#include "sidereal/passes/gather_at_tables.h"
#include "sidereal/passes/simplify.h"
#include "sidereal/passes/testing/lines.h"

// Passes that make a graph smaller: goldens of their text. That results stay the same is tested
// where programs run, in exec.
namespace sidereal::passes {
namespace {

using ir::DType;
using ir::Output;
using ir::Tensor;

class OptimizeTest : public testing::Test {
 protected:
  OptimizeTest() { ops::register_all(&registry_); }

  Output input(const char* name, const ir::Shape& shape) {
    return ops::placeholder(b_, name, DType::kFloat32, shape);
  }

  std::string text_of(const Result<StepGraph>& step) {
    EXPECT_TRUE(step.ok()) << step.status();
    if (!step.ok()) return {};
    const Status status = ir::verify(step->graph, registry_);
    EXPECT_TRUE(status.ok()) << base::message_of(status);
    return ir::to_text(step->graph);
  }

  std::vector<std::string> ops_of(const Result<StepGraph>& step) {
    return lines_of(step, registry_);
  }

  ir::OpRegistry registry_;
  ir::Graph graph_;
  ir::Builder b_{&graph_, &registry_};
};

using testing::ElementsAre;

TEST_F(OptimizeTest, rows_of_a_variable_are_taken_where_it_is) {
  const auto on = [&](const char* device, Output value) {
    graph_.mutable_node(value.node).device = device;
    return value;
  };
  const auto table = [&](int64_t rows) {
    const ir::AttrMap attrs = {{"shared_name", fmt::format("v{}", rows)},
                               {"dtype", DType::kFloat32},
                               {"shape", ir::Shape{rows, 8}}};
    const Output handle = on("/ps", b_.add("Variable", {}, attrs));
    return on("/ps", b_.add("VariableRead", {handle},
                            {{"dtype", DType::kFloat32}, {"shape", ir::Shape{rows, 8}}}));
  };
  const Output ids = on("/w", ops::placeholder(b_, "ids", DType::kInt64, {-1}));
  const auto rows_of = [&](Output from) {
    return on("/w", b_.add("Gather", {from, ids}, {{"axis", int64_t{0}}}));
  };
  const Output large = table(1000);
  const Output moved = rows_of(large);
  const Output small = rows_of(table(10));
  const Output whole = table(2000);
  const Output stays = rows_of(whole);
  const Output sum = on("/w", ops::reduce_sum(b_, whole, {0}));
  const Output fetched = table(3000);
  const Output also = rows_of(fetched);
  const auto got = gather_at_tables({graph_, {moved, small, stays, sum, fetched, also}, {}});
  ASSERT_TRUE(got.ok()) << got.status();
  const auto device = [&](Output value) { return got->graph.node(value.node).device; };
  EXPECT_EQ(device(moved), "/ps");
  for (const Output value : {small, stays, sum, also, ids}) EXPECT_EQ(device(value), "/w");
}

TEST_F(OptimizeTest, element_wise_nodes_become_one) {
  const Output x = input("x", {-1, 4});
  const Output y = input("y", {-1, 4});
  const Output s = ops::scalar(b_, DType::kFloat32, 3, "s");
  const Output a = ops::mul(b_, x, s, "a");
  const Output c = ops::add(b_, a, ops::tanh(b_, y, "t"), "c");
  const Output z = ops::sub(b_, c, x, "z");
  EXPECT_THAT(ops_of(fuse({graph_, {z}, {}}, registry_)),
              ElementsAre("z = FusedElementwise x s y; Mul %0 %1; Tanh %2; Add %3 %4; Sub %5 %0"));
}

TEST_F(OptimizeTest, a_sum_of_several_is_a_step_for_every_term) {
  const Output x = input("x", {-1, 4});
  const Output y = input("y", {-1, 4});
  const Output sum = b_.add("AddN", {ops::neg(b_, x, "n"), y, x}, {}, "sum");
  const Output t = ops::tanh(b_, sum, "t");
  EXPECT_THAT(
      ops_of(fuse({graph_, {t}, {}}, registry_)),
      ElementsAre("t = FusedElementwise x y; Neg %0; AddSame %2 %1; AddSame %3 %0; Tanh %4"));
  const Output alone = b_.add("AddN", {x, y}, {}, "alone");
  EXPECT_THAT(ops_of(fuse({graph_, {alone, sum}, {}}, registry_)),
              testing::Contains("alone = AddN x y"));
}

TEST_F(OptimizeTest, a_value_that_is_needed_elsewhere_is_not_swallowed) {
  const Output x = input("x", {8});
  const Output a = ops::neg(b_, x, "a");
  const Output both = ops::exp(b_, a, "both");
  const Output left = ops::tanh(b_, both, "left");
  const Output right = ops::relu(b_, both, "right");
  EXPECT_THAT(ops_of(fuse({graph_, {left, right}, {}}, registry_)),
              ElementsAre("both = FusedElementwise x; Neg %0; Exp %1", "left = Tanh both",
                          "right = Relu both"));
  EXPECT_THAT(ops_of(fuse({graph_, {a, left, right}, {}}, registry_)),
              ElementsAre("a = Neg x", "both = Exp a", "left = Tanh both", "right = Relu both"));
}

TEST_F(OptimizeTest, nodes_of_other_shapes_places_and_orders_stay_apart) {
  const Output x = input("x", {8});
  const Output small = ops::neg(b_, input("y", {}), "small");
  const Output sum = ops::add(b_, x, small, "sum");
  const Output z = ops::relu(b_, sum, "z");
  EXPECT_THAT(ops_of(fuse({graph_, {z}, {}}, registry_)),
              ElementsAre("small = Neg y", "z = FusedElementwise x small; Add %0 %1; Relu %2"));
  graph_.mutable_node(sum.node).control_inputs = {small.node};
  EXPECT_THAT(ops_of(fuse({graph_, {z}, {}}, registry_)),
              ElementsAre("small = Neg y", "sum = Add x small", "z = Relu sum"));
  graph_.mutable_node(sum.node).control_inputs = {};
  graph_.mutable_node(z.node).device = "/ps";
  EXPECT_THAT(ops_of(fuse({graph_, {z}, {}}, registry_)),
              ElementsAre("small = Neg y", "sum = Add x small", "z = Relu sum"));
}

TEST_F(OptimizeTest, a_layer_becomes_one_node) {
  const Output x = input("x", {-1, 4});
  const Output w = input("w", {4, 3});
  const Output bias = input("bias", {3});
  const Output y = ops::relu(b_, ops::bias_add(b_, ops::mat_mul(b_, x, w), bias, "add"), "y");
  const Output z = ops::tanh(
      b_, ops::bias_add(b_, ops::mat_mul(b_, y, w, false, true, "m"), input("bias4", {4}), "out"),
      "z");
  EXPECT_THAT(
      ops_of(fuse({graph_, {z}, {}}, registry_)),
      ElementsAre("y = FusedMatMul x w bias; Relu", "out = FusedMatMul y w bias4", "z = Tanh out"));
}

TEST_F(OptimizeTest, ops_that_broadcast_read_what_was_not_yet_broadcast) {
  const Output x = input("x", {-1, 1, 4});
  const Output y = input("y", {-1, -1, 4});
  const Output like = b_.add("BroadcastLike", {x, y}, {}, "like");
  const Output to = b_.add("BroadcastTo", {x, b_.add("Shape", {y}, {}, "shape")}, {}, "to");
  const Output a = ops::mul(b_, like, y, "a");
  const Output b = ops::sub(b_, y, to, "b");
  EXPECT_THAT(ops_of(drop_broadcasts({graph_, {a, b}, {}}, registry_)),
              ElementsAre("a = Mul x y", "b = Sub y x"));
  // Another value may itself be broadcast when the shapes are known.
  const Output z = ops::add(b_, like, input("z", {-1, -1, 4}), "z_sum");
  EXPECT_THAT(ops_of(drop_broadcasts({graph_, {z}, {}}, registry_)),
              ElementsAre("like = BroadcastLike x y", "z_sum = Add like z"));
  const Output known =
      b_.add("BroadcastTo", {input("r", {4})}, {{"shape", std::vector<int64_t>{2, 4}}}, "known");
  const Output w = ops::maximum(b_, known, input("s", {2, 4}), "w");
  EXPECT_THAT(ops_of(drop_broadcasts({graph_, {w}, {}}, registry_)),
              ElementsAre("w = Maximum r s"));
}

TEST_F(OptimizeTest, nodes_that_change_nothing_go) {
  const Output x = input("x", {2, 3});
  const Output one = ops::scalar(b_, DType::kFloat32, 1, "one");
  const Output a = ops::mul(b_, one, ops::identity(b_, x), "a");
  const Output n = ops::neg(b_, ops::neg(b_, a), "n");
  const Output r = ops::reshape(b_, ops::cast(b_, n, DType::kFloat32), {2, -1}, "r");
  const Output z = ops::exp(b_, ops::div(b_, r, one), "z");
  EXPECT_THAT(ops_of(simplify({graph_, {z}, {}})), ElementsAre("z = Exp x"));
  // What is fetched keeps its node.
  EXPECT_THAT(ops_of(simplify({graph_, {a}, {}})), ElementsAre("a = Mul one x"));
}

TEST_F(OptimizeTest, pieces_of_pieces_are_taken_from_the_whole) {
  const Output x = input("x", {-1, 90});
  const Output outer = ops::slice_axis(b_, x, 1, 10, 60, "outer");
  const Output inner = ops::slice_axis(b_, outer, -1, 20, 30, "inner");
  const Output all = ops::slice_axis(b_, input("y", {2, 30}), 1, 0, 30, "all");
  const Output z = ops::neg(b_, inner, "z");
  const Output w = ops::neg(b_, all, "w");
  const auto simple = simplify({graph_, {z, w}, {}});
  EXPECT_THAT(ops_of(simple), ElementsAre("inner = SliceAxis x", "z = Neg inner", "w = Neg y"));
  EXPECT_EQ(ir::attr_or<int64_t>(simple->graph.find("inner")->attrs, "begin", 0), 30);
  const Output rows = ops::slice_axis(b_, outer, 0, 1, 2, "rows");
  const Output n = ops::neg(b_, rows, "n");
  EXPECT_THAT(ops_of(simplify({graph_, {n}, {}})), testing::Contains("rows = SliceAxis outer"));
}

TEST_F(OptimizeTest, what_is_joined_twice_is_joined_at_once) {
  const Output x = input("x", {-1, 4});
  const Output y = input("y", {-1, 5});
  const Output both = ops::concat(b_, {x, y}, -1, "both");
  const Output more = ops::concat(b_, {y, both, x}, 1, "more");
  EXPECT_THAT(ops_of(simplify({graph_, {more}, {}})), ElementsAre("more = Concat y x y x"));
  const Output also = ops::neg(b_, both, "also");
  EXPECT_THAT(ops_of(simplify({graph_, {more, also}, {}})),
              ElementsAre("both = Concat x y", "more = Concat y both x", "also = Neg both"));
}

TEST_F(OptimizeTest, constants_are_folded_by_whoever_can_calculate) {
  const Output two = ops::scalar(b_, DType::kFloat32, 2, "two");
  const Output four = ops::square(b_, two, "four");
  const Output z = ops::mul(b_, input("x", {3}), ops::neg(b_, four, "minus"), "z");
  const Evaluate evaluate = [](const ir::Node& node,
                               const std::vector<Tensor>& in) -> Result<std::vector<Tensor>> {
    const float x = in[0].data<const float>()[0];
    if (node.op == "Square") return std::vector<Tensor>{Tensor::scalar(x * x)};
    return base::unimplemented("cannot");
  };
  const auto folded = fold_constants({graph_, {z}, {}}, registry_, evaluate);
  EXPECT_THAT(ops_of(folded), ElementsAre("minus = Neg four", "z = Mul x minus"));
  const ir::Node* node = folded->graph.find("four");
  ASSERT_NE(node, nullptr);
  EXPECT_EQ(node->op, "Const");
  EXPECT_EQ(ir::find_attr<Tensor>(node->attrs, "value")->data<const float>()[0], 4);
}

TEST_F(OptimizeTest, first_values_are_not_folded_into_the_graph) {
  const ops::Initializer how{"uniform", -1, 1, 7};
  const Output first = ops::initial_value(b_, how, "w", {2}, 0, 1, "first");
  const Output z = ops::neg(b_, first, "z");
  int asked = 0;
  const Evaluate evaluate = [&](const ir::Node&, const std::vector<Tensor>&) {
    ++asked;
    return Result<std::vector<Tensor>>(base::unimplemented("must not be asked"));
  };
  const auto folded = fold_constants({graph_, {z}, {}}, registry_, evaluate);
  EXPECT_THAT(ops_of(folded), ElementsAre("first = InitialValue", "z = Neg first"));
  EXPECT_EQ(asked, 0);
}

}  // namespace
}  // namespace sidereal::passes
