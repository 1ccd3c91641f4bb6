#pragma once

#include <string>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/ir/graph.h"
#include "sidereal/ir/schema.h"

namespace sidereal::cli {

/// How a session's graph is to be cut. Value type.
struct PartitionArguments {
  std::string protocol = {};  ///< One of cluster::protocol_names().
  std::string cluster = {};   ///< See read_cluster().
  std::string master = {};    ///< "/job:worker/task:0", which drives calls; "": the first task.
  std::vector<std::string> fetches = {};  ///< "node:0".
  std::vector<std::string> targets = {};  ///< Without both, all nodes that nothing reads.
  bool tensor_fuse = false;               ///< See partition::ByDeviceOptions.
  int lanes = 1;  ///< Of each task but the master's; of protocols that call.
};

/// What a step of a session with `graph` sends: calls, rounds, messages, bytes as far as they are
/// known, and each call. Errors: kInvalidArgument, kNotFound for names that are wrong, and those of
/// placing.
Result<std::string> partition_report(const ir::Graph& graph, const PartitionArguments& arguments,
                                     const ir::OpRegistry& registry);

}  // namespace sidereal::cli
