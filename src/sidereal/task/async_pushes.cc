#include "sidereal/task/async_pushes.h"

#include <algorithm>
#include <utility>

namespace sidereal::task {

using tensor::Tensor;

class AsyncPushes::Sent final : public Peers::RunDone {
 public:
  Sent(AsyncPushes* owner, uint64_t session, std::string task, size_t bytes)
      : session(session), task(std::move(task)), bytes(bytes), owner_(owner) {}

  Result<Tensor> allocate(int /*position*/, tensor::DType /*dtype*/,
                          const tensor::Shape& /*shape*/) override {
    return base::data_loss("{} answered a call that has no results with some", task);
  }
  void done(const ProgramResult& result, std::span<Tensor> /*fetches*/) override {
    owner_->ended(this, lost.ok() ? result.status : lost);
  }

  const uint64_t session;
  const std::string task;
  const size_t bytes;
  std::shared_ptr<Peers::Run> run;
  Status lost;

 private:
  AsyncPushes* const owner_;
};

AsyncPushes::AsyncPushes(Peers* peers, OnFailure on_failure)
    : peers_(peers), on_failure_(std::move(on_failure)) {}
AsyncPushes::~AsyncPushes() { drop(); }

bool AsyncPushes::start(const std::string& task, const Peers::Call& call,
                        std::span<const Tensor> feeds) {
  size_t bytes = 0;
  for (const Tensor& feed : feeds) bytes += feed.nbytes();
  Session& session = sessions_[call.session];
  if (session.sent.size() >= kCallsMax || session.bytes + bytes > kBytesMax) return false;
  session.bytes += bytes;
  Sent* const sent =
      session.sent.emplace_back(std::make_unique<Sent>(this, call.session, task, bytes)).get();
  sent->run = peers_->run(task, call, feeds, sent);
  return true;
}

void AsyncPushes::ended(Sent* sent, const Status& status) {
  const auto found = sessions_.find(sent->session);
  Session& session = found->second;
  const uint64_t id = sent->session;
  const bool is_first = session.failure.ok() && !status.ok();
  if (is_first) {
    session.failure =
        base::with_context(status, sent->task + ": a push of an earlier step, not waited for");
    ++failures_;
  }
  session.bytes -= sent->bytes;
  std::erase_if(session.sent, [sent](const auto& one) { return one.get() == sent; });
  if (session.sent.empty() && !session.waiting.empty()) {
    const std::vector<Done> waiting = std::move(session.waiting);
    const Status failure = take_failure(id);
    sessions_.erase(id);
    for (const Done& done : waiting) done(failure);
  } else if (is_first && on_failure_) {
    on_failure_(id);
  }
}

Status AsyncPushes::take_failure(uint64_t session) {
  if (failures_ == 0) return {};
  const auto found = sessions_.find(session);
  if (found == sessions_.end() || found->second.failure.ok()) return {};
  --failures_;
  return std::exchange(found->second.failure, Status());
}

void AsyncPushes::when_done(uint64_t session, Done done) {
  const auto found = sessions_.find(session);
  if (found != sessions_.end() && !found->second.sent.empty()) {
    found->second.waiting.push_back(std::move(done));
    return;
  }
  // Nothing of it starts any more: it is being closed.
  const Status failure = take_failure(session);
  if (found != sessions_.end()) sessions_.erase(found);
  done(failure);
}

void AsyncPushes::lose(uint64_t session, const std::string& task, const Status& why) {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return;
  std::vector<std::shared_ptr<Peers::Run>> runs;
  for (const auto& sent : found->second.sent) {
    if (sent->task != task) continue;
    sent->lost = why;
    runs.push_back(sent->run);
  }
  for (const auto& run : runs) run->drop();
}

void AsyncPushes::drop() {
  std::vector<std::shared_ptr<Peers::Run>> runs;
  for (const auto& [id, session] : sessions_) {
    for (const auto& sent : session.sent) runs.push_back(sent->run);
  }
  for (const auto& run : runs) run->drop();
}

}  // namespace sidereal::task
