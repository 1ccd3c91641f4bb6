#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "sidereal/exec/executor.h"
#include "sidereal/exec/testing/one_program.h"
#include "sidereal/program/validate.h"

namespace sidereal::exec {
namespace {

using program::Instruction;
using program::InstructionKind;
using program::Program;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr DType kF32 = DType::kFloat32;

/// Writes programs down, slot by slot.
class Writer {
 public:
  int32_t slot(DType dtype = kF32, const Shape& shape = {-1}, bool in_plan = true) {
    program.slots.push_back({dtype, shape, in_plan ? program.num_buffers++ : -1});
    return static_cast<int32_t>(program.slots.size()) - 1;
  }
  int32_t feed(const std::string& name, DType dtype = kF32, const Shape& shape = {-1}) {
    program.feeds.push_back(slot(dtype, shape, false));
    program.feed_names.push_back(name);
    return program.feeds.back();
  }
  int32_t op(const std::string& op, std::vector<int32_t> inputs, ir::AttrMap attrs = {}) {
    const int32_t out = slot();
    run(op, std::move(inputs), {out}, std::move(attrs));
    return out;
  }
  void run(const std::string& op, std::vector<int32_t> inputs, std::vector<int32_t> outputs,
           ir::AttrMap attrs = {}) {
    Instruction instruction;
    instruction.op = op;
    instruction.name = "my/" + op;
    instruction.inputs = std::move(inputs);
    instruction.outputs = std::move(outputs);
    instruction.attrs = std::move(attrs);
    program.instructions.push_back(std::move(instruction));
  }
  int32_t declare_call(std::vector<int32_t> feeds, std::vector<int32_t> fetches) {
    program.calls.push_back({"/job:ps/task:0", 1, std::move(feeds), std::move(fetches)});
    return static_cast<int32_t>(program.calls.size()) - 1;
  }
  void start(int32_t call) { add(InstructionKind::kCallStart, call); }
  void wait(int32_t call) { add(InstructionKind::kCallWait, call); }
  void fetch(int32_t slot) {
    program.fetches.push_back(slot);
    program.fetch_names.push_back(fmt::format("fetch{}", slot));
  }

  Program program;

 private:
  void add(InstructionKind kind, int32_t call) {
    Instruction instruction;
    instruction.kind = kind;
    instruction.name = fmt::format("call{}", call);
    instruction.call = call;
    program.instructions.push_back(std::move(instruction));
  }
};

Tensor vec(const std::vector<float>& values) {
  return Tensor::of<float>({static_cast<int64_t>(values.size())}, values);
}

std::vector<float> list(const Tensor& t) {
  const auto data = t.data<const float>();
  return {data.begin(), data.end()};
}

std::unique_ptr<BoundProgram> bind(Program program, const KernelTable& table = all_kernels()) {
  EXPECT_TRUE(program::validate(program).ok()) << program::validate(program);
  auto bound = BoundProgram::bind(std::move(program), table, {});
  EXPECT_TRUE(bound.ok()) << bound.status();
  return *std::move(bound);
}

/// The status a program ends with, bound and fed by `feeds`.
Status outcome(Program program, const std::vector<Tensor>& feeds) {
  SR_RETURN_IF_ERROR(program::validate(program));
  SR_ASSIGN_OR_RETURN(const auto bound, BoundProgram::bind(std::move(program), all_kernels(), {}));
  BufferPool pool(1 << 20);
  Step step(bound.get(), &pool, nullptr);
  step.begin(1);
  for (size_t i = 0; i < feeds.size(); ++i) {
    SR_RETURN_IF_ERROR(step.feed(static_cast<int>(i), feeds[i]));
  }
  return step.advance().status();
}

/// x is sent in two calls a and b; then y = a + b, z = -x.
class TwoCalls : public testing::Test {
 protected:
  TwoCalls() {
    Writer w;
    const int32_t x = w.feed("x");
    const int32_t a = w.slot(kF32, {-1}, false);
    const int32_t b = w.slot(kF32, {-1}, false);
    w.declare_call({x}, {a});
    w.declare_call({x}, {b});
    w.start(0);
    w.start(1);
    const int32_t z = w.op("Neg", {x});
    w.wait(0);
    w.wait(1);
    const int32_t y = w.op("Add", {a, b});
    w.declare_call({y}, {});
    w.start(2);
    w.wait(2);
    w.fetch(y);
    w.fetch(z);
    bound_ = bind(w.program);
    step_ = std::make_unique<Step>(bound_.get(), &pool_, &exchange_);
    begin(7);
  }

