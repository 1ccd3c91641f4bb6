#include <gtest/gtest.h>

#include <cstdint>
#include <thread>

#include "sidereal/metrics/counter.h"
#include "sidereal/metrics/histogram.h"
#include "sidereal/metrics/lane_metrics.h"

namespace sidereal::metrics {
namespace {

TEST(Counter, IsReadableWhileAnotherThreadWrites) {
  Counter counter;
  std::thread writer([&] {
    for (int i = 0; i < 10'000; ++i) counter.add(2);
  });
  int64_t last = 0;
  while (last < 20'000) {
    const int64_t now = counter.value();
    ASSERT_GE(now, last);
    last = now;
    std::this_thread::yield();
  }
  writer.join();
  EXPECT_EQ(counter.value(), 20'000);
}

TEST(Histogram, BucketsCoverEveryValueWithinAQuarter) {
  for (int64_t v : {int64_t{0}, int64_t{1}, int64_t{3}, int64_t{4}, int64_t{5}, int64_t{7},
                    int64_t{8}, int64_t{1000}, int64_t{123'456'789}, INT64_MAX}) {
    const size_t bucket = Histogram::bucket_of(v);
    ASSERT_LT(bucket, HistogramSnapshot::kBuckets);
    EXPECT_GE(Histogram::bucket_limit(bucket), v);
    EXPECT_LE(static_cast<double>(Histogram::bucket_limit(bucket)), 1.25 * static_cast<double>(v));
    if (bucket > 0) {
      EXPECT_LT(Histogram::bucket_limit(bucket - 1), v);
    }
  }
  EXPECT_EQ(Histogram::bucket_of(-5), 0u);
}

TEST(Histogram, ReportsQuantilesMeanAndMax) {
  Histogram h;
  for (int64_t v = 1; v <= 1000; ++v) h.record(v);
  const HistogramSnapshot s = h.snapshot();
  EXPECT_EQ(s.count, 1000);
  EXPECT_EQ(s.max, 1000);
  EXPECT_DOUBLE_EQ(s.mean(), 500.5);
  EXPECT_GE(s.quantile(0.5), 500);
  EXPECT_LE(s.quantile(0.5), 625);
  EXPECT_EQ(s.quantile(1.0), 1000);
  EXPECT_EQ(HistogramSnapshot().quantile(0.5), 0);
}

TEST(LaneMetrics, MergesLanesOnRead) {
  LaneMetrics a, b;
  a.calls.add(3);
  b.calls.add(4);
  a.call_ns.record(10);
  b.call_ns.record(20);
  LaneMetricsSnapshot sum;
  sum.add(a);
  sum.add(b);
  EXPECT_EQ(sum.calls, 7);
  EXPECT_EQ(sum.call_ns.count, 2);
  bool found = false;
  for (const auto& [name, value] : sum.items()) {
    if (name == "calls") {
      found = true;
      EXPECT_EQ(value, 7);
    }
  }
  EXPECT_TRUE(found);
}

}  // namespace
}  // namespace sidereal::metrics
