#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sidereal/ir/text.h"
#include "sidereal/ir/verify.h"
#include "sidereal/ops/ops.h"
#include "sidereal/passes/cse.h"
#include "sidereal/passes/expand.h"
#include "sidereal/passes/pipeline.h"
#include "sidereal/passes/place.h"
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

  void SetUp() override {
    ir::VariableDef table;
    table.name = "table";
    table.shape = {10, 2};
    table.embedding = true;
    b_.variable(table);
    ir::VariableDef bias;
    bias.name = "bias";
    bias.shape = {2};
    b_.variable(bias);
  }

  /// lookup + bias, and the update of both.
  void build_step() {
    const Output ids = ops::placeholder(b_, "ids", DType::kInt64, {-1});
    const Output rows = ops::lookup(b_, "table", ids, "rows");
    const Output bias = ops::read_variable(b_, "bias", "read");
    sum_ = ops::add(b_, rows, bias, "sum");
    apply_ = ops::apply_sparse(b_, "table", ids, sum_, "push");
    const Output grad = ops::reduce_sum(b_, sum_, {0}, false, "grad");
    dense_ = ops::apply_dense(b_, "bias", grad, "update");
    train_ = ops::no_op(b_, {apply_, dense_}, "train");
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
  NodeId apply_;
  NodeId dense_;
  NodeId train_;
};

TEST_F(PassesTest, PruneKeepsWhatDataAndControlEdgesReach) {
  const Output x = ops::placeholder(b_, "x", DType::kFloat32, {2});
  ops::neg(b_, x, "unused");
  const NodeId side = ops::apply_dense(b_, "bias", x, "side");
  const NodeId barrier = ops::no_op(b_, {side}, "barrier");
  const NodeId read = b_.add_node("ReadVariable", {}, {{"var", std::string("bias")}}, {barrier});
  ASSERT_TRUE(b_.status().ok()) << base::message_of(b_.status());
  const auto pruned = prune({graph_, {{read, 0}}, {}});
  ASSERT_TRUE(pruned.ok());
  EXPECT_EQ(verified_text(pruned->graph), R"(sidereal-graph 1
var "table" float32[10,2] embedding
var "bias" float32[2]
%0 = Placeholder() name="x" {dtype=float32, shape=shape[2]} : float32[2]
%1 = ApplyDense(%0) name="side" {var="bias"}
%2 = NoOp() name="barrier" after(%1)
%3 = ReadVariable() name="ReadVariable" {var="bias"} after(%2) : float32[2]
)");
  EXPECT_EQ(pruned->graph.output_name(pruned->fetches[0]), "ReadVariable");
}

