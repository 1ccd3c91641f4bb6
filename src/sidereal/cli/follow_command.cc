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
#include "sidereal/cli/security_options.h"
#include "sidereal/cli/table_versions.h"
#include "sidereal/cli/terminal.h"
#include "sidereal/service/follower.h"
#include "sidereal/service/lookup_service.h"

namespace sidereal::cli {

namespace {

using service::Follower;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr const char* kFooter =
    R"(Keeps a copy of what the tasks of a job have, by their change logs, and says how far behind
it is. With --out, DIR/tables.safetensors is replaced by the tables of the copy, which
sidereal.TableFile maps. While a task is away, or a table that the file has is not there, the file
stays as it is. With --listen, sidereal.LookupClient asks for rows of the copy. Ctrl-C or SIGTERM
end it, after a last file is written.

With --keep, tables.safetensors is a link to the latest of N files, whose versions are numbered.
--roll-back makes it a link to an earlier one, and there it stays, also while newer ones are
written, until --roll-back DIR --to NUMBER names the newest.

Examples:
  sidereal follow
  sidereal follow --target grpc://127.0.0.1:2222 --out tables --every 30
  sidereal follow --cluster cluster.json --group '*' --parts modulo --out tables
  sidereal follow --group '*' --parts modulo --listen 127.0.0.1:9000
  sidereal follow --group '*' --parts modulo --out tables --synchronous
  sidereal follow --out tables --keep 5
  sidereal follow --roll-back tables)";

/// How often it is looked at what is due.
constexpr milliseconds kLook{100};

struct FollowArguments {
  ClusterChoice cluster;
  std::string job = "ps";
  std::string group;
  std::string out;
  std::string listen;
  double every_s = 30;
  int keep = 0;  ///< 0: one file, which is replaced.
  std::string roll_back;
  int64_t to = 0;  ///< 0: the version before.
  double interval_s = 5;
  double cut_ms = 20;
  bool is_synchronous = false;
  std::string parts = "apart";
  std::vector<std::string> tables;
};

void say(const std::string& line) {
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

/// What is printed again and again, and the files. Thread: core-local.
class Following {
 public:
  Following(const FollowArguments& a, std::unique_ptr<Follower> follower)
      : a_(a), follower_(std::move(follower)) {}

  /// Answers look-ups.
  Status listen(const security::SecurityOptions& security) {
    SR_ASSIGN_OR_RETURN(lookups_,
                        service::LookupServer::start(follower_.get(), a_.listen, security));
    say(fmt::format("rows are looked up at {}", lookups_->address()));
    return {};
  }

  void run() {
    steady_clock::time_point say_at = steady_clock::now();
    steady_clock::time_point write_at = say_at;
    while (true) {
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
    for (const service::FollowedTask& task : follower_->take_news()) {
      std::string line = fmt::format("{}: ", task.task);
      if (task.is_whole) {
        line += fmt::format("{} cuts and {} ms behind{}", task.cuts_behind, task.behind.count(),
                            task.is_in_sync ? ", in sync" : "");
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
      say(fmt::format("{}: {} tables, in {} ms{}", table_file(a_.out), in_file_.size(),
                      std::chrono::duration_cast<milliseconds>(steady_clock::now() - began).count(),
                      version_));
      return true;
    }
    const std::string why =
        fmt::format("{} is not written{}", table_file(a_.out), format_why(written));
    if (why != failed_) say(why);
    failed_ = why;
    return false;
  }

  Status try_write() {
    SR_ASSIGN_OR_RETURN(const auto values, follower_->values(service::without_slots));
    SR_ASSIGN_OR_RETURN(const service::Parts parts, service::parts_of(a_.parts));
    SR_ASSIGN_OR_RETURN(const Tables tables, tables_of(values, parts, a_.tables, &seen_));
    if (tables.empty()) return base::unavailable("there is no table");
    for (const std::string& name : in_file_) {
      // A task that has come back may not have got its variables back yet.
      if (!tables.contains(name)) return base::unavailable("table '{}' is not there now", name);
    }
    if (a_.keep > 0) {
      SR_ASSIGN_OR_RETURN(const WrittenVersion written, write_version(a_.out, tables, a_.keep));
      version_ = fmt::format("; version {}", written.number);
      if (written.current != written.number) {
        version_ +=
            fmt::format(", and it stays version {}, to which it was rolled back", written.current);
      }
    } else {
      SR_RETURN_IF_ERROR(write_tables(table_file(a_.out), tables));
    }
    for (const auto& [name, value] : tables) in_file_.insert(name);
    return {};
  }

  const FollowArguments& a_;
  const std::unique_ptr<Follower> follower_;
  std::unique_ptr<service::LookupServer> lookups_;
  std::set<std::string> in_file_;  // Names of tables.
  service::PartsSeen seen_;
  std::string version_;  // What is said of it.
  std::string failed_;   // What was said last.
};

Status follow(const FollowArguments& a) {
  if (!a.roll_back.empty()) {
    const std::optional<uint64_t> to =
        a.to > 0 ? std::optional<uint64_t>(static_cast<uint64_t>(a.to)) : std::nullopt;
    SR_ASSIGN_OR_RETURN(const uint64_t is, roll_back(a.roll_back, to));
    say(fmt::format("{} is version {}", table_file(a.roll_back), is));
    return {};
  }
  if (a.to > 0) return base::invalid_argument("--to is for --roll-back DIR");
  if (a.keep > 0 && a.out.empty()) return base::invalid_argument("--keep is for --out DIR");
  catch_interrupts();
  SR_ASSIGN_OR_RETURN(const ChosenCluster chosen, choose_cluster(a.cluster));
  service::FollowOptions options;
  options.state_group = a.group;
  options.cut = milliseconds(static_cast<int64_t>(a.cut_ms));
  options.is_synchronous = a.is_synchronous;
  SR_ASSIGN_OR_RETURN(options.parts, service::parts_of(a.parts));
  SR_ASSIGN_OR_RETURN(auto follower,
                      Follower::create(chosen.client.get(), to_ms(a.cluster.timeout_s), a.job,
                                       chosen.security, options));
  Following following(a, std::move(follower));
  if (!a.listen.empty()) {
    SR_ASSIGN_OR_RETURN(const security::SecurityOptions security,
                        complete_security_options(a.cluster.security));
    SR_RETURN_IF_ERROR(following.listen(security));
  }
  following.run();
  return {};
}

/// --keep, --roll-back and --to. Borrows `a`.
void add_versions(CLI::App* command, FollowArguments* a) {
  command
      ->add_option("--keep", a->keep,
                   "--out: files that are kept; without it one, which is replaced")
      ->default_str("")
      ->check(CLI::Range(1, 10'000).description(""))
      ->type_name("N");
  command
      ->add_option("--roll-back", a->roll_back,
                   "instead of following: tables.safetensors of this folder becomes the version "
                   "before, of those that --keep has kept")
      ->default_str("")
      ->check(CLI::ExistingDirectory.description(""))
      ->type_name("DIR");
  command->add_option("--to", a->to, "--roll-back: this version, instead of the one before")
      ->default_str("")
      ->check(CLI::PositiveNumber.description(""))
      ->type_name("NUMBER");
}

}  // namespace

void add_follow(CLI::App* app, Action* action) {
  auto a = std::make_shared<FollowArguments>();
  std::vector<std::string> parts;
  for (const auto& [name, meaning] : service::kPartsNames) parts.emplace_back(name);
  CLI::App* command = app->add_subcommand(
      "follow", "keep a copy of the tables of a running cluster, and write them to files");
  command->option_defaults()->always_capture_default()->multi_option_policy(
      CLI::MultiOptionPolicy::TakeLast);
  add_cluster_choice(command, &a->cluster);
  command->add_option("--job", a->job, "the job whose tasks are followed")->type_name("NAME");
  command
      ->add_option("--group", a->group,
                   "the group of sessions whose variables are followed; '*': the only one, as of a "
                   "training by `sidereal train` or fit(); without it, variables that sessions "
                   "share")
      ->default_str("")
      ->type_name("NAME");
  command
      ->add_option("--out", a->out,
                   "a folder that is there, in which tables.safetensors is kept current")
      ->default_str("")
      ->check(CLI::ExistingDirectory.description(""))
      ->type_name("DIR");
  command
      ->add_option("--listen", a->listen,
                   "where other programs look up rows; port 0: any free one. Without a secret or "
                   "certificates on this machine only")
      ->default_str("")
      ->type_name("HOST:PORT");
  command->add_option("--every", a->every_s, "--out: seconds from one file to the next")
      ->check(CLI::Range(0.05, 86'400.0).description(""))
      ->type_name("S");
  add_versions(command, a.get());
  command
      ->add_option("--tables", a->tables,
                   "--out: tables for the file, with commas; without it, all variables [rows, dim] "
                   "but slots of optimizers")
      ->delimiter(',')
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->default_str("")
      ->type_name("NAME");
  command
      ->add_option("--parts", a->parts,
                   "what variables NAME/part_0, NAME/part_1 ... are. apart: tables of their own; "
                   "modulo: one table, NAME, whose rows go round them, as of `sidereal train`; "
                   "blocks: one table, of which each has a piece of the rows, as of partitioners")
      ->check(CLI::IsMember(parts).description(""))
      ->type_name(fmt::format("{}", fmt::join(parts, "|")));
  command
      ->add_option("--interval", a->interval_s, "seconds from one line about each task to the next")
      ->check(CLI::Range(0.05, 86'400.0).description(""))
      ->type_name("S");
  command
      ->add_option("--cut", a->cut_ms,
                   "milliseconds in which a task collects changes before it sends them")
      ->check(CLI::Range(1.0, 10'000.0).description(""))
      ->type_name("MS");
  command->add_flag("--synchronous", a->is_synchronous,
                    "be a synchronous standby: while it is in sync, tasks answer pushes when they "
                    "are here; one that is late for standby_timeout_ms of a server is let go");
  command->footer(kFooter);
  command->final_callback([a, action] { *action = [a] { return follow(*a); }; });
}

}  // namespace sidereal::cli
