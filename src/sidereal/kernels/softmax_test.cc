#include "sidereal/kernels/softmax.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace sidereal::kernels {
namespace {

template <class T>
std::vector<T> random_values(int64_t n, uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::normal_distribution<double> draw;
  std::vector<T> v(n);
  for (T& x : v) x = static_cast<T>(draw(rng));
  return v;
}

template <class T>
class Softmax : public testing::Test {};
using Reals = testing::Types<float, double>;
TYPED_TEST_SUITE(Softmax, Reals);

TYPED_TEST(Softmax, EqualsThePlainFormulaAlongAnyAxis) {
  using T = TypeParam;
  for (const ReduceDims dims : {ReduceDims{3, 7, 1}, ReduceDims{2, 130, 1}, ReduceDims{2, 5, 3}}) {
    const int64_t n = dims.outer * dims.reduce * dims.inner;
    const std::vector<T> x = random_values<T>(n, 4);
    std::vector<T> y(n);
    std::vector<T> logs(n);
    softmax(x.data(), dims, y.data());
    log_softmax(x.data(), dims, logs.data());
    for (int64_t o = 0; o < dims.outer; ++o) {
      for (int64_t i = 0; i < dims.inner; ++i) {
        const auto at = [&](int64_t r) { return (o * dims.reduce + r) * dims.inner + i; };
        double total = 0;
        for (int64_t r = 0; r < dims.reduce; ++r) total += std::exp(static_cast<double>(x[at(r)]));
        for (int64_t r = 0; r < dims.reduce; ++r) {
          const double want = std::exp(static_cast<double>(x[at(r)])) / total;
          EXPECT_NEAR(y[at(r)], want, 1e-6);
          EXPECT_NEAR(logs[at(r)], std::log(want), 1e-5);
        }
      }
    }
    std::vector<T> in_place = x;
    log_softmax(in_place.data(), dims, in_place.data());
    EXPECT_EQ(in_place, logs);
  }
}

TYPED_TEST(Softmax, OfLargeNumbersKeepsTheDigitsOfTheirDifferences) {
  using T = TypeParam;
  const std::vector<T> x = {T(10000), T(9999), -std::numeric_limits<T>::infinity()};
  std::vector<T> y(3);
  log_softmax(x.data(), {1, 3, 1}, y.data());
  EXPECT_NEAR(y[0], -std::log1p(std::exp(-1.0)), 1e-6);
  EXPECT_EQ(y[2], -std::numeric_limits<T>::infinity());
}

TYPED_TEST(Softmax, LossesAndTheirGradientsAgreeForLabelsAndDistributions) {
  using T = TypeParam;
  constexpr int64_t kRows = 5;
  constexpr int64_t kClasses = 9;
  const std::vector<T> x = random_values<T>(kRows * kClasses, 5);
  const std::vector<int32_t> labels = {0, 8, 3, 3, 1};
  std::vector<T> one_hot(kRows * kClasses, T(0));
  for (int64_t i = 0; i < kRows; ++i) one_hot[i * kClasses + labels[i]] = 1;
  std::vector<T> loss(kRows);
  std::vector<T> back(kRows * kClasses);
  std::vector<T> dense_loss(kRows);
  std::vector<T> dense_back(kRows * kClasses);
  EXPECT_EQ(sparse_softmax_cross_entropy(x.data(), labels.data(), kRows, kClasses, loss.data(),
                                         back.data()),
            -1);
  softmax_cross_entropy(x.data(), one_hot.data(), kRows, kClasses, dense_loss.data(),
                        dense_back.data());
  for (int64_t i = 0; i < kRows; ++i) EXPECT_NEAR(loss[i], dense_loss[i], 1e-5);
  for (size_t i = 0; i < back.size(); ++i) EXPECT_NEAR(back[i], dense_back[i], 1e-6);
  const std::vector<int32_t> bad = {0, 8, 9, 3, -1};
  EXPECT_EQ(
      sparse_softmax_cross_entropy(x.data(), bad.data(), kRows, kClasses, loss.data(), back.data()),
      2);
}

}  // namespace
}  // namespace sidereal::kernels
