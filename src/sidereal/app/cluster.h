#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/cluster/cluster_spec.h"
#include "sidereal/cluster/protocol.h"
#include "sidereal/security/credentials.h"
#include "sidereal/service/session.h"

namespace sidereal::app {

/// "/job:ps/task:0".
std::string task_name(const std::string& job, int index);

/// The tasks of a running cluster, as a driver program sees them.
/// Thread: any.
class Cluster {
 public:
  virtual ~Cluster();
  [[nodiscard]] virtual const cluster::ClusterSpec& spec() const = 0;
  /// What its tasks want from whoever calls them.
  [[nodiscard]] virtual const security::SecurityOptions& security() const = 0;
  /// What a session at a task of it is made with: who is in it, and what lets one in.
  [[nodiscard]] service::SessionOptions session_options() const;
  /// The target of a session at a task: "grpc://127.0.0.1:41234"; "": there is no such task.
  [[nodiscard]] std::string target(const std::string& job, int index) const;
  /// Ok, or the first task known to be lost: kUnavailable "/job:ps/task:1 (pid 12) was killed by
  /// signal 9 (Killed)". Never waits.
  virtual Status check_alive() = 0;
  /// check_alive() says nothing more of a task, by its full name: the job goes on without it.
  virtual void give_up(const std::string& task) = 0;
  /// It does again: the job needs it.
  virtual void take_back(const std::string& task) = 0;
  /// Whether a task that is lost is started again, as far as this object knows.
  [[nodiscard]] virtual bool restarts() const = 0;
  /// Stops every task of it that this object started, orderly first, by force after a deadline.
  /// Idempotent.
  virtual Status stop() = 0;
};

/// A cluster that is already running: at the addresses of `spec`, "host:port", servers listen, with
/// `security` as theirs. stop() leaves it running.
/// Errors: kInvalidArgument without a dense job ps and a dense job worker, or with a job that is
/// none of ps, worker, chief, evaluator and voter; those of security::Credentials.
Result<std::unique_ptr<Cluster>> remote_cluster(cluster::ClusterSpec spec,
                                                const security::SecurityOptions& security = {});

/// How a local cluster is started.
struct LocalClusterOptions {
  int ps = 1;            ///< Number of ps tasks, >= 1.
  int workers = 1;       ///< Number of worker tasks, >= 1.
  int ps_lanes = 1;      ///< Lanes (threads that run steps and own variables) of each ps.
  int worker_lanes = 1;  ///< Lanes (steps at once) of each worker.
  int64_t spin_us = -2;  ///< How long a lane looks before it sleeps; -1 always; -2: chosen from
                         ///< the CPUs this process may use and the number of lanes.
  /// How steps travel between the tasks.
  cluster::Protocol protocol = cluster::Protocol::kStarServer;
  bool in_process = false;   ///< Servers in this process instead of processes of their own.
  std::string program = {};  ///< The `sidereal` program; "": beside this one, then on PATH.
  /// A task whose process was killed is started again at its address, with nothing that it held. A
  /// process that has answered, and then answers nothing for `silence_s`, is killed.
  bool restarts = false;
  /// config::Options::replicas of each ps: with `restarts`, one that is started again has the
  /// variables that it had.
  int replicas = 1;
  int min_insync_replicas = 1;    ///< config::Options has it, of each ps.
  int restarts_max = 5;           ///< Of one task within `restart_window_s`; then it is lost.
  double restart_window_s = 600;  ///< See restarts_max.
  double silence_s = 10;          ///< See restarts. 0: nobody is killed.
  /// The folder, which is made, of files with the events of all tasks and of this process; "":
  /// none. See `sidereal events`.
  std::string event_dir = {};
  double start_deadline_s = 30;  ///< Seconds all tasks together have to come up.
};

/// Starts ps and worker tasks, which are Servers, on this machine, on loopback, at ports
/// the system chooses, with a random secret: other users and programs of the machine are refused.
/// They hear who is in the cluster with the first session: see Cluster::session_options().
/// Processes end by themselves when this process dies, however it dies.
Result<std::unique_ptr<Cluster>> start_local_cluster(const LocalClusterOptions& options);

}  // namespace sidereal::app
