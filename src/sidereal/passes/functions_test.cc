#include "sidereal/passes/functions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sidereal/ir/text.h"
#include "sidereal/ir/verify.h"
#include "sidereal/ops/control.h"
#include "sidereal/ops/ops.h"
#include "sidereal/passes/pipeline.h"

namespace sidereal::passes {
namespace {

using ir::Builder;
using ir::DType;
using ir::FunctionPtr;
using ir::Graph;
using ir::NodeId;
using ir::Output;
using ir::Shape;
using testing::ElementsAre;
using testing::HasSubstr;

class FunctionPasses : public testing::Test {
 protected:
  FunctionPasses() { ops::register_all(&registry_); }

  template <class Make>
  FunctionPtr function(size_t inputs, Make make) {
    Graph body;
    std::vector<Output> args;
    for (size_t i = 0; i < inputs; ++i) {
      args.push_back(*ir::add_arg(&body, registry_, {DType::kFloat32, {-1}}));
    }
    Builder b(&body, &registry_);
    std::vector<Output> outputs = make(b, args);
    EXPECT_TRUE(b.status().ok()) << base::message_of(b.status());
    return *ir::Function::make(std::move(body), std::move(outputs));
  }
  /// x -> tanh(x) tanh(x), with a node that nobody needs.
  FunctionPtr squares() {
    return function(1, [](Builder& b, const std::vector<Output>& x) {
      (void)ops::exp(b, x[0], "unused");
      return std::vector<Output>{ops::mul(b, ops::tanh(b, x[0]), ops::tanh(b, x[0]), "y")};
    });
  }
  /// (x, handle) -> x + the variable.
  FunctionPtr reading() {
    Graph body;
    const Output x = *ir::add_arg(&body, registry_, {DType::kFloat32, {-1}});
    const Output handle = *ir::add_arg(&body, registry_, {DType::kString, {}});
    Builder b(&body, &registry_);
    const Output value =
        b.add("VariableRead", {handle}, {{"dtype", DType::kFloat32}, {"shape", Shape{3}}}, "read");
    const Output sum = ops::add(b, x, value);
    return *ir::Function::make(std::move(body), {sum});
  }
  Output input() { return ops::placeholder(b_, "x", DType::kFloat32, {-1}); }

  Result<StepGraph> plan(const std::vector<Output>& fetches,
                         const std::vector<NodeId>& targets = {}) {
    EXPECT_TRUE(b_.status().ok()) << base::message_of(b_.status());
    return run_passes(graph_, fetches, targets, registry_, {.fuse = false});
  }
  std::vector<std::string> ops_in(const Graph& graph) {
    std::vector<std::string> out;
    for (const ir::Node& node : graph.nodes()) out.push_back(node.op);
    return out;
  }

