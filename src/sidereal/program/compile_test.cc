#include "sidereal/program/compile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "sidereal/ops/ops.h"
#include "sidereal/partition/pull_push.h"
#include "sidereal/passes/pipeline.h"

namespace sidereal::program {
namespace {

using ir::DType;
using ir::NodeId;
using ir::Output;

class CompileTest : public testing::Test {
 protected:
  CompileTest() { ops::register_all(&registry_); }

  static ir::AttrMap spec(const ir::Shape& shape) {
    return {{"dtype", DType::kFloat32}, {"shape", shape}};
  }
  Output on(const char* device, Output value) {
    graph_.mutable_node(value.node).device = device;
    return value;
  }
  /// The handle of a variable on a ps.
  Output variable(const std::string& name, const ir::Shape& shape, const char* device = "/ps0") {
    ir::AttrMap attrs = spec(shape);
    attrs["shared_name"] = name;
    return on(device, b_.add("Variable", {}, attrs, name));
  }
  Output read(Output handle, const char* name) {
    const ir::Node& maker = graph_.node(handle.node);
    const std::string device = maker.device;
    const auto shape = ir::attr_or<ir::Shape>(maker.attrs, "shape", {});
    return on(device.c_str(), b_.add("VariableRead", {handle}, spec(shape), name));
  }
  NodeId push(Output handle, Output value, const char* name) {
    const std::string device = graph_.node(handle.node).device;
    return on(device.c_str(), b_.add("VariableAssignSub", {handle, value}, {}, name)).node;
  }

  /// What asks for no device is the driver's.
  Result<partition::PartitionedGraph> cut(const std::vector<Output>& fetches,
                                          const std::vector<NodeId>& targets) {
    EXPECT_TRUE(b_.status().ok()) << base::message_of(b_.status());
    for (size_t i = 0; i < graph_.size(); ++i) {
      ir::Node& node = graph_.mutable_node(NodeId(static_cast<int32_t>(i)));
      if (node.device.empty()) node.device = "/w";
    }
    SR_ASSIGN_OR_RETURN(const passes::StepGraph step,
                        passes::run_passes(graph_, fetches, targets, registry_, {.fuse = false}));
    return partition::pull_push_by_device(step.graph, "/w", step.fetches, step.targets, registry_);
  }

  CompiledStep compiled(const std::vector<Output>& fetches, const std::vector<NodeId>& targets) {
    const auto parts = cut(fetches, targets);
    EXPECT_TRUE(parts.ok()) << base::message_of(parts.status());
    auto step = compile(*parts);
    EXPECT_TRUE(step.ok()) << base::message_of(step.status());
    return *std::move(step);
  }

  /// Where in `program` the instruction of node `name` and `kind` stands.
  static size_t at(const Program& program, const std::string& name,
                   InstructionKind kind = InstructionKind::kCompute) {
    const auto found =
        std::find_if(program.instructions.begin(), program.instructions.end(),
                     [&](const Instruction& i) { return i.name == name && i.kind == kind; });
    EXPECT_NE(found, program.instructions.end()) << name;
    return found - program.instructions.begin();
  }

  /// The buffer of the first output of node `name`.
  static int32_t buffer(const Program& program, const std::string& name) {
    return program.slots[program.instructions[at(program, name)].outputs[0]].buffer;
  }

