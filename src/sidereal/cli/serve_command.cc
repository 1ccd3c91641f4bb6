#include <unistd.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <memory>

#include "sidereal/app/server.h"
#include "sidereal/base/log.h"
#include "sidereal/base/strings.h"
#include "sidereal/cli/commands.h"
#include "sidereal/cli/help_format.h"
#include "sidereal/cli/security_options.h"
#include "sidereal/config/options.h"

namespace sidereal::cli {

namespace {

struct ServeArguments {
  app::ServerOptions server;
  app::TaskHandles handles;
  std::string cluster_id = "0";
  std::vector<std::string> options;
};

Status set_options(const std::vector<std::string>& texts, config::Options* options) {
  for (const std::string& text : texts) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos) {
      return base::invalid_argument("--option: '{}' is not NAME=VALUE", text);
    }
    SR_RETURN_IF_ERROR(config::set_option(*options, config::option_fields(), text.substr(0, equals),
                                          text.substr(equals + 1)));
  }
  return {};
}

Status serve(ServeArguments a) {
  SR_RETURN_IF_ERROR(set_options(a.options, &a.server.options));
  const auto [end, error] = std::from_chars(
      a.cluster_id.data(), a.cluster_id.data() + a.cluster_id.size(), a.server.cluster_id, 16);
  if (error != std::errc() || end != a.cluster_id.data() + a.cluster_id.size()) {
    return base::invalid_argument("--cluster-id: '{}' is not a hexadecimal number of 64 bits",
                                  a.cluster_id);
  }
  const bool launched = a.handles.lifeline_fd >= 0;
  // A secret in the environment of a launcher is for servers it talks to, not for its own tasks.
  if (!launched) {
    SR_ASSIGN_OR_RETURN(a.server.security, complete_security_options(a.server.security));
  }
  base::set_log_level(launched ? base::LogLevel::kWarning : base::LogLevel::kInfo);
  // Alone, it says on standard output where it listens.
  if (a.handles.report_fd < 0) a.handles.report_fd = dup(STDOUT_FILENO);
  return app::run_task(a.server, a.handles);
}

std::string options_help() {
  const config::Options defaults;
  std::string out;
  const std::string lines = config::render_options(defaults, config::option_fields());
  for (const std::string& line : base::split(lines, '\n')) {
    std::string wrapped = wrap(line, 94);
    for (size_t at = 0; (at = wrapped.find('\n', at)) != std::string::npos; at += 5) {
      wrapped.replace(at, 1, "\n    ");
    }
    if (!line.empty()) out += "  " + wrapped + "\n";
  }
  return out;
}

std::string footer() {
  return "Options for --option:\n" + options_help() +
         "\nExamples (the address is printed once the task is up):\n"
         "  sidereal serve --job ps --task 0 --listen 127.0.0.1:7000\n"
         "  sidereal serve --job worker --task 0 --listen 127.0.0.1:7001 --lanes 2\n"
         "  sidereal train --data x.csv --cluster '{\"ps\": [\"127.0.0.1:7000\"], \"worker\": "
         "[\"127.0.0.1:7001\"]}'";
}

}  // namespace

void add_serve(CLI::App* app, Action* action) {
  auto a = std::make_shared<ServeArguments>();
  CLI::App* command = app->add_subcommand(
      "serve", "run one ps or worker task of a cluster until it is told to stop");
  command->option_defaults()->always_capture_default();
  command->add_option("--job", a->server.job, "what the task is")
      ->default_str("")
      ->check(CLI::IsMember({"ps", "worker"}).description(""))
      ->type_name("ps|worker")
      ->required();
  command->add_option("--task", a->server.task, "index of the task in its job, from 0")
      ->check(CLI::Range(0, 1 << 20).description(""))
      ->type_name("N");
  command->add_option("--listen", a->server.address, "where to listen; port 0: any free one")
      ->type_name("HOST:PORT");
  command
      ->add_option("--lanes", a->server.lanes,
                   "threads: ps, owners of parameters; worker, steps at once")
      ->check(CLI::Range(1, 256).description(""))
      ->type_name("N");
  command
      ->add_option("--spin-us", a->server.options.spin_us,
                   "microseconds a thread looks for work before it sleeps; -1: always look")
      ->check(CLI::Range(-1, 1'000'000).description(""))
      ->type_name("N");
  command->add_option("--cluster-id", a->cluster_id, "the same for all tasks of a cluster")
      ->type_name("HEX");
  command->add_option("--option", a->options, "an option from the list below; may be given again")
      ->type_name("NAME=VALUE")
      ->default_str("");
  add_security_options(command, &a->server.security);
  // Group "" hides an option: these two are for the launcher of a local cluster.
  command->add_option("--report-fd", a->handles.report_fd, "")->group("");
  command->add_option("--lifeline-fd", a->handles.lifeline_fd, "")->group("");
  command->footer(footer());
  command->final_callback([a, action] { *action = [a] { return serve(*a); }; });
}

}  // namespace sidereal::cli
