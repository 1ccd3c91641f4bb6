#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "sidereal/cli/cluster_choice.h"
#include "sidereal/cli/commands.h"
#include "sidereal/cli/hot_report.h"
#include "sidereal/cli/interrupt.h"
#include "sidereal/cli/terminal.h"
#include "sidereal/cli/top.h"
#include "sidereal/service/table_layout.h"

namespace sidereal::cli {

namespace {

using service::StatusClient;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr const char* kFooter =
    R"(A row is a task. steps: its parts of sessions' steps.
in, out: tensors from and to other tasks. cpu: how long its ops ran. kept: bytes of resources
(variables, queues, tables). refused: connections and requests. These are some of the figures that
--figures and --json show; docs/guide/metrics.md says what each is. Below are the hottest lanes and,
where one has more than 1 % of what its table is asked for, the hottest rows: docs/guide/hot_rows.md
says what to do about them.

Examples:
  sidereal top
  sidereal top --cluster cluster.json
  sidereal top --rows --once
  sidereal top --target grpc://127.0.0.1:2222 --interval 1
  sidereal top --cluster cluster.json --once --json | jq '.tasks[].figures')";

struct TopArguments {
  ClusterChoice cluster;
  double interval_s = 2;
  bool once = false;
  bool json = false;
  bool figures = false;
  bool rows = false;
  bool lanes = false;
  std::string parts = "modulo";
};

std::string text_of(const TopView& view, const TopArguments& a) {
  if (a.rows) return format_rows(view);
  if (a.lanes) return format_lanes(view);
  return a.figures ? format_figures(view) : format_top(view);
}

void print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

Status top(const TopArguments& a) {
  catch_interrupts();
  SR_ASSIGN_OR_RETURN(const ChosenCluster chosen, choose_cluster(a.cluster));
  StatusClient* const client = chosen.client.get();
  const milliseconds limit = to_ms(a.cluster.timeout_s);
  const std::unique_ptr<Screen> screen = a.once || a.json ? nullptr : Screen::open();
  TopView view;
  SR_ASSIGN_OR_RETURN(view.parts, service::parts_of(a.parts));
  steady_clock::time_point asked = steady_clock::now();
  view.now = client->ask(limit, {}, {.hot_rows = kRowsAsked});
  while (true) {
    if (screen != nullptr) screen->show(text_of(view, a) + "\nq: end\n");
    const auto left =
        std::chrono::duration_cast<milliseconds>(asked + to_ms(a.interval_s) - steady_clock::now());
    if (screen != nullptr ? screen->wait_for_end(left) : wait_for_interrupt(left)) return {};
    const steady_clock::time_point now = steady_clock::now();
    view.seconds = std::chrono::duration<double>(now - asked).count();
    asked = now;
    view.before = std::move(view.now);
    view.now = client->ask(limit, {}, {.hot_rows = kRowsAsked});
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
  add_cluster_choice(command, &a->cluster);
  command->add_option("--interval", a->interval_s, "seconds from one table to the next")
      ->check(CLI::Range(0.05, 86'400.0).description(""))
      ->type_name("S");
  command->add_flag("--once", a->once, "print one table, of what happens in one interval, and end");
  command->add_flag("--json", a->json, "a line of JSON in the place of each table");
  command->add_flag("--figures", a->figures, "all figures by name, in the place of the table");
  CLI::Option* const lanes =
      command->add_flag("--lanes", a->lanes, "how busy each lane is, in the place of the table");
  command
      ->add_flag("--rows", a->rows,
                 "the rows of tables that most pulls and pushes of the last minutes are of, in the "
                 "place of the table")
      ->excludes(lanes);
  std::vector<std::string> parts;
  for (const auto& [name, meaning] : service::kPartsNames) parts.emplace_back(name);
  command
      ->add_option(
          "--parts", a->parts,
          "what variables NAME/part_0, NAME/part_1 ... are, which says what rows are called: "
          "see sidereal follow")
      ->check(CLI::IsMember(parts).description(""))
      ->type_name(fmt::format("{}", fmt::join(parts, "|")));
  command->footer(kFooter);
  command->final_callback([a, action] { *action = [a] { return top(*a); }; });
}

}  // namespace sidereal::cli
