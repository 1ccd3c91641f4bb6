#pragma once

#include <string>
#include <vector>

#include "sidereal/metrics/histogram.h"
#include "sidereal/service/status_client.h"

namespace sidereal::service {

/// How many changes of others came between what steps of a worker pulled of a table and what they
/// pushed to it. Value type.
struct Staleness {
  std::string table;   ///< "": of all variables that are no tables.
  std::string worker;  ///< "/job:worker/replica:0/task:0"; "": all that have gone or are too many.
  metrics::HistogramSnapshot seen;
};
/// What tasks have counted of it together, by tables and workers; of those that say nothing,
/// nothing.
std::vector<Staleness> staleness_of(const std::vector<TaskReport>& reports);

/// What came to `now` after it was `before`. Of a worker that has gone what it had counted is among
/// the others' `now`, and came before.
std::vector<Staleness> staleness_since(const std::vector<Staleness>& before,
                                       const std::vector<Staleness>& now);

/// What a life of a task has of a table that no checkpoint has. Value type.
struct Unsaved {
  std::string task;
  uint64_t incarnation = 0;
  std::string table;  ///< "": of all variables that are no tables.
  int64_t pushes = 0;
  int64_t rows = 0;
  /// With those that a checkpoint has.
  int64_t held_pushes = 0;
  int64_t held_rows = 0;
};
/// Of each task and table; of tasks that say nothing, nothing.
std::vector<Unsaved> unsaved_of(const std::vector<TaskReport>& reports);

}  // namespace sidereal::service
