#include "sidereal/task/hot_variables.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "sidereal/metrics/hot_rows.h"
#include "sidereal/resources/staleness.h"

namespace sidereal::task {

namespace {

using resources::RowCount;
using resources::RowCounts;
using Kind = RowCounts HotVariable::*;
/// A group, and a table of it.
using Table = std::pair<std::string, std::string>;

constexpr size_t kTen = 10;

Table table_of(const HotVariable& variable) {
  return {variable.group, std::string(resources::table_of(variable.name))};
}

/// Of all parts of a table on the task.
struct OfTable {
  int64_t total = 0;
  std::vector<int64_t> counts;  ///< Of rows, at least; the greatest first.

  /// In billionths, as figures hold ratios.
  [[nodiscard]] int64_t share(size_t rows) const {
    double sum = 0;
    for (size_t i = 0; i < std::min(rows, counts.size()); ++i) {
      sum += static_cast<double>(counts[i]);
    }
    return total == 0 ? 0 : static_cast<int64_t>(1e9 * sum / static_cast<double>(total));
  }
};

std::map<Table, OfTable> by_table(const std::vector<HotVariable>& variables, Kind kind) {
  std::map<Table, OfTable> out;
  for (const HotVariable& one : variables) {
    OfTable& table = out[table_of(one)];
    table.total += (one.*kind).total;
    for (const RowCount& row : (one.*kind).rows) table.counts.push_back(row.at_least());
  }
  for (auto& [name, table] : out) std::ranges::sort(table.counts, std::greater());
  return out;
}

/// The tables that are used most.
std::set<Table> busiest(const std::vector<HotVariable>& variables) {
  std::map<Table, int64_t> used;
  for (const HotVariable& one : variables) {
    used[table_of(one)] += one.pulls.total + one.pushes.total;
  }
  std::vector<std::pair<int64_t, Table>> sorted;
  for (const auto& [table, times] : used) sorted.emplace_back(times, table);
  std::ranges::sort(sorted, std::greater());
  if (sorted.size() > kHotTablesMax) sorted.resize(kHotTablesMax);
  std::set<Table> out;
  for (auto& [times, table] : sorted) out.insert(std::move(table));
  return out;
}

/// Leaves the rows of a table that as many others are not before.
void keep_rows(std::vector<HotVariable>* variables, Kind kind, size_t rows_max) {
  const std::map<Table, OfTable> tables = by_table(*variables, kind);
  for (HotVariable& one : *variables) {
    const std::vector<int64_t>& counts = tables.at(table_of(one)).counts;
    if (counts.size() <= rows_max) continue;
    const int64_t least = rows_max == 0 ? INT64_MAX : counts[rows_max - 1];
    std::vector<RowCount>& rows = (one.*kind).rows;
    std::erase_if(rows, [&](const RowCount& row) { return row.at_least() < least; });
    // Of many equal ones.
    if (rows.size() > rows_max) rows.resize(rows_max);
  }
}

}  // namespace

void keep_hottest(std::vector<HotVariable>* variables, size_t rows_max) {
  const std::set<Table> kept = busiest(*variables);
  std::erase_if(*variables, [&](const HotVariable& one) { return !kept.contains(table_of(one)); });
  keep_rows(variables, &HotVariable::pulls, rows_max);
  keep_rows(variables, &HotVariable::pushes, rows_max);
}

void read_hot_rows(const std::vector<HotVariable>& variables, metrics::Readings* into) {
  constexpr std::pair<const char*, Kind> kCalls[] = {{"pull", &HotVariable::pulls},
                                                     {"push", &HotVariable::pushes}};
  for (const auto& [call, kind] : kCalls) {
    // Figures do not tell groups apart: of tables of one name in several groups the hotter counts.
    std::map<std::string, std::pair<int64_t, int64_t>> shares;
    // There even where nothing was trained.
    shares[""];
    for (const auto& [table, of] : by_table(variables, kind)) {
      if (of.total == 0) continue;
      auto& [one, ten] = shares[table.second];
      one = std::max(one, of.share(1));
      ten = std::max(ten, of.share(kTen));
    }
    for (const auto& [table, share] : shares) {
      into->add(metrics::hottest_row(table, call), share.first);
      into->add(metrics::hottest_ten(table, call), share.second);
    }
  }
}

}  // namespace sidereal::task
