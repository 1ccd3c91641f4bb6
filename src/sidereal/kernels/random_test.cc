#include "sidereal/kernels/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

namespace sidereal::kernels {
namespace {

using Fill = void (*)(const RandomKey&, float, float, float*, int64_t);

struct Moments {
  double mean;
  double deviation;
};

Moments moments(const std::vector<float>& v) {
  double sum = 0;
  double squares = 0;
  for (const float x : v) {
    sum += x;
    squares += static_cast<double>(x) * x;
  }
  const double mean = sum / static_cast<double>(v.size());
  return {mean, std::sqrt(squares / static_cast<double>(v.size()) - mean * mean)};
}

TEST(Random, AValueDependsOnItsIndexOnlyNotOnTheSplit) {
  for (const Fill fill :
       std::initializer_list<Fill>{&fill_uniform, &fill_normal, &fill_truncated_normal}) {
    std::vector<float> whole(3001);
    fill({5, 6, 0}, -1.0F, 2.0F, whole.data(), 3001);
    for (const int64_t part : {1, 2, 7, 513, 1024}) {
      std::vector<float> pieces(3001);
      for (int64_t i = 0; i < 3001; i += part) {
        fill({5, 6, static_cast<uint64_t>(i)}, -1.0F, 2.0F, pieces.data() + i,
             std::min<int64_t>(part, 3001 - i));
      }
      EXPECT_EQ(pieces, whole) << "parts of " << part;
    }
    std::vector<float> none;
    fill({5, 6, 9}, -1.0F, 2.0F, none.data(), 0);
  }
}

TEST(Random, SeedsAndStreamsGiveOtherValues) {
  std::set<uint64_t> seen;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    for (uint64_t stream = 0; stream < 20; ++stream) {
      for (uint64_t index = 0; index < 20; ++index) {
        seen.insert(random_bits(seed, stream, index));
      }
    }
  }
  EXPECT_EQ(seen.size(), 8000U);
}

TEST(Random, UniformFillsItsRangeEvenly) {
  std::vector<float> v(400'000);
  fill_uniform({1, 2, 0}, 3.0F, 5.0F, v.data(), static_cast<int64_t>(v.size()));
  EXPECT_GE(*std::min_element(v.begin(), v.end()), 3.0F);
  EXPECT_LT(*std::max_element(v.begin(), v.end()), 5.0F);
  std::vector<int> bins(20);
  for (const float x : v) ++bins[static_cast<int>((x - 3.0F) * 10)];
  double chi = 0;
  for (const int count : bins) chi += (count - 20'000.0) * (count - 20'000.0) / 20'000.0;
  EXPECT_LT(chi, 45.0);  // 19 degrees of freedom: p < 0.001 above 43.8.
}

TEST(Random, UniformNeverReachesItsUpperBound) {
  std::vector<float> v(100'000);
  fill_uniform({1, 2, 0}, 1e6F, 1e6F + 1.0F, v.data(), static_cast<int64_t>(v.size()));
  EXPECT_LT(*std::max_element(v.begin(), v.end()), 1e6F + 1.0F);
  fill_uniform({1, 2, 0}, 2.0F, 2.0F, v.data(), 10);
  EXPECT_EQ(v[0], 2.0F);
}

TEST(Random, NormalHasTheAskedMoments) {
  std::vector<float> v(1'000'000);
  fill_normal({1, 2, 0}, 0.5F, 2.0F, v.data(), static_cast<int64_t>(v.size()));
  const Moments m = moments(v);
  EXPECT_NEAR(m.mean, 0.5, 0.01);
  EXPECT_NEAR(m.deviation, 2.0, 0.01);
  const auto beyond = std::count_if(v.begin(), v.end(), [](float x) { return x > 4.5F; });
  EXPECT_NEAR(static_cast<double>(beyond) / 1e6, 0.02275, 0.001);
  double product = 0;  // Neighbours share a draw and must still be uncorrelated.
  for (size_t i = 0; i < v.size(); i += 2) product += (v[i] - 0.5) * (v[i + 1] - 0.5);
  EXPECT_NEAR(product / 500'000 / 4, 0.0, 0.01);
}

TEST(Random, TruncatedNormalStaysWithinTwoDeviations) {
  std::vector<float> v(500'000);
  fill_truncated_normal({1, 2, 0}, 1.0F, 0.5F, v.data(), static_cast<int64_t>(v.size()));
  EXPECT_GE(*std::min_element(v.begin(), v.end()), 0.0F);
  EXPECT_LE(*std::max_element(v.begin(), v.end()), 2.0F);
  const Moments m = moments(v);
  EXPECT_NEAR(m.mean, 1.0, 0.01);
  EXPECT_NEAR(m.deviation, 0.5 * 0.8796, 0.005);  // Deviation of a normal cut at +-2.
}

}  // namespace
}  // namespace sidereal::kernels
