#include "sidereal/cli/event_story.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <tuple>

#include "sidereal/base/printable.h"
#include "sidereal/base/strings.h"
#include "sidereal/cli/local_time.h"
#include "sidereal/sys/posix/event_file.h"

namespace sidereal::cli {

namespace fs = std::filesystem;
using json = nlohmann::ordered_json;

namespace {

constexpr int64_t kMicroseconds = 1'000'000;
/// Of a line that may be an event, and of a value that is shown.
constexpr size_t kLineBytesMax = 64 * 1024;
constexpr size_t kValueBytesShown = 300;
constexpr std::string_view kReplica = "/replica:0";

/// "2026-01-31T12:03:04.567890+01:00" as microseconds since 1970.
Result<int64_t> parse_time(const std::string& text) {
  std::tm time = {};
  int us = 0;
  char sign = '+';
  int hours = 0;
  int minutes = 0;
  int length = 0;
  // Each number has a width, and the length is compared.
  // NOLINTNEXTLINE(bugprone-unchecked-string-to-number-conversion)
  const int got = std::sscanf(text.c_str(), "%4d-%2d-%2dT%2d:%2d:%2d.%6d%c%2d:%2d%n", &time.tm_year,
                              &time.tm_mon, &time.tm_mday, &time.tm_hour, &time.tm_min,
                              &time.tm_sec, &us, &sign, &hours, &minutes, &length);
  if (got != 10 || static_cast<size_t>(length) != text.size() || (sign != '+' && sign != '-')) {
    return base::data_loss("'{}' is no time", base::message_text(text, 64));
  }
  time.tm_year -= 1900;
  time.tm_mon -= 1;
  const int64_t zone = (sign == '-' ? -60 : 60) * (int64_t{60} * hours + minutes);
  return (static_cast<int64_t>(timegm(&time)) - zone) * kMicroseconds + us;
}

/// All replicas are 0.
void shorten(std::string* names) {
  size_t at = 0;
  while ((at = names->find(kReplica, at)) != std::string::npos) names->erase(at, kReplica.size());
}

std::string text_of(const json& value) {
  const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  const bool is_plain = !text.empty() && text.find_first_of(" \"\n") == std::string::npos;
  const std::string shown = base::printable(base::message_text(text, kValueBytesShown));
  return is_plain ? shown : "\"" + shown + "\"";
}

Result<std::vector<std::string>> lines_of(const std::string& path) {
  std::ifstream file(path);
  if (!file) return base::not_found("there is no event log '{}'", path);
  std::vector<std::string> out;
  for (std::string line; std::getline(file, line);) out.push_back(std::move(line));
  return out;
}

}  // namespace

Result<StoryEvent> parse_event(std::string_view line) {
  const auto none = [line] {
    return base::data_loss("this is no event: '{}'", base::message_text(line, 100));
  };
  if (line.size() > kLineBytesMax) return none();
  const json read = json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!read.is_object()) return none();
  const auto text = [&read](const char* name) -> std::string {
    const auto found = read.find(name);
    return found != read.end() && found->is_string() ? found->get<std::string>() : "";
  };
  StoryEvent out;
  SR_ASSIGN_OR_RETURN(out.time_us, parse_time(text("ts")));
  out.task = base::printable(text("task"));
  shorten(&out.task);
  out.event = base::printable(text("event"));
  if (out.event.empty()) return none();
  const auto number = read.find("seq");
  if (number != read.end() && number->is_number_integer()) out.number = number->get<int64_t>();
  const auto fields = read.find("fields");
  if (fields != read.end() && fields->is_object()) {
    for (const auto& [name, value] : fields->items()) {
      out.fields += (out.fields.empty() ? "" : " ") + base::printable(name) + "=" + text_of(value);
    }
  }
  shorten(&out.fields);
  // What a peer says is one line, and of ASCII.
  out.line = read.dump(-1, ' ', /*ensure_ascii=*/true);
  return out;
}

std::vector<StoryEvent> story_of(const std::vector<std::string>& lines, int64_t since_us) {
  std::vector<StoryEvent> out;
  for (const std::string& line : lines) {
    Result<StoryEvent> event = parse_event(line);
    if (event.ok() && event->time_us >= since_us) out.push_back(*std::move(event));
  }
  const auto key = [](const StoryEvent& one) {
    return std::tie(one.time_us, one.task, one.number, one.line);
  };
  std::ranges::sort(out, [&](const StoryEvent& a, const StoryEvent& b) { return key(a) < key(b); });
  // std::ranges::unique() of GCC 12 is nothing for clang.
  const auto is_same = [](const StoryEvent& a, const StoryEvent& b) { return a.line == b.line; };
  out.erase(std::unique(out.begin(), out.end(), is_same), out.end());
  return out;
}

std::string format_event(const StoryEvent& event) {
  return fmt::format("{}.{:03} {:<18} {:<18} {}", local_time(event.time_us / kMicroseconds),
                     event.time_us % kMicroseconds / 1000, event.task, event.event, event.fields);
}

Result<std::vector<std::string>> read_event_log(const std::string& path) {
  std::vector<std::string> files;
  std::error_code why;
  if (fs::is_directory(path, why)) {
    for (fs::directory_iterator file(path, why), end; !why && file != end; file.increment(why)) {
      const std::string name = file->path().string();
      if (name.ends_with(sys::posix::kEventFileEnd)) files.push_back(name);
    }
    if (files.empty()) {
      return base::not_found("there is no event log (NAME{}) in '{}'", sys::posix::kEventFileEnd,
                             path);
    }
  } else {
    files.push_back(path);
  }
  std::vector<std::string> out;
  for (const std::string& file : files) {
    // The newer one first: what is moved meanwhile is read twice rather than not at all.
    const Result<std::vector<std::string>> lines = lines_of(file);
    const Result<std::vector<std::string>> before = lines_of(file + ".1");
    if (!lines.ok() && !before.ok() && files.size() == 1) return lines.status();
    for (const auto* const part : {&lines, &before}) {
      if (part->ok()) out.insert(out.end(), (*part)->begin(), (*part)->end());
    }
  }
  return out;
}

Result<double> parse_age(const std::string& text) {
  const std::string number = text.substr(0, text.empty() ? 0 : text.size() - 1);
  const Result<double> value = base::parse_double(number);
  for (const auto& [unit, seconds] :
       {std::pair('s', 1.0), {'m', 60.0}, {'h', 3600.0}, {'d', 86'400.0}}) {
    if (!value.ok() || !std::isfinite(*value) || *value < 0 || text.back() != unit) continue;
    return std::min(*value * seconds, 1e10);
  }
  return base::invalid_argument("'{}' is no time; write 90s, 10m, 2h or 1d", text);
}

}  // namespace sidereal::cli
