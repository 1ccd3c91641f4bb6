#include "sidereal/metrics/histogram.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

namespace sidereal::metrics {

// Values below 4 have a bucket each; above, the two bits after the leading one choose among four.
size_t Histogram::bucket_of(int64_t value) {
  if (value < 4) return static_cast<size_t>(std::max<int64_t>(value, 0));
  const auto v = static_cast<uint64_t>(value);
  const int exponent = std::bit_width(v) - 1;
  const size_t quarter = (v >> (exponent - 2)) & 3;
  return 4 + static_cast<size_t>(exponent - 2) * 4 + quarter;
}

int64_t Histogram::bucket_limit(size_t bucket) {
  if (bucket < 4) return static_cast<int64_t>(bucket);
  const auto exponent = static_cast<int>((bucket - 4) / 4) + 2;
  const uint64_t quarter = (bucket - 4) % 4;
  const uint64_t first = (uint64_t{4} + quarter) << (exponent - 2);
  const uint64_t width = uint64_t{1} << (exponent - 2);
  return static_cast<int64_t>(std::min<uint64_t>(first + width - 1, INT64_MAX));
}

void Histogram::record(int64_t value) {
  value = std::max<int64_t>(value, 0);
  counts_[bucket_of(value)].add();
  sum_.add(value);
  if (value > max_.value()) max_.set(value);
}

HistogramSnapshot Histogram::snapshot() const {
  HistogramSnapshot out;
  for (size_t i = 0; i < counts_.size(); ++i) {
    const int64_t count = counts_[i].value();
    if (count == 0) continue;
    out.counts.resize(HistogramSnapshot::kBuckets);
    out.counts[i] = count;
    out.count += count;
  }
  out.sum = sum_.value();
  out.max = max_.value();
  return out;
}

void HistogramSnapshot::merge(const HistogramSnapshot& other) {
  counts.resize(std::max(counts.size(), other.counts.size()));
  for (size_t i = 0; i < other.counts.size(); ++i) counts[i] += other.counts[i];
  count += other.count;
  sum += other.sum;
  max = std::max(max, other.max);
}

int64_t HistogramSnapshot::quantile(double q) const {
  if (count == 0) return 0;
  const double wanted = std::ceil(std::clamp(q, 0.0, 1.0) * static_cast<double>(count));
  const int64_t rank = std::max<int64_t>(1, static_cast<int64_t>(wanted));
  int64_t seen = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    seen += counts[i];
    if (seen >= rank) return std::min(Histogram::bucket_limit(i), max);
  }
  return max;
}

double HistogramSnapshot::mean() const {
  return count == 0 ? 0.0 : static_cast<double>(sum) / static_cast<double>(count);
}

std::string HistogramSnapshot::to_string() const {
  const auto us = [](double ns) { return fmt::format("{:.3g}us", ns / 1000.0); };
  return fmt::format("count={} mean={} p50={} p99={} max={}", count, us(mean()),
                     us(static_cast<double>(quantile(0.5))),
                     us(static_cast<double>(quantile(0.99))), us(static_cast<double>(max)));
}

}  // namespace sidereal::metrics
