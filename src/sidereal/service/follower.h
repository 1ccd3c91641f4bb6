#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/security/credentials.h"
#include "sidereal/tensor/tensor.h"

namespace sidereal::service {

/// A task that is followed, and where it is. Value type.
struct FollowedAddress {
  std::string task;     ///< "/job:ps/replica:0/task:0".
  std::string address;  ///< "host:port".
};

struct FollowOptions {
  /// Whose variables: "": those of sessions that share their state; "*": of the one group of
  /// sessions that there is; or of the group of this name.
  std::string state_group = {};
  /// From one cut to the next one.
  std::chrono::milliseconds cut{20};
  /// Of the values of one task. While a snapshot arrives there are the old ones as well.
  size_t bytes_max = size_t{64} << 30;
};

/// How far behind a task its copy is. Value type.
struct FollowedTask {
  std::string task;
  bool is_whole = false;  ///< All lanes are here, of one start of the task.
  Status status;          ///< What broke last, since it was asked for before, or is broken.
  uint64_t cuts_behind = 0;
  std::chrono::milliseconds behind{0};  ///< It was the task so long ago, at the latest.
};

/// Copies of the variables of tasks, kept current by their change logs. A stream that breaks is
/// opened again, and goes on where it was, as long as the task has that.
/// Thread: one at a time; what comes is taken by threads of gRPC.
class Follower {
 public:
  /// Errors: those of security::Credentials.
  static Result<std::unique_ptr<Follower>> create(const std::vector<FollowedAddress>& tasks,
                                                  const security::SecurityOptions& security,
                                                  const FollowOptions& options);
  /// Waits until no stream is open.
  ~Follower();
  Follower(const Follower&) = delete;
  Follower& operator=(const Follower&) = delete;

  /// Opens what is not open, and ends what says nothing any more. To be called several times a
  /// second.
  void look();
  [[nodiscard]] std::vector<FollowedTask> tasks();
  /// Copies of variables, by name; what a lane has is of one cut. `choose` is called for each task
  /// with the names that it has, and gives those that are wanted; it must not block. kUnavailable
  /// naming a task that is not whole; kFailedPrecondition for a name that two tasks have.
  using Choose = std::function<std::vector<std::string>(const std::vector<std::string>& names)>;
  [[nodiscard]] Result<std::map<std::string, tensor::Tensor>> values(const Choose& choose) const;

 private:
  class Task;
  explicit Follower(std::vector<std::shared_ptr<Task>> tasks) : tasks_(std::move(tasks)) {}
  const std::vector<std::shared_ptr<Task>> tasks_;
};

}  // namespace sidereal::service
