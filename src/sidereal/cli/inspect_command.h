#pragma once

#include "sidereal/cli/commands.h"

namespace sidereal::cli {

/// Adds `sidereal inspect`, as those of commands.h are added.
void add_inspect(CLI::App* app, Action* action);

}  // namespace sidereal::cli
