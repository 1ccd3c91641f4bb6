#pragma once

#include <string>
#include <string_view>

#include "sidereal/base/status.h"
#include "sidereal/cluster/cluster_spec.h"
#include "sidereal/ir/graph.h"
#include "sidereal/ir/schema.h"

namespace sidereal::master {

/// The session whose graph is to be placed. Value type.
struct PlacementOptions {
  /// The task of its master, "/job:worker/task:0"; "": the first of the cluster.
  std::string master = {};
  bool allow_soft_placement = false;
};

/// `graph` with the device of every node, as a session on the servers of `cluster` would place it.
/// Nobody is asked. The devices are in passes::placement_report() and placement_lines().
/// Errors: kInvalidArgument for a cluster without tasks, a master that is not in it, and those of
/// passes::place_devices().
Result<ir::Graph> place_on_cluster(const ir::Graph& graph, const cluster::ClusterSpec& cluster,
                                   const PlacementOptions& options, const ir::OpRegistry& registry);

/// A line "NAME: (OP): DEVICE" for each node of a placed graph from number `first` on.
/// Source: the log of TensorFlow's log_device_placement.
std::string placement_lines(const ir::Graph& graph, size_t first = 0);

}  // namespace sidereal::master
