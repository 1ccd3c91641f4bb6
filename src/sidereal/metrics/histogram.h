#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "sidereal/metrics/counter.h"

namespace sidereal::metrics {

/// What a Histogram held at one moment, or the sum of several. Value type.
struct HistogramSnapshot {
  static constexpr size_t kBuckets = 256;

  std::vector<int64_t> counts = {};  ///< By bucket; empty: all are 0.
  int64_t count = 0;
  int64_t sum = 0;
  int64_t max = 0;

  /// Adds the observations of `other`.
  void merge(const HistogramSnapshot& other);
  /// A value that a share `q` in [0, 1] of the observations does not exceed, at most 25 % too
  /// large; 0 without observations.
  [[nodiscard]] int64_t quantile(double q) const;
  /// Mean of the observations; 0 without any.
  [[nodiscard]] double mean() const;
  /// "count=3 mean=1.2us p50=1us p99=2us max=2us", the values being nanoseconds.
  [[nodiscard]] std::string to_string() const;
};

/// Counts of non-negative values in buckets four to a power of two, so every value up to 2^63 is
/// known to 25 %.
/// Thread: one writer; any reader.
class Histogram {
 public:
  Histogram() = default;
  /// One of `in`, which is read as long as this is there.
  Histogram(Figures* in, Declaration what);
  Histogram(const Histogram&) = delete;
  Histogram& operator=(const Histogram&) = delete;

  /// Counts one value; a negative one counts as 0. Writer only. No allocation.
  void record(int64_t value);
  /// A copy for reading and merging. Any thread; may miss the latest records.
  [[nodiscard]] HistogramSnapshot snapshot() const;

  /// The bucket of `value`, and the largest value of a bucket.
  static size_t bucket_of(int64_t value);
  static int64_t bucket_limit(size_t bucket);

 private:
  std::array<Counter, HistogramSnapshot::kBuckets> counts_;
  Counter sum_;
  Counter max_;
};

}  // namespace sidereal::metrics
