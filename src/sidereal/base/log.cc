#include "sidereal/base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <array>
#include <atomic>
#include <limits>
#include <memory>
#include <utility>

#include "sidereal/base/log_format.h"
#include "sidereal/base/strings.h"

namespace sidereal::base {
namespace {

/// Date, time, its zone and the level: "2026-01-31 12:03:04.567+01:00 W ".
constexpr const char* kTextTime = "%Y-%m-%d %H:%M:%S.%e%z %L ";

/// Written by main() before there are threads, read by those that log.
std::atomic<LogFormat> g_format = LogFormat::kText;

/// Never destroyed: threads that the end of the process meets at work may log yet.
spdlog::logger& logger() {
  static spdlog::logger* const instance = [] {
    auto sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
    auto* const made = new spdlog::logger("sidereal", std::move(sink));
    made->set_pattern(std::string(kTextTime) + "%v");
    made->flush_on(spdlog::level::debug);
    return made;
  }();
  return *instance;
}

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

void set_pattern(const std::string& name) {
  if (g_format == LogFormat::kJson) {
    logger().set_pattern(R"({"time":"%Y-%m-%dT%H:%M:%S.%e%z","level":"%l","task":)" +
                         json_text(name) + R"(,"message":%v})");
  } else {
    logger().set_pattern(kTextTime + name + (name.empty() ? "%v" : " %v"));
  }
}

}  // namespace

std::string json_text(std::string_view text) {
  std::string out = "\"";
  for (const char c : message_text(text, std::numeric_limits<size_t>::max())) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out + "\"";
}

void log_line(LogLevel level, const std::string& line) {
  logger().log(to_spdlog(level), g_format == LogFormat::kJson ? json_text(line) : line);
}

void set_log_format(LogFormat format) {
  g_format = format;
  set_pattern("");
}

void set_log_name(const std::string& name) { set_pattern(name); }

Result<LogLevel> parse_log_level(std::string_view name) {
  constexpr std::array kLevels = {
      std::pair{"debug", LogLevel::kDebug}, std::pair{"info", LogLevel::kInfo},
      std::pair{"warning", LogLevel::kWarning}, std::pair{"error", LogLevel::kError}};
  for (const auto& [known, level] : kLevels) {
    if (name == known) return level;
  }
  return invalid_argument("'{}' is no level of the log: debug, info, warning or error", name);
}

void set_log_level(LogLevel level) { logger().set_level(to_spdlog(level)); }

}  // namespace sidereal::base
