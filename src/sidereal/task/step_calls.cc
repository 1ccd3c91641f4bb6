#include "sidereal/task/step_calls.h"

#include <map>
#include <set>
#include <utility>

#include "sidereal/cluster/task_name.h"
#include "sidereal/sys/clock.h"

namespace sidereal::task {

using tensor::Tensor;

namespace {

/// How often connections are looked at between instructions: while an answer is awaited, and else,
/// when whatever comes waits for this step anyway.
constexpr int64_t kLookEvery = 50 * sys::kMicrosecond;
constexpr int64_t kLookSeldom = sys::kMillisecond;

}  // namespace

class StepCalls::Call final : public Peers::RunDone {
 public:
  /// `number`: among all of the program. `process`: that of its task among those that are called.
  Call(StepCalls* owner, const program::CallSpec* spec, int number, std::string task, int process)
      : owner_(owner),
        spec_(spec),
        number_(number),
        task_(std::move(task)),
        lane_(program::lane_of(*spec)),
        process_(process) {}

  [[nodiscard]] bool is_open() const { return completion_ != nullptr; }
  [[nodiscard]] const std::string& task() const { return task_; }

  void start(uint64_t step, std::span<const Tensor> feeds, ports::CallCompletion* completion) {
    const int32_t trace = owner_->trace_ == 0 ? 0 : owner_->trace_ + 1 + process_;
    const Peers::Call call = {.session = owner_->session_,
                              .program = spec_->program,
                              .trace = trace,
                              .number = step,
                              .closure = owner_->closure_,
                              .lane = lane_,
                              .repeatable = spec_->repeatable};
    const bool is_left = spec_->async_push && owner_->leaves_pushes_ && trace == 0;
    if (is_left && owner_->async_pushes_->start(task_, call, feeds)) {
      // Its memory stays as it is until the step is at its end, and while anybody holds it.
      return completion->done({}, {});
    }
    std::shared_ptr<PrefetchedPulls::Pull> pull;
    if (spec_->ahead && trace == 0) pull = owner_->ahead_->take(call.session, number_);
    std::vector<Tensor>* const answer = pull == nullptr ? nullptr : pull->answer();
    if (answer != nullptr) return completion->done({}, *answer);
    completion_ = completion;
    ++owner_->open_;
    if (pull == nullptr) {
      run_ = owner_->peers_->run(task_, call, feeds, this);
    } else {
      pull->give(this);
      run_ = std::move(pull);
    }
  }
  void cancel() {
    if (is_open() && run_ != nullptr) run_->cancel();
  }
  void drop() {
    if (is_open() && run_ != nullptr) run_->drop();
  }

  Result<Tensor> allocate(int position, tensor::DType dtype, const tensor::Shape& shape) override {
    return completion_->allocate(position, dtype, shape);
  }
  void done(const ProgramResult& result, std::span<Tensor> fetches) override {
    ports::CallCompletion* const completion = std::exchange(completion_, nullptr);
    --owner_->open_;
    if (!result.trace.empty()) {
      if (!owner_->trace_text_.empty()) owner_->trace_text_ += ",\n";
      owner_->trace_text_ += result.trace;
    }
    const Status status = base::with_context(result.status, task_);
    if (owner_->failure_.ok() && !status.ok()) {
      owner_->failure_ = status;
      if (!result.waits_for.empty()) owner_->waited_for_ = task_ + ": " + result.waits_for;
    }
    completion->done(status, fetches);
    if (owner_->on_answer_) owner_->on_answer_();
  }

 private:
  StepCalls* const owner_;
  const program::CallSpec* const spec_;
  const int number_;
  const std::string task_;
  const int lane_;
  const int process_;
  ports::CallCompletion* completion_ = nullptr;
  std::shared_ptr<Peers::Run> run_;
};

StepCalls::StepCalls(Peers* peers, lane::Lane* lane, AsyncPushes* async_push,
                     PrefetchedPulls* ahead, const program::Program& program,
                     std::function<void()> serve)
    : peers_(peers),
      lane_(lane),
      async_pushes_(async_push),
      ahead_(ahead),
      serve_(std::move(serve)) {
  std::map<std::string, int> processes;
  for (const program::CallSpec* const spec : program::all_calls(program)) {
    std::string task = cluster::task_of(spec->device);
    const int process =
        processes.try_emplace(task, static_cast<int>(processes.size())).first->second;
    const auto number = static_cast<int>(calls_.size());
    calls_.push_back(std::make_unique<Call>(this, spec, number, std::move(task), process));
  }
}
StepCalls::~StepCalls() = default;

void StepCalls::begin(uint64_t session, int32_t trace, std::function<void()> on_answer,
                      bool leaves_pushes, const ClosureKey& closure) {
  session_ = session;
  closure_ = closure;
  trace_ = trace;
  leaves_pushes_ = leaves_pushes;
  on_answer_ = std::move(on_answer);
  trace_text_.clear();
  failure_ = {};
  waited_for_.clear();
}

std::string StepCalls::waits_for() const {
  if (!waited_for_.empty()) return waited_for_;
  std::set<std::string> tasks;
  for (const auto& call : calls_) {
    if (call->is_open()) tasks.insert(call->task());
  }
  std::string out;
  for (const std::string& task : tasks) out += (out.empty() ? "an answer of " : ", ") + task;
  return out;
}

void StepCalls::cancel() {
  for (const auto& call : calls_) call->cancel();
}

void StepCalls::drop() {
  on_answer_ = nullptr;
  for (const auto& call : calls_) call->drop();
}

Status StepCalls::start(int call, uint64_t step, std::span<const Tensor> feeds,
                        ports::CallCompletion* completion) {
  calls_[static_cast<size_t>(call)]->start(step, feeds, completion);
  return {};
}

void StepCalls::yield() {
  if (lane_->now() - lane_->loop_now() < (any_open() ? kLookEvery : kLookSeldom)) return;
  lane_->poll_io();
  lane_->poll_posts();
  serve_();
}

}  // namespace sidereal::task
