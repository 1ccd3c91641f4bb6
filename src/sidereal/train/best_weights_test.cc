#include "sidereal/train/best_weights.h"

#include <gtest/gtest.h>

#include <limits>

namespace sidereal::train {
namespace {

std::vector<EvalResult> curve(const std::vector<std::pair<double, double>>& auc_and_loss) {
  std::vector<EvalResult> out;
  for (const auto& [auc, loss] : auc_and_loss) {
    EvalResult& one = out.emplace_back();
    one.auc = auc;
    one.loss = loss;
  }
  return out;
}

TEST(BestOf, IsTheFirstWithTheLargestAuc) {
  EXPECT_EQ(best_of(curve({{0.7, 9}, {0.8, 3}, {0.8, 1}, {0.6, 0}}), true), 1U);
}

TEST(BestOf, IsTheLeastLossWhereThereIsNoAuc) {
  EXPECT_EQ(best_of(curve({{0, 3}, {0, 1}, {0, 2}}), false), 1U);
  const double none = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(best_of(curve({{0.9, 3}, {none, 2}, {0.8, 1}}), true), 2U);
}

}  // namespace
}  // namespace sidereal::train
