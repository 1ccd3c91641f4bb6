#pragma once

#include <string>
#include <vector>

#include "sidereal/base/status.h"

namespace CLI {
class App;
}  // namespace CLI

namespace sidereal::cli {

/// kInvalidArgument for a command or an option that `app` does not have, with the one that may have
/// been meant, and for a flag with another value than true and false. `arguments` are without the
/// program's name.
Status check_names(const CLI::App& app, const std::vector<std::string>& arguments);

/// `help train` as `train --help`, and `help` as `--help`; other arguments stay as they are.
std::vector<std::string> without_help_command(std::vector<std::string> arguments);

}  // namespace sidereal::cli
