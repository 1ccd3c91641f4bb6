#include <gtest/gtest.h>

#include <cstdint>
#include <thread>

#include "sidereal/metrics/counter.h"
#include "sidereal/metrics/figures.h"
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

TEST(Figures, sums_what_has_the_same_name_and_label) {
  LaneMetrics a, b;
  a.calls.add(3);
  b.calls.add(4);
  a.call_ns.record(10);
  b.call_ns.record(20);
  a.refused_idle.add(2);
  b.malformed.add(5);
  Readings sum;
  a.figures.read(&sum);
  b.figures.read(&sum);
  EXPECT_EQ(sum.value("sidereal_transport_calls_total"), 7);
  EXPECT_EQ(sum.all().at("sidereal_transport_call_seconds").histogram.count, 2);
  EXPECT_EQ(sum.value("sidereal_refused_total"), 7);
  EXPECT_EQ(sum.series("sidereal_refused_total{why=\"idle\"}"), 2);
  EXPECT_EQ(sum.value("sidereal_transport_call"), 0) << "a name, not the beginning of one";
  EXPECT_EQ(sum.value("sidereal_nothing"), 0);
}

TEST(Figures, are_whatever_was_declared_in_them) {
  Figures figures;
  Counter rows(&figures, counter("x_rows_total", Unit::kCount, "Rows."));
  Counter life(&figures, gauge("x_life_seconds", Unit::kSeconds, "Life."));
  Histogram times(&figures, histogram("x_time_seconds", Unit::kSeconds, "Times."));
  rows.add(2);
  life.set(1'500'000'000);
  times.record(7);
  Readings now;
  figures.read(&now);
  ASSERT_EQ(now.all().size(), 3u);
  EXPECT_EQ(now.all().at("x_rows_total").what.help, "Rows.");
  EXPECT_EQ(now.all().at("x_life_seconds").scaled(), 1.5);
  EXPECT_EQ(now.all().at("x_time_seconds").histogram.max, 7);
}

TEST(Figures, of_peers_may_be_any_numbers) {
  Readings sum;
  for (const char* why : {"a", "b"}) {
    sum.add(counter("x_total", Unit::kCount, "", {{"why", why}}), INT64_MAX);
  }
  EXPECT_EQ(sum.value("x_total"), INT64_MAX);
}

TEST(Figures, may_have_several_labels) {
  Readings sum;
  const auto of = [](const char* table, const char* worker) {
    return counter("x_total", Unit::kCount, "", {{"table", table}, {"worker", worker}});
  };
  sum.add(of("a", "0"), 1);
  sum.add(of("a", "1"), 2);
  sum.add(of("a", "0"), 4);
  EXPECT_EQ(series_of(of("a", "0")), "x_total{table=\"a\",worker=\"0\"}");
  EXPECT_EQ(sum.series("x_total{table=\"a\",worker=\"0\"}"), 5);
  EXPECT_EQ(sum.value("x_total"), 7);
}

/// Names in Prometheus' style: what a unit and a kind end in.
TEST(Figures, of_lanes_have_names_that_say_what_they_are) {
  const LaneMetrics lane;
  Readings all;
  lane.figures.read(&all);
  EXPECT_GT(all.all().size(), 20u);
  for (const auto& [series, reading] : all.all()) {
    EXPECT_EQ(wrong_with(reading.what), "") << series;
  }
}

TEST(Figures, wrong_with_finds_names_that_do_not_fit) {
  EXPECT_EQ(wrong_with(counter("sidereal_a_bytes_total", Unit::kBytes, "A.")), "");
  EXPECT_NE(wrong_with(counter("sidereal_a_bytes", Unit::kBytes, "A.")), "");
  EXPECT_NE(wrong_with(gauge("sidereal_a_total", Unit::kCount, "A.")), "");
  EXPECT_NE(wrong_with(gauge("sidereal_a", Unit::kBytes, "A.")), "");
  EXPECT_NE(wrong_with(gauge("sidereal_a_seconds", Unit::kCount, "A.")), "");
  EXPECT_NE(wrong_with(gauge("sidereal_a-b", Unit::kCount, "A.")), "");
  EXPECT_NE(wrong_with(gauge("a", Unit::kCount, "A.")), "");
  EXPECT_NE(wrong_with(gauge("sidereal_a", Unit::kCount, "")), "");
  EXPECT_NE(wrong_with(gauge("sidereal_a", Unit::kCount, "A.\nB.")), "");
  EXPECT_NE(wrong_with(gauge("sidereal_a", Unit::kCount, "A.", {{"task", "x"}})), "");
  EXPECT_NE(wrong_with(gauge("sidereal_a", Unit::kCount, "A.", {{"a", "x"}, {"le", "x"}})), "");
  EXPECT_EQ(wrong_with(gauge("sidereal_a", Unit::kCount, "A.", {{"a", "x"}, {"b", "x"}})), "");
}

}  // namespace
}  // namespace sidereal::metrics
