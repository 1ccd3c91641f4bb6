#include "sidereal/service/variable_move.h"

#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <mutex>
#include <utility>

#include "sidereal/service/channels.h"
#include "sidereal/service/internal/client_stream.h"
#include "sidereal/service/internal/grpc_status.h"
#include "sidereal/service/session.grpc.pb.h"
#include "sidereal/service/worker_service.h"
#include "sidereal/task/failure.h"

namespace sidereal::service {

namespace v1 = session::v1;
using std::chrono::milliseconds;

namespace {

/// For what the task that variables go to does at once.
constexpr milliseconds kCommitLimit{10'000};
/// Beside the time that a task has to take variables: to say that it has not.
constexpr milliseconds kSayLimit{5'000};

/// A MoveVariables call.
class MoveCall final : public ClientStream<v1::MoveRequest, v1::MoveReply> {
 public:
  MoveCall(FollowedAddress to, const security::Credentials& credentials)
      : to_(std::move(to)), stub_(v1::Worker::NewStub(make_channel(to_.address, credentials))) {}

  void start(v1::MoveHead head) {
    stub_->async()->MoveVariables(&context_, this);
    begin();
    v1::MoveRequest request;
    *request.mutable_head() = std::move(head);
    put(std::move(request));
  }
  using ClientStream::hang_up;

  Result<MoveProgress> progress() {
    const std::lock_guard lock(state_mutex_);
    if (!status_.ok()) return status_;
    return now_;
  }
  Status take(milliseconds limit) {
    v1::MoveRequest request;
    request.set_take_ms(limit.count());
    put(std::move(request));
    return wait(limit + kSayLimit, &is_taken_);
  }
  Status commit() {
    v1::MoveRequest request;
    request.set_commit(true);
    put(std::move(request));
    return wait(kCommitLimit, &is_committed_);
  }

 private:
  void take(v1::MoveReply* reply) override {
    const std::lock_guard lock(state_mutex_);
    if (reply->has_failure()) {
      status_ = base::with_context(task::from_proto(reply->failure()), to_.task);
    }
    if (reply->bytes() > 0) now_.bytes = reply->bytes();
    now_.is_current = now_.is_current || reply->current();
    is_taken_ = is_taken_ || reply->taken();
    is_committed_ = is_committed_ || reply->committed();
    changed_.notify_all();
  }
  void ended(const grpc::Status& status) override {
    const std::lock_guard lock(state_mutex_);
    if (status_.ok() && !is_committed_) {
      status_ = status.ok() ? base::aborted("{} has ended the move", to_.task)
                            : from_grpc(status, to_.task + " at " + to_.address);
    }
    changed_.notify_all();
  }

  Status wait(milliseconds limit, const bool* done) {
    std::unique_lock lock(state_mutex_);
    const bool is_in_time = changed_.wait_for(lock, limit, [&] { return *done || !status_.ok(); });
    if (*done) return {};
    if (is_in_time) return status_;
    return base::deadline_exceeded("{} at {} has not answered within {} ms", to_.task, to_.address,
                                   limit.count());
  }

  const FollowedAddress to_;
  const std::unique_ptr<v1::Worker::Stub> stub_;
  std::mutex state_mutex_;
  std::condition_variable changed_;
  MoveProgress now_;
  bool is_taken_ = false;
  bool is_committed_ = false;
  Status status_;
};

class RemoteMove final : public VariableMove {
 public:
  explicit RemoteMove(std::shared_ptr<MoveCall> call) : call_(std::move(call)) {}
  ~RemoteMove() override { call_->hang_up(); }
  RemoteMove(const RemoteMove&) = delete;
  RemoteMove& operator=(const RemoteMove&) = delete;

  Result<MoveProgress> progress() override { return call_->progress(); }
  Status take(milliseconds limit) override { return call_->take(limit); }
  Status commit() override { return call_->commit(); }

 private:
  const std::shared_ptr<MoveCall> call_;
};

}  // namespace

Result<std::unique_ptr<VariableMove>> VariableMove::begin(
    const FollowedAddress& to, const std::string& state_group,
    const std::vector<MovedVariables>& from,
    const std::shared_ptr<const security::Credentials>& credentials) {
  if (from.empty()) return base::invalid_argument("nothing is to be moved to {}", to.task);
  v1::MoveHead head;
  head.set_version(kSessionVersion);
  head.set_task(to.task);
  head.set_state_group(state_group);
  for (const MovedVariables& one : from) {
    v1::MoveSource* const source = head.add_sources();
    source->set_task(one.from.task);
    source->set_address(one.from.address);
    source->mutable_names()->Add(one.names.begin(), one.names.end());
  }
  auto call = std::make_shared<MoveCall>(to, *credentials);
  call->start(std::move(head));
  return std::unique_ptr<VariableMove>(new RemoteMove(std::move(call)));
}

}  // namespace sidereal::service