  ir::OpRegistry registry_;
  ir::Graph graph_;
  ir::Builder b_{&graph_, &registry_};
};

TEST_F(CompileTest, ATrainingStepBecomesThesePrograms) {
  const Output table = variable("table", {10, 2});
  const Output bias = variable("bias", {2}, "/ps1");
  const Output ids = ops::placeholder(b_, "ids", DType::kInt64, {-1});
  const Output rows = on("/ps0", b_.add("Gather", {read(table, "table_read"), ids}, {}, "rows"));
  const Output sum = ops::bias_add(b_, rows, read(bias, "read"), "sum");
  const Output loss = ops::reduce_sum(b_, ops::square(b_, sum, "square"), {}, false, "loss");
  const Output one = on("/ps0", ops::scalar(b_, DType::kFloat64, 1, "one"));
  const NodeId rows_pushed = b_.add_node("VariableUpdateRows", {table, ids, sum, one, one},
                                         {{"kind", std::string("sgd")}}, {}, "push");
  graph_.mutable_node(rows_pushed).device = "/ps0";
  const NodeId train = ops::no_op(
      b_, {rows_pushed, push(bias, ops::reduce_sum(b_, sum, {0}, false, "grad"), "update")},
      "train");
  const CompiledStep step = compiled({loss}, {train});
  EXPECT_EQ(to_text(step.worker), R"(program: 16 instructions, 13 slots, 7 buffers, 4 calls
feed %0 int64[?] "ids"
start call 1 /ps1 ()
%1:b0 int64[?], %2:b1 int32[?] = Unique(%0) {strict=true} "ids/unique"
%3:b2 int64[?], %4:b3 int64[?] = Route(%1) {lanes=ints[1], rows=10, var="table"} )"
                                  R"("ids/route_10" release %1
start call 0 /ps0 (%3)
wait call 0 -> (%5 float32[?,2])
%7:b4 float32[?,2] = GatherParts(%0, %4, %2, %5) {dim=2} "rows" release %0, %5
wait call 1 -> (%6 float32[2])
%8:b4 float32[?,2] = BiasAdd(%7, %6) "sum" release %6, %7
%11:b5 float32[?,2] = SumParts(%8, %4, %2, %3) {dim=2} "push/sum" release %2, %4
start call 2 /ps0 (%3, %11)
%12:b1 float32[2] = ReduceSum(%8) {axes=ints[0], keep_dims=false} "grad"
start call 3 /ps1 (%12)
%9:b4 float32[?,2] = Square(%8) "square" release %8
%10:b6 float32[] = ReduceSum(%9) {axes=ints[0, 1], keep_dims=false} "loss" release %9
wait call 2 -> () release %3, %11
wait call 3 -> () release %12
fetch %10 "loss"
)");
  ASSERT_EQ(step.remotes.size(), 4U);
  EXPECT_EQ(to_text(step.remotes[0].program),
            R"(program: 2 instructions, 3 slots, 1 buffers, 0 calls
feed %0 int64[?] ""
%1 string[] = Variable() {dtype=float32, shape=shape[10,2], shared_name="table"} "table"
%2:b0 float32[?,2] = VariableGather(%1, %0) {dtype=float32, shape=shape[10,2]} "rows/rows" )"
            R"(release %0, %1
fetch %2 ""
)");
  EXPECT_EQ(to_text(step.remotes[2].program),
            R"(program: 3 instructions, 4 slots, 0 buffers, 0 calls
feed %0 int64[?] ""
feed %1 float32[?,2] ""
%2 string[] = Variable() {dtype=float32, shape=shape[10,2], shared_name="table"} "table"
%3 float64[] = Const() {value=float64[]{1}} "one"
VariableUpdateRows(%2, %0, %1, %3, %3) {distinct=true, kind="sgd"} "push" )"
            R"(release %0, %1, %2, %3
)");
  for (size_t call = 0; call < step.remotes.size(); ++call) {
    EXPECT_EQ(step.worker.calls[call].program, step.remotes[call].hash);
    EXPECT_EQ(content_hash(step.remotes[call].bytes), step.remotes[call].hash);
    EXPECT_EQ(encode(step.remotes[call].program), step.remotes[call].bytes);
  }
}

TEST_F(CompileTest, WorkThatNeedsNoAnswerRunsWhileACallIsInFlight) {
  const Output w_handle = variable("w", {2});
  const Output x = ops::placeholder(b_, "x", DType::kFloat32, {2});
  const Output w = read(w_handle, "read");
  const Output y = ops::mul(b_, x, w, "y");
  const Output local = ops::exp(b_, x, "local");
  const CompiledStep step = compiled({local}, {push(w_handle, y, "push")});
  const Program& p = step.worker;
  EXPECT_LT(at(p, "call_0", InstructionKind::kCallStart), at(p, "local"));
  EXPECT_LT(at(p, "local"), at(p, "call_0", InstructionKind::kCallWait));
  EXPECT_LT(at(p, "call_0", InstructionKind::kCallWait), at(p, "y"));
  EXPECT_EQ(at(p, "call_1", InstructionKind::kCallWait), p.instructions.size() - 1);
}

TEST_F(CompileTest, WhatLeadsToACallComesBeforeWhatDoesNot) {
  const Output w_handle = variable("w", {2});
  const Output x = ops::placeholder(b_, "x", DType::kFloat32, {2});
  const Output local = ops::exp(b_, x, "local");
  const Output grad = ops::neg(b_, ops::tanh(b_, x, "tanh"), "grad");
  const CompiledStep step = compiled({local}, {push(w_handle, grad, "push")});
  const Program& p = step.worker;
  EXPECT_EQ(at(p, "tanh"), 0U);
  EXPECT_EQ(at(p, "grad"), 1U);
  EXPECT_EQ(at(p, "call_0", InstructionKind::kCallStart), 2U);
  EXPECT_EQ(at(p, "local"), 3U);
}

TEST_F(CompileTest, AChainOfElementWiseOpsNeedsOneBuffer) {
  Output x = ops::placeholder(b_, "x", DType::kFloat32, {-1, 4});
  for (int i = 0; i < 5; ++i) x = ops::tanh(b_, ops::exp(b_, x));
  const CompiledStep step = compiled({x}, {});
  EXPECT_EQ(step.worker.num_buffers, 1);
  EXPECT_EQ(step.worker.slots[step.worker.feeds[0]].buffer, -1);
}

TEST_F(CompileTest, AFeedAConstantAndAVariableAreNeverWritten) {
  const Output w_handle = variable("w", {2});
  const Output x = ops::placeholder(b_, "x", DType::kFloat32, {2});
  const Output c = ops::constant(b_, ir::Tensor::of<float>({2}, {1, 2}), "c");
  const Output w = read(w_handle, "read");
  const CompiledStep step =
      compiled({ops::neg(b_, x, "nx"), ops::neg(b_, c, "nc"), ops::neg(b_, w, "nw")}, {});
  const Program& p = step.worker;
  EXPECT_EQ(buffer(p, "c"), -1);
  EXPECT_EQ(p.slots[p.calls[0].fetches[0]].buffer, -1);
  EXPECT_EQ(p.num_buffers, 3);
  for (const SlotInfo& slot : step.remotes[0].program.slots) EXPECT_EQ(slot.buffer, -1);
}

