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

/// Of a closure that does not wait for its worker to return.
Status gone(int worker) { return base::unavailable("worker {} is not there", worker); }

}  // namespace

bool is_input_error(const Status& status) { return has_mark(status, kInputError); }
bool is_ps_failure(const Status& status) { return has_mark(status, kPsFailure); }

Scheduler::Scheduler(const SchedulerOptions& options, SchedulerHooks* hooks, int64_t now_ns)
    : options_(options),
      hooks_(hooks),
      staleness_(options.workers, options.staleness_max),
      steps_(options.workers, options.step_size, options.step_quorum),
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
                                                     int64_t now_ns, bool contributes) {
  note(now_ns);
  if (has_error()) {
    if (!cancel_all()) return std::nullopt;
    return raise();
  }
  SR_RETURN_IF_ERROR(check(resources));
  if (is_full() || joining_ > 0) return std::nullopt;
  const ClosureId id = add(resources, contributes && options_.step_size > 0);
  queue_.push_back(id);
  is_awaited_ = false;
  resting_ns_ = now_ns_;
  dispatch();
  return id;
}

Result<ClosureId> Scheduler::schedule_on(int worker, std::span<const ResourceId> resources,
                                         int64_t now_ns, bool waits) {
  note(now_ns);
  if (worker < 0 || worker >= options_.workers) {
    return base::not_found("there is no worker {}; there are {}", worker, options_.workers);
  }
  SR_RETURN_IF_ERROR(check(resources));
  if (!waits && !workers_[static_cast<size_t>(worker)].is_found) return gone(worker);
  const ClosureId id = add(resources, false);
  closures_[id].is_own = true;
  closures_[id].waits = waits;
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

ClosureId Scheduler::add(std::span<const ResourceId> resources, bool contributes) {
  const ClosureId id = ++last_closure_;
  closures_[id].resources.assign(resources.begin(), resources.end());
  closures_[id].contributes = contributes;
  for (const ResourceId resource : resources) ++resources_[resource].uses;
  return id;
}

Result<bool> Scheduler::joined() {
  if (has_error()) {
    if (!cancel_all()) return false;
    leave_join();
    return raise();
  }
  end_step_if_complete();
  if (!all_ended()) return false;
  leave_join();
  return true;
}

void Scheduler::leave_join() {
  SR_CHECK(joining_ > 0);
  // Those that wait to schedule.
  if (--joining_ == 0) hooks_->wake();
}

void Scheduler::await(int64_t now_ns) {
  note(now_ns);
  is_awaited_ = true;
  end_step_if_complete();
}

Result<std::optional<bool>> Scheduler::done() {
  if (!has_error()) {
    is_awaited_ = true;
    end_step_if_complete();
    return all_ended();
  }
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
    if (steps_.does() == Steps::Does::kRuns) {
      for (const ClosureId id : give_step_up()) end(id, cancelled());
    }
  }
  return in_flight_ == 0 && steps_.does() != Steps::Does::kUpdates;
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
    leave_step(closures_[id]);
    retry(worker, id);
  }
  for (const ClosureId id : std::exchange(lost.own, {})) {
    if (closures_[id].waits) {
      lost.own.push_back(id);
    } else {
      end(id, gone(worker));
    }
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

/// These are the first again.
void Scheduler::be_free(std::vector<int>* workers) {
  free_.insert(free_.begin(), workers->begin(), workers->end());
  workers->clear();
}

void Scheduler::dispatch() {
  const bool was_full = is_full();
  std::vector<int> ahead;          // They wait for closures of others,
  std::vector<int> ahead_of_step;  // or for the next step.
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
    const ClosureId id = queue_.front();
    const bool contributes = closures_[id].contributes;
    if (contributes && !steps_.may_begin()) {
      free_.push_front(worker);
      break;
    }
    if (contributes && !steps_.may_begin_on(worker)) {
      ahead_of_step.push_back(worker);
      continue;
    }
    one.is_free = false;
    queue_.pop_front();
    start(worker, id);
    put_free(worker);
    if (!queue_.empty() && !closures_[queue_.front()].contributes) be_free(&ahead_of_step);
  }
  be_free(&ahead_of_step);
  be_free(&ahead);
  if (was_full && !is_full()) hooks_->wake();
  end_step_if_complete();
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
  if (closure.contributes) {
    closure.step = steps_.number();
    closure.is_void = false;
    steps_.begins_on(worker);
  }
  hooks_->run(worker, one.life, id, closure.step);
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
  if (outcome.status.ok() && known.is_void) {
    retry(worker, closure);
  } else if (outcome.status.ok() && is_of_step(known)) {
    contribute(closure);
  } else if (outcome.status.ok()) {
    end(closure, {});
  } else {
    leave_step(known);
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

/// Behind all others, or, of those that contribute, before them: it belongs to the same step. It
/// does not run any more; while all are cancelled it ends.
void Scheduler::retry(int worker, ClosureId id) {
  Closure& closure = closures_[id];
  if (closure.is_own) {
    Worker& one = workers_[static_cast<size_t>(worker)];
    if (!closure.waits && !one.is_found) return end(id, gone(worker));
    return one.own.push_back(id);
  }
  if (closure.is_cancelled) return end(id, cancelled());
  ++retried_;
  if (closure.contributes) {
    queue_.push_front(id);
  } else {
    queue_.push_back(id);
  }
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
  const bool updates = steps_.does() == Steps::Does::kUpdates;
  if (is_cancelling_ && in_flight_ == 0 && !updates) hooks_->wake();
}

// ---- Steps -----------------------------------------------------------------------------------

/// A closure ends, or begins anew, and has not contributed as far as is known.
void Scheduler::leave_step(const Closure& closure) {
  if (is_of_step(closure)) steps_.fails();
}

void Scheduler::contribute(ClosureId id) {
  steps_.ends(id);
  resting_ns_ = now_ns_;
}

/// Whether the step has had all closures that are scheduled, and somebody waits for it.
bool Scheduler::lacks_closures() const {
  if (!steps_.is_resting()) return false;
  if (is_held_) return true;
  const bool is_late = now_ns_ - resting_ns_ >= options_.step_patience_ns;
  return queue_.empty() && (joining_ > 0 || is_awaited_ || is_late);
}

void Scheduler::end_step_if_complete() {
  if (steps_.is_complete() || lacks_closures()) {
    step_began_ns_ = now_ns_;
    steps_.begin_update();
    return hooks_->end_step(steps_.number(), steps_.ended());
  }
  if (!steps_.must_forget() || queue_.empty() || is_held_) return;
  step_began_ns_ = now_ns_;
  steps_.begin_forgetting();
  hooks_->forget_steps(steps_.number());
}

/// Closures of this step that run are to run again.
void Scheduler::void_running() {
  for (const Worker& one : workers_) {
    for (const ClosureId id : one.running) {
      Closure& closure = closures_[id];
      closure.is_void |= is_of_step(closure);
    }
  }
}

std::vector<ClosureId> Scheduler::give_step_up() {
  if (options_.step_size == 0) return {};
  void_running();
  steps_.spoil();
  return steps_.leave();
}

void Scheduler::step_lost(int64_t now_ns) {
  note(now_ns);
  // An update that is under way says itself what has become of it.
  if (steps_.does() != Steps::Does::kRuns) return;
  std::vector<ClosureId> closures = give_step_up();
  for (; !closures.empty(); closures.pop_back()) retry(-1, closures.back());
  tell_if_idle();
  dispatch();
}

void Scheduler::step_done(int64_t step, const Outcome& outcome, int64_t now_ns) {
  note(now_ns);
  if (step != steps_.number() || steps_.does() == Steps::Does::kRuns) return;
  const Verdict verdict =
      outcome.status.ok() ? Verdict::kAgain : judge(-1, outcome, step_began_ns_, &step_cancels_);
  if (!outcome.status.ok()) void_running();
  std::vector<ClosureId> closures = steps_.next();
  std::ranges::reverse(closures);  // The last that is tried again is the first to run.
  if (outcome.status.ok()) {
    step_cancels_ = 0;
    for (const ClosureId id : closures) end(id, {});
  } else {
    // Some of them may have changed variables; all run again, if they may.
    steps_.spoil();
    if (verdict == Verdict::kPsLost) fail_job(outcome.origin.task, outcome.status);
    for (const ClosureId id : closures) {
      if (verdict == Verdict::kPsLost) {
        end(id, ps_failure_);
      } else if (verdict == Verdict::kFailed || is_cancelling_) {
        end(id, is_cancelling_ ? cancelled() : outcome.status);
      } else {
        retry(-1, id);
      }
    }
    if (verdict == Verdict::kFailed) record(outcome.status);
  }
  finish_cancel();
  tell_if_idle();
  dispatch();
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

void Scheduler::hold() {
  is_held_ = true;
  end_step_if_complete();
}

bool Scheduler::is_idle() const {
  if (steps_.does() != Steps::Does::kRuns || steps_.is_resting()) return false;
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
  const int64_t late = resting_ns_ + options_.step_patience_ns;
  if (steps_.is_resting() && late > now_ns) next = std::min(next, late);
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
