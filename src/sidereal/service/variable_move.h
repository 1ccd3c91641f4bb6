#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/security/credentials.h"
#include "sidereal/service/follower.h"

namespace sidereal::service {

/// Variables of a task that go to another one. Value type.
struct MovedVariables {
  FollowedAddress from;
  std::vector<std::string> names;
};

/// How far a move is. Value type.
struct MoveProgress {
  int64_t bytes = 0;        ///< Of values that are there.
  bool is_current = false;  ///< All of them, but for what changed lately.
};

/// Variables of a group of sessions on their way to a task, which follows their change logs: they
/// are used where they are until then. Gone without commit() nothing of it stays there.
/// Thread: one at a time.
class VariableMove {
 public:
  /// Asks task `to` to copy `from`. `state_group`: the name of the group.
  static Result<std::unique_ptr<VariableMove>> begin(
      const FollowedAddress& to, const std::string& state_group,
      const std::vector<MovedVariables>& from,
      const std::shared_ptr<const security::Credentials>& credentials);
  virtual ~VariableMove() = default;

  /// Never waits. Errors: kUnavailable naming a task that was lost; kResourceExhausted without
  /// memory for it; kNotFound for a name that is not there; kAlreadyExists for one that `to` has.
  virtual Result<MoveProgress> progress() = 0;
  /// Nothing changes them any more: has `to` take what is left, and make them variables of its own
  /// in the group. Those that they were copied from stay as they are. kDeadlineExceeded after
  /// `limit`; errors of progress().
  virtual Status take(std::chrono::milliseconds limit) = 0;
  /// After take(), and sessions that use them at `to`: they stay.
  virtual Status commit() = 0;
};

}  // namespace sidereal::service
