#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "sidereal/cli/top.h"
#include "sidereal/service/hot_rows.h"

/// Where the work of a cluster is: its lanes, and the rows of its tables, that have most.
namespace sidereal::cli {

/// How busy a lane was between the two times of a TopView. Value type.
struct LaneLoad {
  std::string task;  ///< "/job:ps/replica:0/task:0".
  int lane = 0;
  double busy = 0;          ///< Of the time, 0 to 1.
  double mean = 0;          ///< That of all lanes of its job.
  size_t of = 0;            ///< How many those are.
  bool is_hottest = false;  ///< Of them.

  /// How far it is from the mean: 1 is the mean.
  [[nodiscard]] double of_mean() const { return mean > 0 ? busy / mean : 1; }
};
/// Of all tasks of which it is known, by job, task and lane.
std::vector<LaneLoad> lane_loads(const TopView& view);

/// A line for each job that has several lanes: which is the hottest, and how far it is from their
/// mean. "": it is not known.
std::string hottest_lanes(const TopView& view);
/// A table of lanes, the hottest of each job marked.
std::string format_lanes(const TopView& view);

/// The rows of all tables that have most of their pulls or pushes, where that is much; "": none.
std::string hottest_rows(const TopView& view);
/// A table of rows, the hottest tables first.
std::string format_rows(const TopView& view);

nlohmann::json json_of_lanes(const TopView& view, const std::string& task);
nlohmann::json json_of_rows(const TopView& view);

}  // namespace sidereal::cli
