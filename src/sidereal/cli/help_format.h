#pragma once

#include <cstddef>
#include <string>

namespace CLI {
class App;
}  // namespace CLI

namespace sidereal::cli {

/// `text` with line ends instead of some blanks, so that no line is wider than `columns`, words
/// that are wider by themselves excepted.
std::string wrap(const std::string& text, size_t columns);

/// Makes the help of `app` and of the subcommands added to it afterwards fit 100 columns.
void use_help_format(CLI::App* app);

}  // namespace sidereal::cli
