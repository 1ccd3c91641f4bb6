#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sidereal/ir/text.h"
#include "sidereal/ir/verify.h"
#include "sidereal/ops/ops.h"
#include "sidereal/passes/cse.h"
#include "sidereal/passes/pipeline.h"
#include "sidereal/passes/prune.h"

namespace sidereal::passes {
namespace {

using ir::DType;
using ir::NodeId;
using ir::Output;
using testing::HasSubstr;

class PassesTest : public testing::Test {
 protected:
  PassesTest() { ops::register_all(&registry_); }

  /// The handle of a variable of two elements.
  Output variable(const std::string& name) {
    return b_.add("Variable", {},
                  {{"shared_name", name}, {"dtype", DType::kFloat32}, {"shape", ir::Shape{2}}},
                  name);
  }
  Output read(Output handle, const std::vector<NodeId>& after = {}) {
    const ir::AttrMap attrs = {{"dtype", DType::kFloat32}, {"shape", ir::Shape{2}}};
    return {b_.add_node("VariableRead", {handle}, attrs, after), 0};
  }
  NodeId change(Output handle, Output value, std::string_view name) {
    return b_.add_node("VariableAssignSub", {handle, value}, {}, {}, name);
  }

  /// x + bias, and a change of bias.
  void build_step() {
    const Output x = ops::placeholder(b_, "x", DType::kFloat32, {-1, 2});
    const Output bias = variable("bias");
    sum_ = ops::add(b_, x, read(bias), "sum");
    const Output grad = ops::reduce_sum(b_, sum_, {0}, false, "grad");
    train_ = ops::no_op(b_, {change(bias, grad, "update")}, "train");
  }

  std::string verified_text(const ir::Graph& graph) {
    const Status status = ir::verify(graph, registry_);
    EXPECT_TRUE(status.ok()) << base::message_of(status);
    return ir::to_text(graph);
  }

  ir::OpRegistry registry_;
  ir::Graph graph_;
  ir::Builder b_{&graph_, &registry_};
  Output sum_;
  NodeId train_;
};

TEST_F(PassesTest, PruneKeepsWhatDataAndControlEdgesReach) {
  const Output x = ops::placeholder(b_, "x", DType::kFloat32, {2});
  ops::neg(b_, x, "unused");
  const Output bias = variable("bias");
  const NodeId barrier = ops::no_op(b_, {change(bias, x, "side")}, "barrier");
  const Output value = read(bias, {barrier});
  ASSERT_TRUE(b_.status().ok()) << base::message_of(b_.status());
  const auto pruned = prune({graph_, {value}, {}});
  ASSERT_TRUE(pruned.ok());
  EXPECT_EQ(verified_text(pruned->graph), R"(sidereal-graph 1
%0 = Placeholder() name="x" {dtype=float32, shape=shape[2]} : float32[2]
%1 = Variable() name="bias" {dtype=float32, shape=shape[2], shared_name="bias"} : string[]
%2 = VariableAssignSub(%1, %0) name="side" : float32[2]
%3 = NoOp() name="barrier" after(%2)
%4 = VariableRead(%1) name="VariableRead" {dtype=float32, shape=shape[2]} after(%3) : float32[2]
)");
  EXPECT_EQ(pruned->graph.output_name(pruned->fetches[0]), "VariableRead");
}

TEST_F(PassesTest, PruneNamesAFetchWithoutAValue) {
  build_step();
  const auto pruned = prune({graph_, {{train_, 0}}, {}});
  EXPECT_EQ(pruned.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(base::message_of(pruned.status()), HasSubstr("make it a target instead"));
  EXPECT_FALSE(prune({graph_, {}, {NodeId(99)}}).ok());
}

TEST_F(PassesTest, MergeKeepsTheFirstOfEqualNodes) {
  const Output x = ops::placeholder(b_, "x", DType::kFloat32, {2});
  const Output y = ops::placeholder(b_, "y", DType::kFloat32, {2});
  const Output one = ops::scalar(b_, DType::kFloat32, 1);
  const Output uno = ops::scalar(b_, DType::kFloat32, 1);
  const Output two = ops::scalar(b_, DType::kFloat32, 2);
  const Output a = ops::add(b_, x, one, "a");
  const Output c = ops::add(b_, x, uno, "c");
  const Output d = ops::add(b_, x, two, "d");
  const Output e = ops::add(b_, y, one, "e");
  const Output bias = variable("bias");
  const Output r1 = read(bias);
  const Output r2 = read(bias);
  const auto merged = merge_common_subexpressions({graph_, {a, c, d, e, r1, r2}, {}}, registry_);
  ASSERT_TRUE(merged.ok());
  EXPECT_EQ(verified_text(merged->graph), R"(sidereal-graph 1
%0 = Placeholder() name="x" {dtype=float32, shape=shape[2]} : float32[2]
%1 = Placeholder() name="y" {dtype=float32, shape=shape[2]} : float32[2]
%2 = Const() name="Const" {value=float32[]{1}} : float32[]
%3 = Const() name="Const_2" {value=float32[]{2}} : float32[]
%4 = Add(%0, %2) name="a" : float32[2]
%5 = Add(%0, %3) name="d" : float32[2]
%6 = Add(%1, %2) name="e" : float32[2]
%7 = Variable() name="bias" {dtype=float32, shape=shape[2], shared_name="bias"} : string[]
%8 = VariableRead(%7) name="VariableRead" {dtype=float32, shape=shape[2]} : float32[2]
%9 = VariableRead(%7) name="VariableRead_1" {dtype=float32, shape=shape[2]} : float32[2]
)");
  EXPECT_EQ(merged->fetches[0], merged->fetches[1]);
  EXPECT_NE(merged->fetches[4], merged->fetches[5]);
}

/// An optimizer makes its rate beside each variable.
TEST_F(PassesTest, MergeTakesEqualNodesThatNotesTellApart) {
  const auto rate = [this](float value, const char* beside) {
    return b_.add("Const", {},
                  {{"value", tensor::Tensor::scalar(value)},
                   {"_class", std::vector<std::string>{fmt::format("loc:@{}", beside)}}});
  };
  const Output plain = ops::scalar(b_, DType::kFloat32, 1);
  const std::vector<Output> all = {plain, rate(1, "v0"), rate(1, "v1"), rate(2, "v0")};
  const auto merged = merge_common_subexpressions({graph_, all, {}}, registry_);
  ASSERT_TRUE(merged.ok());
  EXPECT_EQ(merged->fetches[0], merged->fetches[1]);
  EXPECT_EQ(merged->fetches[1], merged->fetches[2]);
  EXPECT_NE(merged->fetches[2], merged->fetches[3]);
}

TEST_F(PassesTest, TheSamePlanComesFromTheSameGraph) {
  build_step();
  const auto one = run_passes(graph_, {sum_}, {train_}, registry_);
  const auto two = run_passes(graph_, {sum_}, {train_}, registry_);
  ASSERT_TRUE(one.ok()) << base::message_of(one.status());
  EXPECT_EQ(ir::to_text(one->graph), ir::to_text(two->graph));
}

}  // namespace
}  // namespace sidereal::passes
