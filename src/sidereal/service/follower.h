#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/resources/change_entry.h"
#include "sidereal/resources/push_counts.h"
#include "sidereal/resources/replica.h"
#include "sidereal/security/credentials.h"
#include "sidereal/service/table_layout.h"
#include "sidereal/tensor/tensor.h"

namespace sidereal::service {

class StatusClient;

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
  /// A synchronous standby: while it is current, what changes variables of a task is answered when
  /// it is here. For task::TaskOptions::standby_timeout_ns, or the task goes on without it.
  bool is_synchronous = false;
  /// Of these only; empty: of all.
  resources::WantedNames names = {};
  /// Of the values of one task; 0: what memory the machine has. While a snapshot arrives there are
  /// the old ones as well.
  size_t bytes_max = 0;
  /// What tables that are looked up are made of.
  Parts parts = Parts::kApart;
  /// Tables that wait_until_current() waits for as well.
  std::vector<std::string> tables = {};
};

/// How far behind a task its copy is. Value type.
struct FollowedTask {
  std::string task;
  bool is_whole = false;    ///< All lanes are here, of one start of the task.
  bool is_in_sync = false;  ///< What changes its variables is answered when it is here.
  Status status;            ///< What is broken, or broke last and nobody has taken the news of.
  uint64_t cuts_behind = 0;
  std::chrono::milliseconds behind{0};  ///< It was the task so long ago, at the latest.
};

/// A table that can be looked up. Value type.
struct FollowedTable {
  tensor::DType dtype = tensor::DType::kInvalid;
  int64_t rows = 0;
  int64_t dim = 0;
};

/// Copies of the variables of tasks, kept current by their change logs, whose rows are looked up.
/// A stream that breaks is opened again, and goes on where it was, as long as the task has that.
/// Thread: any; what comes is taken by threads of gRPC.
class Follower {
 public:
  /// Errors: those of security::Credentials.
  static Result<std::unique_ptr<Follower>> create(const std::vector<FollowedAddress>& tasks,
                                                  const security::SecurityOptions& security,
                                                  const FollowOptions& options);
  static Result<std::unique_ptr<Follower>> create(
      const std::vector<FollowedAddress>& tasks,
      const std::shared_ptr<const security::Credentials>& credentials,
      const FollowOptions& options);
  /// Of the tasks of a job, whose addresses `client` knows, and asks for. kInvalidArgument for a
  /// job that there is not; those of security::Credentials.
  static Result<std::unique_ptr<Follower>> create(StatusClient* client,
                                                  std::chrono::milliseconds limit,
                                                  const std::string& job,
                                                  const security::SecurityOptions& security,
                                                  const FollowOptions& options);
  /// stop(). Nothing else may be under way.
  ~Follower();
  Follower(const Follower&) = delete;
  Follower& operator=(const Follower&) = delete;

  /// Ends all streams, and waits for that; what is here stays, and is current no more.
  void stop();
  [[nodiscard]] std::vector<FollowedTask> tasks() const;
  /// The same; what broke and is mended is forgotten.
  [[nodiscard]] std::vector<FollowedTask> take_news();
  /// Waits until all that the tasks had when it was called is here, and they wait for it if it is
  /// synchronous, and then for the tables of the options. In `limit`, or: kUnavailable naming a
  /// task that is not whole; kDeadlineExceeded naming one that is, and has not answered; errors of
  /// table(). kCancelled when `is_cancelled`, which is asked ten times a second, says so.
  Status wait_until_current(std::chrono::milliseconds limit,
                            const std::function<bool()>& is_cancelled = nullptr);

