#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "sidereal/service/closure_calls.h"
#include "sidereal/service/internal/client_stream.h"
#include "sidereal/service/job_lease.h"
#include "sidereal/service/session.grpc.pb.h"
#include "sidereal/service/tensor_pieces.h"

/// For the .cc files of service.
namespace sidereal::service {

/// A RunClosures call, which ends with the lease that it watches.
class ClosureCall final
    : public ClientStream<session::v1::ClosureRequest, session::v1::ClosureReply>,
      public ClosureCalls,
      public LeaseWatcher {
 public:
  /// `peer`: the master, for messages.
  ClosureCall(std::string peer, std::shared_ptr<ClosureObserver> observer);
  ~ClosureCall() override;

  /// `client`: of closures that may be run again; 0: of none.
  void start(session::v1::Master::Stub* stub, uint64_t session, uint64_t client);
  void add_plan(uint64_t plan, ClosurePlan what) override;
  void run(uint64_t closure, uint64_t plan, std::vector<tensor::Tensor> feeds,
           std::chrono::milliseconds timeout, uint64_t key) override;
  void cancel(uint64_t closure) override;
  void flush() override { write(); }
  void hang_up() override { ClientStream::hang_up(); }
  void lease_ended(const Status& why) override;

 private:
  /// One whose fetches come.
  struct Coming {
    ClosureResult result;
    size_t missing = 0;
    std::unique_ptr<PieceJoiner> joiner;
  };

  void take(session::v1::ClosureReply* reply) override;
  Status take_reply(const session::v1::ClosureReply& reply, std::vector<ClosureResult>* ended);
  void ended(const grpc::Status& status) override;
  void wrote() override;
  void write();

  const std::string peer_;
  const std::shared_ptr<ClosureObserver> observer_;
  Status failure_;             // Why the reading side hung up.
  std::deque<Coming> coming_;  // Of the reading side.

  std::mutex state_mutex_;
  Status lease_ended_;
  absl::flat_hash_map<uint64_t, size_t> fetches_;  // By plan: how many.
  absl::flat_hash_map<uint64_t, size_t> running_;  // By closure: how many fetches.
  session::v1::ClosureRequest next_;               // What has no pieces.
  std::deque<PieceCutter> cutters_;                // Of feeds, which follow what is in next_.
  bool is_writing_ = false;
};

}  // namespace sidereal::service
