#include "sidereal/kernels/nn.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace sidereal::kernels {
namespace {

template <class T>
std::vector<T> random_values(int64_t n, uint64_t seed, double lo = -2, double hi = 2) {
  std::mt19937_64 rng(seed);
  std::uniform_real_distribution<double> draw(lo, hi);
  std::vector<T> v(n);
  for (T& x : v) x = static_cast<T>(draw(rng));
  return v;
}

template <class T>
class Nn : public testing::Test {};
using Reals = testing::Types<float, double>;
TYPED_TEST_SUITE(Nn, Reals);

TYPED_TEST(Nn, SigmoidCrossEntropyIsStableAndCorrect) {
  using T = TypeParam;
  std::vector<T> x = random_values<T>(100, 1, -8, 8);
  x[0] = T(500);
  x[1] = T(-500);
  const std::vector<T> z = random_values<T>(100, 2, 0, 1);
  const std::vector<T> g = random_values<T>(100, 3);
  std::vector<T> loss(100);
  std::vector<T> grad(100);
  std::vector<T> label_grad(100);
  sigmoid_cross_entropy(x.data(), z.data(), loss.data(), 100);
  sigmoid_cross_entropy_grad(g.data(), x.data(), z.data(), grad.data(), 100);
  sigmoid_cross_entropy_label_grad(g.data(), x.data(), label_grad.data(), 100);
  for (int i = 0; i < 100; ++i) {
    const double xi = x[i];
    const double want = std::max(xi, 0.0) - xi * z[i] + std::log1p(std::exp(-std::fabs(xi)));
    EXPECT_NEAR(loss[i], want, 1e-6 * std::max(1.0, want));
    EXPECT_NEAR(grad[i], g[i] * (1 / (1 + std::exp(-xi)) - z[i]), 1e-6);
    EXPECT_NEAR(label_grad[i], -g[i] * xi, 1e-3);
  }
}

TYPED_TEST(Nn, FmInteractionIsTheSumOfPairwiseProducts) {
  using T = TypeParam;
  for (const FmDims d :
       {FmDims{5, 3, 16}, FmDims{2, 26, 8}, FmDims{3, 4, 32}, FmDims{2, 5, 10}, FmDims{2, 3, 70},
        FmDims{2, 3, 1}, FmDims{1, 1, 16}, FmDims{0, 3, 4}, FmDims{2, 0, 4}, FmDims{3, 4, 64}}) {
    const int64_t n = d.batch * d.fields * d.dim;
    const std::vector<T> v = random_values<T>(n, 1, -1, 1);
    const std::vector<T> g = random_values<T>(d.batch, 2);
    std::vector<T> out(d.batch, T(7));
    std::vector<T> grad(n);
    fm_interaction(v.data(), d, out.data());
    fm_interaction_grad(g.data(), v.data(), d, grad.data());
    for (int64_t b = 0; b < d.batch; ++b) {
      const T* x = v.data() + b * d.fields * d.dim;
      double want = 0;
      for (int64_t f = 0; f < d.fields; ++f) {
        for (int64_t h = f + 1; h < d.fields; ++h) {
          for (int64_t j = 0; j < d.dim; ++j) {
            want += static_cast<double>(x[f * d.dim + j]) * x[h * d.dim + j];
          }
        }
      }
      EXPECT_NEAR(out[b], want, 2e-4) << d.fields << " fields, dim " << d.dim;
      for (int64_t f = 0; f < d.fields; ++f) {
        for (int64_t j = 0; j < d.dim; ++j) {
          double others = 0;
          for (int64_t h = 0; h < d.fields; ++h) {
            if (h != f) others += x[h * d.dim + j];
          }
          EXPECT_NEAR(grad[(b * d.fields + f) * d.dim + j], g[b] * others, 1e-4);
        }
      }
    }
  }
}

TYPED_TEST(Nn, BiasAddAndReluAgreeWithPlainLoopsAndWorkInPlace) {
  using T = TypeParam;
  for (const auto& [m, n] : {std::pair<int64_t, int64_t>{7, 33}, {1, 1}, {0, 3}, {3, 0}}) {
    const std::vector<T> x = random_values<T>(m * n, 1);
    const std::vector<T> bias = random_values<T>(n, 2);
    std::vector<T> sum = x;
    std::vector<T> relu = x;
    bias_add(x.data(), bias.data(), sum.data(), m, n);
    bias_add_relu(relu.data(), bias.data(), relu.data(), m, n);
    for (int64_t i = 0; i < m * n; ++i) {
      EXPECT_EQ(sum[i], x[i] + bias[i % n]);
      EXPECT_EQ(relu[i], std::max(T(0), x[i] + bias[i % n]));
    }
  }
}

TYPED_TEST(Nn, DropoutKeepsTheExpectedShareAndRepeatsItsMask) {
  using T = TypeParam;
  const int64_t n = 200'000;
  const std::vector<T> ones(n, T(1));
  std::vector<T> out(n);
  for (const double rate : {0.0, 0.1, 0.5, 0.9}) {
    dropout(ones.data(), rate, {7, 3}, out.data(), n);
    const auto kept = std::count_if(out.begin(), out.end(), [](T x) { return x != 0; });
    EXPECT_NEAR(static_cast<double>(kept) / n, 1 - rate, 0.005);
    for (const T x : out) {
      if (x != 0) {
        EXPECT_NEAR(x, 1 / (1 - rate), 1e-5);
      }
    }
    std::vector<T> again = ones;
    dropout(again.data(), rate, {7, 3}, again.data(), n);
    EXPECT_EQ(again, out);
  }
  std::vector<T> other(n);
  dropout(ones.data(), 0.9, {7, 4}, other.data(), n);
  EXPECT_NE(other, out);
}

TYPED_TEST(Nn, SoftmaxRowsAddUpToOne) {
  using T = TypeParam;
  const std::vector<T> x = {T(1000), T(1001), T(999), T(-3), T(0), T(3)};
  std::vector<T> y(6);
  softmax(x.data(), y.data(), 2, 3);
  EXPECT_NEAR(y[0] + y[1] + y[2], 1, 1e-6);
  EXPECT_NEAR(y[5], std::exp(3) / (std::exp(3) + 1 + std::exp(-3)), 1e-6);
}

}  // namespace
}  // namespace sidereal::kernels
