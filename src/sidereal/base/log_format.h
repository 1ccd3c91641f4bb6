#pragma once

#include <string>
#include <string_view>

#include "sidereal/base/log.h"
#include "sidereal/base/status.h"

namespace sidereal::base {

/// What a line of the log is: text for people, or an object of JSON with time, level, task and
/// message.
enum class LogFormat { kText, kJson };

/// For main() only, before set_log_name().
void set_log_format(LogFormat format);

/// The level of a name: debug, info, warning or error. kInvalidArgument for another one.
Result<LogLevel> parse_log_level(std::string_view name);

/// `text` as JSON has it, in quotes; bytes that are no UTF-8 are written as \xHH.
std::string json_text(std::string_view text);

}  // namespace sidereal::base
