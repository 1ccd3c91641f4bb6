#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sidereal/base/event_log.h"
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

/// Lets programs of the same user find a cluster of this process, and its events, as long as the
/// object lives: `sidereal top`, `sidereal events`.
class ClusterAnnouncement {
 public:
  ClusterAnnouncement(std::unique_ptr<sys::posix::Announcement> cluster,
                      std::unique_ptr<sys::posix::Announcement> events);

 private:
  const std::unique_ptr<sys::posix::Announcement> cluster_;
  const std::unique_ptr<sys::posix::Announcement> events_;
  const base::EventSinkRegistration sink_;  // Writes to these.
};

/// Of a cluster with its secret. nullptr where the system cannot.
std::unique_ptr<ClusterAnnouncement> announce_cluster(const cluster::ClusterSpec& cluster,
                                                      const std::string& secret);

/// The latest events of a process that has announced a cluster, as lines. Thread: any.
std::vector<std::string> announced_events(int64_t pid);

/// Those that are announced now, the oldest first. Thread: any.
std::vector<RunningCluster> running_clusters();

}  // namespace sidereal::app
