#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sidereal/cluster/cluster_spec.h"
#include "sidereal/sys/posix/announcement.h"

namespace sidereal::app {

/// A cluster that a process of this user has started: a training, a launcher. Value type.
struct RunningCluster {
  int64_t pid = 0;
  int64_t started_s = 0;     ///< Seconds since 1970.
  std::string command = {};  ///< As it was written.
  std::string secret = {};
  cluster::ClusterSpec cluster = {};
};

/// Lets `sidereal top` of the same user find a cluster of this process, with its secret, as long as
/// the object lives. nullptr where the system cannot.
std::unique_ptr<sys::posix::Announcement> announce_cluster(const cluster::ClusterSpec& cluster,
                                                           const std::string& secret);

/// Those that are announced now, the oldest first. Thread: any.
std::vector<RunningCluster> running_clusters();

}  // namespace sidereal::app
