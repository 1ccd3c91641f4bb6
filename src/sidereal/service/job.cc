#include "sidereal/service/job.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <vector>

#include "sidereal/base/printable.h"
#include "sidereal/base/strings.h"
#include "sidereal/cluster/task_name.h"
#include "sidereal/service/session.pb.h"
#include "sidereal/sys/posix/identity.h"

namespace sidereal::service {

namespace {

Status check_text(const char* what, const std::string& text) {
  if (text.size() > kJobTextBytes) {
    return base::invalid_argument("the {} '{}' has {} bytes; {} are allowed", what,
                                  base::message_text(text, kJobTextBytes), text.size(),
                                  kJobTextBytes);
  }
  if (base::printable(text) == text) return {};
  return base::invalid_argument("the {} '{}' has characters that cannot be printed", what,
                                base::printable(text));
}

std::string shown(const std::string& text) {
  return base::message_text(base::printable(text), kJobTextBytes);
}

}  // namespace

Result<JobHolder> job_holder(const JobOptions& options) {
  SR_RETURN_IF_ERROR(check_text("name of a job", options.name));
  SR_RETURN_IF_ERROR(check_text("user of a job", options.user));
  sys::posix::Identity me = sys::posix::identity();
  return JobHolder{.name = options.name,
                   .user = options.user.empty() ? me.user : options.user,
                   .host = std::move(me.host),
                   .pid = me.pid,
                   .program = shown(me.program)};
}

std::string to_string(const JobHolder& holder) {
  return fmt::format("{} on host {}, process {} ({})", holder.user, holder.host, holder.pid,
                     holder.program);
}

Result<LeaseGranter> granter_of(const cluster::ClusterSpec& cluster) {
  std::vector<std::string> jobs = cluster.jobs();
  std::stable_partition(jobs.begin(), jobs.end(),
                        [](const std::string& job) { return job == "ps"; });
  for (const std::string& job : jobs) {
    SR_ASSIGN_OR_RETURN(const cluster::ClusterSpec::Tasks tasks, cluster.tasks(job));
    if (tasks.empty()) continue;
    const auto& [index, address] = *tasks.begin();
    return LeaseGranter{.task = cluster::task_name(job, index), .address = address};
  }
  return base::invalid_argument("a cluster without tasks has no jobs");
}

std::string time_text(int64_t seconds) {
  const auto time = static_cast<std::time_t>(seconds);
  std::tm utc = {};
  gmtime_r(&time, &utc);
  std::array<char, 64> out = {};
  std::strftime(out.data(), out.size(), "%F %T UTC", &utc);
  return out.data();
}

void to_proto(const JobHolder& holder, session::v1::JobHolder* out) {
  out->set_name(holder.name);
  out->set_user(holder.user);
  out->set_host(holder.host);
  out->set_pid(holder.pid);
  out->set_program(holder.program);
}

JobHolder from_proto(const session::v1::JobHolder& given) {
  return {.name = shown(given.name()),
          .user = shown(given.user()),
          .host = shown(given.host()),
          .pid = given.pid(),
          .program = shown(given.program())};
}

}  // namespace sidereal::service
