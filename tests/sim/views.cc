#include "tests/sim/views.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "sidereal/membership/lease.h"
#include "sidereal/membership/voter.h"
#include "sidereal/sys/sim/world.h"
#include "tests/sim/ledger.h"

namespace sidereal::sim {

using membership::Lease;
using membership::Vote;
using membership::Voter;
using sys::kMillisecond;
using sys::kSecond;
using sys::sim::Rng;

namespace {

/// How long it may take after the last fault that one start of each task counts.
constexpr int64_t kRest = 20 * kSecond;

/// Of runs, those in which faults of one kind are not there.
constexpr double kNone = 0.3;

/// A clock that goes a little too fast or too slow.
struct Drifting {
  int64_t offset = 0;
  double rate = 1;

  [[nodiscard]] int64_t at(int64_t true_ns) const {
    return offset + static_cast<int64_t>(static_cast<double>(true_ns) * rate);
  }
  /// When it shows `local`, or a little later.
  [[nodiscard]] int64_t when(int64_t local) const {
    return static_cast<int64_t>(static_cast<double>(local - offset) / rate) + 1;
  }
};

/// What stands still now and then: what comes meanwhile comes when it goes on.
struct Process {
  int number = 0;  ///< Of all.
  Drifting clock;
  int64_t stopped_until = 0;
};

struct Start {
  Process process;
  int task = 0;
  uint64_t life = 0;
  std::string machine;
  std::unique_ptr<Lease> lease;
  uint64_t alarm = 0;  ///< The one that counts.
};

struct Voting {
  Process process;
  std::optional<Voter> voter = {};          ///< Nothing: it is dead.
  std::vector<Voter::Record> records = {};  ///< That it has kept.
  uint64_t starts = 0;
};

class ViewsSimulation {
 public:
  ViewsSimulation(const ViewsScenario& scenario,
                  std::function<void(int64_t, std::string_view)> trace)
      : scenario_(scenario), world_(scenario.seed, {}), rng_(world_.random().fork()) {
    if (trace) world_.set_trace(std::move(trace));
    for (int i = 0; i < scenario.voters; ++i) {
      voters_.push_back({.process = make_process()});
      begin_voter(i);
    }
    counting_.resize(static_cast<size_t>(scenario.tasks));
    for (int i = 0; i < scenario.tasks; ++i) begin(i);
  }

  ViewsReport run() {
    each(scenario_.death_ns, [this] { die(); });
    each(scenario_.second_ns, [this] { begin_second(); });
    each(scenario_.voter_death_ns, [this] { voter_dies(); });
    each(scenario_.stop_ns, [this] { stop_one(); });
    each(scenario_.cut_ns, [this] { cut(); });
    world_.run_until(scenario_.end_ns);
    for (int64_t waited = 0; waited < kRest && !is_decided(); waited += kSecond) {
      world_.run_until(world_.now() + kSecond);
    }
    if (!is_decided()) ledger_.complain("no start of a task counts, {} s after all faults", 20);
    ViewsReport out = report_;
    out.hash = world_.hash();
    out.events = world_.events();
    out.simulated_ns = world_.now();
    out.complaints = ledger_.complaints();
    return out;
  }

 private:
  /// Of a task: which starts have counted.
  struct Counting {
    uint64_t life = 0;  ///< The last one,
    uint64_t view = 0;  ///< and its view.
    std::set<uint64_t> before;
    std::set<uint64_t> all;  ///< That have begun.
  };

  Process make_process() {
    return {.number = processes_++,
            .clock = {.offset = rng_.between(0, 1000 * kSecond),
                      .rate = 1 + scenario_.drift * (2 * rng_.unit() - 1)}};
  }
  static std::string name_of(int task) { return fmt::format("/job:ps/replica:0/task:{}", task); }
  Counting& counting(int task) { return counting_[static_cast<size_t>(task)]; }

  void begin_voter(int index) {
    Voting& voting = voters_[static_cast<size_t>(index)];
    ++voting.starts;
    world_.note("a voter begins", static_cast<uint64_t>(index), voting.records.size());
    voting.voter.emplace(scenario_.promise_ns, voting.process.clock.at(world_.now()),
                         voting.records);
  }

