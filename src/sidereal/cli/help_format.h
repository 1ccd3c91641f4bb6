#pragma once

namespace CLI {
class App;
}  // namespace CLI

namespace sidereal::cli {

/// Makes the help of `app` and of the subcommands added to it afterwards fit 100 columns.
void use_help_format(CLI::App* app);

}  // namespace sidereal::cli
