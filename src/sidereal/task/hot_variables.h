#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "sidereal/metrics/figures.h"
#include "sidereal/resources/space_saving.h"

/// The rows of the variables of a task that are used most, to be told.
namespace sidereal::task {

/// Tables of a task of which it tells its rows.
inline constexpr size_t kHotTablesMax = 64;
/// Rows of each that it tells.
inline constexpr size_t kHotRowsMax = 100;

/// A variable whose rows steps use: a table, or a part of one. Value type.
struct HotVariable {
  std::string group;  ///< Of sessions, whose state it is; "": of all that have none.
  std::string name;   ///< "w/part_3".
  int lane = 0;
  int64_t rows = -1;  ///< That it has; -1: as it is not said.
  resources::RowCounts pulls;
  resources::RowCounts pushes;
};

/// Leaves of all the tables that are used most, and of the rows of each table, over its parts,
/// those that are: so many of both at most.
void keep_hottest(std::vector<HotVariable>* variables, size_t rows_max);

/// Adds what is told of tables by name.
void read_hot_rows(const std::vector<HotVariable>& variables, metrics::Readings* into);

}  // namespace sidereal::task
