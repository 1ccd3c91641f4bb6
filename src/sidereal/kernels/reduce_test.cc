#include "sidereal/kernels/reduce.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace sidereal::kernels {
namespace {

using tensor::Shape;

template <class T>
std::vector<T> random_values(int64_t n, uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::uniform_real_distribution<double> draw(-1, 1);
  std::vector<T> v(n);
  for (T& x : v) x = static_cast<T>(draw(rng));
  return v;
}

template <class T>
std::vector<double> naive(ReduceOp op, const std::vector<T>& in, const ReduceDims& d) {
  std::vector<double> out(d.outer * d.inner);
  for (int64_t o = 0; o < d.outer; ++o) {
    for (int64_t i = 0; i < d.inner; ++i) {
      double acc = op == ReduceOp::kMax ? -std::numeric_limits<double>::infinity() : 0.0;
      for (int64_t r = 0; r < d.reduce; ++r) {
        const double x = in[(o * d.reduce + r) * d.inner + i];
        acc = op == ReduceOp::kMax ? std::max(acc, x) : acc + x;
      }
      out[o * d.inner + i] = op == ReduceOp::kMean ? acc / static_cast<double>(d.reduce) : acc;
    }
  }
  return out;
}

template <class T>
class Reduce : public testing::Test {};
using Reals = testing::Types<float, double>;
TYPED_TEST_SUITE(Reduce, Reals);

TYPED_TEST(Reduce, AgreesWithPlainLoops) {
  using T = TypeParam;
  const ReduceDims shapes[] = {{1, 1, 1},   {1, 7, 1},   {3, 100, 1}, {1, 9000, 1}, {1, 13, 5},
                               {4, 26, 16}, {2, 3, 40},  {5, 1, 3},   {0, 4, 2},    {2, 3, 0},
                               {1, 64, 1},  {1, 127, 1}, {7, 16, 1}};
  for (const ReduceDims& d : shapes) {
    const std::vector<T> in = random_values<T>(d.outer * d.reduce * d.inner, 1);
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMean, ReduceOp::kMax}) {
      std::vector<T> out(d.outer * d.inner);
      reduce(op, in.data(), d, out.data());
      const std::vector<double> want = naive(op, in, d);
      for (size_t i = 0; i < out.size(); ++i) {
        EXPECT_NEAR(out[i], want[i], op == ReduceOp::kMax ? 0.0 : 1e-4);
      }
    }
  }
}

TYPED_TEST(Reduce, OfNothingIsTheNeutralElement) {
  using T = TypeParam;
  T out = T(5);
  reduce<T>(ReduceOp::kSum, nullptr, {1, 0, 1}, &out);
  EXPECT_EQ(out, T(0));
  reduce<T>(ReduceOp::kMax, nullptr, {1, 0, 1}, &out);
  EXPECT_EQ(out, -std::numeric_limits<T>::infinity());
  reduce<T>(ReduceOp::kMean, nullptr, {1, 0, 1}, &out);
  EXPECT_NE(out, out);
}

TYPED_TEST(Reduce, OverAnySetOfAxesAgreesWithPlainLoops) {
  using T = TypeParam;
  const Shape shape{3, 4, 1, 5, 2};
  const std::vector<T> in = random_values<T>(shape.num_elements(), 2);
  for (int mask = 0; mask < 32; ++mask) {
    std::vector<int> axes;
    std::vector<int64_t> stride(5, 0);
    int64_t size = 1;
    int64_t count = 1;
    for (int i = 4; i >= 0; --i) {
      if ((mask >> i & 1) != 0) {
        axes.push_back(i);
        count *= shape.dim(i);
      } else {
        stride[i] = size;
        size *= shape.dim(i);
      }
    }
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMean, ReduceOp::kMax}) {
      std::vector<double> want(
          size, op == ReduceOp::kMax ? -std::numeric_limits<double>::infinity() : 0.0);
      for (int64_t i = 0; i < shape.num_elements(); ++i) {
        int64_t rest = i;
        int64_t at = 0;
        for (int axis = 4; axis >= 0; --axis) {
          at += rest % shape.dim(axis) * stride[axis];
          rest /= shape.dim(axis);
        }
        want[at] = op == ReduceOp::kMax ? std::max<double>(want[at], in[i]) : want[at] + in[i];
      }
      std::vector<T> out(size);
      reduce_axes<T>(op, in.data(), shape, axes, out.data());
      for (int64_t i = 0; i < size; ++i) {
        const double divisor = op == ReduceOp::kMean ? static_cast<double>(count) : 1.0;
        EXPECT_NEAR(out[i], want[i] / divisor, 1e-5) << "axes mask " << mask;
      }
    }
  }
}

