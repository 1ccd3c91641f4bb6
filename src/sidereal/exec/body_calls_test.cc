#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sidereal/exec/testing/cuts.h"
#include "sidereal/ir/function.h"
#include "sidereal/ops/control.h"
#include "sidereal/ops/ops.h"

// Calls in the bodies of branches and loops, answered by the test.
namespace sidereal::exec {
namespace {

using ir::Builder;
using ir::FunctionPtr;
using ir::Graph;
using ir::Output;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;
using testing::HasSubstr;

void place(Graph* graph, Output value, int device) {
  graph->mutable_node(value.node).device = four_devices()[static_cast<size_t>(device)];
}

Tensor number(double value) { return Tensor::scalar(value); }

double value_of(const Tensor& t) { return t.data<const double>()[0]; }

/// x' = tanh(x on one ps) + neg(x on another), twice; then a call with the result.
class CallsInALoop : public testing::Test {
 protected:
  CallsInALoop() {
    const ir::TensorSpec spec{DType::kFloat64, Shape()};
    Graph body;
    const Output in = *ir::add_arg(&body, test_registry(), spec);
    Builder f(&body, &test_registry());
    const Output a = ops::tanh(f, in);
    const Output b = ops::neg(f, in);
    const Output sum = ops::add(f, a, b);
    place(&body, a, 0);
    place(&body, b, 1);
    place(&body, sum, 2);
    Graph graph;
    Builder g(&graph, &test_registry());
    const Output x = ops::placeholder(g, "x", DType::kFloat64, Shape());
    const ir::NodeId loop = ops::scan(g, *ir::Function::make(std::move(body), {sum}), {x}, {}, {},
                                      {.length = 2}, "loop");
    const Output y = ops::square(g, Output{loop, 0});
    place(&graph, x, 2);
    place(&graph, {loop, 0}, 2);
    place(&graph, y, 1);
    const auto parts = partition::pull_push_by_device(graph, four_devices()[2], {y, {loop, 0}}, {},
                                                      test_registry());
    SR_CHECK(parts.ok(), "{}", base::message_of(parts.status()));
    compiled_ = *program::compile(*parts);
    bound_ = *BoundProgram::bind(compiled_.worker, all_kernels(), {});
    step_ = std::make_unique<Step>(bound_.get(), &pool_, &exchange_);
    begin(7);
  }

  void begin(uint64_t id) {
    exchange_.calls.clear();
    step_->begin(id);
    ASSERT_TRUE(step_->feed(0, number(3)).ok());
  }
  Step::Progress advance() {
    const auto progress = step_->advance();
    EXPECT_TRUE(progress.ok()) << progress.status();
    return progress.ok() ? *progress : Step::Progress::kDone;
  }
  /// What the program of call `number` is for: its one op.
  [[nodiscard]] std::string op_of(int number) const {
    std::string out;
    for (const auto& instruction :
         compiled_.remotes[static_cast<size_t>(number)].program.instructions) {
      out += instruction.op;
    }
    return out;
  }

