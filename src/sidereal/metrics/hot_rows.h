#pragma once

#include <string>
#include <utility>

#include "sidereal/metrics/figures.h"

namespace sidereal::metrics {

/// Of what a task has of a table, and the calls that are "pull" or "push": how much of the rows
/// that were named lately is the one named most, and are the ten named most, at least. A pair of
/// figures for each table and not for each row, so that Prometheus keeps few.
inline constexpr const char* kHottestRowName = "sidereal_hottest_row_ratio";
inline Declaration hottest_row(std::string table, std::string call) {
  return gauge(
      kHottestRowName, Unit::kRatio,
      "Share of the row of a table that pulls or pushes of the last minutes named most, of "
      "all rows of it that they named here.",
      {{"table", std::move(table)}, {"call", std::move(call)}});
}
inline constexpr const char* kHottestTenName = "sidereal_hottest_ten_rows_ratio";
inline Declaration hottest_ten(std::string table, std::string call) {
  return gauge(kHottestTenName, Unit::kRatio, "The same of the ten rows that they named most.",
               {{"table", std::move(table)}, {"call", std::move(call)}});
}

}  // namespace sidereal::metrics