TEST_F(PassesTest, PruneNamesAFetchWithoutAValue) {
  build_step();
  const auto pruned = prune({graph_, {{apply_, 0}}, {}});
  EXPECT_EQ(pruned.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(base::message_of(pruned.status()), HasSubstr("make it a target instead"));
  EXPECT_FALSE(prune({graph_, {}, {NodeId(99)}}).ok());
}

TEST_F(PassesTest, PlacePutsStateOnItsLaneAndTheRestOnTheWorker) {
  build_step();
  const auto placement = place_variables(graph_.variables(), Topology{{1, 2}});
  ASSERT_TRUE(placement.ok());
  ASSERT_TRUE(place(&graph_, *placement, registry_).ok());
  EXPECT_EQ(graph_.find("read")->location, placement->at("bias").location);
  EXPECT_EQ(graph_.find("update")->location, placement->at("bias").location);
  EXPECT_TRUE(graph_.find("sum")->location.is_worker());
  EXPECT_TRUE(graph_.find("rows")->location.is_worker());
}

TEST_F(PassesTest, ExpandSharesTheRouteOfALookupWithItsUpdate) {
  build_step();
  const Topology topology{{2}};
  const auto placement = place_variables(graph_.variables(), topology);
  ASSERT_TRUE(place(&graph_, *placement, registry_).ok());
  const auto step = expand({graph_, {sum_}, {train_}}, topology, *placement, registry_);
  ASSERT_TRUE(step.ok()) << base::message_of(step.status());
  EXPECT_EQ(verified_text(step->graph), R"(sidereal-graph 1
var "table" float32[10,2] embedding
var "bias" float32[2]
%0 = Placeholder() name="ids" {dtype=int64, shape=shape[?]} : int64[?]
%1 = Unique(%0) name="ids/unique" : int64[?], int32[?]
%2 = Route(%1) name="ids/route_10" {lanes=ints[2], rows=10, var="table"} : int64[?], )"
                                        R"(int64[?], int64[?]
%3 = ShardGather(%2) name="rows/gather_0" {dim=2, shard=0, var="table"} at=0:0 : float32[?,2]
%4 = ShardGather(%2:1) name="rows/gather_1" {dim=2, shard=1, var="table"} at=0:1 : float32[?,2]
%5 = GatherParts(%0, %2:2, %1:1, %3, %4) name="rows" {dim=2} : float32[?,2]
%6 = ReadVariable() name="read" {var="bias"} at=0:0 : float32[2]
%7 = Add(%5, %6) name="sum" : float32[?,2]
%8 = SumParts(%7, %2:2, %1:1, %2, %2:1) name="push/sum" {dim=2} : float32[?,2], float32[?,2]
%9 = ShardApply(%2, %8) name="push/apply_0" {dim=2, shard=0, var="table"} at=0:0
%10 = ShardApply(%2:1, %8:1) name="push/apply_1" {dim=2, shard=1, var="table"} at=0:1
%11 = NoOp() name="push" after(%9, %10)
%12 = ReduceSum(%7) name="grad" {axes=ints[0], keep_dims=false} : float32[2]
%13 = ApplyDense(%12) name="update" {var="bias"} at=0:0
%14 = NoOp() name="train" after(%11, %13)
)");
  EXPECT_EQ(step->graph.output_name(step->fetches[0]), "sum");
  EXPECT_EQ(step->graph.node(step->targets[0]).name, "train");
}

TEST_F(PassesTest, ExpandGivesControlInputsToEveryShard) {
  const Output ids = ops::placeholder(b_, "ids", DType::kInt64, {3});
  const NodeId first = ops::no_op(b_, {}, "first");
  const NodeId rows =
      b_.add_node("Lookup", {ids}, {{"var", std::string("table")}}, {first}, "rows");
  const NodeId after = ops::no_op(b_, {rows}, "after");
  ASSERT_TRUE(b_.status().ok());
  const auto plan = run_passes(graph_, {}, {after}, Topology{{1, 1}}, registry_);
  ASSERT_TRUE(plan.ok()) << base::message_of(plan.status());
  const ir::Graph& g = plan->graph;
  for (const char* name : {"rows/gather_0", "rows/gather_1"}) {
    EXPECT_EQ(g.find(name)->control_inputs, std::vector<NodeId>{g.find("first")->id});
  }
  EXPECT_EQ(g.find("after")->control_inputs, std::vector<NodeId>{g.find("rows")->id});
}

