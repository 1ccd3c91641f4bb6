#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "sidereal/base/status.h"
#include "sidereal/cluster/cluster_spec.h"
#include "sidereal/service/job.h"
#include "sidereal/service/job_commands.h"

namespace sidereal::service {

class Session;
struct SessionOptions;

/// What ends with a lease.
class LeaseWatcher {
 public:
  virtual ~LeaseWatcher() = default;
  /// `why`: as of JobLease::check(). Called once, by a thread of gRPC; must not block.
  virtual void lease_ended(const Status& why) = 0;
};

/// The right to be the job of a name on a cluster. It lasts as long as the object and its process
/// do, and the server that grants it (granter_of()); sessions that belong to it end with it.
/// Thread: any.
class JobLease {
 public:
  /// `options` say how the server is reached; to end the job before takes longer than they say.
  /// Errors: kAlreadyExists when that job runs, naming its holder; kInvalidArgument for a name that
  /// cannot be; those of Session::create().
  static Result<std::unique_ptr<JobLease>> create(const cluster::ClusterSpec& cluster,
                                                  const JobOptions& job,
                                                  const SessionOptions& options);
  ~JobLease();
  JobLease(const JobLease&) = delete;
  JobLease& operator=(const JobLease&) = delete;

  [[nodiscard]] uint64_t number() const;
  [[nodiscard]] const std::string& name() const { return name_; }
  /// Why it has ended, as far as is known here: kFailedPrecondition when another job has taken it
  /// over, else kUnavailable or kAborted.
  [[nodiscard]] Status check() const;
  /// Tells `watcher` when it has ended, as far as is known here; from within where it has already.
  void watch(const std::shared_ptr<LeaseWatcher>& watcher);
  /// Steps of the job may still go on when the lease ends: the next holder of the name ends them.
  void leave_unfinished();
  /// Where the job hears of commands; from the first call on it takes some. Never blocks. Lives
  /// until hear_no_commands(), or as long as the lease.
  JobCommands* commands();
  /// The job takes no commands any more, until commands() is called again: callers are told so, as
  /// is the caller of one under way that it is lost.
  void hear_no_commands();

 private:
  JobLease(std::string name, std::string granter, std::unique_ptr<Session> session);

  const std::string name_;
  const std::string granter_;  // A task.
  const std::unique_ptr<Session> session_;
  std::mutex commands_mutex_;
  std::unique_ptr<JobCommands> commands_;
};

}  // namespace sidereal::service
