#include "sidereal/master/step_run.h"

#include <algorithm>
#include <mutex>
#include <numeric>
#include <utility>

namespace sidereal::master {

using tensor::Tensor;

namespace {

/// What cancelled parts get to say what they were waiting for.
constexpr std::chrono::milliseconds kGrace(1500);

}  // namespace

StepRun::StepRun(std::vector<PartPlan> parts, size_t fetches, NewAlarm new_alarm,
                 std::function<void(StepResult)> done)
    : plan_(std::move(parts)),
      num_fetches_(fetches),
      new_alarm_(std::move(new_alarm)),
      done_(std::move(done)),
      parts_(plan_.size()),
      results_(plan_.size()),
      has_result_(plan_.size(), false),
      missing_(plan_.size()) {}

StepRun::~StepRun() = default;

void StepRun::start(uint64_t step, uint64_t number, const std::vector<Tensor>& feeds, int32_t trace,
                    std::chrono::milliseconds timeout, const base::RefPtr<task::StepTurns>& turns,
                    const task::ClosureKey& closure, bool waits_for_pushes) {
  const std::shared_ptr<StepRun> self = shared_from_this();
  if (plan_.empty()) return complete();
  if (timeout.count() > 0) {
    deadline_ = new_alarm_();
    deadline_->set(timeout, [weak = weak_from_this(), timeout] {
      const std::shared_ptr<StepRun> run = weak.lock();
      if (run == nullptr) return;
      run->cancel(base::deadline_exceeded("the step did not end within {} ms", timeout.count()));
    });
  }
  // The parts of this process last: a lane that begins to compute begins nothing elsewhere.
  std::vector<size_t> order(plan_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_partition(order.begin(), order.end(),
                        [this](size_t i) { return !plan_[i].link->is_local(); });
  for (const size_t i : order) {
    task::ProgramCall call;
    call.program = plan_[i].program;
    call.step = step;
    call.number = number;
    call.closure = closure;
    call.pull_prefetch_ms = plan_[i].pull_prefetch_ms;
    call.waits_for_pushes = waits_for_pushes;
    for (const size_t feed : plan_[i].feeds) call.feeds.push_back(feeds[feed]);
    call.trace = trace == 0 ? 0 : trace + static_cast<int32_t>(i);
    if (turns != nullptr && plan_[i].link->is_local()) {
      call.turns = turns;
      call.goes_on = true;
    }
    std::shared_ptr<task::StepPart> part = plan_[i].link->run(
        std::move(call),
        [self, i](task::ProgramResult result) { self->on_result(i, std::move(result)); });
    const std::lock_guard lock(mutex_);
    parts_[i] = std::move(part);
  }
  std::unique_lock lock(mutex_);
  started_ = true;
  if (missing_ == 0) {
    lock.unlock();
    return complete();
  }
  if (cancelling_) cancel_others(std::move(lock));
}

void StepRun::cancel(const Status& why) {
  std::unique_lock lock(mutex_);
  if (done_ == nullptr || cancelling_) return;
  reason_ = why;
  cancelling_ = true;
  if (started_) cancel_others(std::move(lock));
}

void StepRun::cancel_others(std::unique_lock<std::mutex> lock) {
  std::vector<std::shared_ptr<task::StepPart>> running;
  for (size_t i = 0; i < parts_.size(); ++i) {
    if (!has_result_[i]) running.push_back(parts_[i]);
  }
  grace_ = new_alarm_();
  grace_->set(kGrace, [weak = weak_from_this()] {
    const std::shared_ptr<StepRun> self = weak.lock();
    if (self == nullptr) return;
    std::vector<std::shared_ptr<task::StepPart>> late;
    {
      const std::lock_guard late_lock(self->mutex_);
      for (size_t i = 0; i < self->parts_.size(); ++i) {
        if (!self->has_result_[i]) late.push_back(self->parts_[i]);
      }
    }
    for (const auto& part : late) part->end();
  });
  lock.unlock();
  for (const auto& part : running) part->cancel();
}

void StepRun::on_result(size_t part, task::ProgramResult result) {
  std::unique_lock lock(mutex_);
  if (has_result_[part]) return;
  has_result_[part] = true;
  const bool failed = !result.status.ok();
  results_[part] = std::move(result);
  if (failed) failures_.push_back(part);
  --missing_;
  if (!started_) {
    cancelling_ = cancelling_ || failed;
    return;
  }
  if (missing_ == 0) {
    lock.unlock();
    return complete();
  }
  if (failed && !cancelling_) {
    cancelling_ = true;
    cancel_others(std::move(lock));
  }
}

/// What a step that was cut short was waiting for.
Status StepRun::in_words(const Status& reason) const {
  std::string waits;
  for (size_t i = 0; i < plan_.size(); ++i) {
    if (results_[i].waits_for.empty()) continue;
    waits += fmt::format("; {} waits for {}", plan_[i].task, results_[i].waits_for);
  }
  return base::with_message(reason, base::message_of(reason) + waits);
}

StepResult StepRun::outcome() {
  StepResult out;
  for (task::ProgramResult& result : results_) {
    if (result.trace.empty()) continue;
    if (!out.trace.empty()) out.trace += ",\n";
    out.trace += result.trace;
  }
  for (const size_t part : failures_) {
    // A part's own error names its nodes; one that follows from another is the last choice.
    if (results_[part].derived) continue;
    out.status = base::with_context(results_[part].status, plan_[part].task);
    if (results_[part].status.code() == StatusCode::kUnavailable)
      out.status = results_[part].status;
    return out;
  }
  if (!reason_.ok()) {
    out.status = in_words(reason_);
    return out;
  }
  for (const size_t part : failures_) {
    const Status& status = results_[part].status;
    if (status.code() != StatusCode::kCancelled) {
      out.status = status;
      return out;
    }
    // Nobody here cancelled it: the first one did it by itself, as tasks do that stop.
    if (out.status.ok()) out.status = base::with_context(status, plan_[part].task);
  }
  if (!out.status.ok()) return out;
  out.fetches.resize(num_fetches_);
  for (size_t i = 0; i < plan_.size(); ++i) {
    if (results_[i].fetches.size() != plan_[i].fetches.size()) {
      out.status = base::internal("{} gave {} values where {} were asked for", plan_[i].task,
                                  results_[i].fetches.size(), plan_[i].fetches.size());
      return out;
    }
    for (size_t k = 0; k < plan_[i].fetches.size(); ++k) {
      if (!results_[i].fetches[k].defined()) {
        out.status = base::internal("{} gave no value {}", plan_[i].task, k);
        return out;
      }
      out.fetches[plan_[i].fetches[k]] = std::move(results_[i].fetches[k]);
    }
  }
  return out;
}

void StepRun::complete() {
  std::function<void(StepResult)> done;
  {
    const std::lock_guard lock(mutex_);
    done = std::exchange(done_, nullptr);
  }
  if (done == nullptr) return;
  if (deadline_ != nullptr) deadline_->cancel();
  if (grace_ != nullptr) grace_->cancel();
  StepResult result = outcome();
  for (const auto& part : parts_) {
    if (part != nullptr) part->end();
  }
  done(std::move(result));
}

}  // namespace sidereal::master
