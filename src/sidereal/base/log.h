#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

/// One line per event, structured as `what key=value ...`, on standard error. Never per row.
/// Thread: any.
namespace sidereal::base {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

/// Writes one line at `level`, with time and the name given to set_log_name().
void log_line(LogLevel level, const std::string& line);

/// The name printed on every line of this process, such as "/job:ps/task:0". For main() only.
void set_log_name(const std::string& name);

/// Lines below `level` are dropped. For main() only.
void set_log_level(LogLevel level);

template <class... Args>
void log_debug(fmt::format_string<Args...> f, Args&&... args) {
  log_line(LogLevel::kDebug, fmt::format(f, std::forward<Args>(args)...));
}
template <class... Args>
void log_info(fmt::format_string<Args...> f, Args&&... args) {
  log_line(LogLevel::kInfo, fmt::format(f, std::forward<Args>(args)...));
}
template <class... Args>
void log_warning(fmt::format_string<Args...> f, Args&&... args) {
  log_line(LogLevel::kWarning, fmt::format(f, std::forward<Args>(args)...));
}
template <class... Args>
void log_error(fmt::format_string<Args...> f, Args&&... args) {
  log_line(LogLevel::kError, fmt::format(f, std::forward<Args>(args)...));
}

}  // namespace sidereal::base
