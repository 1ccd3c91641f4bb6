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
#include "sidereal/task/task_copy.h"

/// For the .cc files of service.
namespace sidereal::service {

/// The copy of one task, and the calls that it comes by. Thread: any.
class Follower::Task : public std::enable_shared_from_this<Task> {
 public:
  Task(FollowedAddress of, std::shared_ptr<grpc::Channel> channel, FollowOptions options)
      : of_(std::move(of)),
        options_(std::move(options)),
        stub_(session::v1::Worker::NewStub(std::move(channel))),
        copy_({.task = of_.task,
               .address = of_.address,
               .bytes_max = options_.bytes_max,
               .names = options_.names,
               .is_synchronous = options_.is_synchronous}) {}

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
  [[nodiscard]] const resources::Replica& replica() const { return copy_.replica(); }
  [[nodiscard]] std::vector<std::string> groups() const;
  [[nodiscard]] size_t bytes() const {
    const std::lock_guard lock(mutex_);
    return copy_.replica().bytes();
  }
  /// See Replica::lay_out_next(). What comes meanwhile waits for one table at most.
  void lay_out(size_t bytes_max) {
    bool goes_on = true;
    while (goes_on) {
      const std::lock_guard lock(mutex_);
      goes_on = copy_.replica().lay_out_next(bytes_max);
    }
  }
  [[nodiscard]] std::vector<resources::Replica::Taken> take_all() {
    const std::lock_guard lock(mutex_);
    return copy_.replica().take_all();
  }
  static std::unique_ptr<Held> hold(const std::shared_ptr<Task>& task, uint64_t life);
  [[nodiscard]] uint64_t deposed_by(uint64_t life) const;
  Status copy_to(const Choose& choose, std::map<std::string, tensor::Tensor>* values) const;

 private:
  class Call;
  class HeldTask;
  using Calls = std::vector<std::shared_ptr<Call>>;
  static Calls calls_of(const task::TaskCopy::Streams& streams);

  /// False: the call is an old one, and its replies are dropped. `applied`: the cut of the log that
  /// is read up to which everything is here; stays as it is where that is not known.
  bool take(int lane, const Call* call, session::v1::FollowReply* reply, uint64_t* applied);
  void ended(int lane, const Call* call, const Status& status);
  [[nodiscard]] FollowedTask figures() const;

  const FollowedAddress of_;
  const FollowOptions options_;
  const std::unique_ptr<session::v1::Worker::Stub> stub_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  task::TaskCopy copy_;
  std::atomic<bool> is_whole_ = false;   // For callers that do not wait for the mutex,
  std::atomic<bool> was_whole_ = false;  // as this.
  std::vector<std::string> groups_;
};

}  // namespace sidereal::service
