#pragma once

#include <string>
#include <vector>

#include "sidereal/runtime/status_client.h"

namespace sidereal::cli {

/// What the tasks of a cluster said at one time, and `seconds` before.
struct TopView {
  std::vector<runtime::TaskReport> now;
  std::vector<runtime::TaskReport> before;  ///< Of the same tasks, or empty.
  double seconds = 0;
};

/// A line that counts the tasks, a table of them, and why some of them have no figures. Rates are
/// those between the two times; a task that was restarted between them has none.
std::string format_top(const TopView& view);

/// The same as one line of JSON: {"tasks": [{"task": ..., "state": "up", ...}]}. Rates that are
/// not known are null.
std::string top_json(const TopView& view);

}  // namespace sidereal::cli
