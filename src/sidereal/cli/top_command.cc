#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>

#include "sidereal/app/running_clusters.h"
#include "sidereal/base/strings.h"
#include "sidereal/cli/cluster_option.h"
#include "sidereal/cli/commands.h"
#include "sidereal/cli/interrupt.h"
#include "sidereal/cli/security_options.h"
#include "sidereal/cli/terminal.h"
#include "sidereal/cli/top.h"
#include "sidereal/security/credentials.h"

namespace sidereal::cli {

namespace {

using service::StatusClient;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr const char* kFooter =
    R"(A row is a task. steps: its parts of sessions' steps.
in, out: tensors from and to other tasks. cpu: how long its ops ran. kept: bytes of resources
(variables, queues, tables). refused: connections and requests. These are some of the figures that
--figures and --json show; docs/guide/metrics.md says what each is.

Examples:
  sidereal top
  sidereal top --cluster cluster.json
  sidereal top --target grpc://127.0.0.1:2222 --interval 1
  sidereal top --cluster cluster.json --once --json | jq '.tasks[].figures')";

struct TopArguments {
  std::string cluster;
  std::string target;
  int64_t pid = 0;
  double interval_s = 2;
  double timeout_s = 2;
  bool once = false;
  bool json = false;
  bool figures = false;
  security::SecurityOptions security;
};

milliseconds to_ms(double seconds) { return milliseconds(static_cast<int64_t>(seconds * 1000)); }

/// "pid 4711 since 12:03:04: sidereal train --data x.csv", cut.
std::string text_of(const app::RunningCluster& running) {
  constexpr size_t kCommandBytes = 60;
  const std::time_t started = running.started_s;
  std::tm local = {};
  localtime_r(&started, &local);
  std::array<char, 32> time = {};
  std::strftime(time.data(), time.size(), "%F %T", &local);
  return fmt::format("pid {} since {}: {}", running.pid, time.data(),
                     base::message_text(running.command, kCommandBytes));
}

/// The one cluster that this user's programs have started on this machine, or that of `pid`.
Result<app::RunningCluster> own_cluster(int64_t pid) {
  std::vector<app::RunningCluster> running = app::running_clusters();
  if (pid != 0) std::erase_if(running, [pid](const auto& one) { return one.pid != pid; });
  if (running.size() == 1) return std::move(running.front());
  if (running.empty()) {
    return base::invalid_argument(
        "which cluster? {} Give --cluster FILE or --target grpc://HOST:PORT, or set TF_CONFIG",
        pid != 0 ? fmt::format("The process {} of this user has started none.", pid)
                 : "None was started on this machine by a program of this user.");
  }
  std::string listed;
  for (const app::RunningCluster& one : running) listed += "; " + text_of(one);
  return base::invalid_argument("which cluster? Choose one with --pid{}", listed);
}

/// Who asks the tasks of the cluster that is meant.
Result<std::unique_ptr<StatusClient>> client_for(const TopArguments& a) {
  SR_ASSIGN_OR_RETURN(const security::SecurityOptions options,
                      complete_security_options(a.security));
  if (!a.target.empty()) {
    if (!a.cluster.empty()) {
      return base::invalid_argument("--cluster and --target are both given; give one of them");
    }
    return StatusClient::create(a.target, options, to_ms(a.timeout_s));
  }
  const char* const config = std::getenv("TF_CONFIG");
  if (a.cluster.empty() && (config == nullptr || a.pid != 0)) {
    SR_ASSIGN_OR_RETURN(const app::RunningCluster found, own_cluster(a.pid));
    security::SecurityOptions theirs;
    theirs.secret = found.secret;
    return StatusClient::create(found.cluster, theirs);
  }
  SR_ASSIGN_OR_RETURN(const cluster::ClusterSpec cluster,
                      read_cluster(a.cluster.empty() ? config : a.cluster));
  return StatusClient::create(cluster, options);
}

std::string text_of(const TopView& view, const TopArguments& a) {
  return a.figures ? format_figures(view) : format_top(view);
}

void print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

Status top(const TopArguments& a) {
  catch_interrupts();
  SR_ASSIGN_OR_RETURN(const std::unique_ptr<StatusClient> client, client_for(a));
  const milliseconds limit = to_ms(a.timeout_s);
  const std::unique_ptr<Screen> screen = a.once || a.json ? nullptr : Screen::open();
  TopView view;
  steady_clock::time_point asked = steady_clock::now();
  view.now = client->ask(limit);
  while (true) {
    if (screen != nullptr) screen->show(text_of(view, a) + "\nq: end\n");
    const auto left =
        std::chrono::duration_cast<milliseconds>(asked + to_ms(a.interval_s) - steady_clock::now());
    if (screen != nullptr ? screen->wait_for_end(left) : wait_for_interrupt(left)) return {};
    const steady_clock::time_point now = steady_clock::now();
    view.seconds = std::chrono::duration<double>(now - asked).count();
    asked = now;
    view.before = std::move(view.now);
    view.now = client->ask(limit);
    if (screen == nullptr) print(a.json ? top_json(view) : text_of(view, a) + "\n");
    if (a.once) return {};
  }
}

}  // namespace

void add_top(CLI::App* app, Action* action) {
  auto a = std::make_shared<TopArguments>();
  CLI::App* command =
      app->add_subcommand("top", "show what the tasks of a cluster do, again and again");
  command->option_defaults()->always_capture_default()->multi_option_policy(
      CLI::MultiOptionPolicy::TakeLast);
  command
      ->add_option(
          "--cluster", a->cluster,
          "the cluster, a JSON file or text; without it, that of TF_CONFIG; without that, the "
          "one that a program of yours runs on this machine")
      ->default_str("")
      ->type_name("FILE|JSON");
  command
      ->add_option("--target", a->target,
                   "instead: one of its servers, which says who else is in the cluster")
      ->default_str("")
      ->type_name("grpc://HOST:PORT");
  command
      ->add_option("--pid", a->pid,
                   "instead: the cluster of this process: a training, a demo, a launcher, a Python "
                   "program")
      ->default_str("")
      ->check(CLI::PositiveNumber.description(""))
      ->type_name("N");
  command->add_option("--interval", a->interval_s, "seconds from one table to the next")
      ->check(CLI::Range(0.05, 86'400.0).description(""))
      ->type_name("S");
  command->add_option("--timeout", a->timeout_s, "seconds a task gets to answer in")
      ->check(CLI::Range(0.05, 3'600.0).description(""))
      ->type_name("S");
  command->add_flag("--once", a->once, "print one table, of what happens in one interval, and end");
  command->add_flag("--json", a->json, "a line of JSON in the place of each table");
  command->add_flag("--figures", a->figures, "all figures by name, in the place of the table");
  add_security_options(command, &a->security);
  command->footer(kFooter);
  command->final_callback([a, action] { *action = [a] { return top(*a); }; });
}

}  // namespace sidereal::cli
