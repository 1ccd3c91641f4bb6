#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "sidereal/autodiff/autodiff.h"
#include "sidereal/exec/testing/one_program.h"
#include "sidereal/ops/ops.h"
#include "sidereal/passes/pipeline.h"

// Programs with products in bfloat16 beside those in float32, and beside those whose Casts are
// instructions of their own.
namespace sidereal::exec {
namespace {

using ir::Builder;
using ir::Output;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

/// Some layers of any width and activation, a loss, and the gradients of everything.
struct RandomTower : public LocalModel {
  explicit RandomTower(uint32_t seed) : LocalModel(seed) {
    int64_t width = dice.number(1, 40);
    const int64_t batch = dice.number(1, 70);
    Output x = input("x", {batch, width}, dice.chance(50) ? Shape{-1, width} : Shape{-1, -1});
    std::vector<Output> wrt = {x};
    const int64_t layers = dice.number(1, 3);
    for (int64_t i = 0; i < layers; ++i) {
      const int64_t units = dice.number(1, 40);
      const Output w = input(fmt::format("w{}", i), {width, units}, {width, units});
      x = ops::mat_mul(b, x, w);
      wrt.push_back(w);
      if (dice.chance(80)) {
        wrt.push_back(input(fmt::format("b{}", i), {units}, {units}));
        x = ops::bias_add(b, x, wrt.back());
      }
      if (i + 1 < layers || dice.chance(30)) x = activation(x);
      if (dice.chance(20)) fetches.push_back(x);
      width = units;
    }
    const Output loss = ops::reduce_mean(b, ops::square(b, x), {}, false);
    fetches.push_back(loss);
    const auto grads = autodiff::gradients(b, loss, wrt);
    EXPECT_TRUE(grads.ok()) << grads.status();
    for (const Output& grad : *grads) fetches.push_back(grad);
  }

  Output input(const std::string& name, const Shape& shape, const Shape& known) {
    const double bound = shape.rank() == 2 ? 1.5 / std::sqrt(shape.dim(0)) : 0.5;
    feeds[name] = dice.tensor(DType::kFloat32, shape, -bound, bound);
    return ops::placeholder(b, name, DType::kFloat32, known);
  }

  Output activation(Output x) {
    switch (dice.number(0, 3)) {
      case 0:
        return ops::tanh(b, x);
      case 1:
        return ops::sigmoid(b, x);
      case 2:
        return ops::mul(b, ops::relu(b, x), ops::tanh(b, x));
      default:
        return ops::relu(b, x);
    }
  }
};

/// |a - b| / |b| of all elements together.
double distance(const Tensor& a, const Tensor& b) {
  double apart = 0;
  double length = 1e-12;
  for (int64_t i = 0; i < a.num_elements(); ++i) {
    const double x = a.data<const float>()[i];
    const double y = b.data<const float>()[i];
    apart += (x - y) * (x - y);
    length += y * y;
  }
  return std::sqrt(apart / length);
}

TEST(MixedPrecision, is_float32_but_for_the_rounding_of_what_products_read) {
  bool ran_fused = false;
  double sum = 0;
  double count = 0;
  for (uint32_t seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    RandomTower tower(seed);
    const std::vector<Tensor> wide = tower.run({});
    const std::vector<Tensor> narrow = tower.run({.compute_dtype = DType::kBFloat16});
    ran_fused = ran_fused || tower.ops.contains("FusedMatMul");
    ASSERT_EQ(wide.size(), narrow.size());
    for (size_t i = 0; i < wide.size(); ++i) {
      EXPECT_EQ(narrow[i].dtype(), DType::kFloat32);
      const double apart = distance(narrow[i], wide[i]);
      // A Relu that is on one side of zero here and on the other there moves a small tower far.
      EXPECT_LT(apart, 0.3) << "fetch " << i;
      sum += apart;
      count += 1;
    }
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_TRUE(ran_fused);
  EXPECT_LT(sum / count, 0.01);
}

TEST(MixedPrecision, gives_the_same_bits_with_casts_of_their_own) {
  for (uint32_t seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    RandomTower tower(seed);
    const auto fused = tower.run({.compute_dtype = DType::kBFloat16});
    const auto plain = tower.run({.fuse = false, .compute_dtype = DType::kBFloat16});
    EXPECT_FALSE(tower.ops.contains("FusedMatMul"));
    expect_same(fused, plain);
    if (testing::Test::HasFailure()) return;
  }
}

/// x y of bfloat16 stacks that broadcast, as the program says.
TEST(MixedPrecision, multiplies_stacks_of_bfloat16_as_float32_would_their_values) {
  const std::vector<std::pair<Shape, Shape>> shapes = {
      {{4, 3, 5}, {4, 5, 2}}, {{4, 3, 5}, {5, 2}},       {{3, 5}, {4, 5, 2}},
      {{0, 3, 5}, {5, 2}},    {{2, 1, 3, 5}, {6, 5, 2}}, {{2, 3, 0}, {2, 0, 2}}};
  for (const auto& [a_shape, b_shape] : shapes) {
    for (const DType out : {DType::kBFloat16, DType::kFloat32}) {
      ir::Graph graph;
      Builder b(&graph, &test_registry());
      const auto rounded = [&](const char* name, const Shape& shape) {
        return ops::cast(b, ops::placeholder(b, name, DType::kFloat32, shape), DType::kBFloat16);
      };
      const Output x = rounded("x", a_shape);
      const Output y = rounded("y", b_shape);
      const Output wide =
          ops::mat_mul(b, ops::cast(b, x, DType::kFloat32), ops::cast(b, y, DType::kFloat32));
      const Output z = ops::cast(b, b.add("MatMul", {x, y}, {{"out_type", out}}), DType::kFloat32);
      const auto step = compile_for_test(graph, {z, wide});
      ASSERT_TRUE(step.ok()) << step.status();
      BufferPool pool(1 << 20);
      const auto bound = BoundProgram::bind(*step, all_kernels(), {});
      ASSERT_TRUE(bound.ok()) << bound.status();
      Step running(bound->get(), &pool, nullptr);
      Dice dice(3);
      const reference::Values feeds = {{"x", dice.tensor(DType::kFloat32, a_shape, -1, 1)},
                                       {"y", dice.tensor(DType::kFloat32, b_shape, -1, 1)}};
      const auto got = run_step(&running, *step, feeds, 1);
      ASSERT_TRUE(got.ok()) << got.status();
      expect_close((*got)[0], (*got)[1], out == DType::kFloat32 ? 1e-6 : 1.0 / 256);
    }
  }
}

}  // namespace
}  // namespace sidereal::exec
