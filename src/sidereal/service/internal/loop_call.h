#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "sidereal/service/internal/client_stream.h"
#include "sidereal/service/session.grpc.pb.h"
#include "sidereal/service/tensor_pieces.h"
#include "sidereal/task/loop.h"

/// For the .cc files of service.
namespace sidereal::service {

/// A client's RunLoop call. What the observer has not taken yet is bounded: then nothing more is
/// read, and the loop is held up.
class LoopCall final : public ClientStream<session::v1::LoopRequest, session::v1::LoopEvent> {
 public:
  LoopCall(std::string peer, const task::LoopOptions& options, const task::LoopObserver& observer);

  void start(session::v1::Master::Stub* stub, uint64_t session);
  /// Waits for the end, and hands the observer what comes.
  Result<task::LoopResult> wait(const std::function<bool()>& interrupted);

 private:
  /// What the observer is to be told.
  struct News {
    bool is_progress = false;
    std::optional<int32_t> ended_lane = {};
    task::LoopValues values;
  };
  /// The values of a step that are coming.
  struct Coming {
    task::LoopValues values;
    std::vector<tensor::Tensor> tensors;
    size_t missing = 0;
    std::unique_ptr<PieceJoiner> joiner;
  };

  void take(session::v1::LoopEvent* event) override;
  Status take_event(session::v1::LoopEvent* event);
  Status take_progress(const session::v1::LoopProgress& progress);
  Status begin_values(const session::v1::LoopValues& head);
  Status take_piece(const session::v1::TensorPiece& piece);
  void keep(task::LoopValues values);
  void ended(const grpc::Status& status) override;
  bool reads_on() override;
  void tell(std::deque<News> news);
  void say_heard(const std::vector<task::LoopPosition>& positions);
  void say_wishes();
  Result<task::LoopResult> result();

  const std::string peer_;
  const task::LoopOptions options_;
  const task::LoopObserver observer_;

  // Of the thread that waits: what it has said.
  std::vector<int64_t> heard_;
  bool stops_ = false;
  bool drains_ = false;

  // Of one gRPC callback after another.
  std::optional<Coming> coming_;

  std::mutex state_mutex_;
  std::condition_variable changed_;
  std::deque<News> news_;
  bool is_paused_ = false;
  bool has_ended_ = false;
  bool has_tail_ = false;
  Status status_;
  std::vector<task::LoopProgress> lanes_;
  std::vector<std::vector<std::vector<double>>> series_;  // By lane and fetch.
  std::vector<int64_t> last_steps_;                       // By fetch: of the last value.
  task::LoopResult result_;
};

}  // namespace sidereal::service
