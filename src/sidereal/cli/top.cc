#include "sidereal/cli/top.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "sidereal/base/strings.h"
#include "sidereal/cli/hot_report.h"
#include "sidereal/cli/table.h"
#include "sidereal/metrics/figures.h"
#include "sidereal/metrics/staleness.h"

namespace sidereal::cli {

namespace {

using metrics::Kind;
using metrics::Unit;
using service::TaskReport;

/// How a column shows a figure.
enum class Show {
  kCount,
  kKnownCount,  ///< Nothing where it is 0, which says that it is not known.
  kBytes,
  kKnownBytes,
  kDuration,
  kRate,  ///< A second.
  kByteRate,
  kShare,  ///< Seconds a second.
  kMean,   ///< Of histograms, lately.
};

/// What people look at first; format_figures() and JSON have all there is.
struct Column {
  const char* title;
  const char* figure;
  Show show;
};
constexpr std::array kColumns = {
    Column{"uptime", "sidereal_task_uptime_seconds", Show::kDuration},
    Column{"steps/s", "sidereal_task_steps_total", Show::kRate},
    Column{"failed", "sidereal_task_steps_failed_total", Show::kCount},
    Column{"running", "sidereal_task_steps_running", Show::kCount},
    Column{"blocked", "sidereal_task_steps_blocked", Show::kCount},
    Column{"in/s", "sidereal_task_received_bytes_total", Show::kByteRate},
    Column{"out/s", "sidereal_task_sent_bytes_total", Show::kByteRate},
    Column{"cpu", "sidereal_task_busy_seconds_total", Show::kShare},
    Column{"memory", "sidereal_task_memory_bytes", Show::kKnownBytes},
    Column{"sessions", "sidereal_task_sessions", Show::kCount},
    Column{"programs", "sidereal_task_programs", Show::kCount},
    Column{"resources", "sidereal_task_resources", Show::kCount},
    Column{"kept", "sidereal_task_resource_bytes", Show::kBytes},
    Column{"stale", metrics::kStalenessName, Show::kMean},
    Column{"threads", "sidereal_task_threads", Show::kKnownCount},
    Column{"refused", "sidereal_refused_total", Show::kCount},
};

double rate_of(const TopView& view, int64_t now, int64_t before) {
  return (static_cast<double>(now) - static_cast<double>(before)) / view.seconds;
}

const char* state_of(const Status& status) {
  if (status.ok()) return "up";
  switch (status.code()) {
    case StatusCode::kUnavailable:
      return "down";
    case StatusCode::kDeadlineExceeded:
      return "no answer";
    default:
      return "error";
  }
}

std::string text_of(Show show, int64_t value) {
  switch (show) {
    case Show::kCount:
      return std::to_string(value);
    case Show::kKnownCount:
      return value > 0 ? std::to_string(value) : "-";
    case Show::kBytes:
      return base::human_bytes(static_cast<double>(value));
    case Show::kKnownBytes:
      return value > 0 ? base::human_bytes(static_cast<double>(value)) : "-";
    case Show::kDuration:
      return value > 0 ? format_duration(static_cast<double>(value) * 1e-9) : "-";
    default:
      return "-";
  }
}

std::string rate_text(Show show, double rate) {
  if (show == Show::kByteRate) return base::human_bytes(rate);
  return show == Show::kShare ? fmt::format("{:.0f}%", 100e-9 * rate) : fmt::format("{:.1f}", rate);
}

metrics::HistogramSnapshot sum_of(const metrics::Readings& readings, std::string_view figure,
                                  std::string_view worker) {
  metrics::HistogramSnapshot sum;
  for (const auto& [series, reading] : readings.all()) {
    if (reading.what.name != figure) continue;
    const auto is_of_worker = [&](const metrics::Label& label) {
      return label.name == "worker" && label.value == worker;
    };
    const std::vector<metrics::Label>& labels = reading.what.labels;
    if (worker.empty() || std::any_of(labels.begin(), labels.end(), is_of_worker)) {
      sum.merge(reading.histogram);
    }
  }
  return sum;
}

/// What task `i` counted lately, of one worker or, "", of all.
metrics::HistogramSnapshot lately(const TopView& view, size_t i, std::string_view figure,
                                  std::string_view worker) {
  const metrics::Readings* const before = before_of(view, i);
  metrics::HistogramSnapshot all = sum_of(view.now[i].figures, figure, worker);
  if (before == nullptr) return all;
  const auto since = metrics::since(sum_of(*before, figure, worker), all);
  return since.has_value() ? *since : all;
}

/// What a task has counted of others or, where it counts nothing, what others have of it.
std::string mean_text(const TopView& view, size_t i, std::string_view figure) {
  metrics::HistogramSnapshot shown = lately(view, i, figure, "");
  if (shown.count == 0) {
    for (size_t other = 0; other < view.now.size(); ++other) {
      if (other != i) shown.merge(lately(view, other, figure, view.now[i].task));
    }
  }
  return shown.count == 0 ? "-" : fmt::format("{:.1f}", shown.mean());
}

std::vector<std::string> row_of(const TopView& view, size_t i) {
  const TaskReport& r = view.now[i];
  std::vector<std::string> row = {short_name(r.task), state_of(r.status)};
  if (!r.status.ok()) return row;
  const metrics::Readings* const before = before_of(view, i);
  for (const Column& column : kColumns) {
    if (column.show == Show::kMean) {
      row.push_back(mean_text(view, i, column.figure));
      continue;
    }
    const int64_t now = r.figures.value(column.figure);
    const bool is_rate =
        column.show == Show::kRate || column.show == Show::kByteRate || column.show == Show::kShare;
    row.push_back(is_rate && before != nullptr
                      ? rate_text(column.show, rate_of(view, now, before->value(column.figure)))
                      : text_of(column.show, now));
  }
  return row;
}

/// The jobs, their holders and since when; "": none runs.
std::string format_jobs(const TopView& view) {
  constexpr size_t kProgramBytes = 60;
  std::vector<std::vector<std::string>> rows;
  for (const TaskReport& report : view.now) {
    for (const service::RunningJob& job : report.jobs) {
      const service::JobHolder& by = job.holder;
      rows.push_back({by.name, by.user, by.host, std::to_string(by.pid),
                      service::time_text(job.since_s),
                      base::message_text(by.program, kProgramBytes)});
    }
  }
  if (rows.empty()) return "";
  return "\n" + format_table({"job", "user", "host", "pid", "since", "program"}, rows);
}

nlohmann::json json_of(const service::RunningJob& job) {
  return {{"name", job.holder.name},       {"user", job.holder.user},
          {"host", job.holder.host},       {"pid", job.holder.pid},
          {"program", job.holder.program}, {"since", service::time_text(job.since_s)}};
}

/// In the figure's unit; whole numbers stay whole.
nlohmann::json json_of(const metrics::Reading& reading) {
  const Unit unit = reading.what.unit;
  const auto number = [unit](int64_t value) -> nlohmann::json {
    if (unit != Unit::kSeconds && unit != Unit::kRatio) return value;
    return metrics::scaled(unit, static_cast<double>(value));
  };
  if (reading.what.kind != Kind::kHistogram) return number(reading.value);
  const metrics::HistogramSnapshot& seen = reading.histogram;
  return {{"count", seen.count},
          {"sum", number(seen.sum)},
          {"mean", metrics::scaled(unit, seen.mean())},
          {"p50", number(seen.quantile(0.5))},
          {"p99", number(seen.quantile(0.99))},
          {"max", number(seen.max)}};
}

nlohmann::json json_of(const TopView& view, size_t i) {
  const TaskReport& r = view.now[i];
  nlohmann::json out = {{"task", r.task}, {"address", r.address}, {"state", state_of(r.status)}};
  if (!r.status.ok()) {
    out["error"] = base::message_of(r.status);
    return out;
  }
  nlohmann::json figures = nlohmann::json::object();
  for (const auto& [series, reading] : r.figures.all()) figures[series] = json_of(reading);
  nlohmann::json rates = nullptr;
  if (const metrics::Readings* const before = before_of(view, i)) {
    rates = nlohmann::json::object();
    out["lanes"] = json_of_lanes(view, r.task);
    for (const auto& [series, reading] : r.figures.all()) {
      if (reading.what.kind != Kind::kCounter) continue;
      const double rate = rate_of(view, reading.value, before->series(series));
      rates[series] = metrics::scaled(reading.what.unit, rate);
    }
  }
  nlohmann::json jobs = nlohmann::json::array();
  for (const service::RunningJob& job : r.jobs) jobs.push_back(json_of(job));
  out.update({{"pid", r.pid},
              {"jobs", std::move(jobs)},
              {"protocol", r.protocol},
              {"settings", r.settings},
              {"figures", std::move(figures)},
              {"per_s", std::move(rates)}});
  return out;
}

/// A figure in a cell of a table.
std::string cell_of(const metrics::Reading& reading) {
  const auto text = [&](int64_t value) {
    if (reading.what.unit == Unit::kBytes) return base::human_bytes(static_cast<double>(value));
    if (reading.what.unit == Unit::kCount) return std::to_string(value);
    if (reading.what.unit == Unit::kRatio) {
      return fmt::format("{:.1f}%",
                         100 * metrics::scaled(Unit::kRatio, static_cast<double>(value)));
    }
    return fmt::format("{:.3g} s", static_cast<double>(value) * 1e-9);
  };
  if (reading.what.kind != Kind::kHistogram) return text(reading.value);
  const metrics::HistogramSnapshot& seen = reading.histogram;
  return fmt::format("{} x {}", seen.count, text(static_cast<int64_t>(seen.mean())));
}

}  // namespace

const metrics::Readings* before_of(const TopView& view, size_t i) {
  if (i >= view.before.size() || view.seconds <= 0) return nullptr;
  const TaskReport& now = view.now[i];
  const TaskReport& before = view.before[i];
  const bool same = now.status.ok() && before.status.ok() && now.incarnation == before.incarnation;
  return same ? &before.figures : nullptr;
}

std::string short_name(std::string task) {
  constexpr std::string_view kReplica = "/replica:0";
  const size_t at = task.find(kReplica);
  return at == std::string::npos ? task : task.erase(at, kReplica.size());
}

std::string one_line(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  }
  return text;
}

