#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "sidereal/base/strings.h"
#include "sidereal/cli/commands.h"

namespace sidereal::cli {

namespace {

using Json = nlohmann::ordered_json;

/// The names that one_of() lists in the name of a type; values of other kinds are in capitals.
Json choices_of(const std::string& type) {
  Json choices = Json::array();
  const std::vector<std::string> parts = base::split(type, '|');
  const bool are_names = parts.size() > 1 && std::all_of(type.begin(), type.end(),
                                                         [](char c) { return c < 'A' || c > 'Z'; });
  if (are_names) choices = parts;
  return choices;
}

Json option_of(const CLI::Option& option) {
  Json names = Json::array();
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  const bool takes_value = option.get_items_expected_min() > 0;
  const std::string type = takes_value ? option.get_type_name() : "";
  return {{"names", names},
          {"value", type},
          {"choices", choices_of(type)},
          {"about", option.get_description()}};
}

Json command_of(const CLI::App& app) {
  Json options = Json::array();
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_group().empty()) options.push_back(option_of(*option));
  }
  Json commands = Json::array();
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!command->get_group().empty()) commands.push_back(command_of(*command));
  }
  return {{"name", app.get_name()},
          {"about", app.get_description()},
          {"options", options},
          {"commands", commands}};
}

}  // namespace

void add_options(CLI::App* app, Action* action) {
  CLI::App* command =
      app->add_subcommand("options", "print all commands and their options, as JSON");
  command->group("");
  command->final_callback([app, action] {
    *action = [text = command_of(*app).dump()]() -> Status {
      fmt::print("{}\n", text);
      return {};
    };
  });
}

void add_version_flags(CLI::App* app) {
  app->set_version_flag("--version", version_text, "print the version");
  for (CLI::App* command : app->get_subcommands([](CLI::App*) { return true; })) {
    if (command->get_prefix_command()) continue;  // Python's, which has the flag itself.
    add_version_flags(command);
    command->get_version_ptr()->group("");
  }
}

}  // namespace sidereal::cli
