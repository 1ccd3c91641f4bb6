#include "sidereal/partition/pull_push.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "sidereal/ir/text.h"
#include "sidereal/ir/verify.h"
#include "sidereal/ops/ops.h"
#include "sidereal/passes/pipeline.h"

namespace sidereal::partition {
namespace {

using ir::DType;
using ir::NodeId;
using ir::Output;
using testing::HasSubstr;

class PullPushTest : public testing::Test {
 protected:
  PullPushTest() { ops::register_all(&registry_); }

  std::string variable(const std::string& name, const ir::Shape& shape, bool embedding = false) {
    ir::VariableDef def;
    def.name = name;
    def.shape = shape;
    def.embedding = embedding;
    return b_.variable(def);
  }

  PartitionedGraph partition(const std::vector<Output>& fetches, const std::vector<NodeId>& targets,
                             const passes::Topology& topology) {
    EXPECT_TRUE(b_.status().ok()) << base::message_of(b_.status());
    const auto plan =
        passes::run_passes(graph_, fetches, targets, topology, registry_, {.fuse = false});
    EXPECT_TRUE(plan.ok()) << base::message_of(plan.status());
    auto out = pull_push_by_layers(plan->graph, plan->fetches, plan->targets, registry_);
    EXPECT_TRUE(out.ok()) << base::message_of(out.status());
    check(out->worker);
    for (const RemoteGraph& remote : out->remotes) check(remote.graph);
    return *std::move(out);
  }

  void check(const ir::Graph& graph) {
    const Status status = ir::verify(graph, registry_);
    EXPECT_TRUE(status.ok()) << base::message_of(status);
  }

  /// A small wide-and-deep: two tables, one dense layer, all updated.
  NodeId build_ctr_step() {
    variable("deep", {100, 4}, true);
    variable("wide", {100, 1}, true);
    variable("kernel", {8, 1});
    variable("bias", {1});
    const Output ids = ops::placeholder(b_, "ids", DType::kInt64, {-1, 2});
    const Output deep = ops::lookup(b_, "deep", ids, "deep_rows");
    const Output wide = ops::lookup(b_, "wide", ids, "wide_rows");
    const Output x = ops::reshape(b_, deep, {-1, 8}, "x");
    const Output kernel = ops::read_variable(b_, "kernel", "read_kernel");
    const Output bias = ops::read_variable(b_, "bias", "read_bias");
    const Output logits = ops::bias_add(b_, ops::mat_mul(b_, x, kernel), bias, "logits");
    const Output sum = ops::reduce_sum(b_, wide, {1}, false, "wide_sum");
    loss_ = ops::reduce_mean(b_, ops::add(b_, logits, sum), {}, false, "loss");
    const std::vector<NodeId> applies = {
        ops::apply_dense(b_, "kernel", ops::mat_mul(b_, x, logits, true, false), "push_kernel"),
        ops::apply_dense(b_, "bias", ops::reduce_sum(b_, logits, {0}), "push_bias"),
        ops::apply_sparse(b_, "deep", ids, ops::mul(b_, deep, loss_), "push_deep"),
        ops::apply_sparse(b_, "wide", ids, ops::mul(b_, wide, loss_), "push_wide")};
    return ops::no_op(b_, applies, "train");
  }

