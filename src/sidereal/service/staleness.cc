#include "sidereal/service/staleness.h"

#include <map>
#include <utility>

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

std::vector<Staleness> staleness_since(const std::vector<Staleness>& before,
                                       const std::vector<Staleness>& now) {
  using Key = std::pair<std::string, std::string>;
  std::map<Key, metrics::HistogramSnapshot> earlier;
  for (const Staleness& each : before) earlier[{each.table, each.worker}] = each.seen;
  std::map<Key, metrics::HistogramSnapshot> found;
  for (const Staleness& each : now) found[{each.table, each.worker}] = each.seen;
  for (const Staleness& each : before) {
    if (each.worker.empty()) continue;
    const auto is = found.find({each.table, each.worker});
    const bool is_same = is != found.end() && metrics::since(each.seen, is->second).has_value();
    if (is_same) continue;
    // Those of before that the task still counts are among the others.
    earlier.erase({each.table, each.worker});
    metrics::HistogramSnapshot with_it = earlier[{each.table, ""}];
    with_it.merge(each.seen);
    const auto others = found.find({each.table, ""});
    const bool has_it =
        others != found.end() && metrics::since(with_it, others->second).has_value();
    if (has_it) earlier[{each.table, ""}] = std::move(with_it);
  }
  std::vector<Staleness> out;
  for (const Staleness& each : now) {
    metrics::HistogramSnapshot lately =
        metrics::since(earlier[{each.table, each.worker}], each.seen).value_or(each.seen);
    if (lately.count > 0) out.push_back({each.table, each.worker, std::move(lately)});
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
           .rows = report.figures.series(metrics::series_of(metrics::unsaved_rows(table))),
           .held_pushes = report.figures.series(metrics::series_of(metrics::held_pushes(table))),
           .held_rows = report.figures.series(metrics::series_of(metrics::held_rows(table)))});
    }
  }
  return out;
}

}  // namespace sidereal::service
