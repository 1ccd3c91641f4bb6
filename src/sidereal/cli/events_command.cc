#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "sidereal/app/running_clusters.h"
#include "sidereal/base/event_log.h"
#include "sidereal/base/wrap.h"
#include "sidereal/cli/cluster_choice.h"
#include "sidereal/cli/commands.h"
#include "sidereal/cli/event_story.h"
#include "sidereal/cli/interrupt.h"
#include "sidereal/cli/terminal.h"

namespace sidereal::cli {

namespace {

using std::chrono::milliseconds;

/// Between two looks with --follow.
constexpr milliseconds kLook{1000};

struct EventsArguments {
  ClusterChoice cluster;
  std::vector<std::string> files;
  std::string since;
  bool json = false;
  bool follow = false;
};

/// What all logs have now.
Result<std::vector<std::string>> read_all(const EventsArguments& a, const ChosenCluster* chosen,
                                          bool* is_anybody_there) {
  std::vector<std::string> lines;
  for (const std::string& file : a.files) {
    SR_ASSIGN_OR_RETURN(const std::vector<std::string> of_file, read_event_log(file));
    lines.insert(lines.end(), of_file.begin(), of_file.end());
  }
  if (chosen == nullptr) return lines;
  for (const service::TaskReport& report : chosen->client->ask(
           to_ms(a.cluster.timeout_s), {}, {.events = static_cast<int>(base::kEventsKept)})) {
    *is_anybody_there |= report.status.ok();
    lines.insert(lines.end(), report.events.begin(), report.events.end());
  }
  if (chosen->pid != 0) {
    const std::vector<std::string> own = app::announced_events(chosen->pid);
    *is_anybody_there |= !own.empty();
    lines.insert(lines.end(), own.begin(), own.end());
  }
  return lines;
}

int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

Status events(const EventsArguments& a) {
  catch_interrupts();
  int64_t since_us = 0;
  if (!a.since.empty()) {
    SR_ASSIGN_OR_RETURN(const double age_s, parse_age(a.since));
    since_us = now_us() - static_cast<int64_t>(age_s * 1e6);
  }
  const ClusterChoice& choice = a.cluster;
  std::optional<ChosenCluster> chosen;
  if (a.files.empty() || !choice.cluster.empty() || !choice.target.empty() || choice.pid != 0) {
    SR_ASSIGN_OR_RETURN(chosen, choose_cluster(choice));
  }
  std::set<std::string> shown;
  while (true) {
    bool is_anybody_there = false;
    SR_ASSIGN_OR_RETURN(const std::vector<std::string> lines,
                        read_all(a, chosen ? &*chosen : nullptr, &is_anybody_there));
    if (chosen && !is_anybody_there && !a.follow) {
      return base::unavailable(
          "no task of the cluster answers; give --file FILE for what they have written");
    }
    std::set<std::string> now;
    for (const StoryEvent& event : story_of(lines, since_us)) {
      if (!shown.contains(event.line)) {
        fmt::print("{}\n", a.json ? event.line : format_event(event));
      }
      now.insert(event.line);
    }
    std::fflush(stdout);
    shown = std::move(now);
    if (!a.follow || wait_for_interrupt(kLook)) return {};
  }
}

std::string footer() {
  std::string out =
      "What happened to a cluster, by time: the latest events of all its tasks and of the program "
      "that\nhas started it, and what is in files. A task keeps its latest ones; of one that has "
      "died there is\nwhat it wrote to its file (sidereal serve --event-log, launch "
      "--log-dir).\n\nEvents:\n";
  for (const base::EventKind& kind : base::event_kinds()) {
    out +=
        "  " + base::wrap(fmt::format("{:<19} {}", kind.name, kind.meaning), 96, "      ") + "\n";
  }
  return out +
         "\nExamples:\n"
         "  sidereal events\n"
         "  sidereal events --target grpc://127.0.0.1:2222 --since 10m --follow\n"
         "  sidereal events --file logs --json | jq 'select(.event == \"task_lost\")'";
}

}  // namespace

void add_events(CLI::App* app, Action* action) {
  auto a = std::make_shared<EventsArguments>();
  CLI::App* command =
      app->add_subcommand("events", "tell what happened to a cluster: losses, restarts, restores");
  command->option_defaults()->always_capture_default();
  add_cluster_choice(command, &a->cluster);
  command
      ->add_option(
          "--file", a->files,
          "an event log, or a folder of them; without --cluster, --target and --pid no task "
          "is asked for more; may be given again")
      ->default_str("")
      ->type_name("FILE|DIR");
  command->add_option("--since", a->since, "events of the last 90s, 10m, 2h, 1d; without it, all")
      ->default_str("")
      ->type_name("TIME");
  command->add_flag("--json", a->json, "lines of JSON, as the logs have them");
  command->add_flag("--follow", a->follow, "go on with what happens, until Ctrl-C");
  command->footer(footer());
  command->final_callback([a, action] { *action = [a] { return events(*a); }; });
}

}  // namespace sidereal::cli