TEST_F(CompileTest, WhatACallSendsIsNotOverwrittenBeforeTheAnswer) {
  const Output w_handle = variable("w", {2});
  const Output x = ops::placeholder(b_, "x", DType::kFloat32, {2});
  const Output grad = ops::neg(b_, x, "grad");
  const Output after = ops::exp(b_, grad, "after");
  const CompiledStep step = compiled({after}, {push(w_handle, grad, "push")});
  const Program& p = step.worker;
  EXPECT_LT(at(p, "call_0", InstructionKind::kCallStart), at(p, "after"));
  EXPECT_NE(buffer(p, "grad"), buffer(p, "after"));
  const int32_t slot = p.instructions[at(p, "grad")].outputs[0];
  EXPECT_EQ(p.instructions[at(p, "call_0", InstructionKind::kCallWait)].releases,
            std::vector<int32_t>{slot});
}

TEST_F(CompileTest, AViewKeepsTheMemoryBelowItAlive) {
  const Output x = ops::placeholder(b_, "x", DType::kFloat32, {2, 3});
  const Output y = ops::exp(b_, x, "y");
  const Output view = ops::reshape(b_, y, {3, 2}, "view");
  const Output other = ops::sqrt(b_, x, "other");
  const Output third = ops::neg(b_, view, "third");
  const CompiledStep step = compiled({third, other}, {});
  const Program& p = step.worker;
  EXPECT_EQ(buffer(p, "view"), -1);
  EXPECT_NE(buffer(p, "other"), buffer(p, "y"));
  EXPECT_EQ(buffer(p, "third"), buffer(p, "y"));
}

TEST_F(CompileTest, BroadcastingWritesInPlaceOnlyWhereTheShapeIsCertain) {
  const Output x = ops::placeholder(b_, "x", DType::kFloat32, {-1, 4});
  const Output y = ops::placeholder(b_, "y", DType::kFloat32, {-1, 4});
  const Output bias = ops::placeholder(b_, "bias", DType::kFloat32, {4});
  const Output a = ops::exp(b_, x, "a");
  const Output certain = ops::add(b_, a, bias, "certain");
  // Here one of the two may have a single row.
  const Output uncertain = ops::add(b_, certain, y, "uncertain");
  const CompiledStep step = compiled({uncertain}, {});
  const Program& p = step.worker;
  EXPECT_EQ(buffer(p, "certain"), buffer(p, "a"));
  EXPECT_NE(buffer(p, "uncertain"), buffer(p, "a"));
}

TEST_F(CompileTest, BuffersAreUsedAgain) {
  Output x = ops::placeholder(b_, "x", DType::kFloat32, {-1, 4});
  const Output w = ops::constant(b_, ir::Tensor::zeros(DType::kFloat32, {4, 4}));
  for (int i = 0; i < 10; ++i) x = ops::mat_mul(b_, x, w);
  EXPECT_EQ(compiled({x}, {}).worker.num_buffers, 2);
}

TEST_F(CompileTest, TheSameGraphGivesTheSameBytes) {
  const Output a = read(variable("a", {2}), "read_a");
  const NodeId pushed = push(variable("b", {2}, "/ps1"), a, "push");
  const CompiledStep one = compiled({a}, {pushed});
  const CompiledStep two = compiled({a}, {pushed});
  EXPECT_EQ(encode(one.worker), encode(two.worker));
  ASSERT_EQ(one.remotes.size(), two.remotes.size());
  for (size_t i = 0; i < one.remotes.size(); ++i) {
    EXPECT_EQ(one.remotes[i].bytes, two.remotes[i].bytes);
  }
}

TEST_F(CompileTest, RemoteProgramsDoNotDependOnWhatElseTheWorkerComputes) {
  const Output w_handle = variable("w", {2});
  const Output x = ops::placeholder(b_, "x", DType::kFloat32, {2});
  const Output w = read(w_handle, "read");
  const Output y = ops::mul(b_, x, w, "y");
  const Output metric = ops::exp(b_, y, "metric");
  EXPECT_EQ(compiled({y}, {}).remotes[0].hash, compiled({metric}, {}).remotes[0].hash);
}

TEST_F(CompileTest, AGraphWhoseCallsDoNotFitItsRemotesIsAnError) {
  const Output w_handle = variable("w", {2});
  const Output w = read(w_handle, "read");
  auto parts = cut({w}, {});
  ASSERT_TRUE(parts.ok());
  parts->remotes.push_back(parts->remotes[0]);
  EXPECT_EQ(compile(*parts).status().code(), StatusCode::kInvalidArgument);
  parts->remotes.clear();
  EXPECT_EQ(compile(*parts).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace sidereal::program