TEST_F(PassesTest, ExpandRefusesALookupInADenseVariable) {
  const Output ids = ops::placeholder(b_, "ids", DType::kInt64, {3});
  ir::VariableDef wide;
  wide.name = "wide";
  wide.shape = {4, 4};
  b_.variable(wide);
  ir::Node node;
  node.name = "rows";
  node.op = "Lookup";
  node.inputs = {ids};
  node.attrs = {{"var", std::string("wide")}};
  graph_.append(node);
  const auto placement = place_variables(graph_.variables(), Topology{{1}});
  const auto step = expand({graph_, {}, {}}, Topology{{1}}, *placement, registry_);
  EXPECT_EQ(step.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(base::message_of(step.status()), HasSubstr("'rows'"));
}

TEST_F(PassesTest, TablesOfOneSizeShareTheRouteOfTheirIds) {
  for (const char* name : {"wide", "other"}) {
    ir::VariableDef table;
    table.name = name;
    table.shape = {name[0] == 'w' ? 10 : 11, 1};
    table.embedding = true;
    b_.variable(table);
  }
  const Output ids = ops::placeholder(b_, "ids", DType::kInt64, {-1, 3});
  const std::vector<Output> rows = {ops::lookup(b_, "table", ids), ops::lookup(b_, "wide", ids),
                                    ops::lookup(b_, "other", ids)};
  const auto plan = run_passes(graph_, rows, {}, Topology{{1, 1}}, registry_, {.fuse = false});
  ASSERT_TRUE(plan.ok()) << base::message_of(plan.status());
  std::map<std::string, int> ops;
  for (const ir::Node& node : plan->graph.nodes()) ++ops[node.op];
  EXPECT_EQ(ops["Unique"], 1);
  EXPECT_EQ(ops["Route"], 2);
  EXPECT_EQ(ops["ShardGather"], 6);
  EXPECT_EQ(plan->graph.spec(plan->fetches[1]).shape, (ir::Shape{-1, 3, 1}));
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
  const Output r1 = ops::read_variable(b_, "bias");
  const Output r2 = ops::read_variable(b_, "bias");
  const auto merged = merge_common_subexpressions({graph_, {a, c, d, e, r1, r2}, {}}, registry_);
  ASSERT_TRUE(merged.ok());
  EXPECT_EQ(verified_text(merged->graph), R"(sidereal-graph 1
var "table" float32[10,2] embedding
var "bias" float32[2]
%0 = Placeholder() name="x" {dtype=float32, shape=shape[2]} : float32[2]
%1 = Placeholder() name="y" {dtype=float32, shape=shape[2]} : float32[2]
%2 = Const() name="Const" {value=float32[]{1}} : float32[]
%3 = Const() name="Const_2" {value=float32[]{2}} : float32[]
%4 = Add(%0, %2) name="a" : float32[2]
%5 = Add(%0, %3) name="d" : float32[2]
%6 = Add(%1, %2) name="e" : float32[2]
%7 = ReadVariable() name="ReadVariable" {var="bias"} : float32[2]
%8 = ReadVariable() name="ReadVariable_1" {var="bias"} : float32[2]
)");
  EXPECT_EQ(merged->fetches[0], merged->fetches[1]);
  EXPECT_NE(merged->fetches[4], merged->fetches[5]);
}

TEST_F(PassesTest, TheSamePlanComesFromTheSameGraph) {
  build_step();
  const auto one = run_passes(graph_, {sum_}, {train_}, Topology{{2, 1}}, registry_);
  const auto two = run_passes(graph_, {sum_}, {train_}, Topology{{2, 1}}, registry_);
  ASSERT_TRUE(one.ok()) << base::message_of(one.status());
  EXPECT_EQ(ir::to_text(one->graph), ir::to_text(two->graph));
  EXPECT_EQ(one->placement.size(), 2U);
}

TEST_F(PassesTest, WhereVariablesLiveDoesNotDependOnWhatIsFetched) {
  build_step();
  const auto all = run_passes(graph_, {sum_}, {train_}, Topology{{1, 1}}, registry_);
  const auto one =
      run_passes(graph_, {{graph_.find("ids")->id, 0}}, {}, Topology{{1, 1}}, registry_);
  ASSERT_TRUE(one.ok());
  EXPECT_EQ(one->placement.at("bias").location, all->placement.at("bias").location);
  EXPECT_EQ(one->graph.size(), 1U);
}

TEST_F(PassesTest, NamesMadeByExpandNeverTakeAUsersName) {
  const Output ids = ops::placeholder(b_, "ids", DType::kInt64, {3});
  const Output rows = ops::lookup(b_, "table", ids, "rows");
  const Output named = ops::neg(b_, rows, "ids/unique");
  const auto plan = run_passes(graph_, {named}, {}, Topology{{1}}, registry_);
  ASSERT_TRUE(plan.ok()) << base::message_of(plan.status());
  EXPECT_EQ(plan->graph.find("ids/unique")->op, "Neg");
  EXPECT_EQ(plan->graph.find("ids/unique_1")->op, "Unique");
}

}  // namespace
}  // namespace sidereal::passes
