#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "sidereal/base/status.h"
#include "sidereal/cluster/cluster_spec.h"
#include "sidereal/service/job.h"

namespace sidereal::service {

class Session;
struct SessionOptions;

/// The right to be the job of a name on a cluster. It lasts as long as the object and its process
/// do, and the server that grants leases, which is the first parameter server (without one, the
/// first task) of the cluster; sessions that say its number end with it when another job takes it
/// over.
/// Thread: any.
class JobLease {
 public:
  /// `options` say how the server is reached. Errors: kAlreadyExists when that job runs, naming its
  /// holder; kInvalidArgument for a name that cannot be; those of Session::create().
  static Result<std::unique_ptr<JobLease>> create(const cluster::ClusterSpec& cluster,
                                                  const JobOptions& job,
                                                  const SessionOptions& options);
  ~JobLease();
  JobLease(const JobLease&) = delete;
  JobLease& operator=(const JobLease&) = delete;

  [[nodiscard]] uint64_t number() const;
  [[nodiscard]] const std::string& name() const { return name_; }
  /// False when the server has gone, or another job has taken it over, as far as is known here.
  [[nodiscard]] bool is_held() const;

 private:
  JobLease(std::string name, std::unique_ptr<Session> session);

  const std::string name_;
  const std::unique_ptr<Session> session_;
};

}  // namespace sidereal::service
