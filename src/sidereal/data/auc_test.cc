#include "sidereal/data/auc.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "sidereal/data/random.h"

namespace sidereal::data {
namespace {

double naive_auc(const std::vector<float>& scores, const std::vector<float>& labels) {
  double right = 0;
  double pairs = 0;
  for (size_t i = 0; i < scores.size(); ++i) {
    for (size_t j = 0; j < scores.size(); ++j) {
      if (labels[i] < 0.5F || labels[j] > 0.5F) continue;
      pairs += 1;
      right += scores[i] > scores[j] ? 1 : (scores[i] == scores[j] ? 0.5 : 0);
    }
  }
  return right / pairs;
}

TEST(Auc, EqualsTheCountOfAllPairsWithAndWithoutTies) {
  Random random(3);
  for (const uint64_t values : {2, 7, 1000000}) {
    for (int round = 0; round < 20; ++round) {
      std::vector<float> scores;
      std::vector<float> labels{0, 1};
      for (int i = 2; i < 60; ++i) labels.push_back(static_cast<float>(random.below(2)));
      for (int i = 0; i < 60; ++i) scores.push_back(static_cast<float>(random.below(values)) - 3);
      const auto got = auc(scores, labels);
      ASSERT_TRUE(got.ok());
      EXPECT_DOUBLE_EQ(*got, naive_auc(scores, labels));
    }
  }
}

TEST(Auc, IsOneForPerfectZeroForReversedHalfForConstantScores) {
  const std::vector<float> labels{0, 0, 1, 1};
  EXPECT_EQ(*auc(std::vector<float>{1, 2, 3, 4}, labels), 1);
  EXPECT_EQ(*auc(std::vector<float>{4, 3, 2, 1}, labels), 0);
  EXPECT_EQ(*auc(std::vector<float>{5, 5, 5, 5}, labels), 0.5);
}

TEST(Auc, RefusesNanOneKindOfLabelAndDifferentLengths) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(auc(std::vector<float>{1, nan}, std::vector<float>{0, 1}).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_FALSE(auc(std::vector<float>{1, 2}, std::vector<float>{1, 1}).ok());
  EXPECT_FALSE(auc(std::vector<float>{1, 2}, std::vector<float>{1}).ok());
  EXPECT_FALSE(auc({}, {}).ok());
}

TEST(LogLoss, IsTheMeanOfMinusLogProbability) {
  const auto got = log_loss(std::vector<float>{0.25F, 0.5F}, std::vector<float>{1, 0});
  EXPECT_NEAR(*got, (std::log(4.0) + std::log(2.0)) / 2, 1e-7);
  const auto certain = log_loss(std::vector<float>{0, 1}, std::vector<float>{1, 1}, 1e-3);
  EXPECT_NEAR(*certain, -(std::log(1e-3) + std::log(1 - 1e-3)) / 2, 1e-9);
}

TEST(LogLoss, RefusesWhatIsNoProbability) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const float p : {-0.1F, 1.1F, nan}) {
    EXPECT_FALSE(log_loss(std::vector<float>{p}, std::vector<float>{1}).ok());
  }
  EXPECT_FALSE(log_loss({}, {}).ok());
}

struct Scored {
  std::vector<float> probabilities;
  std::vector<float> labels;
};

Scored make_rows(int count, uint64_t seed) {
  Random random(seed);
  Scored rows;
  for (int i = 0; i < count; ++i) {
    const float u = static_cast<float>(random.below(1 << 24)) * 0x1p-24F;
    rows.probabilities.push_back(u * u);
    rows.labels.push_back(static_cast<float>(random.below(1 << 24)) * 0x1p-24F < u * u ? 1 : 0);
  }
  return rows;
}

TEST(WindowAuc, AgreesWithTheExactAucAndLogLoss) {
  const Scored rows = make_rows(50000, 5);
  WindowAuc window(0);
  window.add(rows.probabilities, rows.labels);
  EXPECT_NEAR(window.auc(), *auc(rows.probabilities, rows.labels), 1e-3);
  EXPECT_NEAR(window.log_loss(), *log_loss(rows.probabilities, rows.labels), 1e-9);
  EXPECT_EQ(window.rows(), 50000);
}

TEST(WindowAuc, ForgetsOldRows) {
  WindowAuc window(1000);
  const Scored rows = make_rows(20000, 6);
  std::vector<float> wrong;
  for (const float p : rows.probabilities) wrong.push_back(1 - p);
  window.add(wrong, rows.labels);
  EXPECT_LT(window.auc(), 0.4);
  window.add(rows.probabilities, rows.labels);
  EXPECT_GT(window.auc(), 0.75);
}

TEST(WindowAuc, CountsBadRowsApartAndStartsAtOneHalf) {
  WindowAuc window(0);
  EXPECT_EQ(window.auc(), 0.5);
  EXPECT_EQ(window.log_loss(), 0);
  window.add(std::vector<float>{std::numeric_limits<float>::quiet_NaN(), 2, 0.5F},
             std::vector<float>{1, 1, 1});
  EXPECT_EQ(window.bad_rows(), 2);
  EXPECT_EQ(window.rows(), 1);
}

}  // namespace
}  // namespace sidereal::data