  ir::OpRegistry registry_;
  Graph graph_;
  Builder b_{&graph_, &registry_};
};

TEST_F(FunctionPasses, what_asks_for_no_device_gets_that_of_the_call_it_is_put_in_the_place_of) {
  const FunctionPtr placed = function(1, [](Builder& b, const std::vector<Output>& x) {
    const Output y = ops::tanh(b, x[0], "there");
    b.graph().mutable_node(y.node).device = "/task:7";
    return std::vector<Output>{ops::exp(b, y, "anywhere")};
  });
  const ir::NodeId call = ops::function_call(b_, placed, {input()}, "call");
  graph_.mutable_node(call).device = "/task:1";
  const auto got = inline_calls({graph_, {{call, 0}}, {}}, registry_);
  ASSERT_TRUE(got.ok()) << base::message_of(got.status());
  EXPECT_EQ(got->graph.find("call/there")->device, "/task:7");
  EXPECT_EQ(got->graph.find("call/anywhere")->device, "/task:1");
}

TEST_F(FunctionPasses, a_function_called_once_is_put_in_the_place_of_its_call) {
  const Output y = {ops::function_call(b_, squares(), {input()}, "call"), 0};
  const auto got = plan({ops::neg(b_, y)});
  ASSERT_TRUE(got.ok()) << base::message_of(got.status());
  EXPECT_EQ(ir::to_text(got->graph), R"(sidereal-graph 1
%0 = Placeholder() name="x" {dtype=float32, shape=shape[?]} : float32[?]
%1 = Tanh(%0) name="call/Tanh" : float32[?]
%2 = Mul(%1, %1) name="call/y" : float32[?]
%3 = Neg(%2) name="Neg" : float32[?]
)");
}

TEST_F(FunctionPasses, passes_work_in_bodies) {
  const FunctionPtr f = squares();
  const Output once = {ops::function_call(b_, f, {input()}, "once"), 0};
  const Output twice = {ops::function_call(b_, f, {once}, "twice"), 0};
  const auto got = plan({twice});
  ASSERT_TRUE(got.ok()) << base::message_of(got.status());
  EXPECT_EQ(ir::to_text(got->graph), R"(sidereal-graph 1
function @0 {
  %0 = Arg() name="arg" {dtype=float32, index=0, shape=shape[?]} : float32[?]
  %1 = Tanh(%0) name="Tanh" : float32[?]
  %2 = Mul(%1, %1) name="y" : float32[?]
  return %2
}
use "once" @0
%0 = Placeholder() name="x" {dtype=float32, shape=shape[?]} : float32[?]
%1 = FunctionCall(%0) name="once" {function="once"} : float32[?]
%2 = FunctionCall(%1) name="twice" {function="once"} : float32[?]
)");
}

TEST_F(FunctionPasses, nested_calls_are_put_in_place_too) {
  const FunctionPtr outer = function(1, [&](Builder& b, const std::vector<Output>& x) {
    return std::vector<Output>{{ops::function_call(b, squares(), {x[0]}, "inner"), 0}};
  });
  const Output y = {ops::function_call(b_, outer, {input()}, "outer"), 0};
  const auto got = plan({y});
  ASSERT_TRUE(got.ok()) << base::message_of(got.status());
  EXPECT_THAT(ops_in(got->graph), ElementsAre("Placeholder", "Tanh", "Mul"));
  EXPECT_TRUE(got->graph.functions().empty());
}

TEST_F(FunctionPasses, a_branch_that_is_known_stays_alone) {
  const FunctionPtr other = function(1, [](Builder&, const std::vector<Output>& x) { return x; });
  const Output yes = ops::constant(b_, ir::Tensor::scalar<bool>(true));
  const Output y = {ops::branch(b_, yes, squares(), other, {input()}), 0};
  const auto got = plan({y});
  ASSERT_TRUE(got.ok()) << base::message_of(got.status());
  EXPECT_THAT(ops_in(got->graph), ElementsAre("Placeholder", "Tanh", "Mul"));
}

TEST_F(FunctionPasses, who_waits_for_a_call_waits_for_what_it_did) {
  const Output x = input();
  const Output w =
      b_.add("Variable", {}, {{"shared_name", std::string("w")}, {"dtype", DType::kFloat32}});
  const NodeId call = ops::function_call(b_, reading(), {x, w}, "call");
  const NodeId after = ops::no_op(b_, {call}, "after");
  const auto got = plan({}, {after});
  ASSERT_TRUE(got.ok()) << base::message_of(got.status());
  EXPECT_THAT(ops_in(got->graph),
              ElementsAre("Placeholder", "Variable", "VariableRead", "Add", "NoOp", "NoOp"));
}

TEST_F(FunctionPasses, names_of_inlined_nodes_are_free) {
  const Output x = input();
  (void)ops::neg(b_, x, "call/y");
  const Output other = ops::exp(b_, x, "call/Tanh");
  const Output y = {ops::function_call(b_, squares(), {other}, "call"), 0};
  const auto got = plan({y, other});
  ASSERT_TRUE(got.ok()) << base::message_of(got.status());
  EXPECT_NE(got->graph.find("call/1/y"), nullptr);
}

TEST_F(FunctionPasses, calls_of_stateful_functions_are_not_merged) {
  const FunctionPtr drop = function(1, [](Builder& b, const std::vector<Output>& x) {
    return std::vector<Output>{ops::dropout(b, x[0], 0.5, 1, true)};
  });
  const FunctionPtr pure = squares();
  const Output x = input();
  std::vector<Output> fetches;
  for (const FunctionPtr& f : {drop, drop, pure, pure}) {
    fetches.push_back({ops::function_call(b_, f, {x}), 0});
  }
  const auto got = plan(fetches);
  ASSERT_TRUE(got.ok()) << base::message_of(got.status());
  EXPECT_NE(got->fetches[0], got->fetches[1]);
  EXPECT_EQ(got->fetches[2], got->fetches[3]);
}

}  // namespace
}  // namespace sidereal::passes
