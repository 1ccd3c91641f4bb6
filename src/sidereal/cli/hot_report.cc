#include "sidereal/cli/hot_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "sidereal/base/strings.h"
#include "sidereal/cli/table.h"
#include "sidereal/cluster/task_name.h"
#include "sidereal/metrics/lane_metrics.h"

namespace sidereal::cli {

namespace {

using service::HotRow;
using service::HotTable;
using service::RowShare;

/// What is shown without being asked for: so many rows, of at least this share.
constexpr size_t kShownMax = 5;
constexpr double kShareShown = 0.01;
/// Of the name of a table or a group, which a peer says.
constexpr size_t kNameBytes = 60;

/// The number of the lane that a figure is of, which a peer says.
std::optional<int> lane_of(const metrics::Declaration& what) {
  if (what.name != metrics::kLaneBusyName || what.labels.size() != 1) return std::nullopt;
  const Result<int64_t> lane = base::parse_int(what.labels[0].value);
  if (!lane.ok() || !std::in_range<int>(*lane) || *lane < 0) return std::nullopt;
  return static_cast<int>(*lane);
}

std::string job_of(const std::string& task) {
  const auto name = cluster::parse_task_name(task);
  return name ? name->job : task;
}

/// Says of all lanes of a job how they are among them.
void compare(std::vector<LaneLoad>* loads) {
  std::map<std::string, std::vector<LaneLoad*>> jobs;
  for (LaneLoad& one : *loads) jobs[job_of(one.task)].push_back(&one);
  for (auto& [job, lanes] : jobs) {
    double sum = 0;
    for (const LaneLoad* const one : lanes) sum += one->busy;
    for (LaneLoad* const one : lanes) {
      one->of = lanes.size();
      one->mean = sum / static_cast<double>(lanes.size());
    }
    LaneLoad* const most =
        *std::ranges::max_element(lanes, {}, [](const LaneLoad* one) { return one->busy; });
    most->is_hottest = lanes.size() > 1 && most->busy > 0;
  }
}

std::string share_text(const std::optional<RowShare>& share) {
  if (!share.has_value()) return "-";
  constexpr double kSeen = 0.0005;
  const double least = 100 * share->at_least;
  return share->error < kSeen ? fmt::format("{:.1f}%", least)
                              : fmt::format("{:.1f}-{:.1f}%", least, least + 100 * share->error);
}

std::string shown(const std::string& name) {
  return one_line(base::message_text(name, kNameBytes));
}

std::string row_text(const HotRow& row) {
  if (row.row.has_value()) return std::to_string(*row.row);
  return fmt::format("{} of part {}", row.row_of_part, row.part.value_or(0));
}

std::string table_of(const std::vector<HotTable>& tables, size_t rows_max, double share_min) {
  std::set<std::string> groups;
  for (const HotTable& table : tables) groups.insert(table.group);
  const bool has_groups = groups.size() > 1;
  std::vector<std::string> titles = {"table", "row", "of pulls", "of pushes", "on", "lane"};
  if (has_groups) titles.insert(titles.begin(), "group");
  std::vector<std::vector<std::string>> rows;
  for (const HotTable& table : tables) {
    for (const HotRow& row : table.rows) {
      if (row.share() < share_min || rows.size() >= rows_max) break;
      std::vector<std::string>& out = rows.emplace_back();
      if (has_groups) out.push_back(shown(table.group));
      out.push_back(shown(table.table));
      out.push_back(row_text(row));
      out.push_back(share_text(row.pulls));
      out.push_back(share_text(row.pushes));
      out.push_back(short_name(row.task));
      out.push_back(std::to_string(row.lane));
    }
  }
  return rows.empty() ? "" : format_table(titles, rows);
}

nlohmann::json json_of(const std::optional<RowShare>& share) {
  if (!share.has_value()) return nullptr;
  return {{"share", share->at_least}, {"error", share->error}};
}

nlohmann::json json_of(const HotRow& row) {
  nlohmann::json out = {{"row_of_part", row.row_of_part},
                        {"task", row.task},
                        {"lane", row.lane},
                        {"pulls", json_of(row.pulls)},
                        {"pushes", json_of(row.pushes)}};
  out["row"] = row.row.has_value() ? nlohmann::json(*row.row) : nlohmann::json(nullptr);
  out["part"] = row.part.has_value() ? nlohmann::json(*row.part) : nlohmann::json(nullptr);
  return out;
}

std::vector<HotTable> tables_of(const TopView& view) {
  return service::hot_tables_of(view.now, kRowsAsked, view.parts);
}

}  // namespace

std::vector<LaneLoad> lane_loads(const TopView& view) {
  std::vector<LaneLoad> out;
  for (size_t i = 0; i < view.now.size(); ++i) {
    const metrics::Readings* const before = before_of(view, i);
    if (before == nullptr) continue;
    std::map<int, double> lanes;
    for (const auto& [series, reading] : view.now[i].figures.all()) {
      const std::optional<int> lane = lane_of(reading.what);
      if (!lane.has_value()) continue;
      const double busy =
          metrics::scaled(reading.what.unit, static_cast<double>(reading.value) -
                                                 static_cast<double>(before->series(series)));
      lanes[*lane] = std::max(0.0, busy / view.seconds);
    }
    for (const auto& [lane, busy] : lanes) {
      out.push_back({.task = view.now[i].task, .lane = lane, .busy = busy});
    }
  }
  compare(&out);
  return out;
}

std::string hottest_lanes(const TopView& view) {
  std::string out;
  for (const LaneLoad& one : lane_loads(view)) {
    if (!one.is_hottest) continue;
    out += fmt::format(
        "hottest lane of {}: lane {} of {}, busy {:.0f}% of the time, {:.1f} times "
        "the mean of {} lanes\n",
        job_of(one.task), one.lane, short_name(one.task), 100 * one.busy, one.of_mean(), one.of);
  }
  return out;
}

std::string format_lanes(const TopView& view) {
  std::vector<std::vector<std::string>> rows;
  for (const LaneLoad& one : lane_loads(view)) {
    rows.push_back({short_name(one.task), std::to_string(one.lane),
                    fmt::format("{:.0f}%", 100 * one.busy), fmt::format("{:.2f}", one.of_mean()),
                    one.is_hottest ? "hottest" : ""});
  }
  return format_table({"task", "lane", "busy", "of mean", ""}, rows);
}

std::string hottest_rows(const TopView& view) {
  return table_of(tables_of(view), kShownMax, kShareShown);
}

std::string format_rows(const TopView& view) {
  const std::string rows = table_of(tables_of(view), SIZE_MAX, 0);
  return rows.empty() ? "no row of a table stands out\n" : rows;
}

nlohmann::json json_of_lanes(const TopView& view, const std::string& task) {
  nlohmann::json out = nlohmann::json::array();
  for (const LaneLoad& one : lane_loads(view)) {
    if (one.task != task) continue;
    out.push_back({{"lane", one.lane},
                   {"busy", one.busy},
                   {"of_mean", one.of_mean()},
                   {"hottest", one.is_hottest}});
  }
  return out;
}

nlohmann::json json_of_rows(const TopView& view) {
  nlohmann::json out = nlohmann::json::array();
  for (const HotTable& table : tables_of(view)) {
    nlohmann::json rows = nlohmann::json::array();
    for (const HotRow& row : table.rows) rows.push_back(json_of(row));
    out.push_back({{"group", table.group},
                   {"table", table.table},
                   {"pulled_rows", table.pulled_rows},
                   {"pushed_rows", table.pushed_rows},
                   {"rows", std::move(rows)}});
  }
  return out;
}

}  // namespace sidereal::cli
