#include "sidereal/exec/control.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sidereal/autodiff/autodiff.h"
#include "sidereal/exec/testing/one_program.h"
#include "sidereal/ops/control.h"
#include "sidereal/ops/ops.h"

namespace sidereal::exec {
namespace {

using ir::Builder;
using ir::DType;
using ir::FunctionPtr;
using ir::Graph;
using ir::NodeId;
using ir::Output;
using ir::Shape;
using ir::Tensor;
using ir::TensorSpec;
using testing::HasSubstr;

using Outputs = std::vector<Output>;

/// The function that `make` builds of inputs of these specs.
FunctionPtr function(const std::vector<TensorSpec>& inputs,
                     const std::function<Outputs(Builder&, const Outputs&)>& make) {
  Graph body;
  Outputs args;
  for (const TensorSpec& spec : inputs) {
    args.push_back(*ir::add_arg(&body, test_registry(), spec));
  }
  Builder b(&body, &test_registry());
  Outputs outputs = make(b, args);
  SR_CHECK(b.status().ok(), "{}", base::message_of(b.status()));
  return *ir::Function::make(std::move(body), std::move(outputs));
}

const TensorSpec kScalar{DType::kFloat64, Shape()};
const TensorSpec kVector{DType::kFloat64, Shape{-1}};

Output number(Builder& b, double value) { return ops::scalar(b, DType::kFloat64, value); }

class ControlTest : public testing::Test {
 protected:
  Output feed(std::string_view name, const Tensor& value) {
    feeds_[std::string(name)] = value;
    Shape shape = value.shape();
    for (int i = 0; i < shape.rank(); ++i) shape.set_dim(i, -1);
    return ops::placeholder(b_, name, value.dtype(), shape);
  }

  Status build(const Outputs& fetches) {
    SR_RETURN_IF_ERROR(b_.status());
    SR_ASSIGN_OR_RETURN(const program::Program made, compile_for_test(graph_, fetches));
    SR_ASSIGN_OR_RETURN(program::Program program, program::decode(program::encode(made)));
    SR_ASSIGN_OR_RETURN(bound_, BoundProgram::bind(std::move(program), all_kernels(), {}));
    step_ = std::make_unique<Step>(bound_.get(), &pool_, nullptr);
    step_->set_stop_signal(&stop_);
    return {};
  }

  Result<std::vector<Tensor>> again() {
    return run_step(step_.get(), bound_->program(), feeds_, ++id_);
  }

  std::vector<Tensor> run(const Outputs& fetches) {
    const Status built = build(fetches);
    EXPECT_TRUE(built.ok()) << base::message_of(built);
    if (!built.ok()) return {};
    auto got = again();
    EXPECT_TRUE(got.ok()) << base::message_of(got.status());
    return got.ok() ? *got : std::vector<Tensor>();
  }

  static std::vector<double> values(const Tensor& t) {
    const auto data = t.data<const double>();
    return {data.begin(), data.end()};
  }

  /// While(i != 0; i - 1, f(x)...): variables (i, x...).
  NodeId countdown(double times, const FunctionPtr& body, Outputs variables,
                   const Outputs& captured, int64_t maximum = -1) {
    variables.insert(variables.begin(), number(b_, times));
    std::vector<TensorSpec> inputs;
    for (size_t i = 0; i < body->num_inputs(); ++i) inputs.push_back(body->input(i));
    const FunctionPtr cond = function(inputs, [](Builder& f, const Outputs& x) {
      return Outputs{ops::cast(f, x[0], DType::kBool)};
    });
    return ops::while_loop(b_, cond, body, variables, captured, maximum, "loop");
  }

