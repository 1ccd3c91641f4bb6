#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "sidereal/cli/cluster_choice.h"
#include "sidereal/cli/commands.h"
#include "sidereal/cli/followed_tables.h"
#include "sidereal/cli/interrupt.h"
#include "sidereal/cli/terminal.h"
#include "sidereal/service/follower.h"
#include "sidereal/sys/posix/process.h"

namespace sidereal::cli {

namespace {

using service::Follower;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr const char* kFooter =
    R"(Keeps a copy of what the tasks of a job have, by their change logs, and says how far behind
it is. With --out, DIR/tables.safetensors is replaced by the tables of the copy, which
sidereal.TableFile maps. While a task is away, or a table that the file has is not there, the file
stays as it is. Ctrl-C or SIGTERM end it, with a last file.

Examples:
  sidereal follow
  sidereal follow --target grpc://127.0.0.1:2222 --out tables --every 30
  sidereal follow --cluster cluster.json --group '*' --parts modulo --out tables)";

/// How often streams that broke are looked after.
constexpr milliseconds kLook{100};

struct FollowArguments {
  ClusterChoice cluster;
  std::string job = "ps";
  std::string group;
  std::string out;
  double every_s = 30;
  double interval_s = 5;
  double cut_ms = 20;
  std::string parts = "apart";
  std::vector<std::string> tables;
};

milliseconds to_ms(double seconds) { return milliseconds(static_cast<int64_t>(seconds * 1000)); }

void say(const std::string& line) {
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

/// What is printed again and again, and the files. Thread: core-local.
class Following {
 public:
  Following(const FollowArguments& a, std::unique_ptr<Follower> follower)
      : a_(a), follower_(std::move(follower)) {}

  void run() {
    steady_clock::time_point say_at = steady_clock::now();
    steady_clock::time_point write_at = say_at;
    while (true) {
      follower_->look();
      const steady_clock::time_point now = steady_clock::now();
      if (now >= say_at) {
        say_distance();
        say_at = now + to_ms(a_.interval_s);
      }
      if (!a_.out.empty() && now >= write_at && write()) write_at = now + to_ms(a_.every_s);
      if (wait_for_interrupt(kLook)) break;
    }
    if (!a_.out.empty()) write();
    say_distance();
  }

 private:
  void say_distance() {
    for (const service::FollowedTask& task : follower_->tasks()) {
      std::string line = fmt::format("{}: ", task.task);
      if (task.is_whole) {
        line += fmt::format("{} cuts and {} ms behind", task.cuts_behind, task.behind.count());
      } else {
        line += "not here as a whole yet";
      }
      if (!task.status.ok()) line += format_why(task.status);
      say(line);
    }
  }

  static std::string format_why(const Status& status) {
    return fmt::format("; {}: {}", base::code_name(status.code()), base::message_of(status));
  }

  /// Whether there is a new file. Says why not, once for each reason.
  bool write() {
    const steady_clock::time_point began = steady_clock::now();
    const Status written = try_write();
    if (written.ok()) {
      failed_.clear();
      say(fmt::format(
          "{}: {} tables, in {} ms", path(), in_file_.size(),
          std::chrono::duration_cast<milliseconds>(steady_clock::now() - began).count()));
      return true;
    }
    const std::string why = fmt::format("{} is not written{}", path(), format_why(written));
    if (why != failed_) say(why);
    failed_ = why;
    return false;
  }

  Status try_write() {
    SR_ASSIGN_OR_RETURN(const auto values, follower_->values(without_slots));
    const Parts parts = a_.parts == "modulo"   ? Parts::kModulo
                        : a_.parts == "blocks" ? Parts::kBlocks
                                               : Parts::kApart;
    SR_ASSIGN_OR_RETURN(const Tables tables, tables_of(values, parts, a_.tables));
    if (tables.empty()) return base::unavailable("there is no table");
    for (const std::string& name : in_file_) {
      // A task that has come back may not have got its variables back yet.
      if (!tables.contains(name)) return base::unavailable("table '{}' is not there now", name);
    }
    SR_RETURN_IF_ERROR(write_tables(path(), tables));
    for (const auto& [name, value] : tables) in_file_.insert(name);
    return {};
  }

  [[nodiscard]] std::string path() const { return a_.out + "/tables.safetensors"; }

  const FollowArguments& a_;
  const std::unique_ptr<Follower> follower_;
  std::set<std::string> in_file_;  // Names of tables.
  std::string failed_;             // What was said of it.
};

Status follow(const FollowArguments& a) {
  catch_interrupts();
  SR_ASSIGN_OR_RETURN(const ChosenCluster chosen, choose_cluster(a.cluster));
  std::vector<service::FollowedAddress> tasks;
  for (const auto& report : chosen.client->ask(to_ms(a.cluster.timeout_s), a.job)) {
    tasks.push_back({.task = report.task, .address = report.address});
  }
  if (tasks.empty()) return base::invalid_argument("the cluster has no job '{}'; see --job", a.job);
  service::FollowOptions options;
  options.state_group = a.group;
  options.cut = milliseconds(static_cast<int64_t>(a.cut_ms));
  options.bytes_max = static_cast<size_t>(sys::posix::process_figures().memory_limit);
  SR_ASSIGN_OR_RETURN(auto follower, Follower::create(tasks, chosen.security, options));
  Following(a, std::move(follower)).run();
  return {};
}

}  // namespace

void add_follow(CLI::App* app, Action* action) {
  auto a = std::make_shared<FollowArguments>();
  CLI::App* command = app->add_subcommand(
      "follow", "keep a copy of the tables of a running cluster, and write them to files");
  command->option_defaults()->always_capture_default()->multi_option_policy(
      CLI::MultiOptionPolicy::TakeLast);
  add_cluster_choice(command, &a->cluster);
  command->add_option("--job", a->job, "whose tasks are followed")->type_name("NAME");
  command
      ->add_option("--group", a->group,
                   "the group of sessions whose variables are followed; '*': the only one, as of a "
                   "training by `sidereal train` or fit(); without it, variables that sessions "
                   "share")
      ->default_str("")
      ->type_name("NAME");
  command->add_option("--out", a->out, "a folder, in which tables.safetensors is kept current")
      ->default_str("")
      ->check(CLI::ExistingDirectory.description(""))
      ->type_name("DIR");
  command->add_option("--every", a->every_s, "seconds from one file to the next")
      ->check(CLI::Range(0.05, 86'400.0).description(""))
      ->type_name("S");
  command
      ->add_option("--tables", a->tables,
                   "names of tables for the file, with commas; without it, all variables [rows, "
                   "dim] but slots of optimizers")
      ->delimiter(',')
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->default_str("")
      ->type_name("NAME,...");
  command
      ->add_option("--parts", a->parts,
                   "what NAME/part_0, NAME/part_1 ... are in the file: tables of their own; or "
                   "NAME, whose rows they have by turns, as of `sidereal train`, or in blocks, as "
                   "of partitioners")
      ->check(CLI::IsMember({"apart", "modulo", "blocks"}).description(""))
      ->type_name("apart|modulo|blocks");
  command
      ->add_option("--interval", a->interval_s, "seconds from one line about each task to the next")
      ->check(CLI::Range(0.05, 86'400.0).description(""))
      ->type_name("S");
  command->add_option("--cut", a->cut_ms, "milliseconds in which changes are collected")
      ->check(CLI::Range(1.0, 10'000.0).description(""))
      ->type_name("MS");
  command->footer(kFooter);
  command->final_callback([a, action] { *action = [a] { return follow(*a); }; });
}

}  // namespace sidereal::cli
