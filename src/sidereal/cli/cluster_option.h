#pragma once

#include <string>

#include "sidereal/base/status.h"
#include "sidereal/cluster/cluster_spec.h"

namespace sidereal::cli {

/// The cluster that `given`, the value of --cluster, stands for: JSON, or the name of a file with
/// it. Errors: kNotFound for a file that cannot be read; kInvalidArgument naming what is wrong in
/// it, and where it came from.
Result<cluster::ClusterSpec> read_cluster(const std::string& given);

/// The same, and the "rpc_layer" that stands beside it in a TF_CONFIG; "" where there is none.
struct ClusterOption {
  cluster::ClusterSpec cluster;
  std::string rpc_layer;
};
Result<ClusterOption> read_cluster_option(const std::string& given);

}  // namespace sidereal::cli