  BufferPool pool_{1 << 20};
  NotedExchange exchange_;
  program::CompiledStep compiled_;
  std::unique_ptr<BoundProgram> bound_;
  std::unique_ptr<Step> step_;
};

TEST_F(CallsInALoop, are_started_together_and_waited_for_in_every_iteration) {
  EXPECT_EQ(advance(), Step::Progress::kBlocked);
  ASSERT_EQ(exchange_.calls.size(), 2U);
  EXPECT_EQ(step_->calls_in_flight(), 2);
  EXPECT_FALSE(step_->at_tail());
  exchange_.answer(1, {number(10)});
  EXPECT_EQ(advance(), Step::Progress::kBlocked);
  exchange_.answer(0, {number(1)});
  EXPECT_EQ(advance(), Step::Progress::kBlocked);
  ASSERT_EQ(exchange_.calls.size(), 4U);
  EXPECT_EQ(value_of(exchange_.calls[2].feeds[0]), 11);
  // An iteration has a number of its own, which its calls share.
  EXPECT_NE(exchange_.calls[0].step, exchange_.calls[2].step);
  EXPECT_EQ(exchange_.calls[2].step, exchange_.calls[3].step);
  exchange_.answer(2, {number(2)});
  exchange_.answer(3, {number(20)});
  EXPECT_EQ(advance(), Step::Progress::kBlocked);
  ASSERT_EQ(exchange_.calls.size(), 5U);
  EXPECT_EQ(exchange_.calls[4].step, 7U);
  EXPECT_TRUE(step_->at_tail());
  exchange_.answer(4, {number(5)});
  EXPECT_EQ(advance(), Step::Progress::kDone);
  EXPECT_EQ(value_of(step_->fetch(0)), 5);
  EXPECT_EQ(value_of(step_->fetch(1)), 22);
}

TEST_F(CallsInALoop, have_the_numbers_of_their_programs) {
  advance();
  EXPECT_EQ(program::all_calls(bound_->program()).size(), 3U);
  EXPECT_EQ(op_of(exchange_.calls[0].call), "Tanh");
  EXPECT_EQ(op_of(exchange_.calls[1].call), "Neg");
  EXPECT_EQ(op_of(0), "Square");
  for (const auto& call : exchange_.calls) {
    EXPECT_EQ(program::all_calls(bound_->program())[static_cast<size_t>(call.call)]->program,
              compiled_.remotes[static_cast<size_t>(call.call)].hash);
  }
  exchange_.answer(0, {number(0)});
  exchange_.answer(1, {number(0)});
}

TEST_F(CallsInALoop, that_fail_end_the_step_and_the_next_one_is_clean) {
  advance();
  exchange_.answer(0, {number(1)});
  exchange_.answer(1, {number(1)});
  advance();
  exchange_.calls[2].completion->done(base::unavailable("the ps is gone"), {});
  const auto ended = step_->advance();
  EXPECT_EQ(ended.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(base::message_of(ended.status()), HasSubstr("Scan 'loop', iteration 1"));
  EXPECT_EQ(step_->calls_in_flight(), 1);
  // An answer that nobody waits for any more.
  exchange_.answer(3, {number(1)});
  EXPECT_EQ(step_->calls_in_flight(), 0);
  begin(8);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(advance(), Step::Progress::kBlocked);
    ASSERT_GT(exchange_.calls.size(), i);
    exchange_.answer(i, {number(2)});
  }
  EXPECT_EQ(advance(), Step::Progress::kDone);
  EXPECT_EQ(value_of(step_->fetch(1)), 4);
}

TEST_F(CallsInALoop, give_what_was_declared_or_the_step_ends) {
  advance();
  EXPECT_FALSE(exchange_.calls[0].completion->allocate(0, DType::kFloat32, Shape()).ok());
  EXPECT_FALSE(exchange_.calls[0].completion->allocate(1, DType::kFloat64, Shape()).ok());
  EXPECT_TRUE(exchange_.calls[0].completion->allocate(0, DType::kFloat64, Shape()).ok());
  exchange_.answer(0, {});
  exchange_.answer(1, {number(1)});
  EXPECT_FALSE(step_->advance().ok());
}

TEST_F(CallsInALoop, are_refused_where_nobody_carries_them) {
  Step alone(bound_.get(), &pool_, nullptr);
  alone.begin(1);
  ASSERT_TRUE(alone.feed(0, number(1)).ok());
  EXPECT_EQ(alone.advance().status().code(), StatusCode::kFailedPrecondition);
}

/// Answers each call, with the negated feed, when the lane comes up for air.
class AnswersInBetween final : public ports::Exchange {
 public:
  Status start(int call, uint64_t step, std::span<const Tensor> feeds,
               ports::CallCompletion* completion) override {
    static_cast<void>(step);
    EXPECT_EQ(static_cast<size_t>(call), done.size());
    done.push_back(of->position());
    open_.emplace_back(completion, feeds[0].clone());
    return {};
  }
  void yield() override {
    const auto open = std::exchange(open_, {});
    for (const auto& [completion, value] : open) {
      std::vector<Tensor> answer = {number(-value_of(value))};
      completion->done({}, answer);
    }
  }

  const Step* of = nullptr;
  std::vector<size_t> done;  ///< By call: how many instructions had run when it began.

 private:
  std::vector<std::pair<ports::CallCompletion*, Tensor>> open_;
};

/// A chain of calls between two others, beside a product of the driver.
struct ChainBesideAProduct {
  explicit ChainBesideAProduct(int64_t side) {
    Graph graph;
    Builder g(&graph, &test_registry());
    const Output big = ops::placeholder(g, "big", DType::kFloat32, {side, side});
    const Output x = ops::placeholder(g, "x", DType::kFloat64, Shape());
    const Output product = ops::mat_mul(g, big, big);
    Output last = x;
    for (int i = 0; i < 3; ++i) {
      last = ops::neg(g, last);
      place(&graph, last, i % 2);
    }
    for (const Output own : {big, x, product}) place(&graph, own, 2);
    const auto parts = partition::pull_push_by_device(graph, four_devices()[2], {last, product}, {},
                                                      test_registry());
    SR_CHECK(parts.ok(), "{}", base::message_of(parts.status()));
    compiled = *program::compile(*parts);
  }
  program::CompiledStep compiled;
};

TEST(CallsBesideAProduct, begin_in_the_middle_of_it) {
  constexpr int64_t kSide = 1024;
  const ChainBesideAProduct chain(kSide);
  ASSERT_TRUE(chain.compiled.worker.parks);
  const auto bound = *BoundProgram::bind(chain.compiled.worker, all_kernels(), {});
  AnswersInBetween exchange;
  BufferPool pool(1 << 26);
  Step step(bound.get(), &pool, &exchange);
  exchange.of = &step;
  for (uint64_t id = 1; id <= 2; ++id) {
    exchange.done.clear();
    step.begin(id);
    ASSERT_TRUE(step.feed(0, Tensor::empty(DType::kFloat32, {kSide, kSide})).ok());
    ASSERT_TRUE(step.feed(1, number(3)).ok());
    const auto progress = step.advance();
    ASSERT_TRUE(progress.ok()) << progress.status();
    ASSERT_EQ(*progress, Step::Progress::kDone);
    EXPECT_EQ(value_of(step.fetch(0)), -3);
    // Nothing but halves of calls had run: the product had not.
    EXPECT_EQ(exchange.done, (std::vector<size_t>{0, 2, 4}));
    step.end();
  }
}

TEST(CallsBesideAProduct, programs_of_short_products_keep_the_flat_list) {
  EXPECT_FALSE(ChainBesideAProduct(64).compiled.worker.parks);
}

}  // namespace
}  // namespace sidereal::exec
