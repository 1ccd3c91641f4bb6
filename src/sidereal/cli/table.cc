#include "sidereal/cli/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sidereal/base/strings.h"

namespace sidereal::cli {

namespace {

void add_row(const std::vector<std::string>& cells, const std::vector<size_t>& widths,
             std::string* out) {
  std::string line;
  for (size_t i = 0; i < cells.size(); ++i) {
    if (i > 0) line += "  ";
    line += i == 0 ? fmt::format("{:<{}}", cells[i], widths[i])
                   : fmt::format("{:>{}}", cells[i], widths[i]);
  }
  *out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
}

}  // namespace

std::string format_table(const std::vector<std::string>& header,
                         const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const std::string& cell : header) widths.push_back(cell.size());
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size() && i < widths.size(); ++i) {
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  std::string out;
  add_row(header, widths, &out);
  std::vector<std::string> dashes;
  for (const size_t width : widths) dashes.emplace_back(width, '-');
  add_row(dashes, widths, &out);
  for (const auto& row : rows) {
    add_row({row.begin(),
             row.begin() + static_cast<std::ptrdiff_t>(std::min(row.size(), widths.size()))},
            widths, &out);
  }
  return out;
}

std::string format_tasks(const std::vector<train::TaskStats>& tasks, double seconds) {
  std::vector<std::vector<std::string>> rows;
  for (const train::TaskStats& t : tasks) {
    const double rate = seconds > 0 ? static_cast<double>(t.rows) / seconds : 0;
    const bool has_rows = t.rows > 0;
    rows.push_back({t.task, std::to_string(t.steps),
                    has_rows ? base::human_count(static_cast<double>(t.rows)) : "-",
                    has_rows ? base::human_count(rate) : "-",
                    base::human_bytes(static_cast<double>(t.bytes_in)),
                    base::human_bytes(static_cast<double>(t.bytes_out)),
                    fmt::format("{:.1f}", t.compute_s), fmt::format("{:.1f}", t.wait_s),
                    fmt::format("{:.1f}", t.data_wait_s)});
  }
  return format_table({"task", "steps", "samples", "samples/s", "received", "sent", "compute s",
                       "wait s", "for data s"},
                      rows) +
         "ps tasks: calls served as steps\n";
}

std::string format_duration(double seconds) {
  if (!(seconds >= 0)) return "?";
  if (seconds < 9.95) return fmt::format("{:.1f}s", seconds);
  const auto whole = static_cast<int64_t>(std::llround(std::min(seconds, 1e9)));
  if (whole < 60) return fmt::format("{}s", whole);
  if (whole < 3600) return fmt::format("{}m{:02}s", whole / 60, whole % 60);
  return fmt::format("{}h{:02}m", whole / 3600, whole / 60 % 60);
}

}  // namespace sidereal::cli
