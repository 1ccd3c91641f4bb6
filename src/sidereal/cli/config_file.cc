#include "sidereal/cli/config_file.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <sstream>

#include "sidereal/base/closest.h"
#include "sidereal/base/strings.h"
#include "sidereal/data/toml.h"

namespace sidereal::cli {

using base::invalid_argument;
using Json = nlohmann::ordered_json;

namespace {

constexpr const char* kConfig = "--config";

bool is_flag(const CLI::Option& option) { return option.get_items_expected_max() == 0; }
bool is_list(const CLI::Option& option) { return option.get_items_expected_max() > 1; }

/// The long name that files have, "" for what is not for them: a run that is repeated by its file
/// is not meant to end the one that goes on.
std::string file_name_of(const CLI::Option& option) {
  if (option.get_lnames().empty() || option.get_group().empty()) return "";
  const std::string& name = option.get_lnames().front();
  return name == "help" || name == "config" || name == "take-over" ? "" : name;
}

std::vector<std::string> file_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* const option : command.get_options()) {
    if (file_name_of(*option).empty()) continue;
    for (const std::string& name : option->get_lnames()) names.push_back(name);
  }
  return names;
}

/// The options that some words of a command line give.
std::set<const CLI::Option*> given_options(const CLI::App& command,
                                           const std::vector<std::string>& words) {
  std::set<const CLI::Option*> given;
  for (size_t i = 1; i < words.size(); ++i) {
    const std::string name = words[i].substr(0, words[i].find('='));
    const CLI::Option* const option =
        name.starts_with('-') ? command.get_option_no_throw(name) : nullptr;
    if (option == nullptr) continue;
    given.insert(option);
    // Its value may look like an option.
    if (name == words[i] && option->get_items_expected_min() > 0) ++i;
  }
  return given;
}

Result<std::string> word_of(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number()) return value.dump();
  return invalid_argument("is no text and no number");
}

/// What a value of a file is as words of a command line.
Result<std::vector<std::string>> words_of(const CLI::Option& option, const std::string& name,
                                          const Json& value) {
  const std::string dashes = "--" + name;
  if (is_flag(option)) {
    if (!value.is_boolean()) return invalid_argument("'{}' must be true or false", name);
    return std::vector<std::string>{value.get<bool>() ? dashes : dashes + "=false"};
  }
  const bool joins = option.get_type_name().ends_with(",...");
  if (value.is_array() && !is_list(option) && !joins) {
    return invalid_argument("'{}' is a list, and {} takes one value", name, dashes);
  }
  std::vector<std::string> texts;
  for (const Json& one : value.is_array() ? value : Json::array({value})) {
    const Result<std::string> text = word_of(one);
    if (!text.ok()) {
      return invalid_argument("'{}' must be {} ({})", name,
                              is_list(option) || joins ? "texts or numbers" : "a text or a number",
                              option.get_type_name());
    }
    if (!text->empty()) texts.push_back(*text);
  }
  if (joins && !texts.empty()) texts = {base::join(texts, ",")};
  for (std::string& text : texts) text = fmt::format("{}={}", dashes, text);
  return texts;
}

Result<Json> read_file(const std::string& path, std::map<std::string, int>* lines) {
  std::ifstream file(path);
  std::ostringstream content;
  if (file) content << file.rdbuf();
  if (!file || content.fail()) {
    return base::not_found("{}: this file of options cannot be read; check the path", path);
  }
  Result<Json> read = data::parse_toml(content.str(), lines);
  if (read.ok()) return read;
  // "line 3: ..." as all else that is wrong in a file.
  std::string message(base::message_of(read.status()));
  constexpr std::string_view kLine = "line ";
  const bool has_line = message.starts_with(kLine);
  return base::with_message(read.status(),
                            has_line ? fmt::format("{}:{}", path, message.substr(kLine.size()))
                                     : fmt::format("{}: {}", path, message));
}

/// The file that `words` name; "" for none. The words that do so go.
Result<std::string> take_path(std::vector<std::string>* words) {
  std::string path;
  for (size_t i = 1; i < words->size();) {
    const std::string& word = (*words)[i];
    const std::string with_equals = std::string(kConfig) + "=";
    if (word != kConfig && !word.starts_with(with_equals)) {
      ++i;
      continue;
    }
    if (!path.empty()) return invalid_argument("--config is there twice; give one file");
    const bool is_next = word == kConfig;
    if (is_next && i + 1 == words->size()) {
      return invalid_argument("--config: the name of a file is to follow");
    }
    path = is_next ? (*words)[i + 1] : word.substr(with_equals.size());
    const auto at = words->begin() + static_cast<std::ptrdiff_t>(i);
    words->erase(at, at + (is_next ? 2 : 1));
    if (path.empty()) return invalid_argument("--config: the name of a file is to follow");
  }
  return path;
}

