#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "sidereal/base/status.h"

namespace sidereal::data {

/// TOML as the JSON object that says the same. Taken are tables, keys with dots, strings of one
/// line, numbers, true and false, and lists; kInvalidArgument with the line for anything else, and
/// for a key that stands twice.
Result<nlohmann::ordered_json> parse_toml(std::string_view text);

/// A string as TOML has it, in quotes.
std::string toml_string(std::string_view text);

}  // namespace sidereal::data
