#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "sidereal/base/event_log.h"
#include "sidereal/base/status.h"
#include "sidereal/security/credentials.h"
#include "sidereal/service/follower.h"
#include "sidereal/service/taken_copy.h"
#include "sidereal/task/task.h"

namespace grpc {
class ClientContext;
}

namespace sidereal::service {

class KnownCluster;

struct StandbysOptions {
  task::Task* task = nullptr;  ///< Borrowed.
  std::string job;
  int index = 0;
  /// Of each task, with the task itself: tasks before this one have standbys here, so many less
  /// one.
  int replicas = 1;
  /// How long a task that starts waits for one that may have its copy.
  std::chrono::milliseconds wait{10'000};
  std::shared_ptr<KnownCluster> cluster;
  std::shared_ptr<const security::Credentials> credentials;
  base::EventSource source;
};

/// The synchronous standbys of other tasks of the job that are in this process; and what this task
/// takes back of its own when it starts again, before it lets sessions in. A task that has not been
/// told its cluster begins with nothing, and with the standbys when it is told.
/// Lifecycle: create() has the task hold off sessions, start(), stop().
/// Thread:    any.
class Standbys {
 public:
  /// kInvalidArgument for more replicas than the job has tasks, as far as these are known.
  static Result<std::unique_ptr<Standbys>> create(StandbysOptions options);
  ~Standbys();
  Standbys(const Standbys&) = delete;
  Standbys& operator=(const Standbys&) = delete;

  void start();
  void stop();

  /// A copy that is here, for another start of its task.
  struct Copy {
    std::string state_group;
    std::unique_ptr<Follower::Held> held;
  };
  /// Those of `task` that are whole, for its start `life`; empty: there are none.
  [[nodiscard]] std::vector<Copy> hold(const std::string& task, uint64_t life);
  [[nodiscard]] std::optional<TakenCopy> taken() const;
  /// Copies that are here and current.
  [[nodiscard]] int64_t current() const;

 private:
  class Source;
  /// The standbys of one task.
  struct Hosted {
    FollowedAddress of;
    std::map<std::string, std::shared_ptr<Follower>> by_group;
  };

  explicit Standbys(StandbysOptions options) : options_(std::move(options)) {}
  void run();
  [[nodiscard]] bool wait(std::chrono::milliseconds limit);
  [[nodiscard]] std::vector<FollowedAddress> neighbours(int direction) const;
  [[nodiscard]] std::shared_ptr<Follower> follow(const FollowedAddress& of,
                                                 const std::string& group) const;
  void host();
  void look_for_groups();
  void fill();
  [[nodiscard]] std::vector<std::unique_ptr<Source>> ask_all(
      const std::vector<FollowedAddress>& hosts);
  Status take_from(Source* source, std::chrono::steady_clock::time_point began);

  const StandbysOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool stops_ = false;
  std::vector<Hosted> hosted_;
  std::optional<TakenCopy> taken_;
  std::vector<grpc::ClientContext*> asking_;  // To be cancelled at the end.
  std::thread thread_;
};

}  // namespace sidereal::service
