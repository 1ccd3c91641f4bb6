#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>

#include "sidereal/app/control.pb.h"
#include "sidereal/app/control_client.h"
#include "sidereal/cli/cluster_option.h"
#include "sidereal/cli/commands.h"
#include "sidereal/cli/interrupt.h"
#include "sidereal/cli/security_options.h"
#include "sidereal/cli/terminal.h"
#include "sidereal/cli/top.h"
#include "sidereal/metrics/figures.h"
#include "sidereal/security/credentials.h"

namespace sidereal::cli {

namespace {

using service::StatusClient;
using service::TaskReport;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr const char* kFooter =
    R"(A row is a task. steps: its parts of sessions' steps; in clusters of `sidereal train`, calls.
in, out: tensors from and to other tasks. cpu: how long its ops ran. kept: bytes of resources
(variables, queues, tables). refused: connections and requests. These are some of the figures that
--figures and --json show; docs/guide/metrics.md says what each is.

Examples:
  sidereal top --cluster cluster.json
  sidereal top --target grpc://127.0.0.1:2222 --interval 1
  sidereal top --cluster cluster.json --once --json | jq '.tasks[].figures')";

struct TopArguments {
  std::string cluster;
  std::string target;
  double interval_s = 2;
  double timeout_s = 2;
  bool once = false;
  bool json = false;
  bool figures = false;
  security::SecurityOptions security;
};

milliseconds to_ms(double seconds) { return milliseconds(static_cast<int64_t>(seconds * 1000)); }

/// A report from a task of `sidereal train`, which has a service of its own.
TaskReport ask_training_task(const TaskReport& known, double timeout_s,
                             const std::shared_ptr<const security::Credentials>& credentials) {
  TaskReport out;
  out.task = known.task;
  out.address = known.address;
  std::string name = known.task;
  const std::string_view replica = "/replica:0";
  name.erase(name.find(replica), replica.size());
  app::ControlClient client(name, known.address, credentials);
  const auto status = client.get_status(timeout_s);
  out.status = status.status();
  if (!status.ok()) return out;
  const control::v1::TaskStatus& said = **status;
  out.incarnation = said.incarnation();
  out.pid = said.pid();
  using metrics::Unit;
  const auto count = [&](const char* name, Unit unit, auto value) {
    out.figures.add(metrics::counter(name, unit, ""), static_cast<int64_t>(value));
  };
  count("sidereal_task_steps_total", Unit::kCount, said.calls());
  count("sidereal_task_received_bytes_total", Unit::kBytes, said.bytes_in());
  count("sidereal_task_sent_bytes_total", Unit::kBytes, said.bytes_out());
  count("sidereal_task_busy_seconds_total", Unit::kSeconds, said.busy_s() * 1e9);
  count("sidereal_refused_total", Unit::kCount, said.connections_refused());
  return out;
}

/// The tasks of a cluster, and what they say.
class Watch {
 public:
  static Result<Watch> create(const TopArguments& a) {
    SR_ASSIGN_OR_RETURN(const security::SecurityOptions options,
                        complete_security_options(a.security));
    Watch made;
    made.timeout_s_ = a.timeout_s;
    SR_ASSIGN_OR_RETURN(made.credentials_, security::Credentials::create(options));
    if (!a.target.empty()) {
      if (!a.cluster.empty()) {
        return base::invalid_argument("--cluster and --target are both given; give one of them");
      }
      SR_ASSIGN_OR_RETURN(made.client_,
                          StatusClient::create(a.target, options, to_ms(a.timeout_s)));
      return made;
    }
    const char* const config = std::getenv("TF_CONFIG");
    if (a.cluster.empty() && config == nullptr) {
      return base::invalid_argument(
          "which cluster? Give --cluster FILE or --target grpc://HOST:PORT, or set TF_CONFIG");
    }
    SR_ASSIGN_OR_RETURN(const cluster::ClusterSpec cluster,
                        read_cluster(a.cluster.empty() ? config : a.cluster));
    SR_ASSIGN_OR_RETURN(made.client_, StatusClient::create(cluster, options));
    return made;
  }

  std::vector<TaskReport> ask() {
    std::vector<TaskReport> reports = client_->ask(to_ms(timeout_s_));
    std::vector<std::thread> asking;
    for (TaskReport& report : reports) {
      if (report.status.code() != StatusCode::kUnimplemented) continue;
      asking.emplace_back([&] { report = ask_training_task(report, timeout_s_, credentials_); });
    }
    for (std::thread& one : asking) one.join();
    return reports;
  }

 private:
  std::unique_ptr<StatusClient> client_;
  std::shared_ptr<const security::Credentials> credentials_;
  double timeout_s_ = 0;
};

std::string text_of(const TopView& view, const TopArguments& a) {
  return a.figures ? format_figures(view) : format_top(view);
}

void print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

Status top(const TopArguments& a) {
  catch_interrupts();
  SR_ASSIGN_OR_RETURN(Watch watch, Watch::create(a));
  const std::unique_ptr<Screen> screen = a.once || a.json ? nullptr : Screen::open();
  TopView view;
  steady_clock::time_point asked = steady_clock::now();
  view.now = watch.ask();
  while (true) {
    if (screen != nullptr) screen->show(text_of(view, a) + "\nq: end\n");
    const auto left =
        std::chrono::duration_cast<milliseconds>(asked + to_ms(a.interval_s) - steady_clock::now());
    if (screen != nullptr ? screen->wait_for_end(left) : wait_for_interrupt(left)) return {};
    const steady_clock::time_point now = steady_clock::now();
    view.seconds = std::chrono::duration<double>(now - asked).count();
    asked = now;
    view.before = std::move(view.now);
    view.now = watch.ask();
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
      ->add_option("--cluster", a->cluster,
                   "the cluster, a JSON file or text; without it, that of TF_CONFIG")
      ->default_str("")
      ->type_name("FILE|JSON");
  command
      ->add_option("--target", a->target,
                   "instead: one of its servers, which says who else is in the cluster")
      ->default_str("")
      ->type_name("grpc://HOST:PORT");
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
