#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "sidereal/base/status.h"

namespace sidereal::data {

/// TOML as the JSON object that says the same, in the order of the text. kInvalidArgument with the
/// line for what is no TOML, and for dates, times and numbers that are not finite.
Result<nlohmann::ordered_json> parse_toml(std::string_view text);

/// A string as TOML has it, in quotes.
std::string toml_string(std::string_view text);

}  // namespace sidereal::data
