#include <algorithm>
#include <set>
#include <utility>

#include "sidereal/app/internal/coordinator.h"
#include "sidereal/task/origin.h"

// Steps to which closures contribute: what ends them, in a session of a thread of its own.
namespace sidereal::app::coordinator {

uint64_t Coordinator::add_step(StepPlans plans) {
  const std::lock_guard lock(mutex_);
  steps_.push_back({.plans = std::move(plans), .values = {}});
  return steps_.size() - 1;
}

Status Coordinator::feed_step(uint64_t step, std::vector<Tensor> values) {
  const std::lock_guard lock(mutex_);
  if (step >= steps_.size()) return base::not_found("there is no step {}", step);
  const size_t feeds = steps_[step].plans.update.feeds.size();
  if (values.size() + 1 != feeds) {
    return base::invalid_argument("{} values for the {} feeds of an update", values.size(), feeds);
  }
  steps_[step].values = std::move(values);
  return {};
}

void Coordinator::StepEnd::add(const service::ClosurePlan& plan, int64_t next,
                               std::span<const Tensor> values) {
  for (size_t i = 0; i < plan.feeds.size(); ++i) {
    if (i == 0) feeds.emplace_back(plan.feeds[i], Tensor::scalar(next));
    if (i > 0 && i <= values.size()) feeds.emplace_back(plan.feeds[i], values[i - 1]);
  }
  targets.insert(targets.end(), plan.targets.begin(), plan.targets.end());
}

void Coordinator::await() {
  std::unique_lock lock(mutex_);
  is_flushing_ = true;
  scheduler_.await(now_ns());
  is_flushing_ = false;
  flush(&lock);
}

void Coordinator::end_step(int64_t step, std::span<const coord::ClosureId> closures) {
  std::set<uint64_t> used;
  for (const coord::ClosureId id : closures) {
    const std::vector<uint64_t>& of_plan = plans_[closures_[id].plan].steps;
    used.insert(of_plan.begin(), of_plan.end());
  }
  ending_ = StepEnd{.step = step, .updates = true, .feeds = {}, .targets = {}};
  for (const uint64_t one : used) {
    ending_->add(steps_[one].plans.update, step + 1, steps_[one].values);
  }
  step_work_.notify_one();
}

void Coordinator::forget_steps(int64_t step) {
  ending_ = StepEnd{.step = step, .updates = false, .feeds = {}, .targets = {}};
  for (const OfStep& one : steps_) ending_->add(one.plans.forget, step, {});
  step_work_.notify_one();
}

void Coordinator::end_steps() {
  std::shared_ptr<StepSession> session;
  std::unique_lock lock(mutex_);
  while (!is_stopping_) {
    if (!ending_) {
      step_work_.wait(lock);
      continue;
    }
    const StepEnd end = *std::exchange(ending_, std::nullopt);
    const Status status = carry_out(end, &session, &lock);
    if (is_stopping_) break;
    if (status.ok() && end.updates) ++steps_ended_;
    if (!status.ok()) last_error_ = status;
    coord::Origin origin = origin_of(status);
    // The master is a ps too.
    if (origin.job == coord::Origin::Job::kNone && task::is_of_network(status)) {
      origin = {.job = coord::Origin::Job::kPs, .task = options_.step_ps};
    }
    is_flushing_ = true;
    scheduler_.step_done(end.step, {.status = status, .origin = origin}, now_ns());
    is_flushing_ = false;
    flush(&lock);
  }
  lock.unlock();
  session = nullptr;
}

Status Coordinator::carry_out(const StepEnd& end, std::shared_ptr<StepSession>* session,
                              std::unique_lock<std::mutex>* lock) {
  const steady_clock::time_point until = steady_clock::now() + options_.ps_timeout;
  while (true) {
    const Program known = program();
    lock->unlock();
    Status status = run_step(end, known, session);
    if (!status.ok()) *session = nullptr;
    lock->lock();
    // To forget may be tried again; of an update somebody must know what has become of it.
    const bool is_over =
        status.ok() || end.updates || !task::is_of_network(status) || steady_clock::now() >= until;
    if (is_over || is_stopping_) return status;
    step_work_.wait_for(*lock, kRetry);
    if (is_stopping_) return status;
  }
}

Status Coordinator::run_step(const StepEnd& end, const Program& known,
                             std::shared_ptr<StepSession>* session) {
  const bool is_known = *session != nullptr && (*session)->graph_version == known.graph_version &&
                        (*session)->overrides_version == known.overrides_version;
  if (!is_known) {
    if (*session == nullptr) {
      auto made = std::make_shared<StepSession>();
      SR_ASSIGN_OR_RETURN(made->session, open_session(options_.step_target, known));
      *session = std::move(made);
    } else {
      SR_RETURN_IF_ERROR(
          extend_to(known, (*session)->overrides_version, (*session)->session.get()));
    }
    SR_RETURN_IF_ERROR(check_devices((*session)->session.get()));
  }
  (*session)->graph_version = known.graph_version;
  (*session)->overrides_version = known.overrides_version;
  if (end.targets.empty()) return {};
  return (*session)
      ->session->run(end.feeds, {}, end.targets, {.timeout = options_.closure_timeout})
      .status();
}

}  // namespace sidereal::app::coordinator
