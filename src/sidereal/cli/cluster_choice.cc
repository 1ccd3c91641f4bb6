#include "sidereal/cli/cluster_choice.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdlib>
#include <utility>

#include "sidereal/app/running_clusters.h"
#include "sidereal/base/strings.h"
#include "sidereal/cli/cluster_option.h"
#include "sidereal/cli/local_time.h"
#include "sidereal/cli/security_options.h"
#include "sidereal/cli/terminal.h"

namespace sidereal::cli {

using service::StatusClient;

namespace {

/// "pid 4711 since 12:03:04: sidereal train --data x.csv", cut.
std::string text_of(const app::RunningCluster& running) {
  constexpr size_t kCommandBytes = 60;
  return fmt::format("pid {} since {}: {}", running.pid, local_time(running.started_s),
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

}  // namespace

Result<ChosenCluster> choose_cluster(const ClusterChoice& choice) {
  SR_ASSIGN_OR_RETURN(security::SecurityOptions security,
                      complete_security_options(choice.security));
  ChosenCluster out;
  if (!choice.target.empty()) {
    if (!choice.cluster.empty()) {
      return base::invalid_argument("--cluster and --target are both given; give one of them");
    }
    const std::chrono::milliseconds limit = to_ms(choice.timeout_s);
    SR_ASSIGN_OR_RETURN(out.client, StatusClient::create(choice.target, security, limit));
    out.security = std::move(security);
    return out;
  }
  const char* const config = std::getenv("TF_CONFIG");
  if (choice.cluster.empty() && (config == nullptr || choice.pid != 0)) {
    SR_ASSIGN_OR_RETURN(const app::RunningCluster found, own_cluster(choice.pid));
    out.security.secret = found.secret;
    out.pid = found.pid;
    SR_ASSIGN_OR_RETURN(out.client, StatusClient::create(found.cluster, out.security));
    return out;
  }
  SR_ASSIGN_OR_RETURN(const cluster::ClusterSpec cluster,
                      read_cluster(choice.cluster.empty() ? config : choice.cluster));
  SR_ASSIGN_OR_RETURN(out.client, StatusClient::create(cluster, security));
  out.security = std::move(security);
  return out;
}

void add_cluster_choice(CLI::App* command, ClusterChoice* choice) {
  command
      ->add_option(
          "--cluster", choice->cluster,
          "the cluster, a JSON file or text; without it, that of TF_CONFIG; without that, the "
          "one that a program of yours runs on this machine")
      ->default_str("")
      ->type_name("FILE|JSON");
  command
      ->add_option("--target", choice->target,
                   "instead: one of its servers, which says who else is in the cluster")
      ->default_str("")
      ->type_name("grpc://HOST:PORT");
  command
      ->add_option("--pid", choice->pid,
                   "instead: the cluster of this process: a training, a demo, a launcher, a Python "
                   "program")
      ->default_str("")
      ->check(CLI::PositiveNumber.description(""))
      ->type_name("N");
  command->add_option("--timeout", choice->timeout_s, "seconds a task gets to answer in")
      ->check(CLI::Range(0.05, 3'600.0).description(""))
      ->type_name("S");
  add_security_options(command, &choice->security);
}

}  // namespace sidereal::cli
