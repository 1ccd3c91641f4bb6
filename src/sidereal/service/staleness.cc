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
    if (reading.histogram.count == 0 || reading.what.labels.size() != 2) continue;
    out.push_back({.table = reading.what.labels[0].value,
                   .worker = reading.what.labels[1].value,
                   .seen = reading.histogram});
  }
  return out;
}

std::vector<Unsaved> unsaved_of(const std::vector<TaskReport>& reports) {
  std::vector<Unsaved> out;
  for (const TaskReport& report : reports) {
    for (const auto& [series, reading] : report.figures.all()) {
      if (reading.what.name != metrics::kUnsavedPushesName) continue;
      if (reading.what.labels.size() != 1) continue;
      const std::string& table = reading.what.labels[0].value;
      out.push_back(
          {.task = report.task,
           .incarnation = report.incarnation,
           .table = table,
           .pushes = reading.value,
           .rows = report.figures.series(metrics::series_of(metrics::unsaved_rows(table)))});
    }
  }
  return out;
}

}  // namespace sidereal::service
