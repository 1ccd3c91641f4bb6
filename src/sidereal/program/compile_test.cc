#include "sidereal/program/compile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "sidereal/ops/ops.h"
#include "sidereal/passes/pipeline.h"

namespace sidereal::program {
namespace {

using ir::DType;
using ir::NodeId;
using ir::Output;

class CompileTest : public testing::Test {
 protected:
  CompileTest() { ops::register_all(&registry_); }

  std::string variable(const std::string& name, const ir::Shape& shape, bool embedding = false) {
    ir::VariableDef def;
    def.name = name;
    def.shape = shape;
    def.embedding = embedding;
    return b_.variable(def);
  }

  CompiledStep compiled(const std::vector<Output>& fetches, const std::vector<NodeId>& targets,
                        const passes::Topology& topology = {{1}}) {
    EXPECT_TRUE(b_.status().ok()) << base::message_of(b_.status());
    const auto plan =
        passes::run_passes(graph_, fetches, targets, topology, registry_, {.fuse = false});
    EXPECT_TRUE(plan.ok()) << base::message_of(plan.status());
    const auto parts =
        partition::pull_push_by_layers(plan->graph, plan->fetches, plan->targets, registry_);
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
  variable("table", {10, 2}, true);
  variable("bias", {2});
  const Output ids = ops::placeholder(b_, "ids", DType::kInt64, {-1});
  const Output rows = ops::lookup(b_, "table", ids, "rows");
  const Output bias = ops::read_variable(b_, "bias", "read");
  const Output sum = ops::bias_add(b_, rows, bias, "sum");
  const Output loss = ops::reduce_sum(b_, ops::square(b_, sum, "square"), {}, false, "loss");
  const NodeId train = ops::no_op(
      b_,
      {ops::apply_sparse(b_, "table", ids, sum, "push"),
       ops::apply_dense(b_, "bias", ops::reduce_sum(b_, sum, {0}, false, "grad"), "update")},
      "train");
  const CompiledStep step = compiled({loss}, {train}, {{2}});
  EXPECT_EQ(to_text(step.worker), R"(program: 16 instructions, 16 slots, 9 buffers, 4 calls
feed %0 int64[?] "ids"
%1:b0 int64[?], %2:b1 int32[?] = Unique(%0) "ids/unique"
%3:b2 int64[?], %4:b3 int64[?], %5:b4 int64[?] = Route(%1) {lanes=ints[2], rows=10, )"
                                  R"(var="table"} "ids/route_10" release %1
start call 0 ps:0/lane:0 (%3)
start call 1 ps:0/lane:1 (%4)
wait call 0 -> (%6 float32[?,2], %7 float32[2])
wait call 1 -> (%8 float32[?,2])
%9:b5 float32[?,2] = GatherParts(%0, %5, %2, %6, %8) {dim=2} "rows" release %0, %6, %8
%10:b5 float32[?,2] = BiasAdd(%9, %7) "sum" release %7, %9
%13:b6 float32[?,2], %14:b7 float32[?,2] = SumParts(%10, %5, %2, %3, %4) {dim=2} "push/sum" )"
                                  R"(release %2, %5
start call 3 ps:0/lane:1 (%4, %14)
%15:b1 float32[2] = ReduceSum(%10) {axes=ints[0], keep_dims=false} "grad"
start call 2 ps:0/lane:0 (%3, %13, %15)
%11:b5 float32[?,2] = Square(%10) "square" release %10
%12:b8 float32[] = ReduceSum(%11) {axes=ints[0, 1], keep_dims=false} "loss" release %11
wait call 2 -> () release %3, %13, %15
wait call 3 -> () release %4, %14
fetch %12 "loss"
)");
  ASSERT_EQ(step.remotes.size(), 4U);
  EXPECT_EQ(to_text(step.remotes[0].program),
            R"(program: 2 instructions, 3 slots, 1 buffers, 0 calls
feed %0 int64[?] ""
%1:b0 float32[?,2] = ShardGather(%0) {dim=2, shard=0, var="table"} "rows/gather_0" release %0
%2 float32[2] = ReadVariable() {var="bias"} "read"
fetch %1 ""
fetch %2 ""
)");
  EXPECT_EQ(to_text(step.remotes[2].program),
            R"(program: 2 instructions, 3 slots, 0 buffers, 0 calls
feed %0 int64[?] ""
feed %1 float32[?,2] ""
feed %2 float32[2] ""
ShardApply(%0, %1) {dim=2, shard=0, var="table"} "push/apply_0" release %0, %1
ApplyDense(%2) {var="bias"} "update" release %2
)");
  for (size_t call = 0; call < step.remotes.size(); ++call) {
    EXPECT_EQ(step.worker.calls[call].program, step.remotes[call].hash);
    EXPECT_EQ(content_hash(step.remotes[call].bytes), step.remotes[call].hash);
    EXPECT_EQ(encode(step.remotes[call].program), step.remotes[call].bytes);
  }
}

TEST_F(CompileTest, WorkThatNeedsNoAnswerRunsWhileACallIsInFlight) {
  variable("w", {2});
  const Output x = ops::placeholder(b_, "x", DType::kFloat32, {2});
  const Output w = ops::read_variable(b_, "w", "read");
  const Output y = ops::mul(b_, x, w, "y");
  const Output local = ops::exp(b_, x, "local");
  const CompiledStep step = compiled({local}, {ops::apply_dense(b_, "w", y, "push")});
  const Program& p = step.worker;
  EXPECT_LT(at(p, "call_0", InstructionKind::kCallStart), at(p, "local"));
  EXPECT_LT(at(p, "local"), at(p, "call_0", InstructionKind::kCallWait));
  EXPECT_LT(at(p, "call_0", InstructionKind::kCallWait), at(p, "y"));
  EXPECT_EQ(at(p, "call_1", InstructionKind::kCallWait), p.instructions.size() - 1);
}

TEST_F(CompileTest, WhatLeadsToACallComesBeforeWhatDoesNot) {
  variable("w", {2});
  const Output x = ops::placeholder(b_, "x", DType::kFloat32, {2});
  const Output local = ops::exp(b_, x, "local");
  const Output grad = ops::neg(b_, ops::tanh(b_, x, "tanh"), "grad");
  const CompiledStep step = compiled({local}, {ops::apply_dense(b_, "w", grad, "push")});
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
  variable("w", {2});
  const Output x = ops::placeholder(b_, "x", DType::kFloat32, {2});
  const Output c = ops::constant(b_, ir::Tensor::of<float>({2}, {1, 2}), "c");
  const Output w = ops::read_variable(b_, "w", "read");
  const CompiledStep step =
      compiled({ops::neg(b_, x, "nx"), ops::neg(b_, c, "nc"), ops::neg(b_, w, "nw")}, {});
  const Program& p = step.worker;
  EXPECT_EQ(buffer(p, "c"), -1);
  EXPECT_EQ(p.slots[p.calls[0].fetches[0]].buffer, -1);
  EXPECT_EQ(p.num_buffers, 3);
  EXPECT_EQ(step.remotes[0].program.slots[0].buffer, -1);
}

TEST_F(CompileTest, WhatACallSendsIsNotOverwrittenBeforeTheAnswer) {
  variable("w", {2});
  const Output x = ops::placeholder(b_, "x", DType::kFloat32, {2});
  const Output grad = ops::neg(b_, x, "grad");
  const Output after = ops::exp(b_, grad, "after");
  const CompiledStep step = compiled({after}, {ops::apply_dense(b_, "w", grad, "push")});
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
  variable("table", {10, 2}, true);
  const Output ids = ops::placeholder(b_, "ids", DType::kInt64, {-1});
  const Output rows = ops::lookup(b_, "table", ids, "rows");
  const NodeId push = ops::apply_sparse(b_, "table", ids, rows, "push");
  const CompiledStep one = compiled({rows}, {push}, {{2, 1}});
  const CompiledStep two = compiled({rows}, {push}, {{2, 1}});
  EXPECT_EQ(encode(one.worker), encode(two.worker));
  ASSERT_EQ(one.remotes.size(), two.remotes.size());
  for (size_t i = 0; i < one.remotes.size(); ++i) {
    EXPECT_EQ(one.remotes[i].bytes, two.remotes[i].bytes);
  }
}

TEST_F(CompileTest, RemoteProgramsDoNotDependOnWhatElseTheWorkerComputes) {
  variable("w", {2});
  const Output x = ops::placeholder(b_, "x", DType::kFloat32, {2});
  const Output w = ops::read_variable(b_, "w", "read");
  const Output y = ops::mul(b_, x, w, "y");
  const Output metric = ops::exp(b_, y, "metric");
  EXPECT_EQ(compiled({y}, {}).remotes[0].hash, compiled({metric}, {}).remotes[0].hash);
}

TEST_F(CompileTest, AGraphWhoseCallsDoNotFitItsRemotesIsAnError) {
  variable("w", {2});
  const Output w = ops::read_variable(b_, "w", "read");
  const auto plan = passes::run_passes(graph_, {w}, {}, {{1}}, registry_, {.fuse = false});
  auto parts = partition::pull_push_by_layers(plan->graph, plan->fetches, {}, registry_);
  ASSERT_TRUE(parts.ok());
  parts->remotes.push_back(parts->remotes[0]);
  EXPECT_EQ(compile(*parts).status().code(), StatusCode::kInvalidArgument);
  parts->remotes.clear();
  EXPECT_EQ(compile(*parts).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace sidereal::program