std::string format_top(const TopView& view) {
  std::vector<std::vector<std::string>> rows;
  std::string why;
  size_t up = 0;
  for (size_t i = 0; i < view.now.size(); ++i) {
    rows.push_back(row_of(view, i));
    const Status& status = view.now[i].status;
    up += status.ok() ? 1 : 0;
    if (!status.ok()) why += one_line(base::message_of(status)) + "\n";
  }
  std::string out =
      fmt::format("{} {}, {} up\n\n", view.now.size(), view.now.size() == 1 ? "task" : "tasks", up);
  std::vector<std::string> titles = {"task", "state"};
  for (const Column& column : kColumns) titles.emplace_back(column.title);
  out += format_table(titles, rows);
  const std::string lanes = hottest_lanes(view);
  if (!lanes.empty()) out += "\n" + lanes;
  const std::string hot = hottest_rows(view);
  if (!hot.empty()) out += "\n" + hot;
  out += format_jobs(view);
  if (!why.empty()) out += "\n" + why;
  return out;
}

std::string format_figures(const TopView& view) {
  std::vector<std::string> titles = {"figure"};
  std::map<std::string, std::vector<std::string>> rows;  // By series.
  size_t tasks = 0;
  for (const TaskReport& report : view.now) {
    if (!report.status.ok()) continue;
    titles.push_back(short_name(report.task));
    for (const auto& [series, reading] : report.figures.all()) {
      std::vector<std::string>& row = rows[one_line(series)];
      row.resize(tasks, "-");
      row.push_back(cell_of(reading));
    }
    ++tasks;
  }
  std::vector<std::vector<std::string>> all;
  for (auto& [series, row] : rows) {
    row.resize(tasks, "-");
    row.insert(row.begin(), series);
    all.push_back(std::move(row));
  }
  return format_table(titles, all);
}

std::string top_json(const TopView& view) {
  nlohmann::json tasks = nlohmann::json::array();
  for (size_t i = 0; i < view.now.size(); ++i) tasks.push_back(json_of(view, i));
  const nlohmann::json all = {
      {"seconds", view.seconds}, {"tasks", std::move(tasks)}, {"hot_rows", json_of_rows(view)}};
  // Errors of peers may hold any bytes.
  return all.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace sidereal::cli