TYPED_TEST(Reduce, ColumnAndRowSumsAgreeWithPlainLoops) {
  using T = TypeParam;
  for (const auto& [m, n] : {std::pair<int64_t, int64_t>{5, 7}, {1, 1}, {0, 3}, {33, 1}, {4, 0}}) {
    const std::vector<T> in = random_values<T>(m * n, 3);
    std::vector<T> columns(n, T(9));
    std::vector<T> rows(m, T(9));
    bias_grad(in.data(), m, n, columns.data());
    row_sums(in.data(), m, n, rows.data());
    const std::vector<double> want_columns = naive(ReduceOp::kSum, in, {1, m, n});
    const std::vector<double> want_rows = naive(ReduceOp::kSum, in, {m, n, 1});
    for (int64_t j = 0; j < n; ++j) EXPECT_NEAR(columns[j], want_columns[j], 1e-5);
    for (int64_t i = 0; i < m; ++i) EXPECT_NEAR(rows[i], want_rows[i], 1e-5);
  }
}

TEST(Sum, OfMillionsOfFloatsKeepsItsDigits) {
  const std::vector<float> ones(20'000'000, 0.1F);
  EXPECT_NEAR(sum(ones.data(), static_cast<int64_t>(ones.size())), 2e6, 4.0);
}

TEST(Reduce, IntegersWrapAroundAndTruncateTheirMeans) {
  const std::vector<int8_t> in = {100, 100, -7, -8, 3, 5};
  std::vector<int8_t> out(3);
  reduce<int8_t>(ReduceOp::kSum, in.data(), {3, 2, 1}, out.data());
  EXPECT_EQ(out, (std::vector<int8_t>{-56, -15, 8}));
  reduce<int8_t>(ReduceOp::kMean, in.data(), {3, 2, 1}, out.data());
  EXPECT_EQ(out, (std::vector<int8_t>{-28, -7, 4}));
  reduce<int8_t>(ReduceOp::kMin, in.data(), {3, 2, 1}, out.data());
  EXPECT_EQ(out, (std::vector<int8_t>{100, -8, 3}));
  reduce<int8_t>(ReduceOp::kProd, in.data(), {3, 2, 1}, out.data());
  EXPECT_EQ(out, (std::vector<int8_t>{16, 56, 15}));
}

TEST(Reduce, ExtremesAreNanWhenOneElementIs) {
  std::vector<float> in(100, 1.0F);
  in[57] = std::numeric_limits<float>::quiet_NaN();
  float out = 0;
  for (const ReduceOp op : {ReduceOp::kMax, ReduceOp::kMin}) {
    reduce<float>(op, in.data(), {1, 100, 1}, &out);
    EXPECT_TRUE(std::isnan(out));
  }
  reduce<float>(ReduceOp::kMax, in.data(), {1, 0, 1}, &out);
  EXPECT_EQ(out, -std::numeric_limits<float>::infinity());
}

TEST(ArgReduce, GivesTheFirstOfEqualOnesAndTheFirstNan) {
  const std::vector<double> in = {1, 3, 3, 2, std::numeric_limits<double>::quiet_NaN(), 9};
  std::vector<int32_t> out(2);
  arg_reduce(true, in.data(), {2, 3, 1}, out.data());
  EXPECT_EQ(out, (std::vector<int32_t>{1, 1}));
  std::vector<int64_t> columns(3);
  arg_reduce(false, in.data(), {1, 2, 3}, columns.data());
  EXPECT_EQ(columns, (std::vector<int64_t>{0, 1, 0}));
}

TEST(ProdGrad, IsExactWhereElementsAreZero) {
  const std::vector<double> x = {0, 2, 3, 0, 0, 5};
  const std::vector<double> dy = {1, 10};
  std::vector<double> running(2);
  std::vector<double> out(6);
  prod_grad(dy.data(), x.data(), {2, 3}, {2, 1}, running.data(), out.data());
  EXPECT_EQ(out, (std::vector<double>{6, 0, 0, 0, 0, 0}));
}

TEST(ProdGradGrad, LeavesOutTwoElementsAtATime) {
  const std::vector<double> x = {0, 2, 3, 0, 0, 5};
  const std::vector<double> u = {1, 10, 100, 1, 10, 100};
  const std::vector<double> dy = {1, 2};
  std::vector<double> running(4);
  std::vector<double> before(6);
  std::vector<double> out(6);
  prod_grad_grad(dy.data(), x.data(), u.data(), {2, 3}, {2, 1}, running.data(), before.data(),
                 out.data());
  EXPECT_EQ(out, (std::vector<double>{10 * 3 + 100 * 2, 3, 2, 2 * 10 * 5, 2 * 1 * 5, 0}));
}

}  // namespace
}  // namespace sidereal::kernels
