#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "sidereal/master/threads.h"
#include "sidereal/resources/change_entry.h"
#include "sidereal/security/credentials.h"
#include "sidereal/service/follower.h"
#include "sidereal/service/internal/server_stream.h"
#include "sidereal/service/session.pb.h"
#include "sidereal/task/task.h"
#include "sidereal/task/variable_intake.h"

/// For the .cc files of service.
namespace sidereal::service {

class KnownCluster;

/// A MoveVariables stream: follows variables of other tasks until they are the task's. What waits
/// is a thread of its own, which ends soon after the stream: threads of gRPC must not wait for it.
class MoveStream final : public ServerStream<session::v1::MoveRequest, session::v1::MoveReply> {
 public:
  /// What the streams of a server share. `task` and `threads` are borrowed.
  struct Shared {
    task::Task* task = nullptr;
    std::shared_ptr<KnownCluster> cluster;
    std::shared_ptr<const security::Credentials> credentials;
    master::Threads* threads = nullptr;
    std::atomic<int64_t> streams = 0;
    std::atomic<int64_t> bad_requests = 0;
  };

  explicit MoveStream(std::shared_ptr<Shared> shared);
  ~MoveStream() override;

 private:
  Status take(session::v1::MoveRequest* request) override;
  Status begin(const session::v1::MoveHead& head);
  void refused() override { ++shared_->bad_requests; }
  void hung_up() override;
  void cancelled() override { hung_up(); }
  [[nodiscard]] bool said_all() const override { return !has_begun_ || has_gone_; }

  /// A task that variables are from.
  struct Source {
    std::string task;
    resources::WantedNames names;
    std::unique_ptr<Follower> follower;
  };

  void run();
  Status move();
  Status copy();
  Status take_all(std::chrono::milliseconds limit);
  [[nodiscard]] Status first_lost(size_t from) const;
  Status adopt();
  Status wait_for_commit();

  const std::shared_ptr<Shared> shared_;
  const bool is_too_much_;
  std::atomic<bool> has_begun_ = false;
  std::atomic<bool> has_gone_ = false;
  std::optional<task::VariableIntake> intake_;
  std::vector<Source> sources_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<std::chrono::milliseconds> take_limit_;  // Asked for;
  bool commits_ = false;                                 // likewise.
};

}  // namespace sidereal::service
