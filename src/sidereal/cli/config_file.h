#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "sidereal/base/status.h"

namespace CLI {
class App;
}  // namespace CLI

/// Options of a command in a file: TOML, each option by its long name. What a training writes about
/// itself is such a file, with a table `run` beside the options.
namespace sidereal::cli {

/// The table that says what became of a training; it has no options.
inline constexpr const char* kRunTable = "run";

/// Adds `--config FILE`, which with_config() takes.
void add_config_option(CLI::App* command);

/// Where options stand in a file: ("--ps", "run.toml:12"). Value type.
using ConfigPlaces = std::vector<std::pair<std::string, std::string>>;

/// `arguments`, of which the first is a command of `app`, with what the file of --config says that
/// they do not say themselves. kInvalidArgument with file and line for what no option is, or no
/// value of it.
Result<std::vector<std::string>> with_config(const CLI::App& app,
                                             std::vector<std::string> arguments,
                                             ConfigPlaces* places);

/// `status` with the place of the option that its message begins with, or (`anywhere`) has.
Status at_place(const Status& status, const ConfigPlaces& places, bool anywhere);

/// An option as a command was given it, or by default. Value type.
struct AskedOption {
  std::string name;  ///< Without dashes.
  std::string group;
  nlohmann::ordered_json value;  ///< Null: there is no value, and no default.
};

/// All options of a command after it was read, in order; without --config and --help.
std::vector<AskedOption> asked_options(const CLI::App& command);

/// A JSON value as TOML has it: texts, numbers, true and false, and lists of these.
std::string toml_value(const nlohmann::ordered_json& value);

}  // namespace sidereal::cli
