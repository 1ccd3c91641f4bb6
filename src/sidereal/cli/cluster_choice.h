#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "sidereal/base/status.h"
#include "sidereal/security/credentials.h"
#include "sidereal/service/status_client.h"

namespace CLI {
class App;
}  // namespace CLI

namespace sidereal::cli {

/// Which running cluster a command is about, as options say it. Value type.
struct ClusterChoice {
  std::string cluster = {};  ///< JSON, or a file with it.
  std::string target = {};   ///< "grpc://HOST:PORT".
  int64_t pid = 0;           ///< Of a process that has started one.
  double timeout_s = 2;      ///< For a task to answer.
  security::SecurityOptions security = {};
};

/// Adds --cluster, --target, --pid, --timeout and those of security. Borrows `choice`.
void add_cluster_choice(CLI::App* command, ClusterChoice* choice);

/// A client of the chosen cluster's tasks, and their credentials.
struct ChosenCluster {
  std::unique_ptr<service::StatusClient> client;
  security::SecurityOptions security;
  int64_t pid = 0;  ///< Of the process that has announced it; 0: it was found otherwise.
};
/// Errors: kInvalidArgument where it is not clear which; those of StatusClient::create().
Result<ChosenCluster> choose_cluster(const ClusterChoice& choice);

}  // namespace sidereal::cli