  void begin(int task) {
    auto start = std::make_shared<Start>();
    start->process = make_process();
    start->task = task;
    start->life = ++lives_;
    // Some are started elsewhere.
    start->machine = rng_.chance(0.7) ? "first" : "second";
    start->lease = std::make_unique<Lease>(Lease::Options{
        .task = name_of(task),
        .life = start->life,
        .process = {.machine = start->machine, .pid = static_cast<int64_t>(start->life)},
        .voters = scenario_.voters,
        .lease_ns = scenario_.lease_ns,
        .random = [rng = std::make_shared<Rng>(rng_.fork())] { return rng->next(); }});
    counting(task).all.insert(start->life);
    world_.note("a start begins", static_cast<uint64_t>(task), start->life);
    starts_[start->life] = start;
    world_.at(world_.now(), [this, start] { ask(start); });
  }

  /// Runs `fn` when the process goes on.
  void when_it_runs(const Process& process, base::Function<void()> fn) {
    world_.at(std::max(world_.now(), process.stopped_until), std::move(fn));
  }
  [[nodiscard]] bool lives(const std::shared_ptr<Start>& start) const {
    return starts_.contains(start->life);
  }

  /// Asks all voters, and again when it is due.
  void ask(const std::shared_ptr<Start>& start) {
    if (!lives(start)) return;
    if (start->process.stopped_until > world_.now()) {
      return when_it_runs(start->process, [this, start] { ask(start); });
    }
    const int64_t now = start->process.clock.at(world_.now());
    if (now < start->lease->due()) return arm(start);
    const membership::Ask ask = start->lease->begin(now);
    const uint64_t round = start->lease->round();
    for (int i = 0; i < scenario_.voters; ++i) send(start, i, ask, round);
    arm(start);
  }
  void arm(const std::shared_ptr<Start>& start) {
    const uint64_t alarm = ++start->alarm;
    const int64_t at = start->process.clock.when(start->lease->due());
    world_.at(std::max(at, world_.now()), [this, start, alarm] {
      if (start->alarm == alarm) ask(start);
    });
  }

  [[nodiscard]] bool is_cut(const Process& from, const Process& to) const {
    return cuts_.contains({from.number, to.number});
  }
  /// After which a message arrives; nothing: it is lost.
  std::optional<int64_t> travel(const Process& from, const Process& to) {
    const bool is_calm = world_.now() >= scenario_.calm_at_ns;
    if (is_cut(from, to) || (!is_calm && rng_.chance(scenario_.lost))) return {};
    const bool is_late = !is_calm && rng_.chance(scenario_.late);
    return rng_.around(is_late ? scenario_.promise_ns : scenario_.delay_ns);
  }

  void send(const std::shared_ptr<Start>& start, int index, const membership::Ask& ask,
            uint64_t round) {
    const std::optional<int64_t> delay =
        travel(start->process, voters_[static_cast<size_t>(index)].process);
    if (!delay.has_value()) return;
    world_.after(*delay, [this, start, index, ask, round] { arrive(start, index, ask, round); });
  }
  void arrive(const std::shared_ptr<Start>& start, int index, const membership::Ask& ask,
              uint64_t round) {
    Voting& voting = voters_[static_cast<size_t>(index)];
    if (!voting.voter.has_value()) return;
    if (voting.process.stopped_until > world_.now()) {
      const uint64_t starts = voting.starts;
      return when_it_runs(voting.process, [this, start, index, ask, round, starts] {
        if (voters_[static_cast<size_t>(index)].starts == starts) arrive(start, index, ask, round);
      });
    }
    const Result<Vote> vote = voting.voter->vote(ask, voting.process.clock.at(world_.now()));
    if (!vote.ok()) return ledger_.complain("a voter refuses: {}", base::message_of(vote.status()));
    world_.note(vote->is_granted ? (ask.is_second ? "a vote" : "a promise")
                                 : (ask.gives_up ? "given up" : "no vote"),
                static_cast<uint64_t>(index), ask.life);
    if (voting.voter->take_records_changed()) voting.records = voting.voter->records();
    const std::optional<int64_t> delay = travel(voting.process, start->process);
    if (!delay.has_value()) return;
    world_.after(*delay, [this, start, index, round, vote = *vote] {
      when_it_runs(start->process, [this, start, index, round, vote] {
        if (lives(start)) answer(start, index, round, vote);
      });
    });
  }

  void answer(const std::shared_ptr<Start>& start, int index, uint64_t round, const Vote& vote) {
    const int64_t now = start->process.clock.at(world_.now());
    Lease& lease = *start->lease;
    lease.take(index, round, vote, now);
    if (lease.holds(now)) counts(*start);
    if (lease.is_deposed()) return depose(start);
    // It looks whether the process is there, which it sees on its own machine.
    const Lease::Other& other = lease.other();
    if (other.life != 0 && other.process.machine == start->machine &&
        !starts_.contains(other.life)) {
      lease.knows_gone(other.life, now);
    }
    arm(start);
  }