  Graph graph_;
  Builder b_{&graph_, &test_registry()};
  reference::Values feeds_;
  BufferPool pool_{size_t{1} << 30};
  StopSignal stop_;
  std::unique_ptr<BoundProgram> bound_;
  std::unique_ptr<Step> step_;
  uint64_t id_ = 0;
};

/// (i, x) -> (i - 1, 2 x; x)
FunctionPtr doubling() {
  return function({kScalar, kVector}, [](Builder& b, const Outputs& x) {
    return Outputs{ops::sub(b, x[0], number(b, 1)), ops::add(b, x[1], x[1]), x[1]};
  });
}

TEST_F(ControlTest, AFunctionIsCalledAsOftenAsNodesCallIt) {
  const FunctionPtr square = function(
      {kVector}, [](Builder& b, const Outputs& x) { return Outputs{ops::square(b, x[0])}; });
  const Output x = feed("x", Tensor::of<double>({2}, {2, 3}));
  const Output once = {ops::function_call(b_, square, {x}), 0};
  const Output twice = {ops::function_call(b_, square, {once}), 0};
  const auto got = run({once, twice});
  EXPECT_EQ(values(got[0]), (std::vector<double>{4, 9}));
  EXPECT_EQ(values(got[1]), (std::vector<double>{16, 81}));
  EXPECT_EQ(bound_->program().bodies.size(), 1U);
}

TEST_F(ControlTest, OneBranchRunsAndGetsTheArguments) {
  const FunctionPtr yes =
      function({kVector}, [](Builder& b, const Outputs& x) { return Outputs{ops::neg(b, x[0])}; });
  const FunctionPtr no = function({kVector}, [](Builder&, const Outputs& x) { return x; });
  const Output x = feed("x", Tensor::of<double>({2}, {2, 3}));
  const Output flag = feed("flag", Tensor::scalar<bool>(true));
  const Output y = {ops::branch(b_, flag, yes, no, {x}), 0};
  EXPECT_EQ(values(run({y})[0]), (std::vector<double>{-2, -3}));
  feeds_["flag"] = Tensor::scalar<bool>(false);
  EXPECT_EQ(values((*again())[0]), (std::vector<double>{2, 3}));
}

TEST_F(ControlTest, ALoopRunsWhileItsConditionHoldsAndStacksWhatItReturns) {
  const Output x = feed("x", Tensor::of<double>({2}, {1, 5}));
  const NodeId loop = countdown(3, doubling(), {x}, {});
  const auto got = run({{loop, 0}, {loop, 1}, {loop, 2}});
  EXPECT_EQ(values(got[0]), (std::vector<double>{0}));
  EXPECT_EQ(values(got[1]), (std::vector<double>{8, 40}));
  EXPECT_EQ(got[2].to_string(), "float64[3,2]");
  EXPECT_EQ(values(got[2]), (std::vector<double>{1, 5, 2, 10, 4, 20}));
}

TEST_F(ControlTest, MaximumIterationsBoundsALoop) {
  const Output x = feed("x", Tensor::of<double>({1}, {1}));
  const NodeId loop = countdown(1e9, doubling(), {x}, {}, 4);
  EXPECT_EQ(values(run({{loop, 1}})[0]), (std::vector<double>{16}));
}

TEST_F(ControlTest, ALoopThatNeverRunsGivesItsFirstValues) {
  const Output x = feed("x", Tensor::of<double>({2}, {1, 5}));
  const NodeId loop = countdown(0, doubling(), {x}, {});
  const auto got = run({{loop, 1}, {loop, 2}});
  EXPECT_EQ(values(got[0]), (std::vector<double>{1, 5}));
  EXPECT_EQ(got[1].to_string(), "float64[0,0]");
}

TEST_F(ControlTest, AVariableMayChangeItsShapeWithinTheInvariant) {
  const FunctionPtr grow = function({kScalar, kVector}, [](Builder& b, const Outputs& x) {
    return Outputs{ops::sub(b, x[0], number(b, 1)), ops::concat(b, {x[1], x[1]}, 0)};
  });
  const Output x = feed("x", Tensor::of<double>({1}, {7}));
  const NodeId loop = countdown(3, grow, {x}, {});
  EXPECT_EQ(run({{loop, 1}})[0].to_string(), "float64[8]");
}

TEST_F(ControlTest, AShapeOutsideOfTheInvariantIsAnErrorThatNamesTheIteration) {
  // The extent of what Unique makes is not known before it runs.
  const TensorSpec ids{DType::kInt64, Shape{2}};
  const FunctionPtr shrink = function({kScalar, ids}, [](Builder& b, const Outputs& x) {
    return Outputs{ops::sub(b, x[0], number(b, 1)), b.add("Unique", {x[1]})};
  });
  const Output x = feed("x", Tensor::of<int64_t>({2}, {7, 7}));
  const NodeId loop = countdown(3, shrink, {x}, {});
  ASSERT_TRUE(build({{loop, 1}}).ok());
  EXPECT_THAT(base::message_of(again().status()), HasSubstr("While 'loop', iteration 1"));
  feeds_["x"] = Tensor::of<int64_t>({2}, {7, 8});
  EXPECT_TRUE(again().ok());
}

TEST_F(ControlTest, AScanGoesOverRowsInEitherDirection) {
  for (const bool reverse : {false, true}) {
    SCOPED_TRACE(reverse);
    graph_ = Graph();
    const FunctionPtr body =
        function({kScalar, kScalar, kScalar}, [](Builder& b, const Outputs& x) {
          const Output sum = ops::add(b, x[0], ops::mul(b, x[1], x[2]));
          return Outputs{sum, sum};
        });
    const Output rows = feed("rows", Tensor::of<double>({3}, {1, 2, 3}));
    const NodeId scan =
        ops::scan(b_, body, {number(b_, 0)}, {rows}, {number(b_, 10)}, {.reverse = reverse});
    const auto got = run({{scan, 0}, {scan, 1}});
    EXPECT_EQ(values(got[0]), (std::vector<double>{60}));
    EXPECT_EQ(values(got[1]),
              reverse ? (std::vector<double>{60, 50, 30}) : (std::vector<double>{10, 30, 60}));
  }
}

TEST_F(ControlTest, AScanOverNothingGivesItsFirstValues) {
  const FunctionPtr body = function({kScalar, kScalar}, [](Builder& b, const Outputs& x) {
    return Outputs{ops::add(b, x[0], x[1]), x[1]};
  });
  const Output rows = feed("rows", Tensor::zeros(DType::kFloat64, {0}));
  const NodeId scan = ops::scan(b_, body, {number(b_, 4)}, {rows}, {});
  const auto got = run({{scan, 0}, {scan, 1}});
  EXPECT_EQ(values(got[0]), (std::vector<double>{4}));
  EXPECT_EQ(got[1].to_string(), "float64[0]");
}

TEST_F(ControlTest, WhatABranchPassesOnIsNotOverwritten) {
  const FunctionPtr same = function({kVector}, [](Builder&, const Outputs& x) { return x; });
  const FunctionPtr other =
      function({kVector}, [](Builder& b, const Outputs& x) { return Outputs{ops::neg(b, x[0])}; });
  const Output x = feed("x", Tensor::of<double>({2}, {1, 2}));
  const Output flag = feed("flag", Tensor::scalar<bool>(true));
  // `sum` is in a buffer of the plan that is free after the branch.
  const Output sum = ops::exp(b_, ops::add(b_, x, x));
  const Output kept = {ops::branch(b_, flag, same, other, {ops::log(b_, sum)}), 0};
  Output later = ops::mul(b_, ops::exp(b_, kept), number(b_, 3));
  later = ops::mul(b_, ops::exp(b_, later), number(b_, 5));
  const auto got = run({later, kept});
  EXPECT_NEAR(values(got[1])[1], 4, 1e-12);
}

TEST_F(ControlTest, IterationsTakeNoMemoryOnceWarm) {
  const Output x = feed("x", Tensor::of<double>({2}, {1, 5}));
  const Output w = feed("w", Tensor::of<double>({2}, {0.5, 0.25}));
  const FunctionPtr body = function({kScalar, kVector, kVector}, [](Builder& b, const Outputs& x) {
    const Output next = ops::tanh(b, ops::mul(b, ops::add(b, x[1], x[2]), x[2]));
    return Outputs{ops::sub(b, x[0], number(b, 1)), next, next};
  });
  const NodeId loop = countdown(1000, body, {x}, {w});
  const auto grads = autodiff::gradients(b_, ops::reduce_sum(b_, {loop, 1}), {x, w});
  ASSERT_TRUE(grads.ok()) << base::message_of(grads.status());
  const auto first = run({{loop, 1}, {loop, 2}, (*grads)[0], (*grads)[1]});
  ASSERT_EQ(first.size(), 4U);
  ASSERT_TRUE(again().ok());
  const size_t warm = pool_.allocations();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(again().ok());
  EXPECT_EQ(pool_.allocations(), warm);
  EXPECT_LT(warm, 60U);
}

TEST_F(ControlTest, ManyIterationsDoNotGrowTheStack) {
  const FunctionPtr body = function({kScalar}, [](Builder& b, const Outputs& x) {
    return Outputs{ops::sub(b, x[0], number(b, 1))};
  });
  const NodeId loop = countdown(200000, body, {}, {});
  EXPECT_EQ(values(run({{loop, 0}})[0]), (std::vector<double>{0}));
}

/// Raises a signal after so many instructions.
class RaisingExchange final : public ports::Exchange {
 public:
  RaisingExchange(StopSignal* stop, int after) : stop_(stop), left_(after) {}
  Status start(int /*call*/, uint64_t /*step*/, std::span<const Tensor> /*feeds*/,
               ports::CallCompletion* /*completion*/) override {
    return base::internal("no calls here");
  }
  void yield() override {
    if (--left_ == 0) stop_->raise(StopSignal::Reason::kDeadline);
  }

