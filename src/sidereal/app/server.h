#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sidereal/base/event_log.h"
#include "sidereal/base/status.h"
#include "sidereal/cluster/cluster_spec.h"
#include "sidereal/cluster/protocol.h"
#include "sidereal/config/options.h"
#include "sidereal/metrics/figures.h"
#include "sidereal/security/credentials.h"
#include "sidereal/service/session.h"

namespace sidereal::ports {
class HostFunctions;
}

namespace sidereal::app {

/// How a server of a cluster is started. Value type.
struct ServerOptions {
  /// Empty: the server is alone until a session names its cluster (service::SessionOptions).
  cluster::ClusterSpec cluster;
  std::string job;
  int task = 0;
  /// "host:port" to listen at; "": the task's address in the cluster, which must not be empty then.
  /// Port 0: any free one.
  std::string listen = {};
  security::SecurityOptions security = {};
  /// Where Prometheus asks for figures, at the host that the server listens at, with the same
  /// credentials; 0: any free port; absent: nowhere.
  std::optional<int> metrics_port = {};
  /// How steps travel between the servers of the cluster, all of which must say the same.
  cluster::Protocol protocol = cluster::Protocol::kGrpc;
  /// "host:port" of the data port, for protocols that have one; "": any free port at the host that
  /// the server listens at.
  std::string data_listen = {};
  /// The folder of a file ".endpoint_map", which says where tasks have their data ports: this one's
  /// to listen at, unless `data_listen` says where, the others' to connect to. "": there is none.
  /// Not read with "grpc".
  std::string endpoint_map_path = {};
  /// How the lane waits, and what connections of the data port may use; not for "grpc". A lane
  /// that runs a long op answers nobody: that a task has gone is noticed by the control service.
  /// See also complete_settings() (runtime/server_settings.h).
  config::Options data = {.keepalive_timeout_ms = 600'000, .frame_bytes_max = int64_t{1} << 40};
  /// Threads that run steps, each its own, up to Task::kLanesMax. With star_server protocols what
  /// lasts is divided among them by its name; with the others a session's steps run on one.
  int lanes = 1;
  bool pin_cores = false;  ///< Each lane keeps to a processor of its own; not for "grpc".
  /// Who said an option that the caller did not say: a variable of the environment, by option.
  std::map<std::string, std::string> set_by = {};
  /// Of a task of the job "voter": where its votes outlive the process; "": they do not.
  std::string votes_file = {};
  int intra_op_threads = 1;  ///< Threads that work on one op of a lane.
  /// What sessions of this master see of other tasks: devices that fit one of these; none: all.
  std::vector<std::string> device_filters = {};
  /// What holds where a client of this master asks for nothing else: the options that go with a
  /// session to its master. A yes here cannot be taken back by a client.
  service::SessionOptions session_defaults = {};
  /// Says in the log when a session or a loop begins or ends; else the log has that at its level
  /// for debugging.
  bool logs_sessions = false;
  /// Says in the log what holds and who said so; else, too, at the level for debugging.
  bool logs_settings = true;
  /// Functions of this process for the op HostFunction; nullptr: none. Called on the task's lane.
  std::shared_ptr<ports::HostFunctions> host_functions = nullptr;
};

/// A member of a cluster: the device CPU:0 of its task, a Worker service for its peers, and a
/// Master service for clients. Several may live in one process.
///
/// Lifecycle: create() starts everything; stop() ends it, after which another one may be started
///            at the same port. The destructor stops too.
/// Thread:    any.
/// Source:    tf.distribute.Server.
class Server {
 public:
  /// Errors: kNotFound for a task that is not in the cluster; kInvalidArgument for an address
  /// without a port, a device filter that is no device, neither a cluster nor where to listen;
  /// kUnknown ("Could not start gRPC server") for a port in use;
  /// kFailedPrecondition for an address off loopback without security; those of
  /// EndpointMap::read().
  static Result<std::unique_ptr<Server>> create(const ServerOptions& options);
  /// A cluster of one task, "/job:localhost/replica:0/task:0", at a free port of loopback.
  static Result<std::unique_ptr<Server>> create_local(int intra_op_threads = 1);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  /// "grpc://127.0.0.1:41234": what a session is made with.
  [[nodiscard]] const std::string& target() const;
  /// "127.0.0.1:41234": what stands in the description of a cluster.
  [[nodiscard]] const std::string& address() const;
  /// "/job:ps/replica:0/task:0".
  [[nodiscard]] const std::string& task() const;
  /// By which its events are told.
  [[nodiscard]] const base::EventSource& source() const;
  /// The cluster as it is known now, with this task's port: this task alone until a session has
  /// named one that the server was not started with. Good as long as the server.
  [[nodiscard]] const cluster::ClusterSpec& cluster() const;
  [[nodiscard]] cluster::Protocol protocol() const;
  /// "127.0.0.1:41234", where Prometheus asks; "": nowhere.
  [[nodiscard]] std::string metrics_address() const;
  /// All that is counted here, as GetStatus and Prometheus get it.
  [[nodiscard]] metrics::Readings figures() const;
  /// Of the data port, that of the first lane; 0: there is none.
  [[nodiscard]] int data_port() const;
  /// "insecure", "secret" or "tls".
  [[nodiscard]] const char* security() const;

  /// Waits for stop(); false when `seconds` have passed first. Negative: without a limit.
  bool join(double seconds);
  /// Takes nothing new, gives steps that run `drain_s` seconds to end, and ends what is left with
  /// kCancelled. Idempotent.
  void stop(double drain_s = 0);

 private:
  class Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// What connects the process of a server with its launcher; -1: nothing does. Value type.
struct ProcessHandles {
  int report_fd = -1;    ///< Gets one line, Server::address(), once it is up.
  int lifeline_fd = -1;  ///< When its other end closes, the launcher is gone, and the server ends.
  int secret_fd = -1;    ///< Its first line is the cluster's secret, in place of the options'.
  std::string event_log = {};  ///< The file that events are written to; "": none.
};

/// Runs a server until SIGTERM or SIGINT (ok), or because its launcher is gone (kUnavailable).
/// After a signal, steps that run get `drain_s`. For main(): blocks signals of the whole process.
Status serve(const ServerOptions& options, double drain_s, const ProcessHandles& handles);

}  // namespace sidereal::app
