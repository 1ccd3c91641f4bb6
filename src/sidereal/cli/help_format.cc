#include "sidereal/cli/help_format.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "sidereal/base/strings.h"

namespace sidereal::cli {

namespace {

constexpr size_t kNameColumns = 34;
constexpr size_t kTextColumns = 100 - kNameColumns;

class HelpFormat final : public CLI::Formatter {
 public:
  std::string make_option_desc(const CLI::Option* option) const override {
    return wrap(CLI::Formatter::make_option_desc(option), kTextColumns);
  }
  std::string make_subcommand(const CLI::App* command) const override {
    std::stringstream out;
    CLI::detail::format_help(out, command->get_name(),
                             wrap(command->get_description(), kTextColumns), kNameColumns);
    return out.str();
  }
};

}  // namespace

std::string wrap(const std::string& text, size_t columns) {
  std::string out;
  size_t used = 0;
  for (const std::string& word : base::split(text, ' ')) {
    if (used > 0 && used + 1 + word.size() > columns) {
      out += "\n";
      used = 0;
    } else if (!out.empty()) {
      out += " ";
      ++used;
    }
    out += word;
    used += word.size();
  }
  return out;
}

void use_help_format(CLI::App* app) {
  auto format = std::make_shared<HelpFormat>();
  format->column_width(kNameColumns);
  app->formatter(format);
}

}  // namespace sidereal::cli
