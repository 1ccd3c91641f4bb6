#include "sidereal/data/quality.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace sidereal::data {
namespace {

const std::vector<float> kScores = {0.9F, 0.8F, 0.7F, 0.6F, 0.5F};
const std::vector<float> kLabels = {1, 0, 1, 0, 0};

TEST(Quality, IsWhatTheDefinitionsSay) {
  const auto got = quality(kScores, kLabels, {});
  ASSERT_TRUE(got.ok());
  EXPECT_NEAR(got->pr_auc, (1.0 + 2.0 / 3) / 2, 1e-12);
  EXPECT_NEAR(got->rmse, std::sqrt((0.01 + 0.64 + 0.09 + 0.36 + 0.25) / 5), 1e-6);
  EXPECT_NEAR(got->calibration, 3.5 / 2, 1e-6);
  EXPECT_TRUE(std::isnan(got->grouped_auc));
  EXPECT_TRUE(std::isnan(got->ndcg));
}

TEST(Quality, OfEqualScoresDoesNotDependOnTheOrderOfRows) {
  const std::vector<float> equal = {0.5F, 0.5F, 0.5F, 0.5F};
  const std::vector<int64_t> one_group(4, 7);
  for (const std::vector<float>& labels :
       {std::vector<float>{1, 0, 0, 0}, std::vector<float>{0, 0, 0, 1}}) {
    const auto got = quality(equal, labels, one_group);
    ASSERT_TRUE(got.ok());
    EXPECT_NEAR(got->pr_auc, 0.25, 1e-12);
    EXPECT_NEAR(got->grouped_auc, 0.5, 1e-12);
    EXPECT_NEAR(got->ndcg, (1 + 1 / std::log2(3.0) + 0.5 + 1 / std::log2(5.0)) / 4, 1e-12);
  }
}

TEST(Quality, OfGroupsIsTheirMean) {
  // Group 1 has AUC 1, group 2 (3 rows) has 0; group 3 has one kind of labels, and no AUC.
  const std::vector<float> scores = {0.9F, 0.8F, 0.7F, 0.6F, 0.5F, 0.4F};
  const std::vector<float> labels = {1, 0, 0, 0, 1, 1};
  const std::vector<int64_t> groups = {1, 2, 1, 2, 2, 3};
  const auto got = quality(scores, labels, groups);
  ASSERT_TRUE(got.ok());
  EXPECT_NEAR(got->grouped_auc, (2 * 1.0 + 3 * 0.0) / 5, 1e-12);
  EXPECT_NEAR(got->ndcg, (1 + 0.5 + 1) / 3, 1e-12);
}

TEST(Quality, IsNoneWhereThereIsNothingToRank) {
  const auto got =
      quality(std::vector<float>{0.5F}, std::vector<float>{0}, std::vector<int64_t>{1});
  ASSERT_TRUE(got.ok());
  EXPECT_TRUE(std::isnan(got->pr_auc));
  EXPECT_TRUE(std::isnan(got->calibration));
  EXPECT_TRUE(std::isnan(got->grouped_auc));
  EXPECT_TRUE(std::isnan(got->ndcg));
}

TEST(Quality, RefusesWhatIsNoScoring) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(quality(kScores, {}, {}).ok());
  EXPECT_FALSE(quality({}, {}, {}).ok());
  EXPECT_FALSE(quality(kScores, kLabels, std::vector<int64_t>{1}).ok());
  EXPECT_FALSE(quality(std::vector<float>{nan}, std::vector<float>{1}, {}).ok());
}

}  // namespace
}  // namespace sidereal::data
