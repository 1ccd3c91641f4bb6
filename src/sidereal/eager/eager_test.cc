#include <gtest/gtest.h>

#include <array>
#include <chrono>

#include "sidereal/eager/engine.h"
#include "sidereal/eager/local_function.h"
#include "sidereal/eager/tape.h"
#include "sidereal/ir/builder.h"
#include "sidereal/ops/ops.h"

namespace sidereal::eager {
namespace {

using tensor::Shape;

class EagerTest : public ::testing::Test {
 protected:
  Value value(const Shape& shape, const std::vector<float>& values) {
    return engine_.wrap(Tensor::of<float>(shape, values));
  }

  Result<Value> run(const char* op, const std::vector<Value>& inputs,
                    const ir::AttrMap& attrs = {}) {
    std::vector<const Value*> pointers;
    for (const Value& input : inputs) pointers.push_back(&input);
    return engine_.run_one(op, pointers, attrs);
  }

  static std::vector<float> floats(const Value& value) {
    const auto data = value.tensor.data<const float>();
    return {data.begin(), data.end()};
  }

  Engine engine_;
};

TEST_F(EagerTest, ops_run_at_once_and_broadcast) {
  const auto sum = run("Add", {value({2}, {1, 2}), value({}, {10})});
  ASSERT_TRUE(sum.ok()) << sum.status();
  EXPECT_EQ(floats(*sum), (std::vector<float>{11, 12}));
}

TEST_F(EagerTest, a_result_outlives_the_next_run_of_the_same_op) {
  const Value first = *run("Neg", {value({2}, {1, 2})});
  const Value second = *run("Neg", {value({2}, {3, 4})});
  EXPECT_EQ(floats(first), (std::vector<float>{-1, -2}));
  EXPECT_EQ(floats(second), (std::vector<float>{-3, -4}));
}

TEST_F(EagerTest, errors_name_the_op_and_the_shapes) {
  const auto sum = run("Add", {value({2}, {1, 2}), value({3}, {1, 2, 3})});
  EXPECT_EQ(
      base::message_of(sum.status()),
      "Add (float32[2], float32[3]): shapes [2] and [3] cannot be broadcast together: extents "
      "2 and 3 differ and neither is 1");
}

TEST_F(EagerTest, names_like_the_wanted_one_are_told) {
  const auto found = find_op(engine_.context().registry(), "matmul");
  EXPECT_EQ(base::message_of(found.status()),
            "there is no op named 'matmul'; names like it: MatMul");
}

TEST_F(EagerTest, programs_are_kept_by_signature_up_to_a_bound) {
  Engine small(4);
  for (int n = 1; n <= 20; ++n) {
    const Value x = small.wrap(Tensor::zeros(tensor::DType::kFloat32, {n}));
    const std::array<const Value*, 1> inputs = {&x};
    ASSERT_TRUE(small.run_one("Neg", inputs).ok());
    ASSERT_TRUE(small.run_one("Neg", inputs).ok());
    EXPECT_LE(small.context().cached(), 4);
  }
}

TEST_F(EagerTest, a_tape_goes_back_through_what_was_run) {
  const Value x = value({}, {3});
  Tape tape;
  tape.watch(x);
  engine_.push(&tape);
  const Value y = *run("Mul", {x, x});
  const Value z = *run("Mul", {y, x});
  engine_.remove(&tape);
  const std::array<uint64_t, 2> sources = {x.id, y.id};
  const auto grads = tape.gradient(engine_, std::span(&z, 1), {}, sources);
  ASSERT_TRUE(grads.ok()) << grads.status();
  EXPECT_EQ(floats((*grads)[0].dense), std::vector<float>{27});
  EXPECT_EQ(floats((*grads)[1].dense), std::vector<float>{3});
}

TEST_F(EagerTest, second_derivatives_come_from_an_outer_tape) {
  const Value x = value({}, {2});
  const std::array<uint64_t, 1> source = {x.id};
  Tape outer;
  Tape inner;
  outer.watch(x);
  inner.watch(x);
  engine_.push(&outer);
  engine_.push(&inner);
  const Value y = *run("Mul", {*run("Mul", {x, x}), x});
  engine_.remove(&inner);
  const auto first = inner.gradient(engine_, std::span(&y, 1), {}, source);
  engine_.remove(&outer);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(floats((*first)[0].dense), std::vector<float>{12});
  const auto second = outer.gradient(engine_, std::span(&(*first)[0].dense, 1), {}, source);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(floats((*second)[0].dense), std::vector<float>{12});
}

TEST_F(EagerTest, an_op_without_gradient_is_named_when_one_reaches_it) {
  const Value x = value({2}, {1, 2});
  Tape tape;
  tape.watch(x);
  engine_.push(&tape);
  engine_.set_site([] { return std::string("model.py:7"); });
  const Value y = *run("Trigamma", {x});
  engine_.remove(&tape);
  const std::array<uint64_t, 1> source = {x.id};
  const auto grads = tape.gradient(engine_, std::span(&y, 1), {}, source);
  EXPECT_EQ(grads.status().code(), StatusCode::kUnimplemented);
  EXPECT_EQ(base::message_of(grads.status()).find("Trigamma (float32[2]) at model.py:7"), 0);
}

class FunctionTest : public EagerTest {
 protected:
  /// x[extent] -> x * x * x, and x * x.
  std::shared_ptr<LocalFunction> cube(int64_t extent = -1) {
    FunctionDef def;
    def.name = "cube";
    ir::Builder b(&def.graph, &engine_.context().registry());
    const ir::Output x = ops::placeholder(b, "x", tensor::DType::kFloat32, {extent});
    const ir::Output square = ops::mul(b, x, x);
    def.inputs = {x};
    def.outputs = {ops::mul(b, square, x), square};
    EXPECT_TRUE(b.status().ok()) << b.status();
    return std::make_shared<LocalFunction>(std::move(def));
  }
};

TEST_F(FunctionTest, a_graph_runs_as_one_program) {
  const Value x = value({3}, {1, 2, 3});
  const std::array<const Value*, 1> inputs = {&x};
  const auto y = cube()->call(engine_, inputs);
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_EQ(floats((*y)[0]), (std::vector<float>{1, 8, 27}));
  EXPECT_EQ(floats((*y)[1]), (std::vector<float>{1, 4, 9}));
}

TEST_F(FunctionTest, tapes_differentiate_functions_twice) {
  const auto function = cube(2);
  const Value x = value({2}, {2, 3});
  const std::array<const Value*, 1> inputs = {&x};
  const std::array<uint64_t, 1> source = {x.id};
  Tape outer;
  Tape inner;
  outer.watch(x);
  inner.watch(x);
  engine_.push(&outer);
  engine_.push(&inner);
  const auto y = function->call(engine_, inputs);
  ASSERT_TRUE(y.ok()) << y.status();
  engine_.remove(&inner);
  const auto first = inner.gradient(engine_, std::span(y->data(), 1), {}, source);
  engine_.remove(&outer);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(floats((*first)[0].dense), (std::vector<float>{12, 27}));
  const auto second = outer.gradient(engine_, std::span(&(*first)[0].dense, 1), {}, source);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(floats((*second)[0].dense), (std::vector<float>{12, 18}));
}

TEST_F(FunctionTest, results_are_not_written_by_the_next_call) {
  const auto function = cube();
  std::vector<Value> kept;
  for (int i = 1; i <= 3; ++i) {
    const Value x =
        engine_.wrap(Tensor::of<float>({2000}, std::vector<float>(2000, static_cast<float>(i))));
    const std::array<const Value*, 1> inputs = {&x};
    kept.push_back((*function->call(engine_, inputs))[1]);
  }
  EXPECT_EQ(floats(kept[0])[0], 1);
  EXPECT_EQ(floats(kept[1])[1999], 4);
  EXPECT_EQ(floats(kept[2])[0], 9);
}

}  // namespace
}  // namespace sidereal::eager
