#include "sidereal/cli/help_format.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <string_view>

#include "sidereal/base/wrap.h"

namespace sidereal::cli {

namespace {

constexpr size_t kNameColumns = 34;
constexpr size_t kTextColumns = 100 - kNameColumns;

class HelpFormat final : public CLI::Formatter {
 public:
  std::string make_option_desc(const CLI::Option* option) const override {
    return base::wrap(CLI::Formatter::make_option_desc(option), kTextColumns);
  }
  /// "--x,--no-x": the library says of the second one that it is "{false}".
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override {
    std::string name = CLI::Formatter::make_option_name(option, is_positional);
    constexpr std::string_view kFalse = "{false}";
    if (name.ends_with(kFalse)) name.resize(name.size() - kFalse.size());
    return name;
  }
  std::string make_subcommand(const CLI::App* command) const override {
    std::stringstream out;
    CLI::detail::format_help(out, command->get_name(),
                             base::wrap(command->get_description(), kTextColumns), kNameColumns);
    return out.str();
  }
};

}  // namespace

void use_help_format(CLI::App* app) {
  auto format = std::make_shared<HelpFormat>();
  format->column_width(kNameColumns);
  app->formatter(format);
}

}  // namespace sidereal::cli
