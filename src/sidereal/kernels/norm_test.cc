#include "sidereal/kernels/norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace sidereal::kernels {
namespace {

std::vector<double> random_values(int64_t n, uint64_t seed, double center = 0) {
  std::mt19937_64 rng(seed);
  std::normal_distribution<double> draw(center);
  std::vector<double> v(n);
  for (double& x : v) x = draw(rng);
  return v;
}

TEST(Norm, LayerNormBringsRowsToMeanZeroAndVarianceOne) {
  constexpr int64_t kM = 4;
  constexpr int64_t kN = 300;  // More than one block.
  const std::vector<double> x = random_values(kM * kN, 1, 50);
  const std::vector<float> single(x.begin(), x.end());
  const std::vector<float> ones(kN, 1);
  const std::vector<float> zeros(kN, 0);
  std::vector<float> y(kM * kN);
  std::vector<float> mean(kM);
  std::vector<float> rstd(kM);
  layer_norm(single.data(), ones.data(), zeros.data(), kM, kN, 0.0, y.data(), mean.data(),
             rstd.data());
  for (int64_t i = 0; i < kM; ++i) {
    double total = 0;
    double squares = 0;
    for (int64_t j = 0; j < kN; ++j) {
      total += y[i * kN + j];
      squares += static_cast<double>(y[i * kN + j]) * y[i * kN + j];
    }
    EXPECT_NEAR(total / kN, 0, 1e-5);
    EXPECT_NEAR(squares / kN, 1, 1e-4);
    EXPECT_NEAR(mean[i], 50, 0.5);
  }
}

/// The weighted sum of a normalisation's result, for differences.
template <class Norm>
double weighted(Norm norm, const std::vector<double>& x, const std::vector<double>& scale,
                const std::vector<double>& offset, const std::vector<double>& dy, int64_t m,
                int64_t n) {
  std::vector<double> y(m * n);
  std::vector<double> a(m + n);
  std::vector<double> b(m + n);
  norm(x.data(), scale.data(), offset.data(), m, n, 1e-3, y.data(), a.data(), b.data());
  double total = 0;
  for (size_t i = 0; i < y.size(); ++i) total += y[i] * dy[i];
  return total;
}

TEST(Norm, GradientsAreFiniteDifferences) {
  constexpr int64_t kM = 6;
  constexpr int64_t kN = 70;  // More than one tile of columns.
  const std::vector<double> dy = random_values(kM * kN, 2);
  const std::vector<double> offset = random_values(kN, 3);
  for (const bool layer : {true, false}) {
    std::vector<double> x = random_values(kM * kN, 4);
    std::vector<double> scale = random_values(kN, 5);
    std::vector<double> y(kM * kN);
    std::vector<double> first(kM + kN);
    std::vector<double> second(kM + kN);
    std::vector<double> dx(kM * kN);
    std::vector<double> dscale(kN);
    std::vector<double> doffset(kN);
    const auto norm = layer ? layer_norm<double> : batch_norm<double>;
    norm(x.data(), scale.data(), offset.data(), kM, kN, 1e-3, y.data(), first.data(),
         second.data());
    if (layer) {
      layer_norm_grad(dy.data(), x.data(), scale.data(), first.data(), second.data(), kM, kN,
                      dx.data(), dscale.data(), doffset.data());
    } else {
      batch_norm_grad(dy.data(), x.data(), scale.data(), first.data(), second.data(), kM, kN, 1e-3,
                      dx.data(), dscale.data(), doffset.data());
    }
    const auto difference = [&](double* at) {
      const double before = *at;
      *at = before + 1e-5;
      const double high = weighted(norm, x, scale, offset, dy, kM, kN);
      *at = before - 1e-5;
      const double low = weighted(norm, x, scale, offset, dy, kM, kN);
      *at = before;
      return (high - low) / 2e-5;
    };
    for (size_t i = 0; i < x.size(); i += 37) EXPECT_NEAR(dx[i], difference(&x[i]), 1e-6) << i;
    for (size_t j = 0; j < scale.size(); j += 9) {
      EXPECT_NEAR(dscale[j], difference(&scale[j]), 1e-6) << j;
    }
  }
}

}  // namespace
}  // namespace sidereal::kernels
