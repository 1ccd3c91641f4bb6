#include "sidereal/service/closure_calls.h"

#include <utility>

#include "sidereal/service/internal/closure_call.h"
#include "sidereal/service/internal/grpc_status.h"
#include "sidereal/task/failure.h"

namespace sidereal::service {

namespace v1 = session::v1;

ClosureCall::ClosureCall(std::string peer, std::shared_ptr<ClosureObserver> observer)
    : peer_(std::move(peer)), observer_(std::move(observer)) {}
ClosureCall::~ClosureCall() = default;

void ClosureCall::start(v1::Master::Stub* stub, uint64_t session, uint64_t client) {
  stub->async()->RunClosures(&context_, this);
  begin();
  {
    const std::lock_guard lock(state_mutex_);
    next_.set_session(session);
    next_.set_client(client);
  }
  write();
}

void ClosureCall::add_plan(uint64_t plan, ClosurePlan what) {
  const std::lock_guard lock(state_mutex_);
  fetches_[plan] = what.fetches.size();
  v1::ClosurePlan* const out = next_.add_plans();
  out->set_plan(plan);
  for (std::string& name : what.feeds) out->add_feeds(std::move(name));
  for (std::string& name : what.fetches) out->add_fetches(std::move(name));
  for (std::string& name : what.targets) out->add_targets(std::move(name));
}

void ClosureCall::run(uint64_t closure, uint64_t plan, std::vector<tensor::Tensor> feeds,
                      std::chrono::milliseconds timeout, uint64_t key) {
  const std::lock_guard lock(state_mutex_);
  running_[closure] = fetches_[plan];
  v1::Closure* const out = next_.add_closures();
  out->set_closure(closure);
  out->set_plan(plan);
  out->set_timeout_ms(timeout.count());
  out->set_key(key);
  for (size_t i = 0; i < feeds.size(); ++i) {
    cutters_.emplace_back(static_cast<int32_t>(i), std::move(feeds[i]));
  }
}

void ClosureCall::cancel(uint64_t closure) {
  const std::lock_guard lock(state_mutex_);
  next_.add_cancels(closure);
}

void ClosureCall::wrote() {
  {
    const std::lock_guard lock(state_mutex_);
    is_writing_ = false;
  }
  write();
}

/// All that was said so far, and as many pieces of feeds as one message has.
void ClosureCall::write() {
  v1::ClosureRequest request;
  {
    const std::lock_guard lock(state_mutex_);
    const bool is_empty = next_.session() == 0 && next_.plans().empty() &&
                          next_.closures().empty() && next_.cancels().empty() && cutters_.empty();
    if (is_writing_ || is_empty) return;
    is_writing_ = true;
    request.Swap(&next_);
    size_t bytes = 0;
    cut_pieces(&cutters_, request.mutable_pieces(), &bytes);
  }
  put(std::move(request));
}

void ClosureCall::take(v1::ClosureReply* reply) {
  std::vector<ClosureResult> ended;
  const Status taken = take_reply(*reply, &ended);
  if (!ended.empty()) observer_->ended(std::move(ended));
  if (taken.ok()) return;
  failure_ = base::with_context(taken, peer_);
  hang_up();
}

Status ClosureCall::take_reply(const v1::ClosureReply& reply, std::vector<ClosureResult>* ended) {
  size_t first_new = coming_.size();
  {
    const std::lock_guard lock(state_mutex_);
    for (const v1::ClosureEnd& end : reply.ends()) {
      const auto found = running_.find(end.closure());
      if (found == running_.end()) return base::data_loss("the end of no closure");
      Coming& coming = coming_.emplace_back();
      coming.result.closure = end.closure();
      if (end.has_failure()) {
        coming.result.status = task::from_proto(end.failure());
      } else {
        coming.missing = found->second;
      }
      running_.erase(found);
    }
  }
  for (; first_new < coming_.size(); ++first_new) {
    Coming& coming = coming_[first_new];
    if (coming.missing == 0) continue;
    coming.result.fetches.resize(coming.missing);
    coming.joiner = std::make_unique<PieceJoiner>(static_cast<int32_t>(coming.missing));
  }
  const auto take_whole = [&] {
    while (!coming_.empty() && coming_.front().missing == 0) {
      ended->push_back(std::move(coming_.front().result));
      coming_.pop_front();
    }
  };
  take_whole();
  for (const v1::TensorPiece& piece : reply.pieces()) {
    if (coming_.empty()) return base::data_loss("a piece of no closure");
    Coming& coming = coming_.front();
    SR_ASSIGN_OR_RETURN(auto value, coming.joiner->add(piece));
    if (!value) continue;
    coming.result.fetches[static_cast<size_t>(value->first)] = std::move(value->second);
    --coming.missing;
    take_whole();
  }
  return {};
}

void ClosureCall::lease_ended(const Status& why) {
  {
    const std::lock_guard lock(state_mutex_);
    lease_ended_ = why;
  }
  hang_up();
}

void ClosureCall::ended(const grpc::Status& status) {
  Status why = failure_;
  if (why.ok()) {
    const std::lock_guard lock(state_mutex_);
    why = lease_ended_;
  }
  if (why.ok()) {
    why = status.ok() ? base::unavailable("{} ended the stream of closures", peer_)
                      : from_grpc(status, peer_);
  }
  observer_->lost(why);
}

}  // namespace sidereal::service
