#include "sidereal/scrape/prometheus_text.h"

#include <gtest/gtest.h>

#include "sidereal/metrics/counter.h"

namespace sidereal::scrape {
namespace {

using metrics::Unit;

TEST(PrometheusText, has_a_family_for_each_name_and_says_whose_a_sample_is) {
  metrics::Readings readings;
  readings.add(metrics::counter("s_steps_total", Unit::kCount, "Steps."), 7);
  readings.add(metrics::gauge("s_kept_bytes", Unit::kBytes, "Kept."), 1 << 20);
  readings.add(metrics::counter("s_busy_seconds_total", Unit::kSeconds, "Busy."), 1'500'000'000);
  for (const char* why : {"idle", "garbage"}) {
    readings.add(metrics::counter("s_refused_total", Unit::kCount, "Refused.", {{"why", why}}), 2);
  }
  EXPECT_EQ(prometheus_text(readings, "/job:ps/task:0"),
            "# HELP s_busy_seconds_total Busy.\n"
            "# TYPE s_busy_seconds_total counter\n"
            "s_busy_seconds_total{task=\"/job:ps/task:0\"} 1.5\n"
            "# HELP s_kept_bytes Kept.\n"
            "# TYPE s_kept_bytes gauge\n"
            "s_kept_bytes{task=\"/job:ps/task:0\"} 1048576\n"
            "# HELP s_refused_total Refused.\n"
            "# TYPE s_refused_total counter\n"
            "s_refused_total{why=\"garbage\",task=\"/job:ps/task:0\"} 2\n"
            "s_refused_total{why=\"idle\",task=\"/job:ps/task:0\"} 2\n"
            "# HELP s_steps_total Steps.\n"
            "# TYPE s_steps_total counter\n"
            "s_steps_total{task=\"/job:ps/task:0\"} 7\n");
}

TEST(PrometheusText, has_histograms_whose_buckets_count_what_is_not_larger) {
  metrics::Figures figures;
  metrics::Histogram histogram(&figures,
                               metrics::histogram("s_call_seconds", Unit::kSeconds, "Calls."));
  for (const int64_t ns :
       {int64_t{100}, int64_t{255}, int64_t{256}, int64_t{5000}, int64_t{400'000'000'000}}) {
    histogram.record(ns);
  }
  metrics::Readings readings;
  figures.read(&readings);
  const std::string text = prometheus_text(readings, "t");
  const auto has = [&](const std::string& line) {
    return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
  };
  EXPECT_TRUE(has("# TYPE s_call_seconds histogram")) << text;
  EXPECT_TRUE(has("s_call_seconds_count{task=\"t\"} 5")) << text;
  EXPECT_TRUE(has("s_call_seconds_bucket{task=\"t\",le=\"2.55e-07\"} 2")) << text;
  EXPECT_TRUE(has("s_call_seconds_bucket{task=\"t\",le=\"1.023e-06\"} 3")) << text;
  EXPECT_TRUE(has("s_call_seconds_bucket{task=\"t\",le=\"+Inf\"} 5")) << text;
  EXPECT_NE(text.find("s_call_seconds_sum{task=\"t\"} 400.0000056"), std::string::npos) << text;
}

TEST(PrometheusText, has_small_buckets_for_numbers_of_things) {
  metrics::Readings readings;
  for (const char* const worker : {"a", "b"}) {
    metrics::Histogram seen;
    for (const int64_t changes : {0, 1, 3}) seen.record(changes);
    readings.add(metrics::histogram("s_staleness", Unit::kCount, "Changes.",
                                    {{"table", "w"}, {"worker", worker}}),
                 seen.snapshot());
  }
  const std::string text = "\n" + prometheus_text(readings, "t");
  const auto has = [&](const std::string& line) {
    return text.find("\n" + line + "\n") != std::string::npos;
  };
  const std::string labels = "table=\"w\",worker=\"b\",task=\"t\"";
  EXPECT_TRUE(has("s_staleness_count{" + labels + "} 3")) << text;
  EXPECT_TRUE(has("s_staleness_bucket{" + labels + ",le=\"0\"} 1")) << text;
  EXPECT_TRUE(has("s_staleness_bucket{" + labels + ",le=\"1\"} 2")) << text;
  EXPECT_TRUE(has("s_staleness_bucket{" + labels + ",le=\"3\"} 3")) << text;
}

}  // namespace
}  // namespace sidereal::scrape