  ir::OpRegistry registry_;
  ir::Graph graph_;
  ir::Builder b_{&graph_, &registry_};
  Output loss_;
};

TEST_F(PullPushTest, ATrainingStepIsOnePullAndOnePushPerLane) {
  const NodeId train = build_ctr_step();
  for (const passes::Topology& topology :
       {passes::Topology{{1}}, passes::Topology{{2}}, passes::Topology{{1, 2, 1}}}) {
    const PartitionedGraph parts = partition({loss_}, {train}, topology);
    EXPECT_EQ(parts.remotes.size(), 2U * topology.num_shards());
    for (const RemoteGraph& remote : parts.remotes) {
      for (const ir::Node& node : remote.graph.nodes()) {
        const bool pull = node.op == "ShardGather" || node.op == "ReadVariable";
        const bool push = node.op == "ShardApply" || node.op == "ApplyDense";
        if (node.op == "Arg" || node.op == "Ret") continue;
        ASSERT_TRUE(pull || push) << node.op;
        EXPECT_EQ(remote.level, pull ? 1 : 2) << node.name;
      }
    }
    EXPECT_EQ(parts.fetch_names, std::vector<std::string>{"loss"});
  }
}

TEST_F(PullPushTest, TheSummaryShowsEveryRoundTrip) {
  const NodeId train = build_ctr_step();
  const PartitionedGraph parts = partition({loss_}, {train}, passes::Topology{{1, 1}});
  EXPECT_EQ(summary(parts), R"(4 calls in 2 rounds to 2 locations; 20 nodes on the worker
ps:0/lane:0
  round 1, call 0: 1 ReadVariable, 2 ShardGather
    1 feed: int64[?]
    3 fetches: float32[?,4], float32[?,1], float32[8,1]
  round 2, call 2: 1 ApplyDense, 2 ShardApply
    4 feeds: int64[?], float32[8,1], float32[?,4], float32[?,1]
    0 fetches
ps:1/lane:0
  round 1, call 1: 1 ReadVariable, 2 ShardGather
    1 feed: int64[?]
    3 fetches: float32[?,4], float32[?,1], float32[1]
  round 2, call 3: 1 ApplyDense, 2 ShardApply
    4 feeds: int64[?], float32[1], float32[?,4], float32[?,1]
    0 fetches
)");
}

TEST_F(PullPushTest, TheGraphsOfASmallStepAreThese) {
  variable("w", {2});
  const Output x = ops::placeholder(b_, "x", DType::kFloat32, {2});
  const Output w = ops::read_variable(b_, "w", "read");
  const Output y = ops::mul(b_, x, w, "y");
  const NodeId push = ops::apply_dense(b_, "w", y, "push");
  const NodeId done = ops::no_op(b_, {push}, "done");
  const PartitionedGraph parts = partition({y, w}, {done}, passes::Topology{{1}});
  EXPECT_EQ(ir::to_text(parts.worker), R"(sidereal-graph 1
%0 = Placeholder() name="x" {dtype=float32, shape=shape[2]} : float32[2]
%1 = Call() name="call_0" {call=0, lane=0, output_dtypes=strings["float32"], )"
                                       R"(output_shapes=strings["[2]"], task=0} : float32[2]
%2 = Mul(%0, %1) name="y" : float32[2]
%3 = Call(%2) name="call_1" {call=1, lane=0, output_dtypes=strings[], )"
                                       R"(output_shapes=strings[], task=0}
%4 = NoOp() name="done" after(%3)
)");
  ASSERT_EQ(parts.remotes.size(), 2U);
  EXPECT_EQ(ir::to_text(parts.remotes[0].graph), R"(sidereal-graph 1
var "w" float32[2]
%0 = ReadVariable() name="read" {var="w"} at=0:0 : float32[2]
%1 = Ret(%0) name="ret_0" {index=0} at=0:0
)");
  EXPECT_EQ(ir::to_text(parts.remotes[1].graph), R"(sidereal-graph 1
var "w" float32[2]
%0 = Arg() name="arg_0" {dtype=float32, index=0, shape=shape[2]} at=0:0 : float32[2]
%1 = ApplyDense(%0) name="push" {var="w"} at=0:0
)");
  EXPECT_EQ(parts.fetch_names, (std::vector<std::string>{"y", "read"}));
}

TEST_F(PullPushTest, ControlEdgesAcrossTheBoundaryOrderCalls) {
  variable("w", {2});
  const Output x = ops::placeholder(b_, "x", DType::kFloat32, {2});
  const NodeId push = ops::apply_dense(b_, "w", x, "push");
  const NodeId tanh = b_.add_node("Tanh", {x}, {}, {push}, "tanh");
  const NodeId read = b_.add_node("ReadVariable", {}, {{"var", std::string("w")}}, {tanh}, "r");
  const PartitionedGraph parts = partition({{read, 0}}, {}, passes::Topology{{1}});
  ASSERT_EQ(parts.remotes.size(), 2U);
  const ir::Node* first = parts.worker.find("call_0");
  const ir::Node* second = parts.worker.find("call_1");
  EXPECT_EQ(parts.worker.find("tanh")->control_inputs, std::vector<NodeId>{first->id});
  EXPECT_EQ(second->control_inputs, std::vector<NodeId>{parts.worker.find("tanh")->id});
}

TEST_F(PullPushTest, WhatNoOpsPassOnCostsNoRound) {
  variable("w", {2});
  variable("v", {2});
  const Output x = ops::placeholder(b_, "x", DType::kFloat32, {2});
  const NodeId barrier = ops::no_op(
      b_, {ops::apply_dense(b_, "w", x, "push_w"), ops::apply_dense(b_, "v", x, "push_v")}, "both");
  const NodeId read = b_.add_node("ReadVariable", {}, {{"var", std::string("w")}}, {barrier}, "r");
  const PartitionedGraph parts = partition({{read, 0}}, {barrier}, passes::Topology{{1}});
  ASSERT_EQ(parts.remotes.size(), 1U);
  const ir::Graph& remote = parts.remotes[0].graph;
  EXPECT_EQ(remote.find("order")->control_inputs,
            (std::vector<NodeId>{remote.find("push_w")->id, remote.find("push_v")->id}));
  EXPECT_EQ(remote.find("r")->control_inputs, std::vector<NodeId>{remote.find("order")->id});
  EXPECT_EQ(parts.worker.find("both")->control_inputs,
            std::vector<NodeId>{parts.worker.find("call_0")->id});
}

TEST_F(PullPushTest, ControlEdgesWithinALaneStayInOneCall) {
  variable("w", {2});
  const Output x = ops::placeholder(b_, "x", DType::kFloat32, {2});
  const NodeId push = ops::apply_dense(b_, "w", x, "push");
  const NodeId read = b_.add_node("ReadVariable", {}, {{"var", std::string("w")}}, {push}, "r");
  const PartitionedGraph parts = partition({{read, 0}}, {push}, passes::Topology{{1}});
  ASSERT_EQ(parts.remotes.size(), 1U);
  const ir::Graph& remote = parts.remotes[0].graph;
  EXPECT_EQ(remote.find("r")->control_inputs, std::vector<NodeId>{remote.find("push")->id});
  EXPECT_EQ(parts.targets[0], parts.worker.find("call_0")->id);
}

TEST_F(PullPushTest, WhatOnePsNeedsFromAnotherGoesThroughTheWorker) {
  variable("a", {2});
  variable("b", {2});
  const Output a = ops::read_variable(b_, "a", "read_a");
  const NodeId push = ops::apply_dense(b_, "b", a, "push_b");
  const PartitionedGraph parts = partition({}, {push}, passes::Topology{{1, 1}});
  ASSERT_EQ(parts.remotes.size(), 2U);
  EXPECT_EQ(parts.remotes[0].level, 1);
  EXPECT_EQ(parts.remotes[1].level, 2);
  const ir::Node* first = parts.worker.find("call_0");
  EXPECT_EQ(parts.worker.find("call_1")->inputs, (std::vector<Output>{{first->id, 0}}));
}

TEST_F(PullPushTest, AValueReadInALaterRoundOfItsLaneIsFetchedAndFed) {
  variable("a", {2});
  variable("b", {2});
  const Output a = ops::read_variable(b_, "a", "read_a");
  const Output y = ops::neg(b_, a, "y");
  const NodeId barrier = b_.add_node("NoOp", {}, {}, {y.node}, "barrier");
  const NodeId push =
      b_.add_node("ApplyDense", {a}, {{"var", std::string("b")}}, {barrier}, "push_b");
  const PartitionedGraph parts = partition({}, {push}, passes::Topology{{1}});
  ASSERT_EQ(parts.remotes.size(), 2U);
  EXPECT_EQ(parts.worker.find("call_1")->inputs.size(), 1U);
  EXPECT_EQ(parts.remotes[1].graph.find("push_b")->inputs[0].node,
            parts.remotes[1].graph.find("arg_0")->id);
}

TEST_F(PullPushTest, OneValueSentTwiceToACallIsSentOnce) {
  variable("a", {2});
  variable("b", {2});
  const Output x = ops::placeholder(b_, "x", DType::kFloat32, {2});
  const std::vector<NodeId> targets = {ops::apply_dense(b_, "a", x), ops::apply_dense(b_, "b", x)};
  const PartitionedGraph parts = partition({}, targets, passes::Topology{{1}});
  ASSERT_EQ(parts.remotes.size(), 1U);
  EXPECT_EQ(parts.worker.find("call_0")->inputs.size(), 1U);
}

TEST_F(PullPushTest, AGraphWithoutVariablesMakesNoCall) {
  const Output x = ops::placeholder(b_, "x", DType::kFloat32, {2});
  const PartitionedGraph parts = partition({ops::neg(b_, x)}, {}, passes::Topology{});
  EXPECT_TRUE(parts.remotes.empty());
  EXPECT_EQ(parts.worker.size(), 2U);
}

TEST_F(PullPushTest, AUsersNodeMayBeCalledLikeOneOfOurs) {
  variable("w", {2});
  const Output x = ops::placeholder(b_, "call_0", DType::kFloat32, {2});
  const Output w = ops::read_variable(b_, "w", "ret_0");
  const Output y = ops::mul(b_, x, w, "arg_0");
  const PartitionedGraph parts =
      partition({y}, {ops::apply_dense(b_, "w", y, "push")}, passes::Topology{{1}});
  EXPECT_EQ(parts.worker.find("call_0")->op, "Placeholder");
  EXPECT_EQ(parts.worker.find("call_0_1")->op, "Call");
}

TEST_F(PullPushTest, LiteMakesOneCallOfTwoWhereNobodyCanTell) {
  for (const char* name : {"a", "b", "c"}) variable(name, {2});
  const Output a = ops::read_variable(b_, "a", "read_a");
  const Output b = ops::read_variable(b_, "b", "read_b");
  const NodeId push_c = ops::apply_dense(b_, "c", ops::neg(b_, a), "push_c");
  graph_.mutable_node(a.node).location = {.task = 0, .lane = 0};
  for (const NodeId id : {b.node, push_c}) graph_.mutable_node(id).location = {.task = 1};
  const auto calls = [&](PullPushOptions::Mode mode, const std::vector<NodeId>& targets) {
    const auto parts = pull_push_by_layers(graph_, {b}, targets, registry_, {.mode = mode});
    EXPECT_TRUE(parts.ok()) << parts.status();
    for (const RemoteGraph& remote : parts->remotes) EXPECT_FALSE(remote.async_push);
    return parts->remotes.size();
  };
  EXPECT_EQ(calls(PullPushOptions::Mode::kLayers, {push_c}), 3U);
  EXPECT_EQ(calls(PullPushOptions::Mode::kLite, {push_c}), 2U);
  // A third round that changes b, in no order with its read: the read goes there, and is first.
  const Output c = ops::read_variable(b_, "c", "read_c");
  graph_.mutable_node(c.node).location = {.task = 1};
  graph_.mutable_node(c.node).control_inputs = {push_c};
  const NodeId push_b = ops::apply_dense(b_, "b", ops::neg(b_, c), "push_b");
  graph_.mutable_node(push_b).location = {.task = 1};
  EXPECT_EQ(calls(PullPushOptions::Mode::kLayers, {push_b}), 4U);
  EXPECT_EQ(calls(PullPushOptions::Mode::kLite, {push_b}), 3U);
  const auto parts =
      pull_push_by_layers(graph_, {b}, {push_b}, registry_, {.mode = PullPushOptions::Mode::kLite});
  const ir::Graph& last = parts->remotes.back().graph;
  EXPECT_LT(last.find("read_b")->id, last.find("push_b")->id);
}

TEST_F(PullPushTest, AnUnexpandedLookupIsAnError) {
  variable("t", {10, 2}, true);
  const Output ids = ops::placeholder(b_, "ids", DType::kInt64, {3});
  const Output rows = ops::lookup(b_, "t", ids, "rows");
  const auto parts = pull_push_by_layers(graph_, {rows}, {}, registry_);
  EXPECT_EQ(parts.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(base::message_of(parts.status()), HasSubstr("'rows' (Lookup) must be expanded"));
}

}  // namespace
}  // namespace sidereal::partition
