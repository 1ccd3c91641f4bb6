#pragma once

#include <string>
#include <string_view>

namespace sidereal::base {

/// What a line of the log is: text for people, or an object of JSON with time, level, task and
/// message.
enum class LogFormat { kText, kJson };

/// For main() only, before set_log_name().
void set_log_format(LogFormat format);

/// `text` as JSON has it, in quotes; bytes that are no UTF-8 are written as \xHH.
std::string json_text(std::string_view text);

}  // namespace sidereal::base
