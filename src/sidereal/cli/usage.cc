#include "sidereal/cli/usage.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "sidereal/base/closest.h"
#include "sidereal/base/printable.h"

namespace sidereal::cli {

namespace {

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

std::vector<std::string> names_of(const std::vector<const CLI::App*>& commands) {
  std::vector<std::string> names;
  for (const CLI::App* command : commands) names.push_back(command->get_name());
  return names;
}

std::vector<std::string> options_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    for (const std::string& name : option->get_lnames()) names.push_back(name);
  }
  return names;
}

Status unknown(const char* kind, const std::string& word, const std::string& near,
               const std::string& command) {
  const std::string meant = near.empty() ? "" : fmt::format("; did you mean {}?", near);
  return base::invalid_argument("'{}' has no {} '{}'{} (see {} --help)", command, kind,
                                base::printable(word), meant, command);
}

/// CLI11 takes a number for how often a flag is said.
Status check_flag(const std::string& name, const std::string& value, const std::string& command) {
  if (value == "true" || value == "false") return {};
  return base::invalid_argument(
      "'{}' is said or not, and has no value but true and false, not '{}' "
      "(see {} --help)",
      "--" + name, base::printable(value), command);
}

}  // namespace

Status check_names(const CLI::App& app, const std::vector<std::string>& arguments) {
  const CLI::App* at = &app;
  std::string path = app.get_name();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (word == "--" || at->get_prefix_command()) return {};
    if (word.starts_with("--")) {
      const size_t equals = word.find('=');
      const std::string name = word.substr(2, equals - 2);
      const CLI::Option* option = at->get_option_no_throw("--" + name);
      if (option == nullptr) {
        const std::string near = base::closest(name, options_of(*at));
        return unknown("option", "--" + name, near.empty() ? "" : "--" + near, path);
      }
      if (option->get_items_expected_max() == 0 && equals != std::string::npos) {
        SR_RETURN_IF_ERROR(check_flag(name, word.substr(equals + 1), path));
      }
      if (equals == std::string::npos && option->get_items_expected_min() > 0) ++i;  // Its value.
      continue;
    }
    const std::vector<const CLI::App*> commands = commands_of(*at);
    if (commands.empty() || word.starts_with('-')) continue;
    const auto next = std::find_if(commands.begin(), commands.end(), [&](const CLI::App* command) {
      return command->get_name() == word;
    });
    if (next == commands.end()) {
      return unknown("command", word, base::closest(word, names_of(commands)), path);
    }
    at = *next;
    path += " " + word;
  }
  return {};
}

std::vector<std::string> without_help_command(std::vector<std::string> arguments) {
  if (arguments.empty() || arguments.front() != "help") return arguments;
  arguments.erase(arguments.begin());
  arguments.emplace_back("--help");
  return arguments;
}

}  // namespace sidereal::cli
