#include "sidereal/partition/pull_push.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sidereal/ir/text.h"
#include "sidereal/ir/verify.h"
#include "sidereal/ops/ops.h"

// The graphs and calls of small steps; what larger ones become is in pull_push_device_test.cc.
namespace sidereal::partition {
namespace {

using ir::DType;
using ir::NodeId;
using ir::Output;
using Mode = PullPushOptions::Mode;

constexpr const char* kDriver = "/w";

class PullPushTest : public testing::Test {
 protected:
  PullPushTest() { ops::register_all(&registry_); }

  static ir::AttrMap spec() { return {{"dtype", DType::kFloat32}, {"shape", ir::Shape{2}}}; }

  Output input(const char* name) { return ops::placeholder(b_, name, DType::kFloat32, {2}); }
  /// The handle of a variable of two elements.
  Output variable(const char* name, const char* device = "/ps0") {
    ir::AttrMap attrs = spec();
    attrs["shared_name"] = std::string(name);
    return {on(device, b_.add_node("Variable", {}, attrs, {}, name)), 0};
  }
  Output read(Output handle, const char* name, const std::vector<NodeId>& after = {}) {
    return {on(device_of(handle), b_.add_node("VariableRead", {handle}, spec(), after, name)), 0};
  }
  NodeId push(Output handle, Output value, const char* name,
              const std::vector<NodeId>& after = {}) {
    return on(device_of(handle),
              b_.add_node("VariableAssignSub", {handle, value}, {}, after, name));
  }
  NodeId on(const std::string& device, NodeId id) {
    EXPECT_TRUE(id.valid()) << b_.status();
    if (id.valid()) graph_.mutable_node(id).device = device;
    return id;
  }
  [[nodiscard]] std::string device_of(Output value) const { return graph_.node(value.node).device; }

  /// The parts, verified. What asks for no device is the driver's.
  PartitionedGraph partition(const std::vector<Output>& fetches, const std::vector<NodeId>& targets,
                             Mode mode = Mode::kLayers) {
    EXPECT_TRUE(b_.status().ok()) << b_.status();
    for (size_t i = 0; i < graph_.size(); ++i) {
      ir::Node& node = graph_.mutable_node(NodeId(static_cast<int32_t>(i)));
      if (node.device.empty()) node.device = kDriver;
    }
    auto out = pull_push_by_device(graph_, kDriver, fetches, targets, registry_, {.mode = mode});
    EXPECT_TRUE(out.ok()) << out.status();
    if (!out.ok()) return {};
    check(out->worker);
    for (const RemoteGraph& remote : out->remotes) check(remote.graph);
    return *std::move(out);
  }
  void check(const ir::Graph& graph) {
    const Status status = ir::verify(graph, registry_);
    EXPECT_TRUE(status.ok()) << status;
  }

