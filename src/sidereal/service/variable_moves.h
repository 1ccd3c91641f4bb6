#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/cluster/cluster_spec.h"
#include "sidereal/security/credentials.h"
#include "sidereal/service/variable_move.h"

namespace sidereal::service {

/// A variable of a ps task that goes to another one, by the name that the cluster knows it by.
/// Value type.
struct VariableRoute {
  std::string name;
  int from = 0;
  int to = 0;
};

/// All variables of one command on their way to any number of tasks of the job ps: they are used
/// where they are until all tasks have them. Gone without commit() nothing of it stays there.
/// Thread: one at a time.
class VariableMoves {
 public:
  /// Asks each task that gets variables to copy them. `state_group`: the group of sessions that
  /// they are of. kInvalidArgument for nothing, and for a name that goes twice or nowhere else;
  /// kNotFound for a task that the cluster has not; errors of VariableMove::begin().
  static Result<std::unique_ptr<VariableMoves>> begin(
      const cluster::ClusterSpec& cluster, const std::string& state_group,
      const std::vector<VariableRoute>& routes,
      const std::shared_ptr<const security::Credentials>& credentials);
  VariableMoves(const VariableMoves&) = delete;
  VariableMoves& operator=(const VariableMoves&) = delete;

  /// Bytes that are there of all; current when all are. Never waits. Errors of
  /// VariableMove::progress(), of the first task that has one.
  Result<MoveProgress> progress();
  /// Has all tasks take what is left, at the same time: as VariableMove::take(). After an error all
  /// is given up, none has anything, and later calls say it again.
  Status take(std::chrono::milliseconds limit);
  /// After take(), and sessions that use them where they are then: all keep them. After an error
  /// they are used where they were: tasks that have kept theirs have copies that nobody uses, which
  /// go when other ones of their names come, or with the group.
  Status commit();

 private:
  explicit VariableMoves(std::vector<std::unique_ptr<VariableMove>> moves)
      : moves_(std::move(moves)) {}

  Status give_up(Status why);

  std::vector<std::unique_ptr<VariableMove>> moves_;  // One by task that gets some.
  Status status_;                                     // Why it was given up.
  bool is_taken_ = false;
};

}  // namespace sidereal::service
