#include "tests/sim/coordinator.h"

#include <algorithm>
#include <map>
#include <queue>
#include <set>
#include <utility>

#include "sidereal/base/hash.h"
#include "tests/sim/contributions.h"
#include "tests/sim/ledger.h"

namespace sidereal::sim {

using coord::ClosureId;
using coord::Origin;
using coord::Outcome;
using coord::ResourceId;
using sys::kMillisecond;
using sys::kSecond;
using sys::sim::Rng;

namespace {

constexpr uint64_t kEventsMax = 3'000'000;
/// Nothing goes wrong of itself any more.
constexpr int64_t kCalm = 20 * kSecond;

double share(Rng& rng, double most) { return rng.chance(0.5) ? 0 : most * rng.unit(); }

Status by_code(StatusCode code, ClosureId closure) {
  return base::make_status(code, fmt::format("closure {} says so", closure));
}

bool is_from_here(const Status& status) {
  return status.code() == StatusCode::kCancelled &&
         base::message_of(status).find("reschedule") != std::string::npos;
}

}  // namespace

CoordinatorScenario draw_coordinator(uint64_t seed, const Wishes& wishes) {
  Rng rng(seed);
  CoordinatorScenario out;
  out.seed = seed;
  const auto workers = static_cast<int>(sized(rng, 1, 64));
  out.options.workers = wishes.workers > 0 ? wishes.workers : workers;
  out.options.ps = static_cast<int>(rng.between(1, 4));
  out.options.queue_max =
      rng.chance(0.3) ? 0 : static_cast<size_t>(sized(rng, 2, 4 * out.options.workers));
  out.options.in_flight_max = rng.chance(0.5) ? 1 : static_cast<int>(rng.between(2, 4));
  out.options.transient_ps_failures = static_cast<int>(rng.below(5));
  out.options.transient_timeouts = rng.chance(0.5) ? -1 : static_cast<int>(rng.below(8));
  out.options.failure_window_ns = sized(rng, 100 * kMillisecond, 60 * kSecond);
  out.options.start_delay_ns = rng.chance(0.7) ? 0 : rng.between(1, 20) * kMillisecond;
  out.options.start_delay_max_ns = rng.chance(0.5) ? 0 : 100 * kMillisecond;
  out.options.report_ns = sized(rng, 100 * kMillisecond, 5 * kSecond);
  out.users = static_cast<int>(rng.between(1, 4));
  out.closures = static_cast<int>(sized(rng, 100, 2'000)) + 4 * out.options.workers;
  out.resources = static_cast<int>(rng.below(5));
  out.run_ns = sized(rng, kMillisecond, 50 * kMillisecond);
  out.build_ns = sized(rng, kMillisecond, 100 * kMillisecond);
  out.delay_ns = sized(rng, 10'000, 5 * kMillisecond);
  out.think_ns = sized(rng, 10'000, 2 * kMillisecond);
  out.detect_ns = sized(rng, kMillisecond, 200 * kMillisecond);
  out.return_ns = sized(rng, kMillisecond, 500 * kMillisecond);
  out.death_ns = rng.chance(0.3) ? 0 : sized(rng, kMillisecond, kSecond);
  out.break_ns = rng.chance(0.5) ? 0 : sized(rng, kMillisecond, kSecond);
  out.slow = share(rng, 0.05);
  out.failing = share(rng, 0.05);
  out.refused = share(rng, 0.02);
  out.late = share(rng, 0.02);
  out.derived = share(rng, 0.1);
  out.poisoned = share(rng, 0.01);
  out.accused = share(rng, 0.05);
  out.unbuildable = share(rng, 0.3);
  out.ps_dies = rng.chance(0.1);
  if (out.options.in_flight_max == 1 && rng.chance(0.5)) {
    out.options.staleness_max = rng.between(0, 4);
  } else if (out.options.in_flight_max == 1) {
    out.options.step_size = out.options.workers;
    out.options.step_quorum =
        rng.chance(0.5) ? out.options.workers : rng.between(1, out.options.workers);
    out.options.step_patience_ns = sized(rng, 10 * kMillisecond, kSecond);
    out.contributing = rng.chance(0.5) ? 1 : rng.unit();
  }
  out.hold_ns = rng.chance(0.7) ? 0 : sized(rng, 10 * kMillisecond, kSecond);
  return out;
}

std::string CoordinatorScenario::to_string() const {
  const auto ms = [](int64_t ns) { return static_cast<double>(ns) / 1e6; };
  return fmt::format(
      "coordinator; {} workers that run {} at a time, {} ps, {} closures of {} users, queue of {}, "
      "{} resources; run {} ms, build {} ms, delay {} ms, think {} ms, loss noticed after {} ms, "
      "back after {} ms; faults each ms: death {}, break {}; held each {} ms; ps {} times, "
      "timeouts {} times within "
      "{} ms; slow {:.3f}, failing {:.3f}, refused {:.3f}, late {:.3f}, derived {:.3f}, poisoned "
      "{:.3f}, accused {:.3f}, unbuildable {:.3f}, {}, staleness of {}, steps of {} of {} "
      "closures, {:.2f} of "
      "all",
      options.workers, options.in_flight_max, options.ps, closures, users, options.queue_max,
      resources, ms(run_ns), ms(build_ns), ms(delay_ns), ms(think_ns), ms(detect_ns), ms(return_ns),
      ms(death_ns), ms(break_ns), ms(hold_ns), options.transient_ps_failures,
      options.transient_timeouts, ms(options.failure_window_ns), slow, failing, refused, late,
      derived, poisoned, accused, unbuildable, ps_dies ? "a ps dies" : "all ps live",
      options.staleness_max.value_or(-1), options.step_quorum, options.step_size, contributing);
}

std::string CoordinatorReport::to_string() const {
  return fmt::format(
      "trace {:016x}, {} events, {} deaths, held {} times; {} values, {} errors, {} cancelled, {} "
      "raised; {} runs, {} steps",
      hash, events, deaths, held, values, errors, cancelled, raised, runs, steps);
}

namespace {

class CoordinatorRun final : public coord::SchedulerHooks {
 public:
  CoordinatorRun(const CoordinatorScenario& scenario, const MakeScheduler& make,
                 const std::function<void(int64_t, std::string_view)>& trace)
      : scenario_(scenario),
        options_(scenario.options),
        trace_(trace),
        rng_(scenario.seed ^ 0xc00d),
        workers_(static_cast<size_t>(options_.workers)),
        users_(static_cast<size_t>(scenario.users)),
        contributions_(options_, &ledger_),
        ps_reports_(static_cast<size_t>(options_.ps)) {
    scheduler_ = make(options_, this, 0);
  }

  CoordinatorReport run() {
    for (int i = 0; i < options_.workers; ++i)
      later(rng_.around(scenario_.detect_ns), [this, i] { find(i); });
    for (size_t i = 0; i < users_.size(); ++i) later(0, [this, i] { act(i); });
    if (scenario_.death_ns > 0) plan_death();
    if (scenario_.break_ns > 0) plan_break();
    if (scenario_.hold_ns > 0) plan_hold();
    if (scenario_.ps_dies) later(rng_.around(kSecond), [this] { lose_ps(); });
    later(0, [this] { tick(); });
    while (!events_.empty() && report_.events < kEventsMax && ledger_.complaints().size() < 5) {
      Event event = events_.top();
      events_.pop();
      now_ = event.ns;
      ++report_.events;
      event.what();
      if (users_done_ == users_.size() && !is_over_) finish();
    }
    if (!is_over_ && ledger_.complaints().empty()) {
      ledger_.complain("{} of {} users wait for ever; {} closures are open, {} run",
                       users_.size() - users_done_, users_.size(), open_.size(), running_);
    }
    report_.complaints = ledger_.complaints();
    return report_;
  }

  // ---- SchedulerHooks.

  void run(int worker, uint64_t life, ClosureId closure, int64_t step) override {
    say("run", static_cast<uint64_t>(worker), closure);
    ++report_.runs;
    Worker& one = workers_[static_cast<size_t>(worker)];
    if (!one.is_linked || one.link != life) {
      ledger_.complain("closure {} is run on worker {}, which is lost", closure, worker);
    }
    if (one.running.size() >= static_cast<size_t>(options_.in_flight_max)) {
      ledger_.complain("worker {} runs {} closures, and one more", worker, one.running.size());
    }
    if (is_cancelling_) ledger_.complain("closure {} is begun while all are cancelled", closure);
    if (now_ < starts_at(worker)) ledger_.complain("worker {} begins too early", worker);
    if (is_held_) ledger_.complain("closure {} begins while all is held", closure);
    const auto known = open_.find(closure);
    if (known == open_.end()) return ledger_.complain("closure {} runs after its end", closure);
    Open& open = known->second;
    if (open.worker >= 0) ledger_.complain("closure {} is run twice at once", closure);
    const auto place = std::pair(open.rank, closure);
    if (!is_its_turn(open)) ledger_.complain("closure {} is run before its turn", closure);
    waiting_.erase(place);
    open.rank = 0;
    open.worker = worker;
    open.step = open.contributes ? step : 0;
    if (open.contributes) contributions_.begin(worker, closure, step);
    open.began_ns = now_;
    open.ended_since.clear();
    check_staleness(worker);
    one.running.insert(closure);
    ++running_;
    for (const ResourceId resource : open.resources) {
      const auto copy = one.copies.find(resource);
      if (copy == one.copies.end() || copy->second != Copy::kBuilt) {
        ledger_.complain("closure {} runs on worker {} without resource {}", closure, worker,
                         resource);
      }
    }
    send(worker, life, closure);
  }

  void cancel(int worker, ClosureId closure) override {
    say("cancel", static_cast<uint64_t>(worker), closure);
    Worker& one = workers_[static_cast<size_t>(worker)];
    if (!one.running.contains(closure)) {
      return ledger_.complain("closure {} is cancelled on worker {}, which does not run it",
                              closure, worker);
    }
    open_[closure].is_cancelled = true;
    later(rng_.around(scenario_.delay_ns), [this, worker, life = one.link, closure] {
      report_end(worker, life, closure, {by_code(StatusCode::kCancelled, closure)}, true);
    });
  }

  void build(int worker, uint64_t life, ResourceId resource) override {
    say("build", static_cast<uint64_t>(worker), resource);
    Worker& one = workers_[static_cast<size_t>(worker)];
    if (!one.is_linked || one.link != life) {
      ledger_.complain("resource {} is built on worker {}, which is lost", resource, worker);
    }
    if (is_held_) ledger_.complain("resource {} is built while all is held", resource);
    if (one.copies.contains(resource)) {
      ledger_.complain("resource {} is built twice on worker {}", resource, worker);
    }
    one.copies[resource] = Copy::kUnderWay;
    later(rng_.around(scenario_.build_ns) + rng_.around(scenario_.delay_ns),
          [this, worker, life, resource] { end_build(worker, life, resource); });
  }

  void drop(int worker, ResourceId resource) override {
    say("drop", static_cast<uint64_t>(worker), resource);
    Worker& one = workers_[static_cast<size_t>(worker)];
    if (one.copies.erase(resource) == 0) {
      ledger_.complain("resource {} is dropped on worker {}, which has none", resource, worker);
    }
    const Held& held = held_[resource];
    if (held.uses > 0 || !held.is_released) {
      ledger_.complain("resource {} is dropped while it is used", resource);
    }
  }

  void end_step(int64_t step, std::span<const ClosureId> closures) override {
    say("end_step", static_cast<uint64_t>(step), closures.size());
    const bool is_awaited =
        joining_ > 0 || is_awaited_ || now_ - quiet_since_ns_ >= options_.step_patience_ns;
    contributions_.end_step(step, closures, is_held_ || (waiting_.empty() && is_awaited));
    report_step(step);
  }

  void forget_steps(int64_t step) override {
    say("forget_steps", static_cast<uint64_t>(step), 0);
    if (is_held_) ledger_.complain("steps are forgotten while all is held");
    contributions_.forget(step);
    report_step(step);
  }

  void closure_ended(ClosureId closure, const Status& status) override {
    say("ended", closure, static_cast<uint64_t>(status.code()));
    const auto known = open_.find(closure);
    if (known == open_.end()) return ledger_.complain("closure {} ends twice", closure);
    const Open& open = known->second;
    if (status.ok()) {
      ++report_.values;
      if (open.contributes) {
        contributions_.check_value(closure);
      } else if (told_ != closure || !told_outcome_.status.ok()) {
        ledger_.complain("closure {} has a value that nobody brought", closure);
      }
      if (open.times == 0) ledger_.complain("closure {} has a value, and never ran", closure);
    } else if (is_from_here(status)) {
      ++report_.cancelled;
      if (!is_cancelling_) ledger_.complain("closure {} is cancelled without a reason", closure);
    } else {
      ++report_.errors;
      check_error(closure, open, status);
      if (pending_.ok()) pending_ = status;
    }
    if (open.worker >= 0) forget_running(open.worker, closure);
    waiting_.erase({open.rank, closure});
    for (const ResourceId resource : open.resources) --held_[resource].uses;
    open_.erase(known);
  }

  void wake() override { is_woken_ = true; }

  void missing(std::span<const int> workers, int64_t since_ns) override {
    int64_t since = now_;
    size_t lost = 0;
    for (const Worker& one : workers_) {
      if (one.is_linked) continue;
      ++lost;
      since = std::min(since, one.lost_ns);
    }
    const bool are_lost = std::ranges::all_of(
        workers, [this](int worker) { return !workers_[static_cast<size_t>(worker)].is_linked; });
    if (lost != workers.size() || !are_lost || since != since_ns) {
      ledger_.complain("{} workers are said to be missing; {} are", workers.size(), lost);
    }
    missing_ns_ = now_;
  }

 private:
  struct Event {
    int64_t ns;
    uint64_t number;
    std::function<void()> what;
    bool operator<(const Event& other) const {
      return std::pair(ns, number) > std::pair(other.ns, other.number);
    }
  };
  enum class Copy : uint8_t { kUnderWay, kBuilt, kFailed };
  struct Worker {
    bool is_linked = false;  ///< As the scheduler was told.
    uint64_t link = 0;
    bool is_up = true;
    uint64_t process = 0;  ///< Grows with its deaths.
    uint64_t found = 0;    ///< The process that was found last.
    int64_t lost_ns = 0;
    std::set<ClosureId> running;
    std::map<ResourceId, Copy> copies;
    std::map<ResourceId, int> cancels;  ///< Of making them.
  };
  struct Open {
    std::vector<ResourceId> resources;
    uint64_t rank = 0;  ///< In the queue; 0: it does not wait there.
    int worker = -1;
    int64_t began_ns = 0;
    int times = 0;  ///< That it ran to its end.
    int cancels = 0;
    bool is_cancelled = false;
    bool contributes = false;
    int64_t step = 0;                         ///< To this one.
    std::map<int, int64_t> ended_since = {};  ///< Closures, by the worker, since it began.
  };
  struct Held {
    int64_t uses = 0;
    bool is_released = false;
  };
  struct User {
    enum class Does : uint8_t { kThinks, kSchedules, kJoins, kAsks, kEnds } does = Does::kThinks;
    std::vector<ResourceId> resources;
    bool contributes = false;  ///< What it schedules.
    uint64_t turn = 0;
    bool waits = false;
    bool must_raise = false;  ///< There was an error when it asked.
  };

  void later(int64_t ns, std::function<void()> what) {
    events_.push({.ns = now_ + ns, .number = ++event_number_, .what = std::move(what)});
  }
  void say(std::string_view what, uint64_t a, uint64_t b) {
    ++hook_calls_;
    const uint64_t words[] = {report_.hash, static_cast<uint64_t>(now_), a, b};
    report_.hash = base::hash64(words, sizeof(words));
    if (trace_) trace_(now_, fmt::format("{} {} {}", what, a, b));
  }
  [[nodiscard]] int64_t starts_at(int worker) const {
    const int64_t delay = options_.start_delay_ns * worker;
    return options_.start_delay_max_ns > 0 ? std::min(delay, options_.start_delay_max_ns) : delay;
  }
  void forget_running(int worker, ClosureId closure) {
    running_ -= workers_[static_cast<size_t>(worker)].running.erase(closure);
  }

  /// What is tried again in this very moment has no rank yet: it is last, or, if it contributes,
  /// first.
  [[nodiscard]] bool is_its_turn(const Open& open) const {
    if (open.rank == 0) return open.contributes || waiting_.empty();
    const bool has_first = std::ranges::any_of(must_stay_, [this](ClosureId id) {
      const auto other = open_.find(id);
      return other != open_.end() && other->second.contributes && other->second.worker < 0;
    });
    return !has_first && waiting_.begin()->first == open.rank;
  }

  // ---- Workers.

  void find(int worker) {
    Worker& one = workers_[static_cast<size_t>(worker)];
    if (!one.is_up || (one.is_linked && one.process == one.found)) return;
    note_lost(worker);
    one.is_linked = true;
    one.found = one.process;
    one.link = ++links_;
    say("found", static_cast<uint64_t>(worker), one.link);
    scheduler_->worker_found(worker, one.link, now_);
    settle();
  }
  void notice_loss(int worker, uint64_t link) {
    const Worker& one = workers_[static_cast<size_t>(worker)];
    if (!one.is_linked || one.link != link) return;
    note_lost(worker);
    say("lost", static_cast<uint64_t>(worker), link);
    scheduler_->worker_lost(worker, link, now_);
    settle();
    later(rng_.around(scenario_.detect_ns), [this, worker] { find(worker); });
  }
  /// What the scheduler is about to hear.
  void note_lost(int worker) {
    Worker& one = workers_[static_cast<size_t>(worker)];
    if (!one.is_linked) return;
    one.is_linked = false;
    one.lost_ns = now_;
    one.copies.clear();
    one.cancels.clear();
    for (const ClosureId closure : std::exchange(one.running, {})) {
      Open& open = open_[closure];
      open.worker = -1;
      --running_;
      contributions_.leave(closure);
      (open.is_cancelled ? must_end_ : must_stay_).push_back(closure);
    }
  }
  void plan_death() {
    later(rng_.around(scenario_.death_ns), [this] {
      if (is_calm()) return;
      plan_death();
      const auto worker = static_cast<int>(rng_.below(workers_.size()));
      Worker& one = workers_[static_cast<size_t>(worker)];
      if (!one.is_up) return;
      ++report_.deaths;
      one.is_up = false;
      ++one.process;
      later(rng_.around(scenario_.detect_ns),
            [this, worker, link = one.link] { notice_loss(worker, link); });
      later(rng_.around(scenario_.return_ns), [this, worker] {
        workers_[static_cast<size_t>(worker)].is_up = true;
        // Maybe before its loss was noticed.
        later(rng_.around(scenario_.detect_ns), [this, worker] { find(worker); });
      });
    });
  }
  void plan_break() {
    later(rng_.around(scenario_.break_ns), [this] {
      if (is_calm()) return;
      plan_break();
      if (options_.step_size > 0 && rng_.chance(0.2)) return lose_step();
      const auto worker = static_cast<int>(rng_.below(workers_.size()));
      notice_loss(worker, workers_[static_cast<size_t>(worker)].link);
    });
  }
  /// As who moves variables, and may give it up before nothing runs.
  void plan_hold() {
    later(rng_.around(scenario_.hold_ns), [this] {
      if (is_calm()) return;
      say("hold", 0, 0);
      is_held_ = true;
      scheduler_->hold();
      if (contributions_.is_resting()) ledger_.complain("a step waits, and all is held");
      was_idle_ = is_idle();
      report_.held += was_idle_ ? 1 : 0;
      later(rng_.around(10 * scenario_.run_ns), [this] { end_hold(); });
    });
  }
  void end_hold() {
    say("go_on", 0, 0);
    is_held_ = false;
    scheduler_->go_on(now_);
    settle();
    plan_hold();
  }
  [[nodiscard]] bool is_idle() const {
    if (!contributions_.is_at_rest()) return false;
    return std::ranges::all_of(workers_, [](const Worker& one) {
      const bool is_building = std::ranges::any_of(
          one.copies, [](const auto& copy) { return copy.second == Copy::kUnderWay; });
      return one.running.empty() && !is_building;
    });
  }
  void lose_ps() {
    const Status why = base::unavailable("it was killed");
    const auto ps = static_cast<int>(rng_.below(static_cast<uint64_t>(options_.ps)));
    is_fatal_ = true;
    scheduler_->ps_lost(ps, why);
    is_pending_fatal_ = is_pending_fatal_ || pending_.ok();
    settle();
  }
  [[nodiscard]] bool is_calm() const { return scheduled_ >= scenario_.closures || now_ >= kCalm; }

  // ---- Closures on workers.

  void send(int worker, uint64_t life, ClosureId closure) {
    const int64_t there = rng_.around(scenario_.delay_ns);
    const int64_t takes = rng_.around(scenario_.run_ns) * (rng_.chance(scenario_.slow) ? 100 : 1);
    const uint64_t process = workers_[static_cast<size_t>(worker)].process;
    const Outcome outcome = draw_outcome(worker, closure);
    const int64_t step = open_[closure].step;
    later(there + takes, [this, worker, life, closure, process, outcome, step] {
      Worker& one = workers_[static_cast<size_t>(worker)];
      const bool is_there = one.process == process && outcome.status.ok();
      if (step > 0 && (is_there || rng_.chance(0.5))) contributions_.arrive(closure, step);
      if (one.process != process) return;  // It died with its process.
      const auto open = open_.find(closure);
      if (open != open_.end() && outcome.status.ok()) ++open->second.times;
      later(rng_.around(scenario_.delay_ns), [this, worker, life, closure, outcome] {
        report_end(worker, life, closure, outcome, false);
      });
    });
  }

  Outcome draw_outcome(int worker, ClosureId closure) {
    if (rng_.chance(scenario_.failing)) return {by_code(StatusCode::kInvalidArgument, closure)};
    const uint64_t words[] = {scenario_.seed, closure};
    Rng fate(base::hash64(words, sizeof(words)));
    if (fate.chance(scenario_.poisoned) || rng_.chance(scenario_.derived)) {
      return {by_code(StatusCode::kCancelled, closure)};
    }
    if (rng_.chance(scenario_.late)) return {by_code(StatusCode::kDeadlineExceeded, closure)};
    const auto ps = static_cast<int>(rng_.below(static_cast<uint64_t>(options_.ps)));
    if (rng_.chance(scenario_.refused)) {
      return {by_code(StatusCode::kUnavailable, closure), {.job = Origin::Job::kPs, .task = ps}};
    }
    if (rng_.chance(scenario_.accused)) {
      const auto other = static_cast<int>(rng_.below(workers_.size()));
      return {by_code(StatusCode::kUnavailable, closure),
              {.job = Origin::Job::kWorker, .task = rng_.chance(0.5) ? worker : other}};
    }
    return {};
  }

  /// The scheduler is told how a closure ended, unless the connection is gone. Now and then it is
  /// told of what is long over.
  void report_end(int worker, uint64_t life, ClosureId closure, const Outcome& outcome,
                  bool is_answer_to_cancel) {
    Worker& one = workers_[static_cast<size_t>(worker)];
    const bool is_stale = !one.is_linked || one.link != life || !one.running.contains(closure);
    if (is_stale && (is_answer_to_cancel || rng_.chance(0.5))) return;
    if (is_stale) {
      const uint64_t before = hook_calls_;
      scheduler_->ended(worker, life, closure, outcome, now_);
      if (hook_calls_ != before) {
        ledger_.complain("what an earlier life of worker {} says of closure {} is believed", worker,
                         closure);
      }
      return settle();
    }
    say("told", closure, static_cast<uint64_t>(outcome.status.code()));
    Open& open = open_[closure];
    bool is_again = expect_again(outcome, open.began_ns, &open.cancels);
    const bool is_lost =
        outcome.origin.job == Origin::Job::kWorker && outcome.origin.task == worker;
    forget_running(worker, closure);
    count_staleness(worker);
    open.worker = -1;
    if (open.contributes && outcome.status.ok()) is_again = !contributions_.give(closure);
    if (open.contributes && !outcome.status.ok()) contributions_.leave(closure);
    if (contributions_.has(closure)) {
      quiet_since_ns_ = now_;
    } else {
      (is_again && !open.is_cancelled ? must_stay_ : must_end_).push_back(closure);
    }
    if (is_lost) {
      note_lost(worker);
      later(rng_.around(scenario_.detect_ns), [this, worker] { find(worker); });
    }
    told_ = closure;
    told_outcome_ = outcome;
    scheduler_->ended(worker, life, closure, outcome, now_);
    told_ = 0;
    settle();
  }

  // ---- Steps.

  /// Parameter servers end, or forget, a step; maybe they do, and it is said that they did not.
  void report_step(int64_t step) {
    step_began_ns_ = now_;
    later(rng_.around(scenario_.run_ns), [this, step] {
      Outcome outcome;
      const auto ps = static_cast<int>(rng_.below(static_cast<uint64_t>(options_.ps)));
      if (rng_.chance(scenario_.refused)) {
        outcome = {by_code(StatusCode::kUnavailable, 0), {.job = Origin::Job::kPs, .task = ps}};
      } else if (rng_.chance(scenario_.failing / 4)) {
        outcome = {by_code(StatusCode::kInvalidArgument, 0)};
      }
      const bool is_ok = outcome.status.ok();
      if (is_ok || rng_.chance(0.5)) contributions_.carry_out();
      later(rng_.around(scenario_.delay_ns), [this, step, outcome] { tell_step(step, outcome); });
    });
  }
  void tell_step(int64_t step, const Outcome& outcome) {
    const bool is_ok = outcome.status.ok();
    say("step", static_cast<uint64_t>(step), static_cast<uint64_t>(outcome.status.code()));
    const bool is_again = is_ok || expect_again(outcome, step_began_ns_, &step_cancels_);
    if (is_ok) step_cancels_ = 0;
    report_.steps += is_ok && contributions_.is_updating() ? 1 : 0;
    const std::set<ClosureId> closures = contributions_.done(is_ok);
    for (const ClosureId closure : closures) {
      if (!open_.contains(closure)) continue;
      (is_ok || !is_again || is_cancelling_ ? must_end_ : must_stay_).push_back(closure);
    }
    if (!is_again && !is_fatal_ && pending_.ok() && closures.empty()) pending_ = outcome.status;
    told_outcome_ = outcome;
    told_step_.insert(closures.begin(), closures.end());
    scheduler_->step_done(step, outcome, now_);
    told_step_.clear();
    settle();
  }
  /// A ps was started again.
  void lose_step() {
    say("lose_step", 0, 0);
    if (!contributions_.is_updating()) {
      contributions_.lose();
      for (const ClosureId closure : contributions_.give_up()) must_stay_.push_back(closure);
    }
    scheduler_->step_lost(now_);
    settle();
  }

  /// Whether a failure is to be tried again; what is counted is counted here too.
  bool expect_again(const Outcome& outcome, int64_t began_ns, int* cancels) {
    switch (outcome.status.code()) {
      case StatusCode::kUnavailable:
        if (outcome.origin.job == Origin::Job::kWorker) return true;
        if (note_failure(&ps_reports_[static_cast<size_t>(outcome.origin.task)],
                         options_.transient_ps_failures, began_ns)) {
          return true;
        }
        is_fatal_ = true;
        is_pending_fatal_ = is_pending_fatal_ || pending_.ok();
        return false;
      case StatusCode::kDeadlineExceeded: {
        const int limit =
            options_.transient_timeouts < 0 ? options_.workers / 10 : options_.transient_timeouts;
        return note_failure(&late_reports_, limit, began_ns);
      }
      case StatusCode::kCancelled:
        return ++*cancels < coord::Scheduler::kCancelsMax;
      default:
        return false;
    }
  }
  bool note_failure(std::vector<int64_t>* reports, int limit, int64_t began_ns) {
    std::erase_if(*reports, [this](int64_t ns) { return now_ - ns > options_.failure_window_ns; });
    const bool is_known = !reports->empty() && began_ns < reports->back();
    if (static_cast<int>(reports->size()) + (is_known ? 0 : 1) >= limit) return false;
    if (!is_known) reports->push_back(now_);
    return true;
  }

  void check_error(ClosureId closure, const Open& open, const Status& status) {
    if (coord::is_input_error(status)) {
      const bool has_failed = std::ranges::any_of(open.resources, [this](ResourceId resource) {
        return std::ranges::any_of(workers_, [resource](const Worker& one) {
          const auto copy = one.copies.find(resource);
          return copy != one.copies.end() && copy->second == Copy::kFailed;
        });
      });
      if (!has_failed) ledger_.complain("closure {} lacks a resource that is there", closure);
      lacking_.insert(closure);
      return;
    }
    if (told_ != closure && !told_step_.contains(closure)) {
      return ledger_.complain("closure {} fails, and nobody said so", closure);
    }
    if (coord::is_ps_failure(status)) {
      if (!is_fatal_) ledger_.complain("a ps is given up too early");
      return;
    }
    if (status != told_outcome_.status) {
      ledger_.complain("closure {} ends with another error than its own: {}", closure,
                       base::message_of(status));
    }
  }

  // ---- Resources.

  void end_build(int worker, uint64_t life, ResourceId resource) {
    Worker& one = workers_[static_cast<size_t>(worker)];
    const auto copy = one.copies.find(resource);
    const bool is_stale = !one.is_linked || one.link != life || copy == one.copies.end() ||
                          copy->second != Copy::kUnderWay;
    Outcome outcome;
    if (!is_stale) {
      const uint64_t words[] = {scenario_.seed, resource, static_cast<uint64_t>(worker % 3)};
      Rng fate(base::hash64(words, sizeof(words)));
      if (fate.chance(scenario_.unbuildable)) {
        outcome.status = base::invalid_argument("resource {} cannot be made here", resource);
        copy->second = Copy::kFailed;
      } else if (rng_.chance(scenario_.derived)) {
        outcome.status = by_code(StatusCode::kCancelled, 0);
        if (++one.cancels[resource] < coord::Scheduler::kCancelsMax) {
          one.copies.erase(copy);
        } else {
          copy->second = Copy::kFailed;
        }
      } else if (rng_.chance(scenario_.accused)) {
        outcome = {by_code(StatusCode::kUnavailable, 0),
                   {.job = Origin::Job::kWorker, .task = worker}};
        note_lost(worker);
        later(rng_.around(scenario_.detect_ns), [this, worker] { find(worker); });
      } else {
        copy->second = Copy::kBuilt;
      }
    }
    scheduler_->built(worker, life, resource, outcome, now_);
    settle();
  }

  void change_resources() {
    if (static_cast<int>(live_.size()) < scenario_.resources) {
      // Its number is known before it is asked for.
      const ResourceId next = ++last_resource_;
      held_[next] = {};
      live_.push_back(next);
      if (scheduler_->create_resource(now_) != next) ledger_.complain("resources are not numbered");
      settle();
    } else if (!live_.empty() && rng_.chance(0.1)) {
      release(rng_.below(live_.size()));
    }
  }
  void release(size_t at) {
    const ResourceId resource = live_[at];
    live_.erase(live_.begin() + static_cast<int64_t>(at));
    held_[resource].is_released = true;
    scheduler_->release_resource(resource);
    settle();
  }

  // ---- Users.

  void act(size_t number) {
    User& user = users_[number];
    if (user.does == User::Does::kEnds) return;
    if (user.does == User::Does::kThinks) {
      user.does = is_calm()           ? User::Does::kJoins
                  : rng_.chance(0.02) ? User::Does::kJoins
                  : rng_.chance(0.02) ? User::Does::kAsks
                                      : User::Does::kSchedules;
      if (user.does == User::Does::kJoins) {
        scheduler_->begin_join();
        ++joining_;
        if (!is_calm() && rng_.chance(0.2)) {
          later(rng_.around(20 * scenario_.run_ns),
                [this, number, turn = user.turn] { give_up_join(number, turn); });
        }
      }
      if (user.does == User::Does::kSchedules) {
        change_resources();
        for (const ResourceId resource : live_) {
          if (rng_.chance(0.4)) user.resources.push_back(resource);
        }
        user.contributes = options_.step_size > 0 && rng_.chance(scenario_.contributing);
      }
    }
    user.waits = false;
    user.must_raise = !pending_.ok() || is_fatal_;
    if (user.must_raise && !std::exchange(is_cancelling_, true)) contributions_.cancel();
    switch (user.does) {
      case User::Does::kSchedules:
        return schedule(number);
      case User::Does::kJoins: {
        const Result<bool> joined = scheduler_->joined();
        const bool is_last = is_calm() && joined.ok();
        if (joined.ok() && !*joined) return wait(number);
        --joining_;
        if (joined.ok()) check_all_ended("join");
        return next(number, joined.status(), is_last);
      }
      case User::Does::kAsks: {
        is_awaited_ = true;
        const auto done = scheduler_->done();
        if (done.ok() && !done->has_value()) return wait(number);
        if (done.ok() && **done != open_.empty()) {
          ledger_.complain("done() says {} of {} open closures", **done, open_.size());
        }
        return next(number, done.status(), false);
      }
      default:
        return;
    }
  }

  void schedule(size_t number) {
    User& user = users_[number];
    // What was released meanwhile cannot be asked for.
    std::erase_if(user.resources, [this](ResourceId id) { return held_[id].is_released; });
    // Known before it is asked for: it may run, or end, within the call.
    const ClosureId next_id = last_closure_ + 1;
    Open& open = open_[next_id];
    open.resources = user.resources;
    open.contributes = user.contributes;
    open.rank = ++rank_;
    for (const ResourceId resource : open.resources) ++held_[resource].uses;
    waiting_.insert({open.rank, next_id});
    const bool is_full = options_.queue_max > 0 && waiting_.size() > options_.queue_max;
    const bool is_held_up = joining_ > 0 || is_full;
    const bool was_awaited = std::exchange(is_awaited_, false);
    const auto taken = scheduler_->schedule(user.resources, now_, user.contributes);
    if (taken.ok() && taken->has_value()) {
      quiet_since_ns_ = now_;
      if (**taken != next_id) ledger_.complain("closures are not numbered");
      if (joining_ > 0) ledger_.complain("a closure is taken while somebody joins");
      if (is_full) ledger_.complain("a closure is taken by a queue that is full");
      last_closure_ = next_id;
      ++scheduled_;
      user.resources.clear();
      if (rng_.chance(0.02)) {
        is_awaited_ = true;
        scheduler_->await(now_);
      }
      return next(number, {}, false);
    }
    is_awaited_ = was_awaited;
    for (const ResourceId resource : user.resources) --held_[resource].uses;
    waiting_.erase({rank_, next_id});
    open_.erase(next_id);
    if (taken.ok()) {
      if (!is_held_up && !is_cancelling_) ledger_.complain("a closure waits without a reason");
      return wait(number);
    }
    user.resources.clear();
    next(number, taken.status(), false);
  }

  void wait(size_t number) {
    users_[number].waits = true;
    settle();
  }
  void next(size_t number, const Status& error, bool is_last) {
    User& user = users_[number];
    ++user.turn;
    user.does = User::Does::kThinks;
    if (error.ok()) {
      if (user.must_raise)
        ledger_.complain("an error is not raised: {}", base::message_of(pending_));
    } else {
      note_raised(error);
    }
    if (is_fatal_ && !error.ok() && coord::is_ps_failure(error)) is_last = true;
    settle();
    if (is_last) {
      user.does = User::Does::kEnds;
      ++users_done_;
      return;
    }
    later(rng_.around(scenario_.think_ns), [this, number] { act(number); });
  }
  void give_up_join(size_t number, uint64_t turn) {
    User& user = users_[number];
    if (user.turn != turn || user.does != User::Does::kJoins) return;
    --joining_;
    scheduler_->leave_join();
    ++user.turn;
    user.does = User::Does::kThinks;
    user.waits = false;
    settle();
    later(rng_.around(scenario_.think_ns), [this, number] { act(number); });
  }

  void note_raised(const Status& error) {
    ++report_.raised;
    check_all_ended("an error");
    const bool is_fatal = coord::is_ps_failure(error);
    const bool is_right =
        is_fatal ? is_fatal_ && (pending_.ok() || pending_ == error || is_pending_fatal_)
                 : error == pending_;
    if (!is_right) {
      ledger_.complain("'{}' is raised in the place of '{}'", base::message_of(error),
                       base::message_of(pending_));
    }
    pending_ = {};
    is_pending_fatal_ = is_fatal_;
    is_cancelling_ = false;
  }
  void check_all_ended(std::string_view what) {
    if (!open_.empty() || running_ > 0) {
      ledger_.complain("{} comes with {} closures open, {} under way", what, open_.size(),
                       running_);
    }
  }

  // ---- After everything that happens.

  void settle() {
    for (const ClosureId closure : std::exchange(must_end_, {})) {
      if (open_.contains(closure)) ledger_.complain("closure {} has not ended", closure);
    }
    const uint64_t last = ++rank_;
    const uint64_t first = --first_rank_;
    for (const ClosureId closure : std::exchange(must_stay_, {})) {
      const auto open = open_.find(closure);
      if (open == open_.end()) {
        // It may have met a resource that could not be made on its next worker.
        if (!lacking_.contains(closure)) ledger_.complain("closure {} is not tried again", closure);
      } else if (open->second.worker < 0) {
        open->second.rank = open->second.contributes ? first : last;
        waiting_.insert({open->second.rank, closure});
      }
    }
    lacking_.clear();
    if (scheduler_->in_flight() != running_ || scheduler_->queued() != waiting_.size()) {
      ledger_.complain("{} closures run and {} wait; {} and {} are said to", running_,
                       waiting_.size(), scheduler_->in_flight(), scheduler_->queued());
    }
    if (is_held_) check_is_idle();
    if (is_held_ && contributions_.is_resting()) ledger_.complain("a step waits, and all is held");
    if (!is_held_ && !is_cancelling_ && !waiting_.empty()) check_nobody_is_idle();
    if (!std::exchange(is_woken_, false)) return check_nobody_waits_in_vain();
    for (size_t i = 0; i < users_.size(); ++i) {
      if (!std::exchange(users_[i].waits, false)) continue;
      later(0, [this, i, turn = users_[i].turn] {
        if (users_[i].turn == turn && users_[i].does != User::Does::kThinks) act(i);
      });
    }
  }

  /// What it says of itself, and that it says it when it becomes so.
  void check_is_idle() {
    if (scheduler_->is_idle() != is_idle()) {
      ledger_.complain("it is said that {} runs", scheduler_->is_idle() ? "nothing" : "something");
    }
    const bool was_idle = std::exchange(was_idle_, is_idle());
    if (was_idle || !was_idle_) return;
    if (!is_woken_) ledger_.complain("it is not told that nothing runs");
    ++report_.held;
  }

  /// For what has come to pass, and they were not told.
  void check_nobody_waits_in_vain() {
    const bool has_room = options_.queue_max == 0 || waiting_.size() < options_.queue_max;
    for (const User& user : users_) {
      if (!user.waits) continue;
      const bool may_go = is_cancelling_ ? running_ == 0 && !contributions_.is_updating()
                          : user.does == User::Does::kSchedules ? has_room && joining_ == 0
                                                                : open_.empty();
      if (may_go || (!is_cancelling_ && !pending_.ok())) {
        return ledger_.complain("a user is not told that it may go on");
      }
    }
  }

  /// What `worker` has ended since each closure began that still runs, which misses these.
  template <class Fn>
  void each_that_misses(int worker, Fn fn) {
    if (!options_.staleness_max.has_value()) return;
    for (const Worker& other : workers_) {
      for (const ClosureId closure : other.running) fn(closure, open_[closure].ended_since[worker]);
    }
  }
  void check_staleness(int worker) {
    each_that_misses(worker, [&](ClosureId closure, int64_t ended) {
      if (ended <= *options_.staleness_max) return;
      ledger_.complain("worker {} begins one more after {} that closure {} misses", worker, ended,
                       closure);
    });
  }
  void count_staleness(int worker) {
    each_that_misses(worker, [](ClosureId /*closure*/, int64_t& ended) { ++ended; });
  }
  [[nodiscard]] bool is_ahead(int worker) {
    bool out = false;
    each_that_misses(worker, [&](ClosureId /*closure*/, int64_t ended) {
      out |= ended > *options_.staleness_max;
    });
    return out;
  }

  void check_nobody_is_idle() {
    const uint64_t first = waiting_.begin()->first;
    bool contributes = false;
    for (const auto& [rank, closure] : waiting_) {
      if (rank != first) break;
      contributes |= open_[closure].contributes;
    }
    if (contributes && contributions_.is_full()) return;
    for (int i = 0; i < options_.workers; ++i) {
      const Worker& one = workers_[static_cast<size_t>(i)];
      const bool is_building = std::ranges::any_of(
          one.copies, [](const auto& copy) { return copy.second == Copy::kUnderWay; });
      if (one.is_linked && !is_building && now_ > starts_at(i) &&
          one.running.size() <= static_cast<size_t>(options_.in_flight_max) / 2 && !is_ahead(i) &&
          (!contributes || contributions_.is_for(i))) {
        return ledger_.complain("worker {} runs {} closures while {} wait", i, one.running.size(),
                                waiting_.size());
      }
    }
  }

  void tick() {
    const int64_t due = scheduler_->tick(now_);
    settle();
    if (is_over_) return;
    int64_t lost_ns = now_;
    for (const Worker& one : workers_) {
      if (!one.is_linked) lost_ns = std::min(lost_ns, one.lost_ns);
    }
    if (now_ - std::max(lost_ns, missing_ns_) > 2 * options_.report_ns + 20 * kMillisecond) {
      ledger_.complain("nobody says that workers are missing");
    }
    const int64_t pause = std::min(due - now_, options_.report_ns / 4);
    later(std::max<int64_t>(pause, 1), [this] { tick(); });
  }

  void finish() {
    is_over_ = true;
    while (!live_.empty()) release(live_.size() - 1);
    if (scheduler_->resources() != 0 || scheduler_->queued() != 0 || scheduler_->in_flight() != 0) {
      ledger_.complain("{} resources and {} closures are left", scheduler_->resources(),
                       scheduler_->queued() + scheduler_->in_flight());
    }
    for (const Worker& one : workers_) {
      if (!one.copies.empty()) ledger_.complain("a worker keeps {} resources", one.copies.size());
    }
    events_ = {};
  }

  const CoordinatorScenario& scenario_;
  const coord::SchedulerOptions& options_;
  const std::function<void(int64_t, std::string_view)>& trace_;
  Rng rng_;
  Ledger ledger_;
  CoordinatorReport report_;
  std::priority_queue<Event> events_;
  uint64_t event_number_ = 0;
  int64_t now_ = 0;
  std::vector<Worker> workers_;
  std::vector<User> users_;
  size_t users_done_ = 0;
  bool is_over_ = false;
  uint64_t links_ = 0;
  Contributions contributions_;
  bool is_awaited_ = false;     // Somebody waits for what is scheduled.
  int64_t quiet_since_ns_ = 0;  // Since something was scheduled, or contributed.
  int64_t step_began_ns_ = 0;   // Of its end.
  int step_cancels_ = 0;
  // What must be so in the scheduler.
  std::map<ClosureId, Open> open_;
  std::set<std::pair<uint64_t, ClosureId>> waiting_;  // By rank.
  uint64_t rank_ = uint64_t{1} << 40;
  uint64_t first_rank_ = rank_;
  size_t running_ = 0;
  bool is_held_ = false;
  bool was_idle_ = false;  // While it was held.
  ClosureId last_closure_ = 0;
  int scheduled_ = 0;
  int joining_ = 0;
  std::map<ResourceId, Held> held_;
  std::vector<ResourceId> live_;
  ResourceId last_resource_ = 0;
  Status pending_;                 // The first error that nobody was told of.
  bool is_fatal_ = false;          // A ps is given up.
  bool is_pending_fatal_ = false;  // And is the next error.
  bool is_cancelling_ = false;
  bool is_woken_ = false;
  int64_t missing_ns_ = 0;
  std::vector<std::vector<int64_t>> ps_reports_;
  std::vector<int64_t> late_reports_;
  // Of what happens just now.
  std::vector<ClosureId> must_end_;
  std::vector<ClosureId> must_stay_;
  std::set<ClosureId> lacking_;
  std::set<ClosureId> told_step_;
  ClosureId told_ = 0;
  Outcome told_outcome_;
  uint64_t hook_calls_ = 0;
  std::unique_ptr<SchedulerUnderTest> scheduler_;
};

}  // namespace

CoordinatorReport run_coordinator(const CoordinatorScenario& scenario, const MakeScheduler& make,
                                  const std::function<void(int64_t, std::string_view)>& trace) {
  return CoordinatorRun(scenario, make, trace).run();
}

}  // namespace sidereal::sim
