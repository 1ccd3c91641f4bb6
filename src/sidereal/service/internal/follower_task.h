#pragma once

#include <grpcpp/grpcpp.h>

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
#include <string>
#include <utility>
#include <vector>

#include "sidereal/resources/replica.h"
#include "sidereal/service/follower.h"
#include "sidereal/service/session.grpc.pb.h"

/// For the .cc files of service.
namespace sidereal::service {

/// The copy of one task. Thread: any.
class Follower::Task : public std::enable_shared_from_this<Task> {
 public:
  Task(FollowedAddress of, std::shared_ptr<grpc::Channel> channel, FollowOptions options)
      : of_(std::move(of)),
        options_(std::move(options)),
        stub_(session::v1::Worker::NewStub(std::move(channel))),
        replica_(options_.bytes_max, options_.names),
        lanes_(1) {}

  void look();
  void stop();
  [[nodiscard]] FollowedTask now() const;
  /// The same; what broke and is mended is forgotten.
  [[nodiscard]] FollowedTask take_news();
  /// Asks the task for what it has now; wait() says when that is here.
  void ask(uint64_t mark);
  Status wait(uint64_t mark, std::chrono::steady_clock::time_point deadline,
              const std::function<bool()>& is_cancelled);
  /// kUnavailable unless all lanes are here, of one start. Waits for nothing while they are.
  [[nodiscard]] Status check_whole() const;
  /// Whether they have been so once.
  [[nodiscard]] bool was_whole() const { return was_whole_.load(std::memory_order_acquire); }
  /// For what it says may be called beside its apply().
  [[nodiscard]] const resources::Replica& replica() const { return replica_; }
  [[nodiscard]] std::vector<std::string> groups() const;
  [[nodiscard]] size_t bytes() const {
    const std::lock_guard lock(mutex_);
    return replica_.bytes();
  }
  [[nodiscard]] std::vector<resources::Replica::Taken> take_all() {
    const std::lock_guard lock(mutex_);
    return replica_.take_all();
  }
  static std::unique_ptr<Held> hold(const std::shared_ptr<Task>& task, uint64_t life);
  [[nodiscard]] uint64_t deposed_by(uint64_t life) const;
  Status copy_to(const Choose& choose, std::map<std::string, tensor::Tensor>* values) const;

 private:
  class Call;
  class HeldTask;
  struct Lane {
    std::shared_ptr<Call> call = nullptr;
    std::chrono::steady_clock::time_point again = {};  ///< Not opened before.
    std::chrono::steady_clock::time_point heard = {};
    /// When the task was last known to be what is here.
    std::optional<std::chrono::steady_clock::time_point> current = {};
    uint64_t incarnation = 0;  ///< Of the log that is read;
    uint64_t end = 0;          ///< the cut that it ends at.
    bool wants_all = false;    ///< Entries are no use: something here is not as the task has it.
    bool is_started = false;   ///< `call` takes questions.
    bool is_in_sync = false;   ///< The task has said so on `call`.
    uint64_t mark = 0;         ///< What was last asked, and answered:
    uint64_t mark_end = 0;     ///< it is here when this cut is.
    uint64_t marked = 0;       ///< What was asked, and is here.
  };

  /// False: the call is an old one, and its replies are dropped. `applied`: the cut of the log that
  /// is read up to which everything is here; stays as it is where that is not known.
  bool take(int lane, const Call* call, session::v1::FollowReply* reply, uint64_t* applied);
  void take_begun(const Call* call, const session::v1::FollowBegun& begun,
                  std::vector<std::shared_ptr<Call>>* ending);
  void take_entry(int lane, const session::v1::FollowReply& reply,
                  std::vector<std::shared_ptr<Call>>* ending);
  void ended(int lane, const Call* call, const Status& status);
  /// With mutex_.
  void broke(Status status) {
    status_ = std::move(status);
    is_mended_ = false;
  }
  [[nodiscard]] uint64_t heir_of(uint64_t life) const;
  [[nodiscard]] FollowedTask figures() const;
  [[nodiscard]] bool is_whole() const;
  [[nodiscard]] bool is_in_sync() const;
  [[nodiscard]] Status why_not_whole() const;
  [[nodiscard]] bool has_marked(uint64_t mark) const;
  [[nodiscard]] std::vector<std::shared_ptr<Call>> calls() const;

  const FollowedAddress of_;
  const FollowOptions options_;
  const std::unique_ptr<session::v1::Worker::Stub> stub_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  resources::Replica replica_;
  std::atomic<bool> is_whole_ = false;   // For callers that do not wait for the mutex,
  std::atomic<bool> was_whole_ = false;  // as this.
  std::vector<Lane> lanes_;  // As many as the task last said; of the first one it is asked.
  Status status_;            // What broke,
  bool is_mended_ = false;   // and whether something has come since.
  uint64_t wanted_mark_ = 0;
  size_t open_ = 0;        // Calls.
  int holders_ = 0;        // Nothing is followed while there are any.
  uint64_t life_ = 0;      // The start of the task that was followed last.
  uint64_t taken_by_ = 0;  // The start that it was held for last; 0: none.
  /// Starts that are followed no more, and those that the copy was given to. The latest ones.
  std::vector<std::pair<uint64_t, uint64_t>> deposed_;
  std::vector<std::string> groups_;
};

}  // namespace sidereal::service
