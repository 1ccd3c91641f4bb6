#pragma once

#include <string>
#include <vector>

#include "sidereal/service/status_client.h"
#include "sidereal/service/table_layout.h"

namespace sidereal::cli {

/// What the tasks of a cluster said at one time, and `seconds` before.
struct TopView {
  std::vector<service::TaskReport> now;
  std::vector<service::TaskReport> before;  ///< Of the same tasks, or empty.
  double seconds = 0;
  /// What variables NAME/part_0, NAME/part_1 ... are.
  service::Parts parts = service::Parts::kModulo;
};
/// Rows of each table that are asked for.
inline constexpr int kRowsAsked = 10;

/// What task `i` said before, if that was the same start of it.
const metrics::Readings* before_of(const TopView& view, size_t i);
/// "/job:ps/task:0": all replicas are 0.
std::string short_name(std::string task);
/// What a peer says, without the ends of lines.
std::string one_line(std::string text);

/// A line that counts the tasks, a table of them, the hottest lanes and rows, the jobs that hold
/// leases, and why some tasks have no figures. Rates are those between the two times; a task that
/// was restarted between them has none.
std::string format_top(const TopView& view);

/// A table of all figures of all tasks that answered, a row for each name.
std::string format_figures(const TopView& view);

/// All that tasks said as one line of JSON: {"tasks": [{"task": ..., "state": "up", "figures":
/// {NAME: number or histogram}, "per_s": {NAME: number}}]}. `per_s` has the rates of counters; it
/// is null where they are not known. Jobs are those of the task that granted their leases: "jobs":
/// [{"name": ..., "user": ..., "host": ..., "pid": ..., "program": ..., "since": ...}]. "lanes" of
/// a task says how busy each was, "hot_rows" of which rows most calls were: see hot_report.h.
std::string top_json(const TopView& view);

}  // namespace sidereal::cli
