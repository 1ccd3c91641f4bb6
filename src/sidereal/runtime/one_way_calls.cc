#include "sidereal/runtime/one_way_calls.h"

#include <algorithm>
#include <utility>

namespace sidereal::runtime {

using tensor::Tensor;

class OneWayCalls::Sent final : public Peers::RunDone {
 public:
  Sent(OneWayCalls* owner, uint64_t session, std::string task, size_t bytes)
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
  OneWayCalls* const owner_;
};

OneWayCalls::OneWayCalls(Peers* peers) : peers_(peers) {}
OneWayCalls::~OneWayCalls() { drop(); }

bool OneWayCalls::start(const std::string& task, const Peers::Call& call,
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

void OneWayCalls::ended(Sent* sent, const Status& status) {
  const auto found = sessions_.find(sent->session);
  Session& session = found->second;
  if (session.failure.ok() && !status.ok()) {
    session.failure =
        base::with_context(status, sent->task + ": a push of an earlier step, not waited for");
  }
  session.bytes -= sent->bytes;
  std::erase_if(session.sent, [sent](const auto& one) { return one.get() == sent; });
  if (!session.sent.empty()) return;
  for (const auto& done : std::exchange(session.waiting, {})) done();
}

Status OneWayCalls::take_failure(uint64_t session) {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return {};
  return std::exchange(found->second.failure, Status());
}

void OneWayCalls::when_done(uint64_t session, std::function<void()> done) {
  const auto found = sessions_.find(session);
  if (found != sessions_.end() && !found->second.sent.empty()) {
    found->second.waiting.push_back(std::move(done));
    return;
  }
  // Nothing of it starts any more: it is being closed.
  if (found != sessions_.end()) sessions_.erase(found);
  done();
}

void OneWayCalls::lose(uint64_t session, const std::string& task, const Status& why) {
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

void OneWayCalls::drop() {
  std::vector<std::shared_ptr<Peers::Run>> runs;
  for (const auto& [id, session] : sessions_) {
    for (const auto& sent : session.sent) runs.push_back(sent->run);
  }
  for (const auto& run : runs) run->drop();
}

}  // namespace sidereal::runtime