 private:
  StopSignal* stop_;
  int left_;
};

TEST_F(ControlTest, AStepStopsInTheMiddleOfALoopAndRunsAgain) {
  const Output x = feed("x", Tensor::of<double>({1}, {1}));
  const NodeId loop = countdown(1e12, doubling(), {x}, {});
  ASSERT_TRUE(build({{loop, 0}}).ok());
  RaisingExchange exchange(&stop_, 1000);
  Step step(bound_.get(), &pool_, &exchange);
  step.set_stop_signal(&stop_);
  const auto stopped = run_step(&step, bound_->program(), feeds_, 1);
  EXPECT_EQ(stopped.status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(base::message_of(stopped.status()), HasSubstr("the deadline of the step has passed"));
  EXPECT_THAT(base::message_of(stopped.status()), HasSubstr("While 'loop', iteration"));
  // Raised still: nothing runs at all.
  EXPECT_FALSE(run_step(&step, bound_->program(), feeds_, 2).ok());
}

TEST_F(ControlTest, ACancelledStepSaysSo) {
  const Output x = feed("x", Tensor::of<double>({1}, {1}));
  ASSERT_TRUE(build({ops::neg(b_, x)}).ok());
  stop_.raise(StopSignal::Reason::kCancelled);
  stop_.raise(StopSignal::Reason::kDeadline);  // The first reason stays.
  EXPECT_EQ(again().status().code(), StatusCode::kCancelled);
  stop_.raise(StopSignal::Reason::kNone);
  EXPECT_TRUE(again().ok());
}

TEST_F(ControlTest, StackedValuesKeepOneShape) {
  const FunctionPtr grow = function({kScalar, kVector}, [](Builder& b, const Outputs& x) {
    return Outputs{ops::sub(b, x[0], number(b, 1)), ops::concat(b, {x[1], x[1]}, 0), x[1]};
  });
  const Output x = feed("x", Tensor::of<double>({1}, {7}));
  const NodeId loop = countdown(3, grow, {x}, {});
  ASSERT_TRUE(build({{loop, 2}}).ok());
  EXPECT_THAT(base::message_of(again().status()),
              HasSubstr("has shape [1] in one iteration and [2] in another"));
}

TEST_F(ControlTest, RandomNumbersDifferBetweenIterationsAndAgreeWithTheReverse) {
  const FunctionPtr body = function({kVector, kVector}, [](Builder& b, const Outputs& x) {
    const Output dropped = ops::dropout(b, x[1], 0.5, 3, true);
    return Outputs{ops::add(b, x[0], dropped), dropped};
  });
  Tensor ones = Tensor::empty(DType::kFloat64, {2, 64});
  for (double& v : ones.data<double>()) v = 1;
  const Output rows = feed("rows", ones);
  const Output zero = ops::constant(b_, Tensor::zeros(DType::kFloat64, {64}));
  const NodeId scan = ops::scan(b_, body, {zero}, {rows}, {});
  const Output ys = {scan, 1};
  const auto grads =
      autodiff::gradients(b_, ops::reduce_sum(b_, ops::mul(b_, {scan, 0}, {scan, 0})), {rows});
  ASSERT_TRUE(grads.ok()) << base::message_of(grads.status());
  const auto got = run({ys, (*grads)[0], {scan, 0}});
  ASSERT_EQ(got.size(), 3U);
  const auto y = values(got[0]);
  const auto g = values(got[1]);
  const auto sum = values(got[2]);
  EXPECT_NE(std::vector<double>(y.begin(), y.begin() + 64),
            std::vector<double>(y.begin() + 64, y.end()));
  for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(g[i], 2 * sum[i % 64] * y[i]) << i;
}

}  // namespace
}  // namespace sidereal::exec
