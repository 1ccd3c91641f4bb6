#include "sidereal/service/staleness.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace sidereal::service {
namespace {

Staleness counted(const std::string& worker, int64_t ones, int64_t threes) {
  Staleness out{.table = "w", .worker = worker, .seen = {}};
  metrics::HistogramSnapshot& seen = out.seen;
  seen.counts.resize(metrics::HistogramSnapshot::kBuckets);
  seen.counts[metrics::Histogram::bucket_of(1)] = ones;
  seen.counts[metrics::Histogram::bucket_of(3)] = threes;
  seen.count = ones + threes;
  seen.sum = ones + 3 * threes;
  seen.max = 3;
  return out;
}

TEST(StalenessSince, IsWhatCameSinceOfEachWorker) {
  const auto lately =
      staleness_since({counted("a", 5, 0)}, {counted("a", 6, 2), counted("b", 1, 0)});
  ASSERT_EQ(lately.size(), 2U);
  EXPECT_EQ(lately[0].seen.count, 3);
  EXPECT_EQ(lately[0].seen.sum, 7);
  EXPECT_EQ(lately[1].worker, "b");
  EXPECT_EQ(lately[1].seen.count, 1);
}

TEST(StalenessSince, HasNothingOfAWorkerThatHasGoneAgainAmongTheOthers) {
  const std::vector<Staleness> before = {counted("", 10, 0), counted("a", 5, 4)};
  EXPECT_TRUE(staleness_since(before, {counted("", 15, 4)}).empty());
  // It had pushed once more.
  const auto once = staleness_since(before, {counted("", 15, 5)});
  ASSERT_EQ(once.size(), 1U);
  EXPECT_EQ(once[0].seen.sum, 3);
  // It is back, and counted from nothing.
  const auto back = staleness_since(before, {counted("", 15, 4), counted("a", 1, 0)});
  ASSERT_EQ(back.size(), 1U);
  EXPECT_EQ(back[0].worker, "a");
  EXPECT_EQ(back[0].seen.count, 1);
  // The server is another one.
  const auto anew = staleness_since(before, {counted("", 1, 0), counted("a", 2, 0)});
  ASSERT_EQ(anew.size(), 2U);
  EXPECT_EQ(anew[0].seen.count + anew[1].seen.count, 3);
}

}  // namespace
}  // namespace sidereal::service
