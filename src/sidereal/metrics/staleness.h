#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "sidereal/metrics/figures.h"
#include "sidereal/metrics/histogram.h"

namespace sidereal::metrics {

/// The name of the figures of staleness, in every task.
inline constexpr const char* kStalenessName = "sidereal_staleness";
/// That of a table; of "": of all variables that are no tables.
inline Declaration staleness(std::string table) {
  Declaration out = histogram(kStalenessName, Unit::kCount,
                              "Changes that others made to a table between a step's pull and its "
                              "push; table \"\" is all variables that are no tables.");
  out.label = {"table", std::move(table)};
  return out;
}

/// What came to a histogram after it was `before`; nullopt when it never was, as it is another
/// server's. The largest value is known to its bucket then.
inline std::optional<HistogramSnapshot> since(const HistogramSnapshot& before,
                                              HistogramSnapshot now) {
  if (before.counts.size() > now.counts.size() || before.sum > now.sum) return std::nullopt;
  const int64_t max = std::exchange(now.max, 0);
  now.sum -= before.sum;
  now.count = 0;
  for (size_t i = 0; i < now.counts.size(); ++i) {
    if (i < before.counts.size()) now.counts[i] -= before.counts[i];
    if (now.counts[i] < 0) return std::nullopt;
    now.count += now.counts[i];
    if (now.counts[i] > 0) now.max = std::min(Histogram::bucket_limit(i), max);
  }
  return now;
}

}  // namespace sidereal::metrics
