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
/// That of a table, as steps of `worker` find it, a task's full name; table "": of all variables
/// that are no tables; worker "": of those that have gone, or are too many.
inline Declaration staleness(std::string table, std::string worker) {
  return histogram(
      kStalenessName, Unit::kCount,
      "Changes that others made to a table between a step's pull and its push, by the "
      "worker that pushed; table \"\" is all variables that are no tables, worker \"\" "
      "all that have gone or are too many.",
      {{"table", std::move(table)}, {"worker", std::move(worker)}});
}

/// Of a table, or of all other variables: what was pushed, and what of it no checkpoint has.
inline constexpr const char* kUnsavedPushesName = "sidereal_unsaved_pushes";
inline constexpr const char* kUnsavedRowsName = "sidereal_unsaved_rows";
inline Declaration pushes(std::string table) {
  return counter("sidereal_pushes_total", Unit::kCount,
                 "Pushes to variables: to each part of a table, and each other variable, one.",
                 {{"table", std::move(table)}});
}
inline Declaration pushed_rows(std::string table) {
  return counter("sidereal_pushed_rows_total", Unit::kCount, "Rows of tables that pushes changed.",
                 {{"table", std::move(table)}});
}
/// Figures of tasks, to be compared with the counts in a checkpoint.
inline constexpr const char* kHeldPushesName = "sidereal_held_pushes";
inline constexpr const char* kHeldRowsName = "sidereal_held_rows";
inline Declaration held_pushes(std::string table) {
  return gauge(kHeldPushesName, Unit::kCount,
               "Pushes that variables have in them, of those to this start of their task.",
               {{"table", std::move(table)}});
}
inline Declaration held_rows(std::string table) {
  return gauge(kHeldRowsName, Unit::kCount, "Rows of tables that these pushes changed.",
               {{"table", std::move(table)}});
}
inline Declaration unsaved_pushes(std::string table) {
  return gauge(kUnsavedPushesName, Unit::kCount,
               "Pushes that no checkpoint has which is in place: what would be lost at least.",
               {{"table", std::move(table)}});
}
inline Declaration unsaved_rows(std::string table) {
  return gauge(kUnsavedRowsName, Unit::kCount, "Rows that these pushes changed.",
               {{"table", std::move(table)}});
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