  ir::OpRegistry registry_;
  ir::Graph graph_;
  ir::Builder b_{&graph_, &registry_};
};

TEST_F(PullPushTest, TheGraphsOfASmallStepAreThese) {
  const Output w = variable("w");
  const Output x = input("x");
  const Output value = read(w, "read");
  const Output y = ops::mul(b_, x, value, "y");
  const NodeId done = ops::no_op(b_, {push(w, y, "push")}, "done");
  const PartitionedGraph parts = partition({y, value}, {done});
  EXPECT_EQ(ir::to_text(parts.worker), R"(sidereal-graph 1
%0 = Placeholder() name="x" {dtype=float32, shape=shape[2]} device="/w" : float32[2]
%1 = Call() name="call_0" {call=0, device="/ps0", output_dtypes=strings["float32"], )"
                                       R"(output_shapes=strings["[2]"], repeatable=true} )"
                                       R"(device="/w" : float32[2]
%2 = Mul(%0, %1) name="y" device="/w" : float32[2]
%3 = Call(%2) name="call_1" {call=1, device="/ps0", output_dtypes=strings[], )"
                                       R"(output_shapes=strings[]} device="/w"
%4 = NoOp() name="done" device="/w" after(%3)
)");
  ASSERT_EQ(parts.remotes.size(), 2U);
  EXPECT_EQ(ir::to_text(parts.remotes[0].graph), R"(sidereal-graph 1
%0 = Variable() name="w" {dtype=float32, shape=shape[2], shared_name="w"} device="/ps0" : string[]
%1 = VariableRead(%0) name="read" {dtype=float32, shape=shape[2]} device="/ps0" : float32[2]
%2 = Ret(%1) name="ret_0" {index=0} device="/ps0"
)");
  EXPECT_EQ(ir::to_text(parts.remotes[1].graph), R"(sidereal-graph 1
%0 = Arg() name="arg_0" {dtype=float32, index=0, shape=shape[2]} device="/ps0" : float32[2]
%1 = Variable() name="w" {dtype=float32, shape=shape[2], shared_name="w"} device="/ps0" : string[]
%2 = VariableAssignSub(%1, %0) name="push" device="/ps0" : float32[2]
)");
  EXPECT_EQ(parts.fetch_names, (std::vector<std::string>{"y", "read"}));
  EXPECT_EQ(parts.devices, std::vector<std::string>{"/ps0"});
}

TEST_F(PullPushTest, ControlEdgesAcrossTheBoundaryOrderCalls) {
  const Output w = variable("w");
  const Output x = input("x");
  const NodeId tanh = b_.add_node("Tanh", {x}, {}, {push(w, x, "push")}, "tanh");
  const PartitionedGraph parts = partition({read(w, "r", {tanh})}, {});
  ASSERT_EQ(parts.remotes.size(), 2U);
  const ir::Node* first = parts.worker.find("call_0");
  const ir::Node* second = parts.worker.find("call_1");
  EXPECT_EQ(parts.worker.find("tanh")->control_inputs, std::vector<NodeId>{first->id});
  EXPECT_EQ(second->control_inputs, std::vector<NodeId>{parts.worker.find("tanh")->id});
}

TEST_F(PullPushTest, WhatNoOpsPassOnCostsNoRound) {
  const Output w = variable("w");
  const Output v = variable("v");
  const Output x = input("x");
  const NodeId barrier = ops::no_op(b_, {push(w, x, "push_w"), push(v, x, "push_v")}, "both");
  const PartitionedGraph parts = partition({read(w, "r", {barrier})}, {barrier});
  ASSERT_EQ(parts.remotes.size(), 1U);
  const ir::Graph& remote = parts.remotes[0].graph;
  EXPECT_EQ(remote.find("order")->control_inputs,
            (std::vector<NodeId>{remote.find("push_w")->id, remote.find("push_v")->id}));
  EXPECT_EQ(remote.find("r")->control_inputs, std::vector<NodeId>{remote.find("order")->id});
  EXPECT_EQ(parts.worker.find("both")->control_inputs,
            std::vector<NodeId>{parts.worker.find("call_0")->id});
}

TEST_F(PullPushTest, ControlEdgesWithinADeviceStayInOneCall) {
  const Output w = variable("w");
  const NodeId pushed = push(w, input("x"), "push");
  const PartitionedGraph parts = partition({read(w, "r", {pushed})}, {pushed});
  ASSERT_EQ(parts.remotes.size(), 1U);
  const ir::Graph& remote = parts.remotes[0].graph;
  EXPECT_EQ(remote.find("r")->control_inputs, std::vector<NodeId>{remote.find("push")->id});
  EXPECT_EQ(parts.targets[0], parts.worker.find("call_0")->id);
}

TEST_F(PullPushTest, WhatOneDeviceNeedsFromAnotherGoesThroughTheDriver) {
  const Output a = read(variable("a"), "read_a");
  const PartitionedGraph parts = partition({}, {push(variable("b", "/ps1"), a, "push_b")});
  ASSERT_EQ(parts.remotes.size(), 2U);
  EXPECT_EQ(parts.remotes[0].level, 1);
  EXPECT_EQ(parts.remotes[1].level, 2);
  const ir::Node* first = parts.worker.find("call_0");
  EXPECT_EQ(parts.worker.find("call_1")->inputs, (std::vector<Output>{{first->id, 0}}));
}

TEST_F(PullPushTest, AValueReadInALaterRoundOfItsDeviceIsFetchedAndFed) {
  const Output a = read(variable("a"), "read_a");
  const Output y = ops::neg(b_, a, "y");
  const NodeId barrier = b_.add_node("NoOp", {}, {}, {y.node}, "barrier");
  const PartitionedGraph parts = partition({}, {push(variable("b"), a, "push_b", {barrier})});
  ASSERT_EQ(parts.remotes.size(), 2U);
  EXPECT_EQ(parts.worker.find("call_1")->inputs.size(), 1U);
  EXPECT_EQ(parts.remotes[1].graph.find("push_b")->inputs[1].node,
            parts.remotes[1].graph.find("arg_0")->id);
}

TEST_F(PullPushTest, OneValueSentTwiceToACallIsSentOnce) {
  const Output x = input("x");
  const std::vector<NodeId> targets = {push(variable("a"), x, "push_a"),
                                       push(variable("b"), x, "push_b")};
  const PartitionedGraph parts = partition({}, targets);
  ASSERT_EQ(parts.remotes.size(), 1U);
  EXPECT_EQ(parts.worker.find("call_0")->inputs.size(), 1U);
}

TEST_F(PullPushTest, AGraphOfTheDriverAloneMakesNoCall) {
  const PartitionedGraph parts = partition({ops::neg(b_, input("x"))}, {});
  EXPECT_TRUE(parts.remotes.empty());
  EXPECT_EQ(parts.worker.size(), 2U);
}

TEST_F(PullPushTest, AUsersNodeMayBeCalledLikeOneOfOurs) {
  const Output w = variable("w");
  const Output y = ops::mul(b_, input("call_0"), read(w, "ret_0"), "arg_0");
  const PartitionedGraph parts = partition({y}, {push(w, y, "push")});
  EXPECT_EQ(parts.worker.find("call_0")->op, "Placeholder");
  EXPECT_EQ(parts.worker.find("call_0_1")->op, "Call");
}

TEST_F(PullPushTest, LiteMakesOneCallOfTwoWhereNobodyCanTell) {
  const Output b_handle = variable("b", "/ps1");
  const Output c_handle = variable("c", "/ps1");
  const Output a = read(variable("a"), "read_a");
  const Output b = read(b_handle, "read_b");
  const NodeId push_c = push(c_handle, ops::neg(b_, a), "push_c");
  EXPECT_EQ(partition({b}, {push_c}).remotes.size(), 3U);
  EXPECT_EQ(partition({b}, {push_c}, Mode::kLite).remotes.size(), 2U);
  // A third round that changes b, in no order with its read: the read goes there, and is first.
  const Output c = read(c_handle, "read_c", {push_c});
  const NodeId push_b = push(b_handle, ops::neg(b_, c), "push_b");
  EXPECT_EQ(partition({b}, {push_b}).remotes.size(), 4U);
  const PartitionedGraph parts = partition({b}, {push_b}, Mode::kLite);
  EXPECT_EQ(parts.remotes.size(), 3U);
  const ir::Graph& last = parts.remotes.back().graph;
  EXPECT_LT(last.find("read_b")->id, last.find("push_b")->id);
}

}  // namespace
}  // namespace sidereal::partition
