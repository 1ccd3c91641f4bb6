#include "sidereal/coord/scheduler.h"

#include <algorithm>
#include <utility>

#include "absl/strings/cord.h"
#include "sidereal/base/check.h"

namespace sidereal::coord {
namespace {

/// Marks what Python raises as classes of their own.
constexpr std::string_view kInputError = "sidereal/coord/input";
constexpr std::string_view kPsFailure = "sidereal/coord/ps";

Status marked(Status status, std::string_view mark) {
  status.SetPayload(absl::string_view(mark.data(), mark.size()), absl::Cord());
  return status;
}

bool has_mark(const Status& status, std::string_view mark) {
  return status.GetPayload(absl::string_view(mark.data(), mark.size())).has_value();
}

Status cancelled() {
  return base::cancelled(
      "The corresponding function is cancelled. Please reschedule the function.");
}

}  // namespace

bool is_input_error(const Status& status) { return has_mark(status, kInputError); }
bool is_ps_failure(const Status& status) { return has_mark(status, kPsFailure); }

Scheduler::Scheduler(const SchedulerOptions& options, SchedulerHooks* hooks, int64_t now_ns)
    : options_(options),
      hooks_(hooks),
      staleness_(options.workers, options.staleness_max),
      workers_(static_cast<size_t>(options.workers)),
      ps_tries_(static_cast<size_t>(options.ps)),
      now_ns_(now_ns),
      reported_ns_(now_ns) {
  SR_CHECK(options.in_flight_max > 0);
  for (int i = 0; i < options.workers; ++i) {
    Worker& worker = workers_[static_cast<size_t>(i)];
    worker.lost_ns = now_ns;
    int64_t delay = options.start_delay_ns * i;
    if (options.start_delay_max_ns > 0) delay = std::min(delay, options.start_delay_max_ns);
    worker.starts_ns = now_ns + delay;
  }
}

// ---- What users ask for ----------------------------------------------------------------------

Result<std::optional<ClosureId>> Scheduler::schedule(std::span<const ResourceId> resources,
                                                     int64_t now_ns) {
  note(now_ns);
  if (has_error()) {
    if (!cancel_all()) return std::nullopt;
    return raise();
  }
  SR_RETURN_IF_ERROR(check(resources));
  if (is_full() || joining_ > 0) return std::nullopt;
  const ClosureId id = add(resources);
  queue_.push_back(id);
  dispatch();
  return id;
}

Result<ClosureId> Scheduler::schedule_on(int worker, std::span<const ResourceId> resources,
                                         int64_t now_ns) {
  note(now_ns);
  if (worker < 0 || worker >= options_.workers) {
    return base::not_found("there is no worker {}; there are {}", worker, options_.workers);
  }
  SR_RETURN_IF_ERROR(check(resources));
  const ClosureId id = add(resources);
  closures_[id].is_own = true;
  ++own_;
  workers_[static_cast<size_t>(worker)].own.push_back(id);
  dispatch_own(worker);
  return id;
}

Status Scheduler::check(std::span<const ResourceId> resources) const {
  for (const ResourceId id : resources) {
    const auto found = resources_.find(id);
    if (found != resources_.end() && !found->second.is_released) continue;
    return base::not_found(
        "per-worker resource {} is not there: it was released, or is another coordinator's", id);
  }
  return {};
}

ClosureId Scheduler::add(std::span<const ResourceId> resources) {
  const ClosureId id = ++last_closure_;
  closures_[id].resources.assign(resources.begin(), resources.end());
  for (const ResourceId resource : resources) ++resources_[resource].uses;
  return id;
}

Result<bool> Scheduler::joined() {
  if (has_error()) {
    if (!cancel_all()) return false;
    leave_join();
    return raise();
  }
  if (!all_ended()) return false;
  leave_join();
  return true;
}

void Scheduler::leave_join() {
  SR_CHECK(joining_ > 0);
  // Those that wait to schedule.
  if (--joining_ == 0) hooks_->wake();
}

Result<std::optional<bool>> Scheduler::done() {
  if (!has_error()) return all_ended();
  if (!cancel_all()) return std::nullopt;
  return raise();
}

// ---- Errors ----------------------------------------------------------------------------------

void Scheduler::record(const Status& error) {
  if (has_error()) return;
  error_ = error;
  hooks_->wake();
}

bool Scheduler::cancel_all() {
  if (!std::exchange(is_cancelling_, true)) {
    for (size_t i = 0; i < workers_.size(); ++i) {
      for (const ClosureId id : workers_[i].running) {
        if (closures_[id].is_own) continue;
        closures_[id].is_cancelled = true;
        hooks_->cancel(static_cast<int>(i), id);
      }
    }
    for (const ClosureId id : std::exchange(queue_, {})) end(id, cancelled());
  }
  return in_flight_ == 0;
}

Status Scheduler::raise() {
  is_cancelling_ = false;
  Status error = std::exchange(error_, ps_failure_);
  hooks_->wake();
  return error;
}

void Scheduler::fail_job(int ps, const Status& why) {
  if (!ps_failure_.ok()) return;
  ps_failure_ =
      marked(base::make_status(
                 why.code() == StatusCode::kAborted ? why.code() : StatusCode::kUnavailable,
                 fmt::format("/job:ps/replica:0/task:{} is lost, and what it held: start the "
                             "coordinator again, from a checkpoint: {}",
                             ps, base::message_of(why))),
             kPsFailure);
  record(ps_failure_);
}

void Scheduler::ps_lost(int ps, const Status& why) {
  SR_CHECK(ps >= 0 && ps < options_.ps);
  fail_job(ps, why);
}

/// True while there were fewer failures in the window than `limit`. What began before the last of
/// them was heard of has met the same one.
bool Scheduler::try_again(Tries* tries, int limit, int64_t began_ns) const {
  while (!tries->empty() && now_ns_ - tries->front() > options_.failure_window_ns) {
    tries->pop_front();
  }
  const bool is_new = tries->empty() || began_ns >= tries->back();
  const auto count = static_cast<int64_t>(tries->size()) + (is_new ? 1 : 0);
  if (count >= limit) return false;
  if (is_new) tries->push_back(now_ns_);
  return true;
}

Scheduler::Verdict Scheduler::judge(int worker, const Outcome& outcome, int64_t began_ns,
                                    int* cancels) {
  const StatusCode code = outcome.status.code();
  const Origin& origin = outcome.origin;
  const bool is_of_network = code == StatusCode::kUnavailable || code == StatusCode::kAborted;
  if (origin.job == Origin::Job::kPs && (is_of_network || origin.is_restarted)) {
    if (origin.task < 0 || origin.task >= options_.ps) return Verdict::kFailed;
    if (options_.ps_come_back) return ps_failure_.ok() ? Verdict::kAgain : Verdict::kPsLost;
    Tries* const tries = &ps_tries_[static_cast<size_t>(origin.task)];
    const bool is_over =
        origin.is_restarted || !try_again(tries, options_.transient_ps_failures, began_ns);
    return is_over ? Verdict::kPsLost : Verdict::kAgain;
  }
  if (origin.job == Origin::Job::kWorker && (is_of_network || origin.is_restarted)) {
    return origin.task == worker ? Verdict::kWorkerLost : Verdict::kAgain;
  }
  if (code == StatusCode::kDeadlineExceeded) {
    const int limit =
        options_.transient_timeouts < 0 ? options_.workers / 10 : options_.transient_timeouts;
    return try_again(&timeouts_, limit, began_ns) ? Verdict::kAgain : Verdict::kFailed;
  }
  // Nobody asked for it here: it follows from what happened elsewhere. Or it is what the function
  // always ends with.
  const bool is_derived = code == StatusCode::kCancelled && ++*cancels < kCancelsMax;
  return is_derived ? Verdict::kAgain : Verdict::kFailed;
}

// ---- Workers ---------------------------------------------------------------------------------

void Scheduler::worker_found(int worker, uint64_t life, int64_t now_ns) {
  note(now_ns);
  SR_CHECK(worker >= 0 && worker < options_.workers);
  Worker& found = workers_[static_cast<size_t>(worker)];
  if (found.is_found) {
    if (found.life == life) return;
    lose(worker);
  }
  found.is_found = true;
  found.life = life;
  build_missing(worker);
  offer(worker);
  dispatch();
}

void Scheduler::worker_lost(int worker, uint64_t life, int64_t now_ns) {
  note(now_ns);
  if (living(worker, life) == nullptr) return;
  lose(worker);
  dispatch();
}

Scheduler::Worker* Scheduler::living(int worker, uint64_t life) {
  SR_CHECK(worker >= 0 && worker < options_.workers);
  Worker& one = workers_[static_cast<size_t>(worker)];
  return one.is_found && one.life == life ? &one : nullptr;
}

/// All that it ran and had is gone.
void Scheduler::lose(int worker) {
  Worker& lost = workers_[static_cast<size_t>(worker)];
  lost.is_found = false;
  lost.lost_ns = now_ns_;
  lost.missing = 0;
  staleness_.lost(worker);
  for (auto& [id, resource] : resources_) resource.copies[static_cast<size_t>(worker)] = {};
  for (const ClosureId id : std::exchange(lost.running, {})) {
    if (!closures_[id].is_own) --in_flight_;
    retry(worker, id);
  }
  finish_cancel();
  tell_if_idle();
}

int Scheduler::workers_found() const {
  return static_cast<int>(
      std::ranges::count_if(workers_, [](const Worker& one) { return one.is_found; }));
}

bool Scheduler::can_run(const Worker& worker) const {
  return !is_held_ && worker.is_found && worker.missing == 0 && now_ns_ >= worker.starts_ns &&
         worker.running.size() < static_cast<size_t>(options_.in_flight_max);
}

void Scheduler::put_free(int worker) {
  Worker& one = workers_[static_cast<size_t>(worker)];
  if (!can_run(one) || std::exchange(one.is_free, true)) return;
  free_.push_back(worker);
}

/// It may get closures, until it is full, if half of those that it takes have ended; its own first,
/// in any case.
void Scheduler::offer(int worker) {
  const Worker& one = workers_[static_cast<size_t>(worker)];
  if (!one.own.empty()) dispatch_own(worker);
  if (one.running.size() <= static_cast<size_t>(options_.in_flight_max) / 2) put_free(worker);
}

// ---- Closures --------------------------------------------------------------------------------

void Scheduler::dispatch() {
  const bool was_full = is_full();
  std::vector<int> ahead;  // They wait for closures of others.
  while (!queue_.empty() && !free_.empty()) {
    const int worker = free_.front();
    free_.pop_front();
    Worker& one = workers_[static_cast<size_t>(worker)];
    if (!can_run(one)) {
      one.is_free = false;
      continue;
    }
    if (!staleness_.may_begin(worker)) {
      ahead.push_back(worker);
      continue;
    }
    one.is_free = false;
    const ClosureId id = queue_.front();
    queue_.pop_front();
    start(worker, id);
    put_free(worker);
  }
  free_.insert(free_.begin(), ahead.begin(), ahead.end());
  if (was_full && !is_full()) hooks_->wake();
}

void Scheduler::dispatch_own(int worker) {
  Worker& one = workers_[static_cast<size_t>(worker)];
  while (!one.own.empty() && can_run(one)) {
    const ClosureId id = one.own.front();
    one.own.pop_front();
    start(worker, id);
  }
}

void Scheduler::start(int worker, ClosureId id) {
  Worker& one = workers_[static_cast<size_t>(worker)];
  Closure& closure = closures_[id];
  for (const ResourceId resource : closure.resources) {
    const Copy& copy = resources_[resource].copies[static_cast<size_t>(worker)];
    if (copy.made != Made::kFailed) continue;
    const Status error = marked(
        base::with_context(copy.why, fmt::format("per-worker resource {} of worker {} could not be "
                                                 "made",
                                                 resource, worker)),
        kInputError);
    const bool is_own = closure.is_own;
    end(id, error);
    if (!is_own) record(error);
    return;
  }
  closure.began_ns = now_ns_;
  one.running.push_back(id);
  if (!closure.is_own) {
    ++in_flight_;
    staleness_.begins(worker);
  }
  hooks_->run(worker, one.life, id);
}

void Scheduler::ended(int worker, uint64_t life, ClosureId closure, const Outcome& outcome,
                      int64_t now_ns) {
  note(now_ns);
  Worker* const one = living(worker, life);
  if (one == nullptr || std::erase(one->running, closure) == 0) return;
  Closure& known = closures_[closure];
  const bool is_own = known.is_own;
  if (!is_own) {
    --in_flight_;
    staleness_.ended(worker);
  }
  if (outcome.status.ok()) {
    end(closure, {});
  } else {
    switch (judge(worker, outcome, known.began_ns, &known.cancels)) {
      case Verdict::kWorkerLost:
        lose(worker);
        [[fallthrough]];
      case Verdict::kAgain:
        retry(worker, closure);
        break;
      case Verdict::kPsLost:
        fail_job(outcome.origin.task, outcome.status);
        end(closure, ps_failure_);
        break;
      case Verdict::kFailed:
        end(closure, outcome.status);
        if (!is_own) record(outcome.status);
    }
  }
  finish_cancel();
  tell_if_idle();
  offer(worker);
  dispatch();
}

/// Behind all others. It does not run any more; while all are cancelled it ends.
void Scheduler::retry(int worker, ClosureId id) {
  Closure& closure = closures_[id];
  if (closure.is_own) return workers_[static_cast<size_t>(worker)].own.push_back(id);
  if (closure.is_cancelled) return end(id, cancelled());
  ++retried_;
  queue_.push_back(id);
}

void Scheduler::end(ClosureId id, const Status& status) {
  const std::vector<ResourceId> resources = std::move(closures_[id].resources);
  if (closures_[id].is_own) --own_;
  closures_.erase(id);
  hooks_->closure_ended(id, status);
  for (const ResourceId resource : resources) {
    --resources_[resource].uses;
    forget_if_unused(resource);
  }
  if (all_ended()) hooks_->wake();
}

/// Tells who waits for all to be cancelled when they are.
void Scheduler::finish_cancel() {
  if (is_cancelling_ && in_flight_ == 0) hooks_->wake();
}

// ---- Resources -------------------------------------------------------------------------------

ResourceId Scheduler::create_resource(int64_t now_ns) {
  note(now_ns);
  const ResourceId id = ++last_resource_;
  resources_[id].copies.resize(workers_.size());
  for (int i = 0; i < options_.workers; ++i) build_missing(i);
  return id;
}

void Scheduler::release_resource(ResourceId resource) {
  const auto found = resources_.find(resource);
  if (found == resources_.end()) return;
  found->second.is_released = true;
  forget_if_unused(resource);
  dispatch();
}

void Scheduler::forget_if_unused(ResourceId id) {
  const auto found = resources_.find(id);
  if (!found->second.is_released || found->second.uses > 0) return;
  const std::vector<Copy> copies = std::move(found->second.copies);
  resources_.erase(found);
  for (size_t i = 0; i < copies.size(); ++i) {
    if (copies[i].made != Made::kNo) hooks_->drop(static_cast<int>(i), id);
    if (copies[i].made != Made::kUnderWay) continue;
    --workers_[i].missing;
    offer(static_cast<int>(i));
  }
  tell_if_idle();
}

void Scheduler::build_missing(int worker) {
  Worker& one = workers_[static_cast<size_t>(worker)];
  if (!one.is_found || is_held_) return;
  for (auto& [id, resource] : resources_) {
    Copy& copy = resource.copies[static_cast<size_t>(worker)];
    if (copy.made != Made::kNo) continue;
    copy.made = Made::kUnderWay;
    copy.began_ns = now_ns_;
    ++one.missing;
    hooks_->build(worker, one.life, id);
  }
}

void Scheduler::built(int worker, uint64_t life, ResourceId resource, const Outcome& outcome,
                      int64_t now_ns) {
  note(now_ns);
  Worker* const one = living(worker, life);
  const auto found = resources_.find(resource);
  if (one == nullptr || found == resources_.end()) return;
  Copy& copy = found->second.copies[static_cast<size_t>(worker)];
  if (copy.made != Made::kUnderWay) return;
  --one->missing;
  copy.made = Made::kYes;
  if (!outcome.status.ok()) {
    switch (judge(worker, outcome, copy.began_ns, &copy.cancels)) {
      case Verdict::kWorkerLost:
        lose(worker);
        break;
      case Verdict::kAgain:
        copy.made = Made::kNo;
        build_missing(worker);
        break;
      case Verdict::kPsLost:
        fail_job(outcome.origin.task, outcome.status);
        [[fallthrough]];
      case Verdict::kFailed:
        // Nobody hears of it who does not use it.
        copy.made = Made::kFailed;
        copy.why = outcome.status;
    }
  }
  tell_if_idle();
  offer(worker);
  dispatch();
}

// ---- What its owner wants --------------------------------------------------------------------

void Scheduler::hold() { is_held_ = true; }

bool Scheduler::is_idle() const {
  return std::ranges::all_of(
      workers_, [](const Worker& one) { return one.running.empty() && one.missing == 0; });
}

void Scheduler::tell_if_idle() {
  if (is_held_ && is_idle()) hooks_->wake();
}

void Scheduler::go_on(int64_t now_ns) {
  note(now_ns);
  is_held_ = false;
  for (int i = 0; i < options_.workers; ++i) {
    build_missing(i);
    offer(i);
  }
  dispatch();
}

// ---- Time ------------------------------------------------------------------------------------

int64_t Scheduler::tick(int64_t now_ns) {
  note(now_ns);
  int64_t next = INT64_MAX;
  std::vector<int> missing;
  int64_t since = now_ns;
  for (int i = 0; i < options_.workers; ++i) {
    const Worker& one = workers_[static_cast<size_t>(i)];
    offer(i);
    if (one.starts_ns > now_ns) next = std::min(next, one.starts_ns);
    if (one.is_found) continue;
    missing.push_back(i);
    since = std::min(since, one.lost_ns);
  }
  dispatch();
  if (missing.empty()) {
    reported_ns_ = now_ns;
    return next;
  }
  const int64_t due = std::max(reported_ns_, since) + options_.report_ns;
  if (now_ns < due) return std::min(next, due);
  reported_ns_ = now_ns;
  hooks_->missing(missing, since);
  return std::min(next, now_ns + options_.report_ns);
}

}  // namespace sidereal::coord
