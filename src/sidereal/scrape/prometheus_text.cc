#include "sidereal/scrape/prometheus_text.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <map>
#include <sstream>
#include <utility>
#include <vector>

namespace sidereal::scrape {

namespace {

using metrics::HistogramSnapshot;
using metrics::Kind;
using metrics::Reading;
using metrics::Unit;
using prometheus::ClientMetric;

/// The limits of buckets that are told: powers of two, less one. Value type.
struct Limits {
  int first = 0;
  int last = 0;
  int step = 1;
};
/// Of nanoseconds and bytes: 256 to a few minutes or hundreds of GB. Numbers of things are small
/// mostly.
constexpr Limits kWide = {.first = 8, .last = 38, .step = 2};
constexpr Limits kNarrow = {.first = 0, .last = 16};

ClientMetric::Histogram histogram_of(const Reading& reading) {
  const HistogramSnapshot& held = reading.histogram;
  ClientMetric::Histogram out;
  uint64_t below = 0;
  size_t bucket = 0;
  const Limits limits = reading.what.unit == Unit::kCount ? kNarrow : kWide;
  for (int exponent = limits.first; exponent <= limits.last; exponent += limits.step) {
    const int64_t limit = (int64_t{1} << exponent) - 1;
    for (; bucket < held.counts.size() && metrics::Histogram::bucket_limit(bucket) <= limit;
         ++bucket) {
      below += static_cast<uint64_t>(held.counts[bucket]);
    }
    out.bucket.push_back(
        {.cumulative_count = below,
         .upper_bound = metrics::scaled(reading.what.unit, static_cast<double>(limit))});
  }
  out.sample_count = static_cast<uint64_t>(held.count);
  out.sample_sum = metrics::scaled(reading.what.unit, static_cast<double>(held.sum));
  return out;
}

prometheus::MetricType type_of(Kind kind) {
  switch (kind) {
    case Kind::kCounter:
      return prometheus::MetricType::Counter;
    case Kind::kGauge:
      return prometheus::MetricType::Gauge;
    case Kind::kHistogram:
      return prometheus::MetricType::Histogram;
  }
  return prometheus::MetricType::Untyped;
}

}  // namespace

std::string prometheus_text(const metrics::Readings& readings, const std::string& task) {
  std::map<std::string, prometheus::MetricFamily> families;
  for (const auto& [series, reading] : readings.all()) {
    const metrics::Declaration& what = reading.what;
    prometheus::MetricFamily& family = families[what.name];
    if (family.metric.empty()) {
      family.name = what.name;
      family.help = what.help;
      family.type = type_of(what.kind);
    }
    ClientMetric& sample = family.metric.emplace_back();
    for (const metrics::Label& label : what.labels) {
      sample.label.push_back({label.name, label.value});
    }
    sample.label.push_back({"task", task});
    switch (what.kind) {
      case Kind::kCounter:
        sample.counter.value = reading.scaled();
        break;
      case Kind::kGauge:
        sample.gauge.value = reading.scaled();
        break;
      case Kind::kHistogram:
        sample.histogram = histogram_of(reading);
        break;
    }
  }
  std::vector<prometheus::MetricFamily> all;
  for (auto& [name, family] : families) all.push_back(std::move(family));
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, all);
  return std::move(out).str();
}

}  // namespace sidereal::scrape
