#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/cluster/cluster_spec.h"

namespace sidereal::service {

/// The tasks of a cluster by their full names. Does not change once it is made.
struct Members {
  explicit Members(cluster::ClusterSpec cluster);

  const cluster::ClusterSpec spec;
  const std::string json;          ///< As ClusterSpec::to_json() has it.
  std::vector<std::string> tasks;  ///< Sorted by job and index.
  std::map<std::string, std::string> addresses;
};

/// Reads the cluster that a peer says its session has: JSON, as ClusterSpec::from_json() takes it.
/// kInvalidArgument for other text, one of more than 4 MiB, more than 65,536 tasks, and an address
/// that nobody can connect to.
Result<cluster::ClusterSpec> parse_session_cluster(std::string_view text);

/// The cluster that a server is in, as far as it knows: given when it starts, or by the first
/// session that names one. Until then the server is alone in it. Set once.
/// Thread: any.
class KnownCluster {
 public:
  /// The task that knows.
  struct Own {
    std::string job;
    int index = 0;
    std::string address;  ///< Where it listens.
  };

  /// For one who is no task of `cluster`.
  explicit KnownCluster(cluster::ClusterSpec cluster);
  /// For a task of `cluster`; or, when that is empty, one that nobody has told its cluster yet.
  /// `on_taken` is called when a session has.
  KnownCluster(Own own, const cluster::ClusterSpec& cluster,
               std::function<void(const cluster::ClusterSpec&)> on_taken = nullptr);

  /// What is known now. The reference is good as long as this object; what it refers to is the
  /// cluster of that moment.
  [[nodiscard]] const Members& now() const { return *now_.load(std::memory_order_acquire); }
  /// Whether a cluster was given, or taken from a session.
  [[nodiscard]] bool is_known() const { return is_known_.load(std::memory_order_acquire); }
  /// The cluster of a session, which parse_session_cluster() read: the server's own from now on, if
  /// it knows none; else it must be that, or a part of it.
  /// kFailedPrecondition, with what both have, when it is not, and when it lacks this task or has
  /// it elsewhere.
  Status take(const cluster::ClusterSpec& named);

 private:
  [[nodiscard]] Status check_own(const cluster::ClusterSpec& named) const;
  [[nodiscard]] Status check_part(const cluster::ClusterSpec& named) const;

  const Own own_;
  const std::string name_;  // Of the own task.
  const std::function<void(const cluster::ClusterSpec&)> on_taken_;
  std::mutex mutex_;                // Guards taken_.
  std::unique_ptr<Members> first_;  // As given, or the own task alone.
  std::unique_ptr<Members> taken_;
  std::atomic<const Members*> now_;
  std::atomic<bool> is_known_;
};

}  // namespace sidereal::service
