#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "sidereal/base/status.h"

namespace sidereal::data {

/// TOML as the JSON object that says the same. Taken are tables, keys with dots, strings of one
/// line, numbers, true and false, and lists; kInvalidArgument with the line for anything else, and
/// for a key that stands twice. `lines`, if given, gets the keys of the outermost table, each with
/// the first line that says something of it, from 1.
Result<nlohmann::ordered_json> parse_toml(std::string_view text,
                                          std::map<std::string, int>* lines = nullptr);

/// A string as TOML has it, in quotes.
std::string toml_string(std::string_view text);

}  // namespace sidereal::data
