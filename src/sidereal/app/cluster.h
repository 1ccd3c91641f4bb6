#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sidereal/base/status.h"

namespace sidereal::app {

/// Which release speaks; a control peer of another protocol version is refused by name.
inline constexpr int32_t kControlVersion = 1;

/// Where the tasks of a cluster listen for control calls, "host:port" each; index = task index.
/// As tf.train.ClusterSpec, dense jobs only.
struct ClusterSpec {
  std::vector<std::string> ps;
  std::vector<std::string> worker;

  /// {"ps": ["127.0.0.1:2222"], "worker": [...]}; also takes TF_CONFIG's {"cluster": {...}}.
  static Result<ClusterSpec> from_json(const std::string& text);
  [[nodiscard]] std::string to_json() const;
};

/// "/job:ps/task:0".
std::string task_name(const std::string& job, int index);

/// The tasks of a running cluster, as a driver program sees them.
/// Thread: any.
class Cluster {
 public:
  virtual ~Cluster();
  [[nodiscard]] virtual const ClusterSpec& spec() const = 0;
  /// Ok, or the first task known to be lost: kUnavailable "/job:ps/task:1 (pid 12) was killed by
  /// signal 9 (Killed)". Never waits.
  virtual Status check_alive() = 0;
  /// Stops every task of it that this object started, orderly first, by force after a deadline.
  /// Idempotent.
  virtual Status stop() = 0;
};

/// A cluster that is already running at the addresses of `spec`; stop() leaves it running.
std::unique_ptr<Cluster> remote_cluster(ClusterSpec spec);

/// How a local cluster is started.
struct LocalClusterOptions {
  int ps = 1;                ///< Number of ps tasks, >= 1.
  int workers = 1;           ///< Number of worker tasks, >= 1.
  int ps_lanes = 1;          ///< Lanes (threads that own shards) of each ps.
  int worker_lanes = 1;      ///< Lanes (steps at once) of each worker.
  int64_t spin_us = -2;      ///< How long a lane looks before it sleeps; -1 always; -2: chosen from
                             ///< the CPUs this process may use and the number of lanes.
  bool in_process = false;   ///< Servers in this process instead of processes of their own.
  std::string program = {};  ///< The `sidereal` program; "": beside this one, then on PATH.
  double start_deadline_s = 30;  ///< Seconds all tasks together have to come up.
};

/// Starts ps and worker tasks on this machine, on loopback, at ports the system chooses.
/// Processes end by themselves when this process dies, however it dies.
Result<std::unique_ptr<Cluster>> start_local_cluster(const LocalClusterOptions& options);

}  // namespace sidereal::app
