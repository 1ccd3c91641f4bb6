#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "sidereal/base/event_log.h"
#include "sidereal/service/internal/server_stream.h"
#include "sidereal/service/session.pb.h"
#include "sidereal/task/change_reading.h"
#include "sidereal/task/task.h"

/// For the .cc files of service.
namespace sidereal::service {

class Standbys;

/// A FollowChanges stream. What is under way is bounded by what the reader has taken.
class FollowStream final
    : public ServerStream<session::v1::FollowRequest, session::v1::FollowReply>,
      public task::ChangesSink {
 public:
  /// `task` and `call` are borrowed; `standbys` may be nullptr; how many streams there are is
  /// counted in `count`, what is refused in `bad_requests`.
  FollowStream(task::Task* task, std::shared_ptr<Standbys> standbys,
               grpc::CallbackServerContext* call, std::shared_ptr<std::atomic<int64_t>> count,
               std::shared_ptr<std::atomic<int64_t>> bad_requests);
  ~FollowStream() override;

  void begun(uint64_t incarnation) override;
  void give(const std::shared_ptr<const std::string>& bytes, uint64_t end) override;
  void at(uint64_t end, uint64_t mark) override;
  void in_sync(uint64_t end) override;
  void ended(const Status& status) override;

 private:
  Status take(session::v1::FollowRequest* request) override;
  Status begin(const session::v1::FollowHead& head);
  void refused() override { ++*bad_requests_; }
  void hung_up() override;
  void tell_of_cut();
  void add_groups(session::v1::FollowReply* reply);
  void tell_in_sync();
  [[nodiscard]] base::EventSource source() const;
  void cancelled() override { hung_up(); }
  /// Once it began, ended() has the last word.
  [[nodiscard]] bool said_all() const override { return !began_; }

  task::Task* const task_;
  const std::shared_ptr<Standbys> standbys_;
  const std::shared_ptr<std::atomic<int64_t>> count_;
  const std::shared_ptr<std::atomic<int64_t>> bad_requests_;
  const bool is_too_much_;
  std::atomic<bool> began_ = false;
  std::recursive_mutex reader_mutex_;  // To cancel a call may tell of it at once.
  grpc::CallbackServerContext* call_;  // nullptr: it may have gone.
  std::shared_ptr<task::ChangesReader> reader_;
  bool has_gone_ = false;
  bool has_ended_ = false;
  /// For its events.
  const std::string peer_;
  int lane_ = 0;
  bool tells_groups_ = false;
  std::optional<std::chrono::steady_clock::time_point> groups_told_;  // By the lane.
  Status cut_off_;           // Why it was, until that is told.
  bool is_standby_ = false;  // In sync, and it was not told that it is no more.
  bool has_told_in_sync_ = false;
};

}  // namespace sidereal::service
