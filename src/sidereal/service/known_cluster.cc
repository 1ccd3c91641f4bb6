#include "sidereal/service/known_cluster.h"

#include <utility>

#include "sidereal/cluster/task_name.h"
#include "sidereal/sys/address.h"

namespace sidereal::service {

using cluster::ClusterSpec;

namespace {

constexpr size_t kBytesMax = size_t{4} << 20;
constexpr size_t kTasksMax = 65'536;

/// Calls `one(job, index, address)` for every task until it fails.
template <class One>
Status for_each_task(const ClusterSpec& cluster, One one) {
  for (const std::string& job : cluster.jobs()) {
    SR_ASSIGN_OR_RETURN(const ClusterSpec::Tasks tasks, cluster.tasks(job));
    for (const auto& [index, address] : tasks) SR_RETURN_IF_ERROR(one(job, index, address));
  }
  return {};
}

/// Of IPv4 or IPv6; a name of a host has a letter, and no colon.
bool is_number(const std::string& host) {
  return host.find(':') != std::string::npos ||
         host.find_first_not_of("0123456789.") == std::string::npos;
}

bool is_every_host(const std::string& host) { return host == "0.0.0.0" || host == "::"; }

/// Whether one connects to the same place by both; names of hosts may stand for anything.
bool is_same_place(const std::string& a, const std::string& b) {
  if (a == b) return true;
  const Result<sys::Address> one = sys::Address::parse(a);
  const Result<sys::Address> other = sys::Address::parse(b);
  return one.ok() && other.ok() && *one == *other;
}

ClusterSpec alone(const KnownCluster::Own& own) {
  ClusterSpec out;
  // Who starts a server has looked at its name: an empty cluster for one that is none.
  static_cast<void>(out.add_job(own.job, ClusterSpec::Tasks{{own.index, own.address}}));
  return out;
}

}  // namespace

Members::Members(ClusterSpec cluster) : spec(std::move(cluster)), json(spec.to_json()) {
  for (const std::string& job : spec.jobs()) {
    const Result<ClusterSpec::Tasks> in_job = spec.tasks(job);
    if (!in_job.ok()) continue;
    for (const auto& [index, address] : *in_job) {
      tasks.push_back(cluster::task_name(job, index));
      addresses[tasks.back()] = address;
    }
  }
}

Result<ClusterSpec> parse_session_cluster(std::string_view text) {
  if (text.size() > kBytesMax) {
    return base::invalid_argument("the session's cluster has {} bytes of text; at most {} are read",
                                  text.size(), kBytesMax);
  }
  Result<ClusterSpec> parsed = ClusterSpec::from_json(text);
  if (!parsed.ok()) return base::with_context(parsed.status(), "the session's cluster");
  size_t count = 0;
  SR_RETURN_IF_ERROR(
      for_each_task(*parsed, [&](const std::string& job, int index, const std::string& at) {
        if (++count > kTasksMax) {
          return base::invalid_argument("the session's cluster has more than {} tasks", kTasksMax);
        }
        const Result<sys::Address> address = sys::Address::parse(at);
        if (!address.ok()) {
          return base::with_context(address.status(),
                                    "the session's cluster, " + cluster::task_name(job, index));
        }
        if (address->port > 0) return Status();
        return base::invalid_argument(
            "the session's cluster has {} at '{}'; nobody can connect to port 0",
            cluster::task_name(job, index), at);
      }));
  return parsed;
}

KnownCluster::KnownCluster(ClusterSpec cluster)
    : first_(std::make_unique<Members>(std::move(cluster))), now_(first_.get()), is_known_(true) {}

KnownCluster::KnownCluster(Own own, const ClusterSpec& cluster,
                           std::function<void(const ClusterSpec&)> on_taken)
    : own_(std::move(own)),
      name_(cluster::task_name(own_.job, own_.index)),
      on_taken_(std::move(on_taken)),
      first_(std::make_unique<Members>(cluster.empty() ? alone(own_) : cluster)),
      now_(first_.get()),
      is_known_(!cluster.empty()) {}

Status KnownCluster::check_own(const ClusterSpec& named) const {
  const Result<std::string> address = named.task_address(own_.job, own_.index);
  if (!address.ok()) {
    return base::failed_precondition(
        "the session's cluster has no {}, which is asked; make the session at one of its tasks, or "
        "start this server with the job and task that the cluster has at {}",
        name_, own_.address);
  }
  if (is_known()) return {};
  SR_ASSIGN_OR_RETURN(const sys::Address here, sys::Address::parse(own_.address));
  SR_ASSIGN_OR_RETURN(const sys::Address said, sys::Address::parse(*address));
  // Behind a name, or a server that listens everywhere, may be any address.
  const bool can_tell = !is_every_host(here.host) && is_number(here.host) && is_number(said.host);
  if (!can_tell || here == said) return {};
  return base::failed_precondition(
      "the session's cluster has {} at {}, but it listens at {}; correct the cluster", name_,
      *address, own_.address);
}

Status KnownCluster::check_part(const ClusterSpec& named) const {
  const Members& known = now();
  return for_each_task(named, [&](const std::string& job, int index, const std::string& address) {
    const std::string task = cluster::task_name(job, index);
    const auto found = known.addresses.find(task);
    if (found != known.addresses.end() && is_same_place(found->second, address)) return Status();
    return base::failed_precondition(
        "the session's cluster has {} at {}, that of {} has {}; a server is in one cluster: name "
        "that one or a part of it, or start the server anew",
        task, address, name_,
        found == known.addresses.end() ? "no such task" : "it at " + found->second);
  });
}

Status KnownCluster::take(const ClusterSpec& named) {
  SR_RETURN_IF_ERROR(check_own(named));
  {
    const std::lock_guard lock(mutex_);
    if (is_known()) return check_part(named);
    taken_ = std::make_unique<Members>(named);
    now_.store(taken_.get(), std::memory_order_release);
    is_known_.store(true, std::memory_order_release);
  }
  if (on_taken_) on_taken_(named);
  return {};
}

}  // namespace sidereal::service
