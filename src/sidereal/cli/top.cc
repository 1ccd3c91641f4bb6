#include "sidereal/cli/top.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "sidereal/base/strings.h"
#include "sidereal/cli/table.h"

namespace sidereal::cli {

namespace {

using runtime::TaskReport;

struct Rates {
  double steps = 0;
  double bytes_in = 0;
  double bytes_out = 0;
  double busy = 0;  // Of 1.
};

/// Between two reports of the same start of a task.
std::optional<Rates> rates_of(const TopView& view, size_t i) {
  if (i >= view.before.size() || view.seconds <= 0) return std::nullopt;
  const TaskReport& now = view.now[i];
  const TaskReport& before = view.before[i];
  const bool same = now.status.ok() && before.status.ok() &&
                    now.incarnation == before.incarnation && now.steps >= before.steps;
  if (!same) return std::nullopt;
  const auto rate = [&](auto a, auto b) { return static_cast<double>(a - b) / view.seconds; };
  return Rates{.steps = rate(now.steps, before.steps),
               .bytes_in = rate(now.bytes_received, before.bytes_received),
               .bytes_out = rate(now.bytes_sent, before.bytes_sent),
               .busy = rate(now.busy_s, before.busy_s)};
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

int64_t refused_of(const TaskReport& report) {
  return std::accumulate(report.refused.begin(), report.refused.end(), int64_t{0},
                         [](int64_t sum, const auto& entry) { return sum + entry.second; });
}

/// "/job:ps/task:0": all replicas are 0.
std::string short_name(std::string task) {
  constexpr std::string_view kReplica = "/replica:0";
  const size_t at = task.find(kReplica);
  return at == std::string::npos ? task : task.erase(at, kReplica.size());
}

std::string bytes_text(int64_t bytes) { return base::human_bytes(static_cast<double>(bytes)); }

std::vector<std::string> row_of(const TopView& view, size_t i) {
  const TaskReport& r = view.now[i];
  std::vector<std::string> row = {short_name(r.task), state_of(r.status)};
  if (!r.status.ok()) return row;
  const auto known = [](auto value, std::string text) { return value > 0 ? text : "-"; };
  row.push_back(known(r.uptime_s, format_duration(r.uptime_s)));
  const std::optional<Rates> rates = rates_of(view, i);
  row.push_back(rates ? fmt::format("{:.1f}", rates->steps) : "-");
  for (const int64_t count : {r.steps_failed, r.steps_running, r.steps_blocked}) {
    row.push_back(std::to_string(count));
  }
  row.push_back(rates ? base::human_bytes(rates->bytes_in) : "-");
  row.push_back(rates ? base::human_bytes(rates->bytes_out) : "-");
  row.push_back(rates ? fmt::format("{:.0f}%", 100 * rates->busy) : "-");
  row.push_back(known(r.memory_bytes, bytes_text(r.memory_bytes)));
  for (const int64_t count : {r.sessions, r.programs, r.resources}) {
    row.push_back(std::to_string(count));
  }
  row.push_back(bytes_text(r.resource_bytes));
  row.push_back(known(r.threads, std::to_string(r.threads)));
  row.push_back(std::to_string(refused_of(r)));
  return row;
}

std::string one_line(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  }
  return text;
}

nlohmann::json json_of(const TopView& view, size_t i) {
  const TaskReport& r = view.now[i];
  nlohmann::json out = {{"task", r.task}, {"address", r.address}, {"state", state_of(r.status)}};
  if (!r.status.ok()) {
    out["error"] = base::message_of(r.status);
    return out;
  }
  const std::optional<Rates> rates = rates_of(view, i);
  const auto rate = [&](double Rates::*member) -> nlohmann::json {
    if (!rates) return nullptr;
    return (*rates).*member;
  };
  out.update({{"pid", r.pid},
              {"uptime_s", r.uptime_s},
              {"memory_bytes", r.memory_bytes},
              {"steps", r.steps},
              {"steps_failed", r.steps_failed},
              {"steps_running", r.steps_running},
              {"steps_blocked", r.steps_blocked},
              {"pulls_ahead", r.pulls_ahead},
              {"pulls_thrown_away", r.pulls_thrown_away},
              {"bytes_received", r.bytes_received},
              {"bytes_sent", r.bytes_sent},
              {"busy_s", r.busy_s},
              {"sessions", r.sessions},
              {"programs", r.programs},
              {"resources", r.resources},
              {"resource_bytes", r.resource_bytes},
              {"threads", r.threads},
              {"open_files", r.open_files},
              {"refused", r.refused},
              {"protocol", r.protocol},
              {"settings", r.settings},
              {"steps_per_s", rate(&Rates::steps)},
              {"bytes_received_per_s", rate(&Rates::bytes_in)},
              {"bytes_sent_per_s", rate(&Rates::bytes_out)},
              {"busy", rate(&Rates::busy)}});
  return out;
}

}  // namespace

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
  out += format_table(
      {"task", "state", "uptime", "steps/s", "failed", "running", "blocked", "in/s", "out/s", "cpu",
       "memory", "sessions", "programs", "resources", "kept", "threads", "refused"},
      rows);
  if (!why.empty()) out += "\n" + why;
  return out;
}

std::string top_json(const TopView& view) {
  nlohmann::json tasks = nlohmann::json::array();
  for (size_t i = 0; i < view.now.size(); ++i) tasks.push_back(json_of(view, i));
  const nlohmann::json all = {{"seconds", view.seconds}, {"tasks", std::move(tasks)}};
  // Errors of peers may hold any bytes.
  return all.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace sidereal::cli