  /// What must be so whenever a start counts.
  void counts(const Start& start) {
    for (const auto& [life, other] : starts_) {
      if (other->task != start.task || life == start.life) continue;
      if (other->lease->holds(other->process.clock.at(world_.now()))) {
        ledger_.complain("two starts of {} count: {} in view {}, and {} in view {}",
                         name_of(start.task), start.life, start.lease->view(), life,
                         other->lease->view());
      }
    }
    Counting& of = counting(start.task);
    if (of.life != start.life) {
      world_.note("it counts", start.life, start.lease->view());
      if (of.before.contains(start.life)) {
        ledger_.complain("start {} of {} counts again, after {}", start.life, name_of(start.task),
                         of.life);
      }
      if (start.lease->view() <= of.view) {
        ledger_.complain("start {} of {} counts in view {}, and the one before did in {}",
                         start.life, name_of(start.task), start.lease->view(), of.view);
      }
      of.before.insert(of.life);
      of.life = start.life;
      ++report_.held;
    }
    of.view = std::max(of.view, start.lease->view());
  }

  /// It has heard that it counts no more: the process ends.
  void depose(const std::shared_ptr<Start>& start) {
    const Counting& of = counting(start->task);
    const uint64_t by = start->lease->deposed_by();
    if (by == start->life || !of.all.contains(by)) {
      ledger_.complain("start {} of {} was deposed by {}", start->life, name_of(start->task), by);
    }
    ++report_.deposed;
    world_.note("deposed", start->life, by);
    starts_.erase(start->life);
    begin_if_none(start->task);
  }
  [[nodiscard]] int living(int task) const {
    return static_cast<int>(std::ranges::count_if(
        starts_, [task](const auto& one) { return one.second->task == task; }));
  }
  void begin_if_none(int task) {
    if (living(task) == 0) begin(task);
  }

  // Faults.
  int any(int count) { return static_cast<int>(rng_.below(static_cast<uint64_t>(count))); }
  std::shared_ptr<Start> any_start() {
    if (starts_.empty()) return nullptr;
    return std::next(starts_.begin(), any(static_cast<int>(starts_.size())))->second;
  }
  int64_t until_calm(int64_t ns) { return std::min(ns, scenario_.calm_at_ns - world_.now()); }

  void die() {
    const std::shared_ptr<Start> start = any_start();
    if (start == nullptr) return;
    ++report_.deaths;
    world_.note("a start dies", start->life);
    const int task = start->task;
    starts_.erase(start->life);
    world_.after(until_calm(rng_.around(200 * kMillisecond)),
                 [this, task] { begin_if_none(task); });
  }
  void begin_second() {
    const int task = any(scenario_.tasks);
    if (living(task) < scenario_.starts) begin(task);
  }
  void voter_dies() {
    const int index = any(scenario_.voters);
    Voting& voting = voters_[static_cast<size_t>(index)];
    if (!voting.voter.has_value()) return;
    ++report_.voter_deaths;
    world_.note("a voter dies", static_cast<uint64_t>(index));
    voting.voter.reset();
    world_.after(until_calm(rng_.around(500 * kMillisecond)),
                 [this, index] { begin_voter(index); });
  }
  Process& any_process() {
    const std::shared_ptr<Start> start = any_start();
    if (start != nullptr && rng_.chance(0.7)) return start->process;
    return voters_[static_cast<size_t>(any(scenario_.voters))].process;
  }
  void stop_one() {
    any_process().stopped_until = world_.now() + until_calm(rng_.around(scenario_.promise_ns));
  }
  /// Of a start and a voter, or of a start and all: one way or both.
  void cut() {
    const std::shared_ptr<Start> start = any_start();
    if (start == nullptr) return;
    ++report_.cuts;
    world_.note("cut", start->life);
    const bool is_all = rng_.chance(0.5);
    const int only = any(scenario_.voters);
    const int ways = 1 + any(3);
    std::vector<std::pair<int, int>> now;
    for (int i = 0; i < scenario_.voters; ++i) {
      if (!is_all && i != only) continue;
      const int voter = voters_[static_cast<size_t>(i)].process.number;
      if ((ways & 1) != 0) now.emplace_back(start->process.number, voter);
      if ((ways & 2) != 0) now.emplace_back(voter, start->process.number);
    }
    cuts_.insert(now.begin(), now.end());
    world_.after(until_calm(rng_.around(2 * scenario_.promise_ns)), [this, now] {
      for (const auto& one : now) cuts_.erase(cuts_.find(one));
    });
  }
  /// Calls `fault` again and again while there are to be faults.
  void each(int64_t mean_ns, std::function<void()> fault) {
    sim::each(&world_, &rng_, scenario_.calm_at_ns, mean_ns, std::move(fault));
  }

