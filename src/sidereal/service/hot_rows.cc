#include "sidereal/service/hot_rows.h"

#include <algorithm>
#include <functional>
#include <map>
#include <tuple>
#include <utility>

#include "sidereal/base/part_name.h"

namespace sidereal::service {

namespace {

using resources::RowCount;
using resources::RowCounts;
using task::HotVariable;

/// The table that a variable is a part of, and which; nullopt: of none.
std::pair<std::string, std::optional<int64_t>> part_of(const std::string& name, Parts parts) {
  if (parts == Parts::kApart) return {name, std::nullopt};
  const std::optional<base::Part> part = base::find_part(name);
  // What is pushed to a slot is not pushed to the table.
  if (!part.has_value() || !part->slot.empty()) return {name, std::nullopt};
  return {std::string(part->table), part->number};
}

/// A part of a table, where it is.
struct Part {
  const TaskReport* report = nullptr;
  const HotVariable* variable = nullptr;
  std::optional<int64_t> number;
};

/// Says of which row of a table a row of one of its parts is.
class WholeRows {
 public:
  WholeRows(const std::vector<Part>& parts, Parts how) : how_(how) {
    for (const Part& part : parts) {
      if (part.number.has_value()) rows_[*part.number] = part.variable->rows;
    }
    // A part that no task tells of would give rows of other parts wrong numbers. The parts of a
    // task that does not answer lie between those of other tasks, as they go round.
    are_known_ = rows_.empty() || rows_.rbegin()->first == static_cast<int64_t>(rows_.size()) - 1;
  }

  [[nodiscard]] std::optional<int64_t> row_of(const Part& part, int64_t row) const {
    if (!part.number.has_value()) return row;
    if (!are_known_) return std::nullopt;
    int64_t out = 0;
    if (how_ == Parts::kModulo) {
      const auto count = static_cast<int64_t>(rows_.size());
      if (__builtin_mul_overflow(row, count, &out)) return std::nullopt;
      row = *part.number;
    } else {
      for (const auto& [number, rows] : rows_) {
        if (number == *part.number) break;
        if (rows < 0 || __builtin_add_overflow(out, rows, &out)) return std::nullopt;
      }
    }
    if (__builtin_add_overflow(out, row, &out)) return std::nullopt;
    return out;
  }

 private:
  const Parts how_;
  std::map<int64_t, int64_t> rows_;  // Of each part.
  bool are_known_ = false;
};

using RowKey = std::tuple<std::optional<int64_t>, int64_t>;  // A part; a row of it.

void add_rows(const Part& part, const RowCounts& counts, double total, const WholeRows& whole,
              std::optional<RowShare> HotRow::*kind, std::map<RowKey, HotRow>* rows) {
  for (const RowCount& one : counts.rows) {
    HotRow& row = (*rows)[{part.number, one.row}];
    row.row = whole.row_of(part, one.row);
    row.part = part.number;
    row.row_of_part = one.row;
    row.task = part.report->task;
    row.lane = part.variable->lane;
    if (!(total > 0)) continue;
    // A part that moves is at two places for a while.
    RowShare& share = (row.*kind).has_value() ? *(row.*kind) : (row.*kind).emplace();
    share.at_least += static_cast<double>(one.at_least()) / total;
    share.error += static_cast<double>(one.error) / total;
  }
}

HotTable table_of(const std::vector<Part>& parts, size_t rows_max, Parts how) {
  HotTable out;
  for (const Part& part : parts) {
    out.pulled_rows += static_cast<double>(part.variable->pulls.total);
    out.pushed_rows += static_cast<double>(part.variable->pushes.total);
  }
  const WholeRows whole(parts, how);
  std::map<RowKey, HotRow> rows;
  for (const Part& part : parts) {
    add_rows(part, part.variable->pulls, out.pulled_rows, whole, &HotRow::pulls, &rows);
    add_rows(part, part.variable->pushes, out.pushed_rows, whole, &HotRow::pushes, &rows);
  }
  for (auto& [key, row] : rows) out.rows.push_back(std::move(row));
  std::ranges::stable_sort(out.rows, std::greater(), &HotRow::share);
  if (out.rows.size() > rows_max) out.rows.resize(rows_max);
  return out;
}

}  // namespace

double HotRow::share() const {
  return std::max(pulls.value_or(RowShare()).at_least, pushes.value_or(RowShare()).at_least);
}

std::vector<HotTable> hot_tables_of(const std::vector<TaskReport>& reports, size_t rows_max,
                                    Parts parts) {
  std::map<std::pair<std::string, std::string>, std::vector<Part>> tables;
  for (const TaskReport& report : reports) {
    for (const HotVariable& variable : report.hot) {
      auto [table, number] = part_of(variable.name, parts);
      tables[{variable.group, std::move(table)}].push_back(
          {.report = &report, .variable = &variable, .number = number});
    }
  }
  std::vector<HotTable> out;
  for (const auto& [name, its] : tables) {
    HotTable table = table_of(its, rows_max, parts);
    if (table.pulled_rows + table.pushed_rows <= 0) continue;
    table.group = name.first;
    table.table = name.second;
    out.push_back(std::move(table));
  }
  const auto hottest = [](const HotTable& table) {
    return table.rows.empty() ? 0 : table.rows.front().share();
  };
  std::ranges::stable_sort(out, std::greater(), hottest);
  return out;
}

}  // namespace sidereal::service
