#include "sidereal/config/option.h"

#include "sidereal/base/strings.h"

namespace sidereal::config::internal {
namespace {

std::string range_text(int64_t min, int64_t max, const char* unit) {
  return fmt::format("{} to {}{}{}", min, max, *unit == '\0' ? "" : " ", unit);
}

}  // namespace

Status check_range(const char* name, const char* unit, int64_t min, int64_t max, int64_t value) {
  if (value >= min && value <= max) return {};
  return base::invalid_argument("{} is {}; it must be {}", name, value, range_text(min, max, unit));
}

Result<int64_t> parse_value(const char* name, const char* unit, std::string_view text) {
  Result<int64_t> value = base::parse_int(base::trim(text));
  if (value.ok()) return value;
  return base::invalid_argument("{} is '{}'; it must be a whole number{}{}", name, text,
                                *unit == '\0' ? "" : " of ", unit);
}

std::string render_line(const char* name, const char* unit, int64_t min, int64_t max,
                        int64_t default_value, int64_t value, const char* doc) {
  return fmt::format("{} = {}  ({}; default {}) {}\n", name, value, range_text(min, max, unit),
                     default_value, doc);
}

Status unknown_option(std::string_view name, const std::string& known) {
  return base::invalid_argument("there is no option '{}'; there are: {}", name, known);
}

}  // namespace sidereal::config::internal
