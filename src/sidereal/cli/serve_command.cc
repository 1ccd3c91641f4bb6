#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <memory>

#include "sidereal/app/server.h"
#include "sidereal/app/server_settings.h"
#include "sidereal/base/log.h"
#include "sidereal/base/log_format.h"
#include "sidereal/base/strings.h"
#include "sidereal/base/wrap.h"
#include "sidereal/cli/cluster_option.h"
#include "sidereal/cli/commands.h"
#include "sidereal/cli/config_file.h"
#include "sidereal/cli/security_options.h"
#include "sidereal/config/options.h"

namespace sidereal::cli {

namespace {

struct ServeArguments {
  std::string job;
  int task = 0;
  std::string cluster;
  std::string listen;
  std::string protocol;
  std::string data_listen;
  app::ServerSettings settings;
  int intra_op_threads = 1;
  double drain_s = 5;
  std::string log_format = "text";
  std::string log_level;
  std::string votes_file;
  int metrics_port = -1;  ///< -1: it was not given.
  std::vector<std::string> options;
  security::SecurityOptions security;
  app::ProcessHandles handles;
};

/// Where a server listens that has no address in a cluster, and is not told where.
constexpr const char* kListen = "127.0.0.1:0";

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

/// What --protocol, the cluster's description and the environment's TF_CONFIG agree on; the
/// server's default, where none of them says it.
Result<cluster::Protocol> protocol_of(const ServeArguments& a, const std::string& rpc_layer,
                                      const app::Environment& environment) {
  SR_ASSIGN_OR_RETURN(std::string name,
                      cluster::agree_on_protocol(a.protocol, rpc_layer, "--cluster"));
  const char* const config = environment("TF_CONFIG");
  if (config != nullptr && *config != '\0') {
    SR_ASSIGN_OR_RETURN(const std::string here, cluster::rpc_layer_of(config));
    SR_ASSIGN_OR_RETURN(name, cluster::agree_on_protocol(name, here, "TF_CONFIG"));
  }
  if (name.empty()) return app::ServerOptions().protocol;
  return cluster::parse_protocol(name);
}

Status serve(const ServeArguments& a) {
  const bool launched = a.handles.lifeline_fd >= 0;
  // The environment of a launcher is for servers it talks to, not for its own tasks.
  const app::Environment environment = [launched](const char* name) -> const char* {
    return launched ? nullptr : std::getenv(name);
  };
  app::ServerOptions options;
  std::string rpc_layer;
  if (!a.cluster.empty()) {
    SR_ASSIGN_OR_RETURN(ClusterOption cluster, read_cluster_option(a.cluster));
    options.cluster = std::move(cluster.cluster);
    rpc_layer = std::move(cluster.rpc_layer);
  }
  options.job = a.job;
  options.task = a.task;
  options.listen = a.listen.empty() && a.cluster.empty() ? kListen : a.listen;
  options.security = a.security;
  if (!launched) {
    SR_ASSIGN_OR_RETURN(options.security, complete_security_options(a.security));
  }
  SR_ASSIGN_OR_RETURN(options.protocol, protocol_of(a, rpc_layer, environment));
  options.data_listen = a.data_listen;
  SR_RETURN_IF_ERROR(set_options(a.options, &options.data));
  app::ServerSettings settings = a.settings;
  for (const std::string& text : a.options) {
    if (text.starts_with("replicas=")) settings.replicas = options.data.replicas;
    if (text.starts_with("min_insync_replicas=")) {
      settings.min_insync_replicas = options.data.min_insync_replicas;
    }
    if (text.starts_with("spin_us=")) settings.spin_us = options.data.spin_us;
    if (text.starts_with("shared_memory=")) {
      settings.shared_memory = options.data.shared_memory != 0;
    }
    if (text.starts_with("connect_deadline_ms=")) {
      settings.connect_deadline_ms = options.data.connect_deadline_ms;
    }
  }
  SR_RETURN_IF_ERROR(app::complete_settings(settings, environment, &options));
  options.votes_file = a.votes_file;
  options.intra_op_threads = a.intra_op_threads;
  options.logs_sessions = true;
  if (a.metrics_port >= 0) options.metrics_port = a.metrics_port;
  if (a.log_format == "json") base::set_log_format(base::LogFormat::kJson);
  // A launcher shows what its tasks write.
  const char* const usual = launched ? "warning" : "info";
  SR_ASSIGN_OR_RETURN(const base::LogLevel level,
                      base::parse_log_level(a.log_level.empty() ? usual : a.log_level));
  base::set_log_level(level);
  // Alone, it says on standard output where it listens.
  app::ProcessHandles handles = a.handles;
  if (handles.report_fd < 0) handles.report_fd = dup(STDOUT_FILENO);
  return app::serve(options, a.drain_s, handles);
}

std::string options_help() {
  const config::Options defaults;
  std::string out;
  const std::string lines = config::render_options(defaults, config::option_fields());
  for (const std::string& line : base::split(lines, '\n')) {
    if (!line.empty()) out += "  " + base::wrap(line, 98, "    ") + "\n";
  }
  return out;
}

std::string footer() {
  return "Options for --option:\n" + options_help() +
         "\nThe address is printed once the task is up. Examples:\n"
         "  sidereal serve --job ps --task 0 --cluster cluster.json\n"
         "  sidereal serve --job ps --task 0 --listen 127.0.0.1:7000\n"
         "  sidereal serve --job worker --task 0 --listen 127.0.0.1:7001 --lanes 2\n"
         "  sidereal train --data x.csv --cluster '{\"ps\": [\"127.0.0.1:7000\"], \"worker\": "
         "[\"127.0.0.1:7001\"]}'";
}

/// How it talks to the other members of its cluster.
void add_data_options(CLI::App* command, ServeArguments* a) {
  command
      ->add_option("--protocol", a->protocol,
                   "how members of the cluster talk, all the same; " +
                       std::string(cluster::name_of(app::ServerOptions().protocol)) +
                       ", if neither this nor a TF_CONFIG says it")
      ->check(CLI::IsMember(std::vector<std::string>(cluster::protocol_names().begin(),
                                                     cluster::protocol_names().end()))
                  .description(""))
      ->default_str("")
      ->type_name("grpc|grpc++|star_server|star_server_lite");
  command
      ->add_option("--data-listen", a->data_listen,
                   "for protocols other than grpc: where to listen for other tasks' lanes; any "
                   "free port of the same host, if absent")
      ->default_str("")
      ->type_name("HOST:PORT");
  command
      ->add_option("--endpoint-map", a->settings.endpoint_map_path,
                   "for protocols other than grpc: the folder of a file .endpoint_map with data "
                   "ports; that of TF_SEASTAR_ENDPOINT_MAP_PATH, or the working directory's, if "
                   "absent")
      ->default_str("")
      ->type_name("DIR");
}

/// Its threads, and how they wait.
void add_thread_options(CLI::App* command, ServeArguments* a) {
  command
      ->add_option("--lanes", a->settings.lanes,
                   "threads that run steps, and own variables with the star protocols; "
                   "NETWORK_WORKER_CORE_NUMBER or NETWORK_PS_CORE_NUMBER, if absent; else 1, or of "
                   "a ps with a star protocol one for two processors")
      ->check(CLI::Range(1, 256).description(""))
      ->default_str("")
      ->type_name("N");
  command
      ->add_option("--spin-us", a->settings.spin_us,
                   "for protocols other than grpc: microseconds a thread looks for work before it "
                   "sleeps; -1: it never sleeps; -2, if absent: it learns what pays")
      ->check(CLI::Range(-2, 1'000'000).description(""))
      ->default_str("")
      ->type_name("N");
  command
      ->add_option("--polling", a->settings.polling,
                   "true: lanes never sleep, as --spin-us -1; WORKER_ENABLE_POLLING or "
                   "PS_ENABLE_POLLING, if absent")
      ->default_str("")
      ->type_name("BOOL");
  command
      ->add_option("--pin-cores", a->settings.pin_cores,
                   "for protocols other than grpc: true: each lane keeps to a processor of its "
                   "own; not WORKER_DISABLE_PIN_CORES or PS_DISABLE_PIN_CORES, if absent")
      ->default_str("")
      ->type_name("BOOL");
  command->add_option("--intra-op-threads", a->intra_op_threads, "threads that work on one op")
      ->check(CLI::Range(1, 256).description(""))
      ->type_name("N");
}

}  // namespace

void add_serve(CLI::App* app, Action* action) {
  auto a = std::make_shared<ServeArguments>();
  CLI::App* command =
      app->add_subcommand("serve", "run one task of a cluster until it is told to stop");
  command->option_defaults()->always_capture_default();
  command->add_option("--job", a->job, "what the task is: ps, worker, or any other name")
      ->default_str("")
      ->type_name("JOB")
      ->required();
  command->add_option("--task", a->task, "index of the task in its job, from 0")
      ->check(CLI::Range(0, 1 << 20).description(""))
      ->type_name("N");
  command
      ->add_option("--cluster", a->cluster,
                   "who is in the cluster, a JSON file or text; the first session says it, if "
                   "absent")
      ->default_str("")
      ->type_name("FILE|JSON");
  command
      ->add_option("--listen", a->listen,
                   "where to listen; port 0: any free one; the task's address in --cluster, if "
                   "absent; without that " +
                       std::string(kListen))
      ->default_str("")
      ->type_name("HOST:PORT");
  add_data_options(command, a.get());
  add_thread_options(command, a.get());
  command
      ->add_option("--metrics-port", a->metrics_port,
                   "where Prometheus asks for figures, over HTTP; with a secret or certificates "
                   "HTTPS, for members; 0: any free port; nowhere, if absent")
      ->check(CLI::Range(0, 65'535).description(""))
      ->default_str("")
      ->type_name("N");
  command
      ->add_option("--log-format", a->log_format,
                   "what a line on standard error is: text, or an object of JSON with time, level, "
                   "task and message")
      ->check(CLI::IsMember({"text", "json"}).description(""))
      ->type_name("text|json");
  command
      ->add_option("--log-level", a->log_level, "the least important lines that are written; info")
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}).description(""))
      ->default_str("")
      ->type_name("debug|info|warning|error");
  command
      ->add_option("--event-log", a->handles.event_log,
                   "also write events to this file, a line of JSON each, for sidereal events; when "
                   "it is full it becomes FILE.1")
      ->default_str("")
      ->type_name("FILE");
  command
      ->add_option("--votes-file", a->votes_file,
                   "for the job voter: where it keeps what was decided, so that another process in "
                   "its place knows")
      ->default_str("")
      ->type_name("FILE");
  command->add_option("--drain", a->drain_s, "seconds that steps get to end in after SIGTERM")
      ->check(CLI::Range(0.0, 86'400.0).description(""))
      ->type_name("S");
  command->add_option("--option", a->options, "an option from the list below; may be given again")
      ->type_name("NAME=VALUE")
      ->default_str("");
  add_security_options(command, &a->security);
  add_config_option(command);
  // Group "" hides an option: these are for the launcher of a local cluster.
  command->add_option("--report-fd", a->handles.report_fd, "")->group("");
  command->add_option("--lifeline-fd", a->handles.lifeline_fd, "")->group("");
  command->add_option("--secret-fd", a->handles.secret_fd, "")->group("");
  command->footer(footer());
  command->final_callback([a, action] { *action = [a] { return serve(*a); }; });
}

}  // namespace sidereal::cli
