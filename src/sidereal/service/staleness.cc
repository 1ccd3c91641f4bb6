#include "sidereal/service/staleness.h"

#include "sidereal/metrics/staleness.h"

namespace sidereal::service {

std::vector<Staleness> staleness_of(const std::vector<TaskReport>& reports) {
  metrics::Readings all;
  for (const TaskReport& report : reports) {
    for (const auto& [series, reading] : report.figures.all()) {
      if (reading.what.name == metrics::kStalenessName) all.add(reading.what, reading.histogram);
    }
  }
  std::vector<Staleness> out;
  for (const auto& [series, reading] : all.all()) {
    if (reading.histogram.count == 0) continue;
    out.push_back({.table = reading.what.label.value, .seen = reading.histogram});
  }
  return out;
}

}  // namespace sidereal::service
