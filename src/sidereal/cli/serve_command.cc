#include <unistd.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdlib>
#include <memory>

#include "sidereal/app/server.h"
#include "sidereal/base/log.h"
#include "sidereal/base/strings.h"
#include "sidereal/base/wrap.h"
#include "sidereal/cli/cluster_option.h"
#include "sidereal/cli/commands.h"
#include "sidereal/cli/security_options.h"
#include "sidereal/config/options.h"
#include "sidereal/runtime/server_settings.h"

namespace sidereal::cli {

namespace {

struct ServeArguments {
  app::ServerOptions server;
  app::TaskHandles handles;
  std::string cluster;
  std::string protocol;
  int intra_op_threads = 1;
  std::string data_listen;
  runtime::ServerSettings settings;
  double drain_s = 5;
  int metrics_port = -1;  ///< -1: it was not given.
  bool listens = false;   ///< --listen was given.
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

/// What --protocol, the cluster's description and the environment's TF_CONFIG agree on.
Result<cluster::Protocol> protocol_of(const ServeArguments& a, const std::string& rpc_layer) {
  SR_ASSIGN_OR_RETURN(std::string name,
                      cluster::agree_on_protocol(a.protocol, rpc_layer, "--cluster"));
  const char* const config = std::getenv("TF_CONFIG");
  if (config != nullptr && *config != '\0') {
    SR_ASSIGN_OR_RETURN(const std::string here, cluster::rpc_layer_of(config));
    SR_ASSIGN_OR_RETURN(name, cluster::agree_on_protocol(name, here, "TF_CONFIG"));
  }
  if (name.empty()) return cluster::Protocol::kGrpc;
  return cluster::parse_protocol(name);
}

/// A member of a cluster that runs sessions.
Status serve_sessions(const ServeArguments& a) {
  runtime::ServerOptions options;
  SR_ASSIGN_OR_RETURN(ClusterOption cluster, read_cluster_option(a.cluster));
  options.cluster = std::move(cluster.cluster);
  options.job = a.server.job;
  options.task = a.server.task;
  if (a.listens) options.listen = a.server.address;
  SR_ASSIGN_OR_RETURN(options.security, complete_security_options(a.server.security));
  SR_ASSIGN_OR_RETURN(options.protocol, protocol_of(a, cluster.rpc_layer));
  options.data_listen = a.data_listen;
  SR_RETURN_IF_ERROR(set_options(a.options, &options.data));
  runtime::ServerSettings settings = a.settings;
  for (const std::string& text : a.options) {
    if (text.starts_with("spin_us=")) settings.spin_us = options.data.spin_us;
    if (text.starts_with("shared_memory=")) {
      settings.shared_memory = options.data.shared_memory != 0;
    }
    if (text.starts_with("connect_deadline_ms=")) {
      settings.connect_deadline_ms = options.data.connect_deadline_ms;
    }
  }
  SR_RETURN_IF_ERROR(runtime::complete_settings(
      settings, [](const char* name) { return std::getenv(name); }, &options));
  options.intra_op_threads = a.intra_op_threads;
  if (a.metrics_port >= 0) options.metrics_port = a.metrics_port;
  const int report = a.handles.report_fd < 0 ? dup(STDOUT_FILENO) : a.handles.report_fd;
  return runtime::serve(options, a.drain_s, report, a.handles.lifeline_fd);
}

Status serve(ServeArguments a) {
  if (!a.cluster.empty()) return serve_sessions(a);
  if (a.metrics_port >= 0) {
    return base::invalid_argument("--metrics-port goes with --cluster");
  }
  if (a.server.job != "ps" && a.server.job != "worker") {
    return base::invalid_argument("--job {}: without --cluster a task is ps or worker",
                                  a.server.job);
  }
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
    if (!line.empty()) out += "  " + base::wrap(line, 98, "    ") + "\n";
  }
  return out;
}

std::string footer() {
  return "Options for --option:\n" + options_help() +
         "\nExamples (the address is printed once the task is up):\n"
         "  sidereal serve --job ps --task 0 --listen 127.0.0.1:7000\n"
         "  sidereal serve --job worker --task 0 --listen 127.0.0.1:7001 --lanes 2\n"
         "  sidereal train --data x.csv --cluster '{\"ps\": [\"127.0.0.1:7000\"], \"worker\": "
         "[\"127.0.0.1:7001\"]}'\n"
         "  sidereal serve --job ps --task 0 --cluster cluster.json";
}

/// Those that go with --cluster.
void add_session_options(CLI::App* command, ServeArguments* a) {
  command
      ->add_option(
          "--protocol", a->protocol,
          "with --cluster: how members talk; grpc, if neither this nor a TF_CONFIG says it")
      ->check(CLI::IsMember(std::vector<std::string>(cluster::protocol_names().begin(),
                                                     cluster::protocol_names().end()))
                  .description(""))
      ->default_str("")
      ->type_name("grpc|grpc++|star_server|star_server_lite");
  command
      ->add_option("--data-listen", a->data_listen,
                   "with --cluster, for protocols other than grpc: where to listen for other "
                   "tasks' lanes; any free port of the same host, if absent")
      ->default_str("")
      ->type_name("HOST:PORT");
  command
      ->add_option("--endpoint-map", a->settings.endpoint_map_path,
                   "with --cluster, for protocols other than grpc: the folder of a file "
                   ".endpoint_map with data ports; that of TF_SEASTAR_ENDPOINT_MAP_PATH, or the "
                   "working directory's, if absent")
      ->default_str("")
      ->type_name("DIR");
  command
      ->add_option(
          "--polling", a->settings.polling,
          "with --cluster: true: lanes never sleep, as --spin-us -1; WORKER_ENABLE_POLLING "
          "or PS_ENABLE_POLLING, if absent")
      ->default_str("")
      ->type_name("BOOL");
  command
      ->add_option("--pin-cores", a->settings.pin_cores,
                   "with --cluster: true: each lane keeps to a processor of its own; not "
                   "WORKER_DISABLE_PIN_CORES or PS_DISABLE_PIN_CORES, if absent")
      ->default_str("")
      ->type_name("BOOL");
  command
      ->add_option("--intra-op-threads", a->intra_op_threads,
                   "with --cluster: threads that work on one op")
      ->check(CLI::Range(1, 256).description(""))
      ->type_name("N");
  command
      ->add_option("--metrics-port", a->metrics_port,
                   "with --cluster: where Prometheus asks for figures, over HTTP; with a secret or "
                   "certificates HTTPS, for members; 0: any free port; nowhere, if absent")
      ->check(CLI::Range(0, 65'535).description(""))
      ->default_str("")
      ->type_name("N");
  command
      ->add_option("--drain", a->drain_s,
                   "with --cluster: seconds that steps get to end in after SIGTERM")
      ->check(CLI::Range(0.0, 86'400.0).description(""))
      ->type_name("S");
}

}  // namespace

void add_serve(CLI::App* app, Action* action) {
  auto a = std::make_shared<ServeArguments>();
  CLI::App* command = app->add_subcommand(
      "serve", "run one ps or worker task of a cluster until it is told to stop");
  command->option_defaults()->always_capture_default();
  command->add_option("--job", a->server.job, "what the task is: ps, worker, or a job of --cluster")
      ->default_str("")
      ->type_name("JOB")
      ->required();
  command->add_option("--task", a->server.task, "index of the task in its job, from 0")
      ->check(CLI::Range(0, 1 << 20).description(""))
      ->type_name("N");
  command
      ->add_option("--cluster", a->cluster,
                   "the cluster, a JSON file or text: serves sessions (sidereal.v1) instead of "
                   "training jobs, at the task's address there")
      ->default_str("")
      ->type_name("FILE|JSON");
  add_session_options(command, a.get());
  CLI::Option* const listen =
      command->add_option("--listen", a->server.address, "where to listen; port 0: any free one")
          ->type_name("HOST:PORT");
  CLI::Option* const lanes =
      command
          ->add_option("--lanes", a->server.lanes,
                       "threads: ps, owners of parameters; worker, steps at once; with --cluster "
                       "NETWORK_WORKER_CORE_NUMBER or NETWORK_PS_CORE_NUMBER, if absent")
          ->check(CLI::Range(1, 256).description(""))
          ->type_name("N");
  CLI::Option* const spin_us =
      command
          ->add_option("--spin-us", a->server.options.spin_us,
                       "microseconds a thread looks for work before it sleeps; -1: it never "
                       "sleeps; -2: it learns what pays")
          ->check(CLI::Range(-2, 1'000'000).description(""))
          ->type_name("N");
  command->add_option("--cluster-id", a->cluster_id, "the same for all tasks of a cluster")
      ->type_name("HEX");
  command->add_option("--option", a->options, "an option from the list below; may be given again")
      ->type_name("NAME=VALUE")
      ->default_str("");
  add_security_options(command, &a->server.security);
  // Group "" hides an option: these are for the launcher of a local cluster.
  command->add_option("--report-fd", a->handles.report_fd, "")->group("");
  command->add_option("--lifeline-fd", a->handles.lifeline_fd, "")->group("");
  command->add_option("--secret-fd", a->handles.secret_fd, "")->group("");
  command->footer(footer());
  command->final_callback([a, action, listen, lanes, spin_us] {
    a->listens = listen->count() > 0;
    if (lanes->count() > 0) a->settings.lanes = a->server.lanes;
    if (spin_us->count() > 0) a->settings.spin_us = a->server.options.spin_us;
    *action = [a] { return serve(*a); };
  });
}

}  // namespace sidereal::cli
