#pragma once

#include <string>
#include <vector>

#include "sidereal/service/status_client.h"

namespace sidereal::cli {

/// What the tasks of a cluster said at one time, and `seconds` before.
struct TopView {
  std::vector<service::TaskReport> now;
  std::vector<service::TaskReport> before;  ///< Of the same tasks, or empty.
  double seconds = 0;
};

/// A line that counts the tasks, a table of them, one of the jobs that hold leases, and why some
/// tasks have no figures. Rates are those between the two times; a task that was restarted between
/// them has none.
std::string format_top(const TopView& view);

/// A table of all figures of all tasks that answered, a row for each name.
std::string format_figures(const TopView& view);

/// All that tasks said as one line of JSON: {"tasks": [{"task": ..., "state": "up", "figures":
/// {NAME: number or histogram}, "per_s": {NAME: number}}]}. `per_s` has the rates of counters; it
/// is null where they are not known. Jobs are those of the task that granted their leases: "jobs":
/// [{"name": ..., "user": ..., "host": ..., "pid": ..., "program": ..., "since": ...}].
std::string top_json(const TopView& view);

}  // namespace sidereal::cli
