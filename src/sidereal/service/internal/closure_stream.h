#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "sidereal/master/master_session.h"
#include "sidereal/service/internal/server_stream.h"
#include "sidereal/service/session.pb.h"
#include "sidereal/service/tensor_pieces.h"

/// For the .cc files of service.
namespace sidereal::service {

/// What closures use of their service. Value type.
struct ClosureService {
  std::function<Result<std::shared_ptr<master::MasterSession>>(uint64_t id)> find;
  std::shared_ptr<ArrivingBytes> arriving;
  std::shared_ptr<std::atomic<int>> running;  ///< How many run is counted here.
  std::function<void()> on_refused;
};

/// A RunClosures stream. What ends while a message is written leaves together in the next one.
class ClosureStream final
    : public ServerStream<session::v1::ClosureRequest, session::v1::ClosureReply> {
 public:
  explicit ClosureStream(ClosureService service) : service_(std::move(service)) {}
  ~ClosureStream() override;

 private:
  using Prepared = master::MasterSession::Prepared;
  /// One whose feeds come.
  struct Begun {
    uint64_t closure = 0;
    std::shared_ptr<Prepared> plan;
    std::chrono::milliseconds timeout{0};
    uint64_t key = 0;
    std::vector<tensor::Tensor> feeds;
    size_t missing = 0;
    std::unique_ptr<PieceJoiner> joiner;
  };
  /// One that has ended, and was not written.
  struct Ended {
    uint64_t closure = 0;
    Status status;
    std::vector<tensor::Tensor> fetches;
  };

  Status take(session::v1::ClosureRequest* request) override;
  Status add_plan(const session::v1::ClosurePlan& plan);
  Status begin(const session::v1::Closure& closure);
  Status take_piece(const session::v1::TensorPiece& piece);
  void run(Begun begun);
  void cancel(uint64_t closure);
  void ended(uint64_t closure, master::StepResult result);
  void write();
  void fill(session::v1::ClosureReply* reply);
  void refused() override { service_.on_refused(); }
  void hung_up() override;
  void cancelled() override { hung_up(); }
  void wrote(size_t waiting) override;
  bool said_all() const override { return true; }

  const ClosureService service_;
  std::shared_ptr<master::MasterSession> session_;
  uint64_t client_ = 0;  // Of closures that may be run again.
  absl::flat_hash_map<uint64_t, std::shared_ptr<Prepared>> plans_;
  std::deque<Begun> begun_;

  std::mutex state_mutex_;
  bool has_gone_ = false;
  bool is_writing_ = false;
  /// nullptr: it is being begun.
  absl::flat_hash_map<uint64_t, std::shared_ptr<master::MasterSession::Handle>> running_;
  std::deque<Ended> ended_;
  std::deque<PieceCutter> cutters_;  // Of fetches of those that are written.
};

}  // namespace sidereal::service
