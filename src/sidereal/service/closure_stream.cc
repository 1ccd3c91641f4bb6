#include "sidereal/service/internal/closure_stream.h"

#include <utility>

#include "sidereal/service/internal/timeouts.h"
#include "sidereal/task/failure.h"

namespace sidereal::service {

namespace v1 = session::v1;
using std::chrono::milliseconds;

namespace {

constexpr size_t kPlansMax = 16'384;
/// Closures of one stream that have not been written.
constexpr size_t kClosuresMax = 16'384;
constexpr int kFeedsMax = 1 << 16;
/// Ends in one message.
constexpr int kEndsMax = 1024;

Status was_cancelled() { return base::cancelled("the closure was cancelled"); }
Status gone() { return base::cancelled("the client has gone"); }

}  // namespace

ClosureStream::~ClosureStream() { *service_.running -= static_cast<int>(begun_.size()); }

Status ClosureStream::take(v1::ClosureRequest* request) {
  if (session_ == nullptr) {
    SR_ASSIGN_OR_RETURN(session_, service_.find(request->session()));
    client_ = request->client();
  } else if (request->session() != 0 || request->client() != 0) {
    return base::invalid_argument("a second head");
  }
  for (const v1::ClosurePlan& plan : request->plans()) SR_RETURN_IF_ERROR(add_plan(plan));
  for (const v1::Closure& closure : request->closures()) SR_RETURN_IF_ERROR(begin(closure));
  for (const v1::TensorPiece& piece : request->pieces()) SR_RETURN_IF_ERROR(take_piece(piece));
  for (const uint64_t closure : request->cancels()) cancel(closure);
  return {};
}

Status ClosureStream::add_plan(const v1::ClosurePlan& plan) {
  if (plans_.size() >= kPlansMax) {
    return base::resource_exhausted("a stream takes {} plans of closures", kPlansMax);
  }
  if (plan.feeds_size() > kFeedsMax) return base::invalid_argument("{} feeds", plan.feeds_size());
  master::StepCall call;
  call.feeds.assign(plan.feeds().begin(), plan.feeds().end());
  call.fetches.assign(plan.fetches().begin(), plan.fetches().end());
  call.targets.assign(plan.targets().begin(), plan.targets().end());
  const bool is_new =
      plans_.try_emplace(plan.plan(), master::MasterSession::prepare(std::move(call))).second;
  if (!is_new) return base::invalid_argument("a second plan {}", plan.plan());
  return {};
}

Status ClosureStream::begin(const v1::Closure& closure) {
  const auto plan = plans_.find(closure.plan());
  if (plan == plans_.end()) return base::invalid_argument("there is no plan {}", closure.plan());
  SR_ASSIGN_OR_RETURN(const milliseconds timeout, timeout_of(closure.timeout_ms()));
  {
    const std::lock_guard lock(state_mutex_);
    if (running_.size() + ended_.size() >= kClosuresMax) {
      return base::resource_exhausted("a stream takes {} closures at a time", kClosuresMax);
    }
    if (!running_.try_emplace(closure.closure(), nullptr).second) {
      return base::invalid_argument("a second closure {}", closure.closure());
    }
  }
  ++*service_.running;
  const size_t feeds = plan->second->names().feeds.size();
  Begun begun{.closure = closure.closure(),
              .plan = plan->second,
              .timeout = timeout,
              .key = closure.key(),
              .feeds = std::vector<tensor::Tensor>(feeds),
              .missing = feeds,
              .joiner = nullptr};
  if (feeds == 0) {
    run(std::move(begun));
    return {};
  }
  begun.joiner = std::make_unique<PieceJoiner>(static_cast<int32_t>(feeds), service_.arriving);
  begun_.push_back(std::move(begun));
  return {};
}

Status ClosureStream::take_piece(const v1::TensorPiece& piece) {
  if (begun_.empty()) return base::invalid_argument("a piece of no closure");
  Begun& begun = begun_.front();
  SR_ASSIGN_OR_RETURN(auto value, begun.joiner->add(piece));
  if (!value) return {};
  begun.feeds[static_cast<size_t>(value->first)] = std::move(value->second);
  if (--begun.missing > 0) return {};
  Begun whole = std::move(begun);
  begun_.pop_front();
  run(std::move(whole));
  return {};
}

void ClosureStream::run(Begun begun) {
  const auto self = std::static_pointer_cast<ClosureStream>(shared_from_this());
  const uint64_t closure = begun.closure;
  if (begun.plan == nullptr) return ended(closure, {.status = was_cancelled()});
  // What its feeds took is given back when it has ended.
  const std::shared_ptr<PieceJoiner> joiner = std::move(begun.joiner);
  const std::shared_ptr<master::MasterSession::Handle> handle =
      session_->run(begun.plan, std::move(begun.feeds), begun.timeout,
                    begun.key == 0 ? task::ClosureKey()
                                   : task::ClosureKey{.client = client_, .closure = begun.key},
                    [self, closure, joiner](master::StepResult result) {
                      self->ended(closure, std::move(result));
                    });
  bool is_late = false;
  {
    const std::lock_guard lock(state_mutex_);
    const auto found = running_.find(closure);
    if (found != running_.end()) found->second = handle;
    is_late = has_gone_;
  }
  if (is_late) handle->cancel(gone());
}

void ClosureStream::cancel(uint64_t closure) {
  std::shared_ptr<master::MasterSession::Handle> handle;
  {
    const std::lock_guard lock(state_mutex_);
    const auto found = running_.find(closure);
    if (found != running_.end()) handle = found->second;
  }
  if (handle != nullptr) return handle->cancel(was_cancelled());
  // Its feeds have not all come: it begins nothing.
  for (Begun& begun : begun_) {
    if (begun.closure == closure) begun.plan = nullptr;
  }
}

void ClosureStream::ended(uint64_t closure, master::StepResult result) {
  --*service_.running;
  {
    const std::lock_guard lock(state_mutex_);
    running_.erase(closure);
    ended_.push_back({.closure = closure,
                      .status = std::move(result.status),
                      .fetches = std::move(result.fetches)});
  }
  write();
}

void ClosureStream::wrote(size_t waiting) {
  {
    const std::lock_guard lock(state_mutex_);
    if (waiting > 0) return;
    is_writing_ = false;
  }
  write();
}

void ClosureStream::write() {
  v1::ClosureReply reply;
  {
    const std::lock_guard lock(state_mutex_);
    if (is_writing_ || (ended_.empty() && cutters_.empty())) return;
    is_writing_ = true;
    fill(&reply);
  }
  put(std::move(reply));
}

/// Ends, and the fetches of these in their order, as much as one message has.
void ClosureStream::fill(v1::ClosureReply* reply) {
  size_t bytes = 0;
  while (true) {
    cut_pieces(&cutters_, reply->mutable_pieces(), &bytes);
    if (!cutters_.empty() || ended_.empty() || reply->ends_size() >= kEndsMax) return;
    Ended& ended = ended_.front();
    v1::ClosureEnd* const end = reply->add_ends();
    end->set_closure(ended.closure);
    if (!ended.status.ok()) {
      task::to_proto(ended.status, false, end->mutable_failure());
    } else {
      for (size_t i = 0; i < ended.fetches.size(); ++i) {
        cutters_.emplace_back(static_cast<int32_t>(i), std::move(ended.fetches[i]));
      }
    }
    ended_.pop_front();
  }
}

void ClosureStream::hung_up() {
  std::vector<std::shared_ptr<master::MasterSession::Handle>> running;
  {
    const std::lock_guard lock(state_mutex_);
    has_gone_ = true;
    for (const auto& [closure, handle] : running_) {
      if (handle != nullptr) running.push_back(handle);
    }
  }
  for (const auto& handle : running) handle->cancel(gone());
}

}  // namespace sidereal::service
