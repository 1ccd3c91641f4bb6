#include "sidereal/cli/commands.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>

#include "sidereal/base/printable.h"
#include "sidereal/cli/config_file.h"
#include "sidereal/cli/help_format.h"
#include "sidereal/cli/inspect_command.h"
#include "sidereal/cli/interrupt.h"
#include "sidereal/cli/usage.h"
#include "sidereal/security/listener.h"

namespace sidereal::cli {

namespace {

constexpr int kError = 1;
constexpr int kUsage = 2;
constexpr int kSignals = 128;  ///< And the number of the signal, as shells have it.

constexpr const char* kAbout =
    "Trains large sparse models on parameter servers and workers.\n"
    "Exit codes: 0 done, 1 error, 2 wrong usage, 130 interrupted, 143 told to end (SIGTERM).";

// The subcommand that was named last, for the hint where to find help.
std::string command_of(const CLI::App& app) {
  const auto given = app.get_subcommands();
  return given.empty() ? "sidereal" : "sidereal " + given.back()->get_name();
}

}  // namespace

std::string format_error(const Status& status) {
  std::string line = fmt::format("sidereal: error: {}: {}", base::code_name(status.code()),
                                 base::message_of(status));
  std::replace(line.begin(), line.end(), '\n', ' ');
  return base::printable(line) + "\n";
}

Parsed parse(std::vector<std::string> arguments) {
  arguments = without_help_command(std::move(arguments));
  CLI::App app(kAbout, "sidereal");
  Parsed parsed;
  app.require_subcommand(0, 1);
  use_help_format(&app);
  add_train(&app, &parsed.action);
  add_demo(&app, &parsed.action);
  add_inspect(&app, &parsed.action);
  add_serve(&app, &parsed.action);
  add_launch(&app, &parsed.action);
  add_plot(&app, &parsed.action);
  add_models_out(&app, &parsed.action);
  add_top(&app, &parsed.action);
  add_events(&app, &parsed.action);
  add_follow(&app, &parsed.action);
  add_job_commands(&app, &parsed.action);
  add_certificate(&app, &parsed.action);
  add_ckpt(&app, &parsed.action);
  add_graph(&app, &parsed.action);
  add_ops(&app, &parsed.action);
  add_completion(&app, &parsed.action);
  add_version(&app, &parsed.action);
  add_options(&app, &parsed.action);
  add_version_flags(&app);
  app.footer("Start with: sidereal demo");
  if (const Status names = check_names(app, arguments); !names.ok()) {
    parsed.error = format_error(names);
    parsed.exit_code = kUsage;
    return parsed;
  }
  ConfigPlaces places;
  Result<std::vector<std::string>> complete = with_config(app, std::move(arguments), &places);
  if (!complete.ok()) {
    parsed.error = format_error(complete.status());
    parsed.exit_code = kUsage;
    return parsed;
  }
  arguments = *std::move(complete);
  // CLI11 takes the last argument first, and tells of errors and help by exceptions.
  std::reverse(arguments.begin(), arguments.end());
  try {
    app.parse(arguments);
  } catch (const CLI::CallForHelp&) {
    parsed.out = app.help();
    return parsed;
  } catch (const CLI::CallForVersion&) {
    parsed.out = version_text();
    return parsed;
  } catch (const CLI::ParseError& error) {
    parsed.error = format_error(at_place(
        base::invalid_argument("{}; see {} --help", error.what(), command_of(app)), places, true));
    parsed.exit_code = kUsage;
    return parsed;
  }
  if (!parsed.action) {
    parsed.error = app.help();
    parsed.exit_code = kUsage;
    return parsed;
  }
  if (!places.empty()) {
    parsed.action = [action = std::move(parsed.action), places] {
      return at_place(action(), places, false);
    };
  }
  return parsed;
}

int run(int argc, char** argv) {
  const Parsed parsed = parse({argv + 1, argv + argc});
  std::fputs(parsed.out.c_str(), stdout);
  std::fputs(parsed.error.c_str(), stderr);
  if (!parsed.action || parsed.exit_code != 0) return parsed.exit_code;
  security::log_less_of_grpc();
  const Status status = parsed.action();
  if (status.ok()) return 0;
  std::fflush(stdout);
  std::fputs(format_error(status).c_str(), stderr);
  return interrupted() ? kSignals + interrupting_signal() : kError;
}

}  // namespace sidereal::cli
