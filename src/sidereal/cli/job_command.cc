#include "sidereal/cli/job_command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <limits>
#include <memory>

#include "sidereal/base/strings.h"
#include "sidereal/cli/cluster_choice.h"
#include "sidereal/cli/commands.h"
#include "sidereal/cli/interrupt.h"
#include "sidereal/cli/option_kinds.h"

namespace sidereal::cli {

namespace {

using service::JobCommand;
using std::chrono::steady_clock;

/// From one line of progress to the next, where they are not written over one another.
constexpr std::chrono::seconds kPlainLines(5);
constexpr int64_t kPsMax = 65'536;

constexpr const char* kFooter =
    R"(Of fit(), sidereal train, coordinators and monitored sessions that are movable, while they
train: parts of tables, with the slots of their optimizers, are copied from one parameter server to
another, and the training goes on meanwhile.
Ctrl-C takes back what was begun: then nothing has changed. A job carries out one command at a time.

Examples:
  sidereal scale --ps 3
  sidereal drain ps:1 --job ads
  sidereal rebalance --cluster cluster.json)";

struct JobCommandArguments {
  ClusterChoice cluster;
  std::string job;
  std::string drained;
  JobCommand command;
};

/// What is said of the bytes, on standard error.
class CopiedPrinter {
 public:
  ~CopiedPrinter() {
    if (is_live_) std::fputs("\n", stderr);
  }
  void update(const service::JobCommandProgress& progress) {
    const std::string line = format_copied(progress);
    const steady_clock::time_point now = steady_clock::now();
    if (is_terminal_) {
      fmt::print(stderr, "\r{}\x1b[K", line);
      is_live_ = true;
    } else if (now >= next_) {
      fmt::print(stderr, "{}\n", line);
      next_ = now + kPlainLines;
    }
    std::fflush(stderr);
  }

 private:
  const bool is_terminal_ = isatty(STDERR_FILENO) != 0;
  bool is_live_ = false;
  steady_clock::time_point next_;
};

Status command(const JobCommandArguments& a) {
  JobCommand command = a.command;
  if (command.kind == JobCommand::Kind::kDrain) {
    SR_ASSIGN_OR_RETURN(command.ps, parse_ps(a.drained));
  }
  catch_interrupts();
  SR_ASSIGN_OR_RETURN(const ChosenCluster chosen, choose_cluster(a.cluster));
  Result<std::string> text = std::string();
  {
    CopiedPrinter printer;
    service::CommandOptions options;
    options.job = a.job;
    options.on_progress = [&](const service::JobCommandProgress& p) { printer.update(p); };
    options.is_cancelled = [] { return interrupted(); };
    text = service::command_job(chosen.client->cluster(), chosen.security, command, options);
  }
  SR_RETURN_IF_ERROR(text.status());
  fmt::print("{}\n", *text);
  return {};
}

CLI::App* add_job_command(CLI::App* app, Action* action, JobCommand::Kind kind, const char* name,
                          const char* about, const std::shared_ptr<JobCommandArguments>& a) {
  a->command.kind = kind;
  CLI::App* const out = app->add_subcommand(name, about);
  out->option_defaults()->always_capture_default()->multi_option_policy(
      CLI::MultiOptionPolicy::TakeLast);
  add_cluster_choice(out, &a->cluster);
  out->add_option("--job", a->job,
                  "the training that is told (--name, name=); without it, the one "
                  "that runs on the cluster")
      ->default_str("")
      ->type_name("NAME");
  out->footer(kFooter);
  out->final_callback([a, action] { *action = [a] { return command(*a); }; });
  return out;
}

}  // namespace

Result<int> parse_ps(std::string_view text) {
  std::string_view number;
  for (const std::string_view before : {"ps:", "/job:ps/task:", "/job:ps/replica:0/task:"}) {
    if (text.starts_with(before)) number = text.substr(before.size());
  }
  const Result<int64_t> index = base::parse_int(number);
  if (index.ok() && *index >= 0 && *index < kPsMax) return static_cast<int>(*index);
  return base::invalid_argument(
      "'{}' is no parameter server: ps:0, ps:1 and so on are, and /job:ps/task:1", text);
}

std::string format_copied(const service::JobCommandProgress& progress) {
  const int64_t all = std::max(progress.bytes, progress.bytes_all);
  const double part = all > 0 ? static_cast<double>(progress.bytes) / static_cast<double>(all) : 0;
  return fmt::format("copied {} of {}  {:3.0f}%",
                     base::human_bytes(static_cast<double>(progress.bytes)),
                     base::human_bytes(static_cast<double>(all)), 100 * part);
}

void add_job_commands(CLI::App* app, Action* action) {
  using Kind = JobCommand::Kind;
  const auto scale = std::make_shared<JobCommandArguments>();
  whole(add_job_command(app, action, Kind::kScale, "scale",
                        "have a training that runs use another number of parameter servers", scale)
            ->add_option("--ps", scale->command.ps,
                         "parameter servers: the first N of the cluster have its tables then")
            ->required()
            ->default_str(""),
        1, kPsMax);
  const auto drain = std::make_shared<JobCommandArguments>();
  add_job_command(app, action, Kind::kDrain, "drain",
                  "have a training that runs leave a parameter server", drain)
      ->add_option("ps", drain->drained, "the parameter server that is left: ps:1")
      ->required()
      ->check([](const std::string& given) {
        return std::string(base::message_of(parse_ps(given).status()));
      })
      ->type_name("ps:N");
  const auto rebalance = std::make_shared<JobCommandArguments>();
  add_job_command(app, action, Kind::kRebalance, "rebalance",
                  "have a training that runs spread its tables over its parameter servers",
                  rebalance);
}

}  // namespace sidereal::cli
