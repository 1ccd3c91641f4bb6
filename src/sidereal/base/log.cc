#include "sidereal/base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

namespace sidereal::base {
namespace {

spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    auto sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
    auto made = std::make_shared<spdlog::logger>("sidereal", sink);
    made->set_pattern("%H:%M:%S.%e %L %v");
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

}  // namespace

void log_line(LogLevel level, const std::string& line) { logger().log(to_spdlog(level), line); }

void set_log_name(const std::string& name) {
  logger().set_pattern("%H:%M:%S.%e %L " + name + " %v");
}

void set_log_level(LogLevel level) { logger().set_level(to_spdlog(level)); }

}  // namespace sidereal::base
