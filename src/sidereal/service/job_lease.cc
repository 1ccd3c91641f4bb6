#include "sidereal/service/job_lease.h"

#include <fmt/format.h>

#include <utility>

#include "sidereal/service/session.h"

namespace sidereal::service {

JobLease::JobLease(std::string name, std::string granter, std::unique_ptr<Session> session)
    : name_(std::move(name)), granter_(std::move(granter)), session_(std::move(session)) {}
JobLease::~JobLease() = default;

Result<std::unique_ptr<JobLease>> JobLease::create(const cluster::ClusterSpec& cluster,
                                                   const JobOptions& job,
                                                   const SessionOptions& options) {
  SR_ASSIGN_OR_RETURN(const JobHolder holder, job_holder(job));
  SR_ASSIGN_OR_RETURN(const LeaseGranter granter, granter_of(cluster));
  SessionOptions held;
  held.operation_timeout = options.operation_timeout;
  held.connect_timeout = options.connect_timeout;
  // What it grants is a lease of the whole.
  if (!options.cluster.empty()) held.cluster = cluster;
  held.security = options.security;
  held.interrupt = options.interrupt;
  Result<std::unique_ptr<Session>> session =
      Session::hold("grpc://" + granter.address, holder, job.take_over, held);
  if (session.status().code() == StatusCode::kAlreadyExists) return session.status();
  SR_RETURN_IF_ERROR(base::with_context(
      session.status(),
      fmt::format("{}, which grants the lease of the job '{}'", granter.task, holder.name)));
  return std::unique_ptr<JobLease>(new JobLease(job.name, granter.task, *std::move(session)));
}

uint64_t JobLease::number() const { return session_->lease(); }
void JobLease::leave_unfinished() { session_->leave_unfinished(); }

JobCommands* JobLease::commands() {
  const std::lock_guard lock(commands_mutex_);
  if (commands_ == nullptr) commands_ = session_->hear_commands();
  return commands_.get();
}

void JobLease::hear_no_commands() {
  const std::lock_guard lock(commands_mutex_);
  commands_ = nullptr;
}

void JobLease::watch(const std::shared_ptr<LeaseWatcher>& watcher) {
  session_->when_ended(watcher, [this, to = watcher.get()] { to->lease_ended(check()); });
}

Status JobLease::check() const {
  Status why = session_->check();
  if (why.ok() || why.code() == StatusCode::kFailedPrecondition) return why;
  const auto code =
      why.code() == StatusCode::kUnavailable ? StatusCode::kUnavailable : StatusCode::kAborted;
  return base::make_status(
      code, fmt::format("{} had granted the lease of the job '{}', which is lost: {}; begin the "
                        "job again",
                        granter_, name_, base::message_of(why)));
}

}  // namespace sidereal::service
