#include "sidereal/task/prefetched_pulls.h"

#include <algorithm>
#include <utility>

#include "sidereal/cluster/task_name.h"
#include "sidereal/sys/clock.h"
#include "sidereal/tensor/dtype.h"

namespace sidereal::task {

using tensor::Tensor;

std::shared_ptr<const PrefetchedCalls> prefetched_calls(const program::Program& program) {
  auto out = std::make_shared<PrefetchedCalls>();
  size_t bytes = 0;
  for (size_t i = 0; i < program.calls.size(); ++i) {
    const program::CallSpec& spec = program.calls[i];
    if (!spec.ahead || !spec.feeds.empty()) continue;
    PrefetchedCall& call = out->emplace_back();
    call.number = static_cast<int>(i);
    call.program = spec.program;
    call.task = cluster::task_of(spec.device);
    call.lane = program::lane_of(spec);
    for (const int32_t slot : spec.fetches) {
      const program::SlotInfo& info = program.slots[static_cast<size_t>(slot)];
      const bool is_known = info.dtype != tensor::DType::kString && info.shape.is_fully_defined();
      if (!is_known) return nullptr;
      bytes += static_cast<size_t>(info.shape.num_elements()) * tensor::size_of(info.dtype);
      if (bytes > PrefetchedPulls::kBytesMax) return nullptr;
      call.fetches.push_back(info);
    }
  }
  return out->empty() ? nullptr : out;
}

Status check_pull_prefetch(int64_t ms) {
  constexpr int64_t kHourMs = 3'600'000;
  if (ms >= 0 && ms <= kHourMs) return {};
  return base::invalid_argument("pull_prefetch_ms is {}; it must be from 0 to {}", ms, kHourMs);
}

/// Keeps itself while it is under way.
class PrefetchedPulls::Sent final : public Pull,
                                    public Peers::RunDone,
                                    public std::enable_shared_from_this<Sent> {
 public:
  Sent(PrefetchedPulls* owner, uint64_t session, std::shared_ptr<const PrefetchedCalls> calls,
       size_t index)
      : owner_(*owner), session_(session), calls_(std::move(calls)), call_(calls_->at(index)) {}

  [[nodiscard]] const PrefetchedCall& call() const { return call_; }
  [[nodiscard]] bool failed() const { return failed_; }

  void ask() {
    self_ = shared_from_this();
    run_ = owner_.peers_->run(
        call_.task,
        {.session = session_, .program = call_.program, .lane = call_.lane, .repeatable = true}, {},
        this);
  }
  /// Nobody is going to take it.
  void throw_away() {
    is_unwanted_ = true;
    answer_.clear();
    if (const std::shared_ptr<Peers::Run> run = run_; run != nullptr) run->drop();
  }

  std::vector<Tensor>* answer() override { return run_ == nullptr ? &answer_ : nullptr; }
  void give(Peers::RunDone* receiver) override { receiver_ = receiver; }

  void cancel() override {
    if (const std::shared_ptr<Peers::Run> run = run_; run != nullptr) return run->cancel();
    end({.status = base::cancelled("the call was cancelled")});
  }
  void drop() override {
    is_unwanted_ = true;
    if (const std::shared_ptr<Peers::Run> run = run_; run != nullptr) return run->drop();
    end({.status = base::cancelled("the call was cancelled")});
  }

  Result<Tensor> allocate(int position, tensor::DType dtype, const tensor::Shape& shape) override {
    if (receiver_ != nullptr) return receiver_->allocate(position, dtype, shape);
    if (is_unwanted_) return base::cancelled("nobody wants the answer any more");
    const bool is_there = position >= 0 && static_cast<size_t>(position) < call_.fetches.size();
    if (!is_there || call_.fetches[static_cast<size_t>(position)].dtype != dtype ||
        !call_.fetches[static_cast<size_t>(position)].shape.accepts(shape)) {
      return base::invalid_argument("value {} of an answer is {}{}, which was not asked for",
                                    position, tensor::name_of(dtype), shape.to_string());
    }
    return owner_.pool_->try_tensor(dtype, shape);
  }

  void done(const ProgramResult& result, std::span<Tensor> fetches) override {
    const std::shared_ptr<Sent> last = std::move(self_);
    run_ = nullptr;
    failed_ = !result.status.ok() || fetches.size() != call_.fetches.size() ||
              std::any_of(fetches.begin(), fetches.end(),
                          [](const Tensor& value) { return !value.defined(); });
    if (receiver_ != nullptr) {
      if (!failed_ || is_unwanted_ || asked_again_) return end(result, fetches);
      return ask_again();
    }
    if (failed_ || is_unwanted_) return;
    answer_.assign(std::make_move_iterator(fetches.begin()),
                   std::make_move_iterator(fetches.end()));
  }

 private:
  void end(const ProgramResult& result, std::span<Tensor> fetches = {}) {
    Peers::RunDone* const receiver = std::exchange(receiver_, nullptr);
    if (receiver != nullptr) receiver->done(result, fetches);
  }

  /// Not from within: who ends calls may be about to end all of a connection.
  void ask_again() {
    asked_again_ = true;
    const bool posted = owner_.post_([self = shared_from_this()] {
      if (self->receiver_ != nullptr) self->ask();
    });
    if (!posted) end({.status = base::cancelled("the task stops")});
  }

  PrefetchedPulls& owner_;
  const uint64_t session_;
  const std::shared_ptr<const PrefetchedCalls> calls_;
  const PrefetchedCall& call_;
  std::shared_ptr<Peers::Run> run_;
  std::vector<Tensor> answer_;
  Peers::RunDone* receiver_ = nullptr;
  bool failed_ = false;
  bool is_unwanted_ = false;
  bool asked_again_ = false;
  std::shared_ptr<Sent> self_;
};

PrefetchedPulls::PrefetchedPulls(Peers* peers, lane::Lane* lane, exec::BufferPool* pool, Post post)
    : peers_(peers), lane_(lane), pool_(pool), post_(std::move(post)) {}
PrefetchedPulls::~PrefetchedPulls() = default;

void PrefetchedPulls::begin(uint64_t session, uint64_t program, int64_t limit_ms) {
  Session& own = sessions_[session];
  own.repeats = own.program == program && own.running == 0;
  if (!own.sent.empty()) {
    const bool is_late = lane_->now() - own.sent_ns > limit_ms * sys::kMillisecond;
    if (!own.repeats || is_late) throw_away(&own);
  }
  own.program = program;
  ++own.running;
}

void PrefetchedPulls::end(uint64_t session, const std::shared_ptr<const PrefetchedCalls>& calls,
                          int64_t limit_ms) {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return;
  Session& own = found->second;
  own.running = std::max(own.running - 1, 0);
  if (!own.sent.empty()) throw_away(&own);
  // With steps beside each other nobody could say what the next one may see.
  if (calls == nullptr || own.running > 0 || !own.repeats) return;
  if (own.pause > 0) {
    --own.pause;
    return;
  }
  own.sent_ns = lane_->now();
  own.timer = lane_->run_at(own.sent_ns + limit_ms * sys::kMillisecond,
                            [this, session] { throw_away(session); });
  for (size_t i = 0; i < calls->size(); ++i) {
    own.sent.push_back(std::make_shared<Sent>(this, session, calls, i));
    own.sent.back()->ask();
  }
  sent_.add(static_cast<int64_t>(calls->size()));
}

std::shared_ptr<PrefetchedPulls::Pull> PrefetchedPulls::take(uint64_t session, int number) {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return nullptr;
  Session& own = found->second;
  const auto at = std::find_if(own.sent.begin(), own.sent.end(), [number](const auto& sent) {
    return sent->call().number == number;
  });
  if (at == own.sent.end()) return nullptr;
  std::shared_ptr<Sent> sent = std::move(*at);
  own.sent.erase(at);
  if (own.sent.empty()) stop_timer(&own);
  if (sent->failed()) {
    thrown_away_.add();
    return nullptr;
  }
  own.last_pause = 0;
  return sent;
}

void PrefetchedPulls::stop_timer(Session* session) {
  static_cast<void>(lane_->cancel_timer(std::exchange(session->timer, lane::TimerId())));
}

void PrefetchedPulls::throw_away(Session* session) {
  if (session->sent.empty()) return;
  stop_timer(session);
  // What is thrown away again and again is a waste of others' time.
  session->last_pause = std::min(2 * session->last_pause + 1, kPauseMax);
  session->pause = session->last_pause;
  const auto sent = std::exchange(session->sent, {});
  for (const auto& one : sent) one->throw_away();
  thrown_away_.add(static_cast<int64_t>(sent.size()));
}

void PrefetchedPulls::throw_away(uint64_t session) {
  const auto found = sessions_.find(session);
  if (found != sessions_.end()) throw_away(&found->second);
}

void PrefetchedPulls::throw_all_away() {
  for (auto& [id, session] : sessions_) throw_away(&session);
}

void PrefetchedPulls::lose(uint64_t session, const std::string& task) {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return;
  const bool is_asked = std::any_of(found->second.sent.begin(), found->second.sent.end(),
                                    [&](const auto& sent) { return sent->call().task == task; });
  if (is_asked) throw_away(&found->second);
}

void PrefetchedPulls::forget(uint64_t session) {
  throw_away(session);
  sessions_.erase(session);
}

}  // namespace sidereal::task