  void begin(uint64_t id) {
    step_->begin(id);
    EXPECT_TRUE(step_->feed(0, vec({1, 2})).ok());
  }
  Step::Progress advance() {
    const auto progress = step_->advance();
    EXPECT_TRUE(progress.ok()) << progress.status();
    return *progress;
  }

  BufferPool pool_{1 << 20};
  NotedExchange exchange_;
  std::unique_ptr<BoundProgram> bound_;
  std::unique_ptr<Step> step_;
};

TEST_F(TwoCalls, answered_in_the_other_order_give_the_same_result) {
  EXPECT_EQ(advance(), Step::Progress::kBlocked);
  ASSERT_EQ(exchange_.calls.size(), 2U);
  EXPECT_EQ(exchange_.calls[1].step, 7U);
  EXPECT_EQ(list(exchange_.calls[1].feeds[0]), list(vec({1, 2})));
  EXPECT_EQ(step_->calls_in_flight(), 2);
  exchange_.answer(1, {vec({30, 40})});
  EXPECT_EQ(step_->calls_in_flight(), 1);
  EXPECT_EQ(advance(), Step::Progress::kBlocked);
  exchange_.answer(0, {vec({5, 6})});
  EXPECT_EQ(advance(), Step::Progress::kBlocked);
  ASSERT_EQ(exchange_.calls.size(), 3U);
  EXPECT_THAT(list(exchange_.calls[2].feeds[0]), ElementsAre(35, 46));
  exchange_.answer(2, {});
  EXPECT_EQ(advance(), Step::Progress::kDone);
  EXPECT_THAT(list(step_->fetch(0)), ElementsAre(35, 46));
  EXPECT_THAT(list(step_->fetch(1)), ElementsAre(-1, -2));
  EXPECT_EQ(step_->calls_in_flight(), 0);
}

TEST_F(TwoCalls, position_moves_only_with_progress_and_the_tail_is_where_nothing_starts_any_more) {
  EXPECT_EQ(step_->position(), 0U);
  advance();
  const size_t blocked = step_->position();
  EXPECT_EQ(blocked, 3U);
  advance();
  EXPECT_EQ(step_->position(), blocked);
  EXPECT_FALSE(step_->at_tail());
  exchange_.answer(0, {vec({0, 0})});
  exchange_.answer(1, {vec({0, 0})});
  advance();
  EXPECT_TRUE(step_->at_tail());
  EXPECT_EQ(step_->position(), bound_->tail());
  exchange_.answer(2, {});
  advance();
  EXPECT_EQ(step_->position(), bound_->program().instructions.size());
}

TEST_F(TwoCalls, an_answer_that_comes_while_the_lane_looks_up_is_taken) {
  bool answered = false;
  exchange_.on_yield = [&] {
    if (answered || exchange_.calls.size() < 2) return;
    answered = true;
    exchange_.answer(1, {vec({1, 1})});
    exchange_.answer(0, {vec({2, 2})});
  };
  EXPECT_EQ(advance(), Step::Progress::kBlocked);
  EXPECT_EQ(exchange_.calls.size(), 3U);
  EXPECT_GE(exchange_.yields, 3);
  exchange_.answer(2, {});
}

TEST(StepTest, a_long_instruction_comes_up_for_air) {
  Writer w;
  const int32_t y = w.op("Neg", {w.feed("x")});
  w.fetch(y);
  const auto bound = bind(w.program);
  for (const int threads : {1, 2}) {
    BufferPool pool(1 << 28);
    NotedExchange exchange;
    Workers workers(threads);
    std::thread::id lane = std::this_thread::get_id();
    exchange.on_yield = [&] { EXPECT_EQ(std::this_thread::get_id(), lane); };
    Step step(bound.get(), &pool, &exchange);
    step.set_workers(&workers);
    const auto yields = [&](int64_t size) {
      exchange.yields = 0;
      step.begin(1);
      EXPECT_TRUE(step.feed(0, Tensor::zeros(kF32, Shape{size})).ok());
      EXPECT_TRUE(step.advance().ok());
      step.end();
      return exchange.yields;
    };
    EXPECT_EQ(yields(16), 1);
    // While this thread does not get a processor, the other one may take nearly all pieces.
    int64_t most = 0;
    for (int tries = 0; most <= 2 && tries < 50; ++tries) {
      most = std::max<int64_t>(most, yields(int64_t{1} << 24));
    }
    EXPECT_GT(most, 2);
  }
}

TEST_F(TwoCalls, advance_to_wait_sends_but_does_not_take_an_answer_that_is_there) {
  exchange_.on_yield = [&] {
    if (step_->calls_in_flight() < 2) return;
    exchange_.answer(0, {vec({1, 1})});
    exchange_.answer(1, {vec({2, 2})});
  };
  const auto sent = step_->advance_to_wait();
  ASSERT_TRUE(sent.ok()) << sent.status();
  EXPECT_EQ(*sent, Step::Progress::kBlocked);
  EXPECT_EQ(exchange_.calls.size(), 2U);
  EXPECT_EQ(step_->position(), 3U);
  exchange_.on_yield = nullptr;
  EXPECT_EQ(advance(), Step::Progress::kBlocked);
  exchange_.answer(2, {});
  EXPECT_EQ(advance(), Step::Progress::kDone);
  EXPECT_THAT(list(step_->fetch(0)), ElementsAre(3, 3));
}

TEST_F(TwoCalls, the_error_of_a_call_ends_the_step_and_the_next_step_is_clean) {
  advance();
  exchange_.calls[0].completion->done(base::unavailable("the ps is gone"), {});
  exchange_.answer(1, {vec({1, 1})});
  const auto ended = step_->advance();
  EXPECT_EQ(ended.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(base::message_of(ended.status()), HasSubstr("the ps is gone"));
  exchange_.calls.clear();
  begin(8);
  advance();
  exchange_.answer(0, {vec({1, 1})});
  exchange_.answer(1, {vec({2, 2})});
  advance();
  exchange_.answer(2, {});
  EXPECT_EQ(advance(), Step::Progress::kDone);
}

TEST_F(TwoCalls, a_call_that_cannot_be_sent_ends_the_step_and_is_not_in_flight) {
  exchange_.refuse = base::unavailable("not connected to /job:ps/task:0");
  EXPECT_EQ(step_->advance().status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(step_->calls_in_flight(), 0);
}

TEST_F(TwoCalls, answers_that_do_not_fit_are_refused) {
  advance();
  ports::CallCompletion* const first = exchange_.calls[0].completion;
  EXPECT_EQ(first->allocate(1, kF32, {2}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(first->allocate(-1, kF32, {2}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(first->allocate(0, DType::kInt64, {2}).status().code(), StatusCode::kInvalidArgument);
  const Status shape = first->allocate(0, kF32, {2, 2}).status();
  EXPECT_THAT(base::message_of(shape), HasSubstr("float32[2,2]"));
  EXPECT_TRUE(first->allocate(0, kF32, {5}).ok());
  exchange_.answer(0, {});
  EXPECT_EQ(step_->advance().status().code(), StatusCode::kInternal);
  exchange_.answer(1, {Tensor()});
  begin(9);
  advance();
  exchange_.answer(2, {Tensor()});
  EXPECT_EQ(step_->advance().status().code(), StatusCode::kUnimplemented);
  exchange_.answer(3, {vec({1, 1})});
}

TEST_F(TwoCalls, steps_of_one_program_do_not_mix_their_values) {
  Step other(bound_.get(), &pool_, &exchange_);
  other.begin(100);
  ASSERT_TRUE(other.feed(0, vec({10, 20})).ok());
  advance();
  ASSERT_TRUE(other.advance().ok());
  ASSERT_EQ(exchange_.calls.size(), 4U);
  exchange_.answer(3, {vec({4, 4})});
  exchange_.answer(1, {vec({2, 2})});
  exchange_.answer(2, {vec({3, 3})});
  exchange_.answer(0, {vec({1, 1})});
  ASSERT_TRUE(other.advance().ok());
  advance();
  exchange_.answer(4, {});
  exchange_.answer(5, {});
  ASSERT_TRUE(other.advance().ok());
  advance();
  EXPECT_THAT(list(step_->fetch(0)), ElementsAre(3, 3));
  EXPECT_THAT(list(step_->fetch(1)), ElementsAre(-1, -2));
  EXPECT_THAT(list(other.fetch(0)), ElementsAre(7, 7));
  EXPECT_THAT(list(other.fetch(1)), ElementsAre(-10, -20));
}

/// y = exp(x), z = y under another shape, w = y + y.
Program with_view() {
  Writer w;
  const int32_t x = w.feed("x");
  const int32_t y = w.op("Exp", {x});
  const int32_t z = w.slot(kF32, {-1, 1}, false);
  w.run("Reshape", {y}, {z}, {{"shape", std::vector<int64_t>{-1, 1}}});
  w.fetch(z);
  w.fetch(w.op("Add", {y, y}));
  return w.program;
}

TEST(Step, fetches_kept_across_begin_are_not_overwritten) {
  const auto bound = bind(with_view());
  BufferPool pool(1 << 20);
  Step step(bound.get(), &pool, nullptr);
  std::vector<Tensor> kept;
  for (uint64_t id = 0; id < 5; ++id) {
    step.begin(id);
    ASSERT_TRUE(step.feed(0, vec(std::vector<float>(8, static_cast<float>(id)))).ok());
    ASSERT_TRUE(step.advance().ok());
    kept.push_back(step.fetch(0));
    kept.push_back(step.fetch(1));
  }
  for (uint64_t id = 0; id < 5; ++id) {
    const float e = std::exp(static_cast<float>(id));
    for (const float v : list(kept[2 * id])) EXPECT_NEAR(v, e, 1e-5 * e);
    for (const float v : list(kept[2 * id + 1])) EXPECT_NEAR(v, 2 * e, 2e-5 * e);
  }
}

TEST(Step, end_lets_go_of_feeds_and_of_fetches) {
  const auto bound = bind(with_view());
  BufferPool pool(1 << 20);
  Step step(bound.get(), &pool, nullptr);
  step.begin(0);
  const Tensor x = vec({1, 2});
  ASSERT_TRUE(step.feed(0, x).ok());
  ASSERT_TRUE(step.advance().ok());
  const Tensor y = step.fetch(1);
  step.end();
  EXPECT_EQ(x.buffer()->holders(), 1);
  EXPECT_LE(y.buffer()->holders(), 3);  // The step's plan, its slot, and y.
}

TEST(Step, takes_no_memory_once_warm_even_when_batches_differ_a_little) {
  const auto bound = bind(with_view());
  BufferPool pool(1 << 20);
  Step first(bound.get(), &pool, nullptr);
  Step second(bound.get(), &pool, nullptr);
  size_t warm = 0;
  for (uint64_t id = 0; id < 60; ++id) {
    Step& step = id % 2 == 0 ? first : second;
    step.begin(id);
    const auto rows = static_cast<size_t>(1000 - 7 * (id % 9));
    ASSERT_TRUE(step.feed(0, vec(std::vector<float>(rows, 1))).ok());
    ASSERT_TRUE(step.advance().ok());
    EXPECT_EQ(step.fetch(1).num_elements(), static_cast<int64_t>(rows));
    if (id == 5) warm = pool.allocations();
  }
  EXPECT_EQ(pool.allocations(), warm);
  EXPECT_GT(warm, 0U);
}

TEST(Step, a_feed_that_does_not_fit_is_refused_by_name) {
  Writer w;
  w.fetch(w.op("Neg", {w.feed("clicks", kF32, {-1, 3})}));
  const auto bound = bind(w.program);
  BufferPool pool(1 << 20);
  Step step(bound.get(), &pool, nullptr);
  step.begin(1);
  const Status shape = step.feed(0, Tensor::zeros(kF32, {2, 4}));
  EXPECT_EQ(shape.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(base::message_of(shape), HasSubstr("'clicks' is float32[2,4], but float32[?,3]"));
  EXPECT_FALSE(step.feed(0, Tensor::zeros(DType::kFloat64, {2, 3})).ok());
  EXPECT_FALSE(step.feed(0, Tensor::zeros(kF32, {3})).ok());
  EXPECT_FALSE(step.feed(1, Tensor::zeros(kF32, {2, 3})).ok());
  EXPECT_FALSE(step.feed(-1, Tensor::zeros(kF32, {2, 3})).ok());
  EXPECT_TRUE(step.feed(0, Tensor::zeros(kF32, {2, 3})).ok());
}

TEST(Step, an_error_names_the_node_the_op_and_the_inputs) {
  Writer w;
  const int32_t x = w.feed("x", kF32, Shape::unknown_rank());
  const int32_t y = w.feed("y", kF32, Shape::unknown_rank());
  w.fetch(w.op("MatMul", {x, y}));
  const Status status =
      outcome(w.program, {Tensor::zeros(kF32, {2, 3}), Tensor::zeros(kF32, {4, 5})});
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(base::message_of(status),
              HasSubstr("MatMul 'my/MatMul' (float32[2,3], float32[4,5]): inner extents 3 and 4"));
}

TEST(Bind, an_unknown_op_is_named) {
  Writer w;
  w.fetch(w.op("Teleport", {w.feed("x")}));
  const auto bound = BoundProgram::bind(w.program, all_kernels(), {});
  EXPECT_EQ(bound.status().code(), StatusCode::kUnimplemented);
  EXPECT_THAT(base::message_of(bound.status()), HasSubstr("op Teleport of node 'my/Teleport'"));
}

TEST(Kernels, ids_and_rows_that_are_not_there_are_out_of_range) {
  Writer route;
  const int32_t ids = route.feed("ids", DType::kInt64);
  const int32_t rows = route.slot(DType::kInt64);
  const int32_t position = route.slot(DType::kInt64);
  route.run("Route", {ids}, {rows, position},
            {{"rows", int64_t{10}}, {"lanes", std::vector<int64_t>{1}}});
  for (const int64_t id : {int64_t{10}, int64_t{-1}, int64_t{1} << 62}) {
    const Status status = outcome(route.program, {Tensor::of<int64_t>({1}, {id})});
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << id;
    EXPECT_THAT(base::message_of(status), HasSubstr(fmt::format("id {}", id)));
  }
  Writer slice;
  slice.run("SliceAxis", {slice.feed("x")}, {slice.slot()},
            {{"axis", int64_t{0}}, {"begin", int64_t{2}}, {"size", int64_t{2}}});
  EXPECT_EQ(outcome(slice.program, {vec({1, 2, 3})}).code(), StatusCode::kInvalidArgument);
}

/// Attributes of an op's types with senseless values.
ir::AttrMap awkward_attrs(Dice* dice, const ir::OpSchema& schema) {
  ir::AttrMap out;
  const auto number = [dice] { return dice->number(-3, 7); };
  for (const ir::AttrSpec& attr : schema.attrs) {
    if (dice->chance(5)) continue;
    const std::string type = dice->chance(95) ? attr.type : "string";
    if (type == "int") out[attr.name] = number();
    if (type == "ints") {
      std::vector<int64_t> list(dice->number(0, 4));
      for (int64_t& x : list) x = number();
      out[attr.name] = list;
    }
    if (type == "float") out[attr.name] = static_cast<double>(number()) / 4;
    if (type == "bool") out[attr.name] = dice->chance(50);
    if (type == "string") out[attr.name] = std::string(dice->chance(50) ? "bias" : "table");
    if (type == "dtype") out[attr.name] = static_cast<DType>(dice->number(1, 13));
    if (type == "tensor") out[attr.name] = dice->tensor(kF32, {2}, 0, 1);
  }
  return out;
}

/// One instruction of `op` with senseless inputs, outputs and attributes: an error or a result.
bool run_awkward(Dice* dice, const std::string& op) {
  const std::vector<DType> dtypes = {kF32, kF32, DType::kFloat64, DType::kInt64, DType::kInt32};
  const std::vector<Shape> shapes = {{}, {0}, {3}, {2, 3}, {3, 2}, {2, 3, 4}, {0, 3}, {1, 1, 1, 2}};
  const DType usual = dice->pick(dtypes);
  Writer w;
  std::vector<int32_t> inputs;
  std::vector<Tensor> feeds;
  const Shape shape = dice->pick(shapes);
  for (int64_t i = dice->number(0, 4); i > 0; --i) {
    const DType dtype = dice->chance(85) ? usual : dice->pick(dtypes);
    inputs.push_back(w.feed("x", dtype, Shape::unknown_rank()));
    feeds.push_back(dice->tensor(dtype, dice->chance(60) ? shape : dice->pick(shapes), -2, 5));
  }
  std::vector<int32_t> outputs;
  for (int64_t i = dice->chance(80) ? 1 : dice->number(0, 3); i > 0; --i) {
    outputs.push_back(w.slot(dice->chance(85) ? usual : dice->pick(dtypes)));
  }
  w.run(op, inputs, outputs, awkward_attrs(dice, *test_registry().find(op)));
  // Reads what came out.
  for (const int32_t out : outputs) {
    w.op("Neg", {out});
    w.program.slots.back().dtype = w.program.slots[out].dtype;
  }
  return outcome(w.program, feeds).ok();
}

TEST(Kernels, turn_senseless_programs_into_an_error_or_a_result) {
  int good = 0;
  for (const std::string& op : test_registry().names()) {
    if (all_kernels().find(op) == nullptr) continue;
    Dice dice(3);
    int good_of_op = 0;
    for (int i = 0; i < 3000; ++i) {
      if (run_awkward(&dice, op)) ++good_of_op;
    }
    good += good_of_op;
    EXPECT_LT(good_of_op, 3000) << op;
  }
  EXPECT_GT(good, 1000);
}

/// w' = UpdateDense(w, grad, step, rate) by plain descent, w' fetched.
Program descent() {
  Writer w;
  const int32_t weights = w.feed("w");
  const int32_t grad = w.feed("grad");
  const int32_t step = w.feed("step", DType::kFloat64, {});
  const int32_t rate = w.feed("rate", DType::kFloat64, {});
  const int32_t updated = w.slot(kF32, {-1}, false);
  w.run("UpdateDense", {weights, grad, step, rate}, {updated}, {{"kind", std::string("sgd")}});
  w.program.instructions.back().releases = {weights, grad, step, rate};
  w.fetch(updated);
  return w.program;
}

Status run_descent(Step& step, Tensor* weights, bool lend) {
  step.begin(1);
  SR_RETURN_IF_ERROR(lend ? step.lend(0, *weights) : step.feed(0, *weights));
  SR_RETURN_IF_ERROR(step.feed(1, vec({1, 2})));
  SR_RETURN_IF_ERROR(step.feed(2, Tensor::scalar(1.0)));
  SR_RETURN_IF_ERROR(step.feed(3, Tensor::scalar(1.0)));
  return step.advance().status();
}

TEST(Step, updates_memory_that_is_lent_in_place) {
  const auto bound = bind(descent());
  BufferPool pool(1 << 20);
  Step step(bound.get(), &pool, nullptr);
  Tensor weights = vec({10, 10});
  const std::byte* const memory = weights.raw();
  ASSERT_TRUE(run_descent(step, &weights, true).ok());
  EXPECT_EQ(step.fetch(0).raw(), memory);
  EXPECT_THAT(list(weights), ElementsAre(9, 8));
}

TEST(Step, updates_a_copy_of_what_is_only_fed_or_held_by_others) {
  const auto bound = bind(descent());
  BufferPool pool(1 << 20);
  Step step(bound.get(), &pool, nullptr);
  Tensor weights = vec({10, 10});
  ASSERT_TRUE(run_descent(step, &weights, false).ok());
  EXPECT_THAT(list(step.fetch(0)), ElementsAre(9, 8));
  EXPECT_THAT(list(weights), ElementsAre(10, 10));
  const Tensor read = weights;
  ASSERT_TRUE(run_descent(step, &weights, true).ok());
  EXPECT_THAT(list(step.fetch(0)), ElementsAre(9, 8));
  EXPECT_THAT(list(read), ElementsAre(10, 10));
}

TEST(Step, takes_no_memory_for_an_update_in_place) {
  const auto bound = bind(descent());
  BufferPool pool(1 << 20);
  Step step(bound.get(), &pool, nullptr);
  Tensor weights = vec({10, 10});
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(run_descent(step, &weights, true).ok());
  EXPECT_EQ(pool.allocations(), 0U);
}

}  // namespace
}  // namespace sidereal::exec
