#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sidereal/service/status_client.h"
#include "sidereal/service/table_layout.h"

/// The rows of the tables of a cluster that are used most, of all parts together.
namespace sidereal::service {

/// What of the rows that calls have named is one row. Value type.
struct RowShare {
  double at_least = 0;  ///< 0 to 1.
  double error = 0;     ///< At most so much more, but for the chance of the sample.
};

/// A row of a table. Value type.
struct HotRow {
  std::optional<int64_t> row;      ///< Of the table; nullopt while a part of it is not known.
  std::optional<int64_t> part;     ///< That has it; nullopt: the table is in none.
  int64_t row_of_part = 0;         ///< Its number there.
  std::string task;                ///< "/job:ps/replica:0/task:1", which has it,
  int lane = 0;                    ///< on this lane.
  std::optional<RowShare> pulls;   ///< nullopt: others were pulled more often.
  std::optional<RowShare> pushes;  ///< Likewise.

  /// Of pulls or pushes, what is more.
  [[nodiscard]] double share() const;
};

/// A table, and what of it is used most. Value type.
struct HotTable {
  std::string group;  ///< Of sessions, whose state it is; "": of all that have none.
  std::string table;
  /// Rows that calls named in the last minutes, about.
  double pulled_rows = 0;
  double pushed_rows = 0;
  std::vector<HotRow> rows;  ///< The most used first.
};

/// Of all tables, those first of which rows are used most. `parts`: what variables NAME/part_0,
/// NAME/part_1 ... are.
std::vector<HotTable> hot_tables_of(const std::vector<TaskReport>& reports, size_t rows_max,
                                    Parts parts = Parts::kModulo);

}  // namespace sidereal::service
