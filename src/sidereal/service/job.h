#pragma once

#include <cstdint>
#include <string>

#include "sidereal/base/status.h"
#include "sidereal/cluster/cluster_spec.h"

namespace sidereal::session::v1 {
class JobHolder;
}

/// Jobs of a cluster and their holders, for as long as a lease lasts.
namespace sidereal::service {

/// Bytes that the name of a job may have, and each text about its holder.
inline constexpr size_t kJobTextBytes = 256;

/// What a program says of the job that it is going to run. Value type.
struct JobOptions {
  /// One job of a name runs on a cluster at a time. "": one is made up, or there is no job, as the
  /// function says that takes these options.
  std::string name = {};
  /// The job of that name that runs now is ended.
  bool take_over = false;
  std::string user = {};  ///< The user that others read of; "": that of this process.
};

/// The program that runs a job. Value type.
struct JobHolder {
  std::string name;  ///< Of the job.
  std::string user;
  std::string host;
  int64_t pid = 0;
  std::string program;  ///< The command line.
};

/// This process. kInvalidArgument for a name or user that cannot be.
Result<JobHolder> job_holder(const JobOptions& options);
/// "alice on host h, process 12 (sidereal train --data x.csv)".
std::string to_string(const JobHolder& holder);
/// "2026-11-26 15:03:12 UTC". Seconds since 1970.
std::string time_text(int64_t seconds);

/// The task that grants the leases of a cluster. Value type.
struct LeaseGranter {
  std::string task;  ///< Its full name.
  std::string address;
};

/// The same on every task of the cluster: its first parameter server, without one its first task.
/// kInvalidArgument for a cluster without tasks.
Result<LeaseGranter> granter_of(const cluster::ClusterSpec& cluster);

/// A job, and when it began. Value type.
struct RunningJob {
  JobHolder holder;
  int64_t since_s = 0;  ///< Since 1970, by the clock of the server that granted the lease.
};

void to_proto(const JobHolder& holder, session::v1::JobHolder* out);
/// What a peer says: printable, and cut where it is too long.
JobHolder from_proto(const session::v1::JobHolder& given);

}  // namespace sidereal::service
