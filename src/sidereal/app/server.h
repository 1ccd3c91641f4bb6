#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "sidereal/base/status.h"
#include "sidereal/config/options.h"
#include "sidereal/security/credentials.h"

namespace sidereal::app {

/// How one task of a cluster is started.
struct ServerOptions {
  std::string job = "ps";                   ///< "ps" or "worker".
  int task = 0;                             ///< Index within the job.
  std::string address = "127.0.0.1:0";      ///< Of the control service; port 0: any free one.
  int lanes = 1;                            ///< ps: owners of shards; worker: steps at once.
  uint64_t cluster_id = 0;                  ///< The same for all tasks of a cluster.
  config::Options options = {};             ///< Lanes and connections.
  security::SecurityOptions security = {};  ///< Who may call the control service.
};

/// One task: the control service and its lanes. Several may live in one process.
///
/// Lifecycle: create() starts everything; stop() ends it: jobs are cancelled, the control service
///            ends its calls, then the lanes stop. The destructor stops too.
/// Thread:    any.
class Server {
 public:
  /// Errors name the address: kAlreadyExists for a port in use, kInvalidArgument for options, those
  /// of security::Credentials, and kFailedPrecondition for an address off loopback without secret,
  /// certificates or the word insecure.
  static Result<std::unique_ptr<Server>> create(const ServerOptions& options);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  /// "127.0.0.1:41234": where the control service listens.
  [[nodiscard]] const std::string& address() const;
  /// "/job:ps/task:0".
  [[nodiscard]] const std::string& task() const;
  /// Waits for a Shutdown call or stop(); false when `seconds` have passed first.
  bool wait(double seconds);
  /// Ends the task. Idempotent.
  void stop();

 private:
  class Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Descriptors through which a launcher holds a task.
struct TaskHandles {
  int report_fd = -1;    ///< The control address is written here, one line, once the task is up.
  int lifeline_fd = -1;  ///< When its other end closes, the launcher is gone and the task ends.
  int secret_fd = -1;    ///< Its next line is the secret of the cluster.
};

/// Runs one task until it is shut down by a control call, by SIGTERM (ok), or because its launcher
/// is gone (kUnavailable). Ignores SIGINT when there is a lifeline: Ctrl-C is the launcher's.
/// For main(): blocks signals of the whole process.
Status run_task(const ServerOptions& options, const TaskHandles& handles);

}  // namespace sidereal::app
