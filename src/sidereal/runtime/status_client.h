#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/cluster/cluster_spec.h"
#include "sidereal/security/credentials.h"

namespace sidereal::runtime {

/// What a task tells about itself. Value type.
struct TaskReport {
  std::string task;     ///< "/job:ps/replica:0/task:0".
  std::string address;  ///< "host:port".
  Status status;        ///< Why there are no figures; they are 0 then.
  uint64_t incarnation = 0;
  int64_t pid = 0;
  double uptime_s = 0;
  int64_t memory_bytes = 0;
  // Since the start.
  int64_t steps = 0;
  int64_t steps_failed = 0;
  int64_t bytes_sent = 0;
  int64_t bytes_received = 0;
  double busy_s = 0;        ///< That the device's thread ran ops.
  int64_t pulls_ahead = 0;  ///< Calls sent before their steps; then those of them not used.
  int64_t pulls_thrown_away = 0;
  // Now.
  int64_t steps_running = 0;
  int64_t steps_blocked = 0;
  int64_t sessions = 0;
  int64_t programs = 0;
  int64_t resources = 0;
  int64_t resource_bytes = 0;
  int64_t threads = 0;
  int64_t open_files = 0;
  std::map<std::string, int64_t> refused;  ///< Connections and requests, by kind.
  std::string protocol;                    ///< "grpc", ...
  /// How its lanes work and who said so, for people; empty with "grpc".
  std::map<std::string, std::string> settings;
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

  /// The reports of all tasks, sorted by job and index. All are asked at once; who has not answered
  /// after `limit` has a report with kDeadlineExceeded, who cannot be reached kUnavailable.
  std::vector<TaskReport> ask(std::chrono::milliseconds limit);

 private:
  class Impl;
  explicit StatusClient(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sidereal::runtime
