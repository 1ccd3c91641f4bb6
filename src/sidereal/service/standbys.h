#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
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
#include "sidereal/service/primary_lease.h"
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
  /// For the answer of a task to whether this start was deposed.
  std::chrono::milliseconds ask_limit{1'000};
  /// Where the cluster has voters: how long this start counts with the votes of a majority.
  std::chrono::milliseconds lease{1'000};
  /// Called once, when it was, and the task refuses everything: has the server end. Must not block,
  /// nor stop this.
  std::function<void()> deposed;
  std::shared_ptr<KnownCluster> cluster;
  std::shared_ptr<const security::Credentials> credentials;
  base::EventSource source;
};

/// The synchronous standbys of other tasks of the job that are in this process; and what this task
/// takes back of its own when it starts again, before it lets sessions in. A task that has not been
/// told its cluster begins with nothing, and with the standbys when it is told. A start whose copy
/// was given to a later start is deposed: the tasks that keep its standbys are asked once a second,
/// and before pushes are answered without one that has gone. Where the cluster has voters a start
/// takes its variables when a majority of these says that it counts (PrimaryLease), and answers
/// only while they do.
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
  /// The start of `task` that the copy of its start `life` was held for; 0: none.
  [[nodiscard]] uint64_t deposed_by(const std::string& task, uint64_t life) const;
  /// A standby of this task has gone: calls `then` when those that keep standbys of it have been
  /// asked whether it was deposed, and it refuses everything if so; or have not answered in time.
  void when_asked(std::function<void()> then);
  [[nodiscard]] std::optional<TakenCopy> taken() const;
  /// The view in which this start counts, or did last; 0: none, or the cluster has no voters.
  [[nodiscard]] uint64_t view() const;
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
  [[nodiscard]] bool has_gone() const;
  [[nodiscard]] std::vector<FollowedAddress> neighbours(int direction) const;
  [[nodiscard]] std::shared_ptr<Follower> follow(const FollowedAddress& of,
                                                 const std::string& group) const;
  void host();
  void look_for_groups();
  void fill();
  [[nodiscard]] std::vector<std::unique_ptr<Source>> ask_all(
      const std::vector<FollowedAddress>& hosts);
  Status take_from(Source* source, std::chrono::steady_clock::time_point began);
  [[nodiscard]] std::vector<std::unique_ptr<Source>> hosts();
  void ask_whether_deposed(const std::vector<std::unique_ptr<Source>>& hosts);
  void say_whether_pushes_wait();
  bool get_lease();
  bool look_at_lease();
  void depose(const std::string& told_by, uint64_t by, const std::string& why);

  const StandbysOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool stops_ = false;
  std::vector<Hosted> hosted_;
  std::optional<TakenCopy> taken_;
  std::vector<grpc::ClientContext*> asking_;  // To be cancelled at the end.
  std::vector<std::function<void()>> gone_;   // Of when_asked(); these wait for the next asking.
  std::unique_ptr<PrimaryLease> lease_;       // nullptr: the cluster has no voters.
  // Of the thread:
  bool is_deposed_ = false;
  std::vector<std::string> keepers_;                                  // Of standbys of this task.
  std::optional<std::chrono::steady_clock::time_point> waits_since_;  // Pushes, without a break.
  bool has_said_waits_ = false;
  std::thread thread_;
};

}  // namespace sidereal::service