  /// Tables that can be looked up, by name: numbers [rows, dim], parts put together as the options
  /// say, without slots of optimizers.
  [[nodiscard]] std::map<std::string, FollowedTable> tables() const;
  /// One of them. Errors: those of look_up().
  [[nodiscard]] Result<FollowedTable> table(std::string_view name) const;
  /// Copies rows of a table, one behind the other, to `to`, which is as large as they are; zeros
  /// for negative ids, as in a model. A row is as one cut of its lane had it; two rows may be of
  /// two cuts. It goes on, with what is here, while a task is away. kNotFound naming the tables
  /// that are there; kInvalidArgument for ids above them, another size and variables that are no
  /// tables; kUnavailable naming a task that is not whole or a part that is missing.
  Status look_up(std::string_view table, std::span<const int64_t> ids,
                 std::span<std::byte> to) const;

  /// Copies of variables, by name; what a lane has is of one cut. `choose` is called for each task
  /// with the names that it has, and gives those that are wanted; it must not block. kUnavailable
  /// naming a task that is not whole; kFailedPrecondition for a name that two tasks have.
  using Choose = std::function<std::vector<std::string>(const std::vector<std::string>& names)>;
  [[nodiscard]] Result<std::map<std::string, tensor::Tensor>> values(const Choose& choose) const;

  /// Bytes of all values that are here, or arriving.
  [[nodiscard]] size_t bytes() const;
  /// Before take_all(), and again and again while it follows, when what comes waits for it: puts
  /// variables whose rows change into tables with their slots, those of up to `bytes_max`, so that
  /// lanes that are given them need not. Not beside look_up().
  void lay_out(size_t bytes_max);
  /// After stop(): gives away all that is here.
  [[nodiscard]] std::vector<resources::Replica::Taken> take_all();
  /// Groups of sessions that the first task says it has, of one that follows what sessions share.
  [[nodiscard]] std::vector<std::string> groups() const;
  /// The copy of the first task, for another start of it, `life`. As long as it is held the copy
  /// stays as it is, and the start that was followed is not followed any more, then either. Thread:
  /// one at a time.
  class Held {
   public:
    virtual ~Held() = default;
    /// All lanes are here, of one start.
    [[nodiscard]] virtual bool is_whole() const = 0;
    [[nodiscard]] virtual std::vector<resources::PushedSoFar> pushed() const = 0;
    /// The next piece for resources::Replica::apply(), of about `bytes_max`; nothing after the last
    /// one.
    virtual std::optional<std::string> next(size_t bytes_max) = 0;
  };
  [[nodiscard]] std::unique_ptr<Held> hold(uint64_t life);
  /// The start of the first task that the copy of its start `life` was held for; 0: none.
  [[nodiscard]] uint64_t deposed_by(uint64_t life) const;

 private:
  class Task;
  struct Catalog;
  Follower(std::vector<std::shared_ptr<Task>> tasks, FollowOptions options);
  /// Asks for the table again and again: it comes with what is followed. Its error at the deadline.
  Status wait_for_table(const std::string& name, std::chrono::steady_clock::time_point deadline,
                        const std::function<bool()>& is_cancelled);
  /// Opens what is not open, and ends what says nothing any more, several times a second.
  void keep_looking();
  [[nodiscard]] std::shared_ptr<const Catalog> catalog() const;
  Status look_up_once(const Catalog& catalog, std::string_view table, std::span<const int64_t> ids,
                      std::span<std::byte> to) const;
  [[nodiscard]] Status why_not(const Catalog& catalog, std::string_view table) const;

  const std::vector<std::shared_ptr<Task>> tasks_;
  const FollowOptions options_;
  std::atomic<uint64_t> marks_ = 0;
  mutable std::mutex catalog_mutex_;
  mutable std::shared_ptr<const Catalog> catalog_;  // Of the variables that were there last.
  mutable PartsSeen parts_seen_;
  /// Tasks that have a variable, by its name; the last that got it is the last.
  using Holders = std::map<std::string, std::vector<const Task*>>;
  mutable Holders holders_;
  std::mutex end_mutex_;
  std::condition_variable end_;
  bool has_ended_ = false;
  std::thread looking_;
};

}  // namespace sidereal::service
