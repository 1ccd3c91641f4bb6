#pragma once

#include <string>
#include <vector>

#include "sidereal/metrics/histogram.h"
#include "sidereal/service/status_client.h"

namespace sidereal::service {

/// How many changes of others came between what steps pulled of a table and what they pushed to it.
/// Value type.
struct Staleness {
  std::string table;  ///< "": of all variables that are no tables.
  metrics::HistogramSnapshot seen;
};
/// What tasks have counted of it together, by tables; of those that say nothing, nothing.
std::vector<Staleness> staleness_of(const std::vector<TaskReport>& reports);

}  // namespace sidereal::service