  /// Of each task that has a start.
  [[nodiscard]] bool is_decided() {
    for (int task = 0; task < scenario_.tasks; ++task) {
      const bool has_one = std::ranges::any_of(starts_, [&](const auto& one) {
        const Start& start = *one.second;
        return start.task == task && start.lease->holds(start.process.clock.at(world_.now()));
      });
      if (!has_one) return false;
    }
    return true;
  }

  const ViewsScenario& scenario_;
  Ledger ledger_;
  sys::sim::World world_;
  Rng rng_;
  int processes_ = 0;
  uint64_t lives_ = 0;
  std::vector<Voting> voters_;
  std::map<uint64_t, std::shared_ptr<Start>> starts_;  // That live.
  std::vector<Counting> counting_;                     // By task.
  std::multiset<std::pair<int, int>> cuts_;
  ViewsReport report_;
};

}  // namespace

ViewsScenario draw_views(uint64_t seed, const Wishes& wishes) {
  Rng rng(seed);
  ViewsScenario out;
  out.seed = seed;
  out.voters = 1 + 2 * static_cast<int>(rng.between(0, 2));
  out.tasks = wishes.workers > 0 ? wishes.workers : static_cast<int>(rng.between(1, 3));
  out.starts = static_cast<int>(rng.between(2, 4));
  out.lease_ns = sized(rng, 200 * kMillisecond, 2 * kSecond);
  out.drift = 0.01;
  out.promise_ns = static_cast<int64_t>(static_cast<double>(out.lease_ns) * (1.05 + rng.unit()));
  out.delay_ns = sized(rng, kMillisecond / 10, out.lease_ns / 8);
  out.lost = rng.chance(0.5) ? 0.2 * rng.unit() : 0;
  out.late = rng.chance(0.5) ? 0.2 * rng.unit() : 0;
  out.death_ns = pause(rng, kNone, 500 * kMillisecond, 10 * kSecond);
  out.second_ns = pause(rng, kNone, 500 * kMillisecond, 10 * kSecond);
  out.voter_death_ns = pause(rng, kNone, 500 * kMillisecond, 20 * kSecond);
  out.stop_ns = pause(rng, kNone, 300 * kMillisecond, 10 * kSecond);
  out.cut_ns = pause(rng, kNone, 300 * kMillisecond, 10 * kSecond);
  const double seconds =
      wishes.seconds > 0 ? wishes.seconds : static_cast<double>(rng.between(20, 120));
  out.end_ns = static_cast<int64_t>(seconds * 1e9);
  out.calm_at_ns = out.end_ns * 8 / 10;
  return out;
}

std::string ViewsScenario::to_string() const {
  const auto ms = [](int64_t ns) { return static_cast<double>(ns) / 1e6; };
  return fmt::format(
      "views, {} voters, {} tasks of at most {} starts at a time; leases of {} ms of promises of "
      "{} ms; messages {} ms, lost {:.3f}, late {:.3f}; faults each ms: death {}, second start {}, "
      "voter death "
      "{}, stop {}, cut {}; calm at {} of {} s",
      voters, tasks, starts, ms(lease_ns), ms(promise_ns), ms(delay_ns), lost, late, ms(death_ns),
      ms(second_ns), ms(voter_death_ns), ms(stop_ns), ms(cut_ns), ms(calm_at_ns) / 1e3,
      ms(end_ns) / 1e3);
}

std::string ViewsReport::to_string() const {
  return fmt::format(
      "trace {:016x}, {} events; {} starts counted, {} were deposed; {} deaths of starts, {} of "
      "voters, {} cuts; {:.1f} s simulated",
      hash, events, held, deposed, deaths, voter_deaths, cuts,
      static_cast<double>(simulated_ns) / 1e9);
}

ViewsReport run_views(const ViewsScenario& scenario,
                      std::function<void(int64_t now_ns, std::string_view)> trace) {
  return ViewsSimulation(scenario, std::move(trace)).run();
}

}  // namespace sidereal::sim
