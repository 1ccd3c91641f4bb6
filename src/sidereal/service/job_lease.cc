#include "sidereal/service/job_lease.h"

#include <utility>

#include "sidereal/service/session.h"

namespace sidereal::service {

namespace {

/// Where leases of the cluster are granted: the same for all its clients.
Result<std::string> granter_of(const cluster::ClusterSpec& cluster) {
  for (const std::string& job : cluster.jobs()) {
    if (job != "ps") continue;
    SR_ASSIGN_OR_RETURN(const cluster::ClusterSpec::Tasks tasks, cluster.tasks(job));
    if (!tasks.empty()) return tasks.begin()->second;
  }
  for (const std::string& job : cluster.jobs()) {
    SR_ASSIGN_OR_RETURN(const cluster::ClusterSpec::Tasks tasks, cluster.tasks(job));
    if (!tasks.empty()) return tasks.begin()->second;
  }
  return base::invalid_argument("a cluster without tasks has no jobs");
}

}  // namespace

JobLease::JobLease(std::string name, std::unique_ptr<Session> session)
    : name_(std::move(name)), session_(std::move(session)) {}
JobLease::~JobLease() = default;

Result<std::unique_ptr<JobLease>> JobLease::create(const cluster::ClusterSpec& cluster,
                                                   const JobOptions& job,
                                                   const SessionOptions& options) {
  SR_ASSIGN_OR_RETURN(const JobHolder holder, job_holder(job));
  SR_ASSIGN_OR_RETURN(const std::string address, granter_of(cluster));
  SessionOptions held;
  held.operation_timeout = options.operation_timeout;
  held.connect_timeout = options.connect_timeout;
  held.cluster = options.cluster;
  held.security = options.security;
  held.interrupt = options.interrupt;
  SR_ASSIGN_OR_RETURN(std::unique_ptr<Session> session,
                      Session::hold("grpc://" + address, holder, job.take_over, held));
  return std::unique_ptr<JobLease>(new JobLease(job.name, std::move(session)));
}

uint64_t JobLease::number() const { return session_->lease(); }
bool JobLease::is_held() const { return session_->is_held(); }

}  // namespace sidereal::service