bool mentions(std::string_view text, std::string_view option, bool anywhere) {
  const auto ends = [&](size_t end) {
    return end == text.size() ||
           !(std::isalnum(static_cast<unsigned char>(text[end])) != 0 || text[end] == '-');
  };
  if (text.starts_with(option)) return ends(option.size());
  const size_t at = anywhere ? text.find(option) : std::string_view::npos;
  return at != std::string_view::npos && ends(at + option.size());
}

}  // namespace

void add_config_option(CLI::App* command) {
  // with_config() takes it before it is read here: the option is there for its help.
  command
      ->add_option_function<std::string>(
          kConfig, [](const std::string&) {},
          "a file of options by their long names (TOML), as a training writes one; what "
          "the command line says counts more")
      ->type_name("FILE")
      ->default_str("");
}

Result<std::vector<std::string>> with_config(const CLI::App& app,
                                             std::vector<std::string> arguments,
                                             ConfigPlaces* places) {
  if (arguments.empty()) return arguments;
  const std::vector<const CLI::App*> commands = app.get_subcommands(
      [&](const CLI::App* one) { return one->get_name() == arguments.front(); });
  const CLI::App* const command = commands.empty() ? nullptr : commands.front();
  if (command == nullptr || command->get_option_no_throw(kConfig) == nullptr) return arguments;
  SR_ASSIGN_OR_RETURN(const std::string path, take_path(&arguments));
  if (path.empty()) return arguments;
  std::map<std::string, int> lines;
  SR_ASSIGN_OR_RETURN(const Json root, read_file(path, &lines));
  const std::set<const CLI::Option*> given = given_options(*command, arguments);
  const std::vector<std::string> names = file_names(*command);
  std::vector<std::string> words;
  for (const auto& [key, value] : root.items()) {
    if (key == kRunTable && value.is_object()) continue;
    const std::string place = fmt::format("{}:{}", path, lines.at(key));
    if (std::find(names.begin(), names.end(), key) == names.end()) {
      const std::string near = base::closest(key, names);
      return invalid_argument("{}: '{}' has no option '{}'{} (see sidereal {} --help)", place,
                              "sidereal " + command->get_name(), key,
                              near.empty() ? "" : fmt::format("; did you mean {}?", near),
                              command->get_name());
    }
    const CLI::Option* const option = command->get_option("--" + key);
    places->emplace_back("--" + key, place);
    if (given.contains(option)) continue;
    const auto own = words_of(*option, key, value);
    SR_RETURN_IF_ERROR(base::with_context(own.status(), place));
    words.insert(words.end(), own->begin(), own->end());
  }
  arguments.insert(arguments.begin() + 1, words.begin(), words.end());
  // What the command line says is not of the file.
  std::erase_if(*places, [&](const auto& one) {
    return given.contains(command->get_option_no_throw(one.first));
  });
  return arguments;
}

Status at_place(const Status& status, const ConfigPlaces& places, bool anywhere) {
  for (const auto& [option, place] : places) {
    if (mentions(base::message_of(status), option, anywhere)) {
      return base::with_context(status, place);
    }
  }
  return status;
}

std::vector<AskedOption> asked_options(const CLI::App& command) {
  std::vector<AskedOption> out;
  for (const CLI::Option* const option : command.get_options()) {
    AskedOption one{.name = file_name_of(*option), .group = option->get_group(), .value = {}};
    if (one.name.empty()) continue;
    std::vector<std::string> texts = option->results();
    const std::string standard = option->get_default_str();
    if (texts.empty() && !standard.empty()) texts = {standard};
    const std::string& kind = option->get_type_name();
    const auto value_of = [&](const std::string& text) {
      if (kind != "N" && kind != "X") return Json(text);
      if (const auto whole = base::parse_int(text); whole.ok()) return Json(*whole);
      const auto number = base::parse_double(text);
      return number.ok() ? Json(*number) : Json(text);
    };
    if (is_flag(*option)) {
      // One that has a way to say no, too, is neither unless it is said.
      const bool is_open = option->count() == 0 && !option->get_fnames().empty();
      if (!is_open) one.value = option->count() > 0 && option->as<bool>();
    } else if (is_list(*option)) {
      one.value = Json::array();
      for (const std::string& text : texts) one.value.push_back(value_of(text));
    } else if (!texts.empty()) {
      one.value = value_of(texts.back());
    }
    out.push_back(std::move(one));
  }
  return out;
}

std::string toml_value(const Json& value) {
  if (value.is_string()) return data::toml_string(value.get<std::string>());
  if (!value.is_array()) return value.dump();
  std::vector<std::string> parts;
  for (const Json& one : value) parts.push_back(toml_value(one));
  return "[" + base::join(parts, ", ") + "]";
}

}  // namespace sidereal::cli
