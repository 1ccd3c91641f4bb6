#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/cluster/cluster_spec.h"
#include "sidereal/metrics/figures.h"
#include "sidereal/resources/push_counts.h"
#include "sidereal/security/credentials.h"
#include "sidereal/service/job.h"
#include "sidereal/service/taken_copy.h"
#include "sidereal/task/hot_variables.h"

namespace sidereal::service {

/// What a task tells about itself. Value type.
struct TaskReport {
  std::string task;     ///< "/job:ps/replica:0/task:0".
  std::string address;  ///< "host:port".
  Status status;        ///< Why there are no figures.
  uint64_t incarnation = 0;
  int64_t pid = 0;
  metrics::Readings figures;
  std::string protocol;  ///< "grpc", ...
  /// How its lanes work and who said so, for people; empty with "grpc".
  std::map<std::string, std::string> settings;
  std::vector<RunningJob> jobs;  ///< Whose leases its master granted, by name.
  /// What answers to it have said was pushed, by lanes of starts of tasks.
  std::vector<resources::PushedSoFar> answered;
  /// What it has from the standby of another start.
  std::optional<TakenCopy> taken = {};
  std::vector<std::string> events;  ///< Lines of its event log, as a peer says them.
  /// Tables and their parts with their rows that are used most, as a peer says it.
  std::vector<task::HotVariable> hot = {};
};

/// What is wanted of tasks beside their figures. Value type.
struct AlsoWanted {
  int events = 0;    ///< So many of the latest.
  int hot_rows = 0;  ///< So many rows of each table.
};

/// Asks the tasks of a cluster how they are. Keeps its connections.
/// Thread: any.
class StatusClient {
 public:
  /// Errors: kInvalidArgument for a cluster without tasks; those of security::Credentials.
  static Result<std::unique_ptr<StatusClient>> create(const cluster::ClusterSpec& cluster,
                                                      const security::SecurityOptions& security);
  /// For the whole cluster of the server at `target` ("grpc://host:port"), which is asked who is
  /// in it. Errors: kInvalidArgument for a target that is none; kUnavailable or kDeadlineExceeded
  /// when nobody answers there before `limit` has passed.
  static Result<std::unique_ptr<StatusClient>> create(const std::string& target,
                                                      const security::SecurityOptions& security,
                                                      std::chrono::milliseconds limit);
  ~StatusClient();
  StatusClient(const StatusClient&) = delete;
  StatusClient& operator=(const StatusClient&) = delete;

  [[nodiscard]] const cluster::ClusterSpec& cluster() const;
  /// Of the cluster.
  [[nodiscard]] std::vector<std::string> jobs() const;
  /// The reports of all tasks, or of those of one job, sorted by job and index. All are asked at
  /// once; who has not answered after `limit` has a report with kDeadlineExceeded, who cannot be
  /// reached kUnavailable.
  std::vector<TaskReport> ask(std::chrono::milliseconds limit, std::string_view job = {},
                              AlsoWanted also = {});

 private:
  class Impl;
  explicit StatusClient(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sidereal::service
