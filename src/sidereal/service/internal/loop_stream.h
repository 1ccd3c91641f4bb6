#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "sidereal/base/log.h"
#include "sidereal/master/loop_run.h"
#include "sidereal/master/master_session.h"
#include "sidereal/service/internal/server_stream.h"
#include "sidereal/service/session.pb.h"

/// For the .cc files of service.
namespace sidereal::service {

/// What a RunLoop stream uses of its service. Value type.
struct LoopService {
  /// The session of this number; kAborted when there is none, kUnavailable when none is taken.
  std::function<Result<std::shared_ptr<master::MasterSession>>(uint64_t)> find;
  std::shared_ptr<ArrivingBytes> arriving;
  std::shared_ptr<std::atomic<int>> running;  ///< Loops; borrowed from nobody, as all here.
  std::function<void()> on_refused;
  base::LogLevel log_level = base::LogLevel::kDebug;  ///< Of the line when a loop has ended.
};

/// A RunLoop stream. What waits to be written is bounded: a client that does not read holds up its
/// own loop.
class LoopStream final : public ServerStream<session::v1::LoopRequest, session::v1::LoopEvent>,
                         public master::LoopSink {
 public:
  explicit LoopStream(LoopService service) : service_(std::move(service)) {}

  bool has_room() override { return has_room_.load(std::memory_order_relaxed); }
  bool take_progress(int lane, const task::LoopProgress& progress,
                     const std::vector<std::vector<double>>& series, bool is_last) override;
  void take_values(task::LoopValues values) override;
  void take_trace(std::string trace) override;
  void ended(const Status& status) override;

 private:
  void refused() override { service_.on_refused(); }
  Status take(session::v1::LoopRequest* request) override;
  Status begin(const session::v1::LoopHead& head);
  Status take_control(const session::v1::LoopControl& control);
  Status run();
  Status half_closed() override;
  void hung_up() override;
  void cancelled() override { hung_up(); }
  void wrote(size_t waiting) override;
  [[nodiscard]] bool said_all() const override { return !ran_; }
  void note_waiting();

  const LoopService service_;
  std::shared_ptr<master::MasterSession> session_;
  task::LoopOptions options_;
  std::optional<PieceJoiner> joiner_;
  size_t missing_ = 0;
  std::atomic<bool> ran_ = false;
  std::atomic<bool> has_room_ = true;
  std::mutex loop_mutex_;
  std::shared_ptr<master::LoopRun> loop_;
  bool has_gone_ = false;
};

}  // namespace sidereal::service
