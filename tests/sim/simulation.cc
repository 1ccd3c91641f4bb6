#include "tests/sim/simulation.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "sidereal/sys/sim/world.h"
#include "tests/sim/control.h"
#include "tests/sim/ps.h"
#include "tests/sim/standby.h"
#include "tests/sim/task_ps.h"
#include "tests/sim/task_worker.h"
#include "tests/sim/worker.h"

namespace sidereal::sim {

using sys::kMillisecond;
using sys::kSecond;
using sys::sim::Break;
using sys::sim::Death;
using sys::sim::Host;
using sys::sim::Rng;

namespace {

/// How often memory is looked at.
constexpr int64_t kLookEvery = 20 * kMillisecond;
constexpr const char* kSecret = "what only the members of the cluster know";

/// What tasks of a simulation share.
class Tasks {
 public:
  Tasks(const Context& context, const std::vector<Host*>& ps_hosts,
        const std::vector<Host*>& worker_hosts)
      : context_(context),
        plans_(make_plans(*context.scenario).value()),
        pushes_(ps_hosts.size() * static_cast<size_t>(context.scenario->lanes), context.ledger),
        control_(context, ps_hosts, worker_hosts, plans_),
        ps_(ps_hosts.size()),
        standbys_(ps_hosts.size()) {
    for (size_t i = 0; i < ps_hosts.size(); ++i) {
      state_.push_back(make_state_programs(*context.scenario, static_cast<int>(i)).value());
    }
  }

  std::unique_ptr<PsLife> start_ps(Host* host, int index, uint64_t life) {
    const auto at = static_cast<size_t>(index);
    auto ps =
        std::make_unique<TaskPs>(context_, host, index, life, &control_, state_[at], &pushes_);
    ps_[at] = ps.get();
    control_.ps_began(index, ps.get());
    if (context_.scenario->standby) {
      standbys_[at] = std::make_unique<Standby>(context_, ps.get(), index, &pushes_);
    }
    return ps;
  }
  void ps_ends(int index) {
    const auto at = static_cast<size_t>(index);
    control_.ps_ends(index);
    std::exchange(ps_[at], nullptr)->read_variables();
    if (standbys_[at] != nullptr) standbys_[at]->check_after_death();
    standbys_[at].reset();
  }
  std::unique_ptr<WorkerLife> start_worker(Host* host, int index, uint64_t number) {
    return std::make_unique<TaskWorker>(context_, host, index, number, &control_, plans_, &pushes_);
  }
  void check_idle() {
    if (control_.sessions() > 0) {
      context_.ledger->complain("{} sessions never ended", control_.sessions());
    }
    for (TaskPs* const ps : ps_) {
      if (ps != nullptr) ps->read_variables();
    }
    for (const auto& standby : standbys_) {
      if (standby != nullptr) standby->check_current();
    }
  }
  [[nodiscard]] const PushTable& pushes() const { return pushes_; }

 private:
  const Context& context_;
  const std::vector<StepPlan> plans_;
  std::vector<std::vector<StatePrograms>> state_;  // by ps, by lane
  PushTable pushes_;
  Control control_;
  std::vector<TaskPs*> ps_;                         // that live
  std::vector<std::unique_ptr<Standby>> standbys_;  // Of those.
};

class Simulation {
 public:
  Simulation(const Scenario& scenario, std::function<void(int64_t, std::string_view)> trace)
      : scenario_(scenario),
        world_(scenario.seed, scenario.world),
        rng_(world_.random().fork()),
        context_{.world = &world_, .scenario = &scenario, .ledger = &ledger_} {
    if (scenario.secret)
      context_.credentials = security::Credentials::create({.secret = kSecret}).value();
    if (trace) world_.set_trace(std::move(trace));
    for (int i = 0; i < scenario.ps; ++i) ps_hosts_.push_back(world_.add_host());
    for (int i = 0; i < scenario.workers; ++i) worker_hosts_.push_back(world_.add_host());
    if (scenario.kind == Kind::kTasks) {
      tasks_ = std::make_unique<Tasks>(context_, ps_hosts_, worker_hosts_);
    }
    ps_.resize(ps_hosts_.size());
    workers_.resize(worker_hosts_.size());
    for (size_t i = 0; i < ps_.size(); ++i) start_ps(i);
    for (size_t i = 0; i < workers_.size(); ++i) start_worker(i);
  }
  ~Simulation() {
    for (size_t i = 0; i < workers_.size(); ++i) end_worker(i, Death::kKilled);
    for (size_t i = 0; i < ps_.size(); ++i) end_ps(i, Death::kKilled);
  }

  Report run() {
    plan_faults();
    look();
    world_.run_until(scenario_.calm_at_ns);
    heal_all();
    // All find their peers again; from then on everybody counts.
    const int64_t calm = scenario_.end_ns - scenario_.calm_at_ns;
    world_.run_until(scenario_.calm_at_ns + calm / 2);
    for (auto& worker : workers_) worker->take_done();
    const Outcomes before = outcomes();
    const std::vector<uint64_t> moved_before = bytes_moved();
    world_.run_until(scenario_.end_ns);
    check_fairness(calm / 2, before, moved_before);
    for (auto& worker : workers_) worker->quiet();
    world_.run_until(scenario_.end_ns + scenario_.deadline_ns_max + kSecond);
    // What was given up may still be on its way.
    for (int i = 0; i < 120 && !is_idle(); ++i) world_.run_until(world_.now() + kSecond);
    for (auto& worker : workers_) worker->check_idle();
    for (const auto& ps : ps_) ps->check_idle();
    if (tasks_ != nullptr) tasks_->check_idle();
    return report();
  }

 private:
  void start_ps(size_t at) {
    if (ps_[at] != nullptr) return;
    const uint64_t life = rng_.next();
    const auto index = static_cast<int>(at);
    if (tasks_ != nullptr) {
      ps_[at] = tasks_->start_ps(ps_hosts_[at], index, life);
    } else {
      ps_[at] = std::make_unique<LanesOfPs>(
          context_, ps_hosts_[at],
          Place{.task = ps_name(index), .lanes = scenario_.lanes, .life = life});
    }
  }
  void end_ps(size_t at, Death death) {
    if (ps_[at] == nullptr) return;
    for (sys::sim::Node* const node : ps_[at]->nodes()) world_.kill(node, death);
    // Only now: to read variables its lanes take steps, of which nobody may hear any more.
    if (tasks_ != nullptr) tasks_->ps_ends(static_cast<int>(at));
    memory_.add(ps_[at]->memory());
    ps_[at].reset();
  }
  void start_worker(size_t at) {
    if (workers_[at] != nullptr) return;
    const auto index = static_cast<int>(at);
    if (tasks_ != nullptr) {
      workers_[at] = tasks_->start_worker(worker_hosts_[at], index, ++lives_);
    } else {
      workers_[at] =
          std::make_unique<Worker>(context_, worker_hosts_[at], index, ++lives_, ps_hosts_);
    }
  }
  void end_worker(size_t at, Death death) {
    if (workers_[at] == nullptr) return;
    world_.kill(workers_[at]->node(), death);
    report_.outcomes.add(workers_[at]->outcomes());
    workers_[at].reset();
  }

  /// Calls `fault` again and again while there are to be faults.
  void each(int64_t mean_ns, std::function<void()> fault) {
    sim::each(&world_, &rng_, scenario_.calm_at_ns, mean_ns, [this, fault = std::move(fault)] {
      ++report_.faults;
      fault();
    });
  }
  /// Undoes a fault after a while, at the latest when all is to be calm.
  void undo(int64_t mean_ns, base::Function<void()> fn) {
    world_.at(std::min(world_.now() + rng_.around(mean_ns), scenario_.calm_at_ns), std::move(fn));
  }
  Host* any_host() {
    const size_t at = rng_.below(ps_hosts_.size() + worker_hosts_.size());
    return at < ps_hosts_.size() ? ps_hosts_[at] : worker_hosts_[at - ps_hosts_.size()];
  }
  Death any_death() { return rng_.chance(0.5) ? Death::kKilled : Death::kSilent; }

  void plan_faults() {
    each(scenario_.break_ns, [this] {
      constexpr Break kAll[] = {Break::kBoth, Break::kOne, Break::kSilent};
      (void)world_.break_any(kAll[rng_.below(3)]);
    });
    each(scenario_.cut_ns, [this] { cut(); });
    each(scenario_.ps_death_ns, [this] {
      const size_t at = rng_.below(ps_.size());
      if (ps_[at] == nullptr) return;
      end_ps(at, any_death());
      undo(500 * kMillisecond, [this, at] {
        world_.revive(ps_hosts_[at]);
        start_ps(at);
      });
    });
    each(scenario_.worker_death_ns, [this] {
      const size_t at = rng_.below(workers_.size());
      if (workers_[at] == nullptr) return;
      end_worker(at, any_death());
      undo(500 * kMillisecond, [this, at] {
        world_.revive(worker_hosts_[at]);
        start_worker(at);
      });
    });
    each(scenario_.stall_ns, [this] { stall(); });
    each(scenario_.slow_ns, [this] {
      Host* const host = any_host();
      world_.set_rate(host, rng_.between(500, 100'000));
      undo(2 * kSecond, [this, host] { world_.set_rate(host, 0); });
    });
  }

  void cut() {
    if (rng_.chance(0.5)) {
      Host* const host = any_host();
      world_.cut(host);
      return undo(kSecond, [this, host] { world_.heal(host); });
    }
    const Host* const one = ps_hosts_[rng_.below(ps_hosts_.size())];
    const Host* const other = worker_hosts_[rng_.below(worker_hosts_.size())];
    world_.cut(one, other);
    undo(kSecond, [this, one, other] { world_.heal(one, other); });
  }

  void stall() {
    const int64_t ns =
        std::min(rng_.around(500 * kMillisecond), scenario_.calm_at_ns - world_.now());
    if (rng_.chance(0.3)) {
      // One lane has much to do, or all of the process stands.
      const auto& ps = ps_[rng_.below(ps_.size())];
      const size_t only = rng_.below(2 * static_cast<uint64_t>(scenario_.lanes));
      if (ps == nullptr) return;
      const std::vector<sys::sim::Node*> lanes = ps->nodes();
      for (size_t i = 0; i < lanes.size(); ++i) {
        if (only >= lanes.size() || only == i) world_.stall(lanes[i], ns);
      }
      return;
    }
    const auto& worker = workers_[rng_.below(workers_.size())];
    if (worker == nullptr) return;
    worker->stalled(ns);
    world_.stall(worker->node(), ns);
  }

  void heal_all() {
    for (Host* const host : ps_hosts_) heal(host);
    for (Host* const host : worker_hosts_) heal(host);
    for (const Host* const one : ps_hosts_) {
      for (const Host* const other : worker_hosts_) world_.heal(one, other);
    }
    for (size_t i = 0; i < ps_.size(); ++i) start_ps(i);
    for (size_t i = 0; i < workers_.size(); ++i) start_worker(i);
  }
  void heal(Host* host) {
    world_.revive(host);
    world_.heal(host);
    world_.set_rate(host, 0);
  }

  void look() {
    for (const auto& ps : ps_) {
      if (ps != nullptr) ps->check_memory();
    }
    if (world_.now() < scenario_.end_ns) world_.after(kLookEvery, [this] { look(); });
  }

  bool is_idle() {
    const auto idle = [](const auto& life) { return life->is_idle(); };
    return std::all_of(workers_.begin(), workers_.end(), idle) &&
           std::all_of(ps_.begin(), ps_.end(), idle);
  }

  [[nodiscard]] Outcomes outcomes() const {
    Outcomes all;
    for (const auto& worker : workers_) all.add(worker->outcomes());
    return all;
  }

  /// Of the hosts of workers.
  [[nodiscard]] std::vector<uint64_t> bytes_moved() const {
    std::vector<uint64_t> out;
    for (const Host* const host : worker_hosts_) out.push_back(host->bytes_moved());
    return out;
  }

  /// Complains of a worker that got far less done than half of them do, and had less of the network
  /// too: steps differ in size, and where the network is full one of large steps ends few.
  void check_fairness(int64_t window_ns, const Outcomes& before,
                      const std::vector<uint64_t>& moved_before) {
    std::vector<int64_t> done;
    std::vector<uint64_t> moved = bytes_moved();
    for (size_t i = 0; i < workers_.size(); ++i) {
      done.push_back(workers_[i]->take_done());
      moved[i] -= moved_before[i];
    }
    const auto median_of = [](auto values) {
      std::ranges::nth_element(values, values.begin() + static_cast<int64_t>(values.size() / 2));
      return values[values.size() / 2];
    };
    const int64_t median = median_of(done);
    const uint64_t median_moved = median_of(moved);
    report_.slowest = std::ranges::min(done);
    report_.fastest = std::ranges::max(done);
    if (report_.fastest == 0) ledger_.complain("no worker got anything done");
    // Where more is asked for than there is room and time for, or little at all, chance decides.
    const Outcomes now = outcomes();
    const int64_t turned_away = now.late + now.no_room - before.late - before.no_room;
    const bool is_overloaded = turned_away * 20 > now.ok - before.ok;
    // Steps that began before all was calm may take until their deadlines to find their peers
    // again.
    const bool is_short = window_ns < 3 * kSecond;
    if (is_overloaded || is_short || median < 40) return;
    for (size_t i = 0; i < done.size(); ++i) {
      if (done[i] * 4 >= median || moved[i] * 4 >= median_moved) continue;
      ledger_.complain("in {} s worker {} had {} pushes done of {} bytes; the median is {} of {}",
                       window_ns / kSecond, i, done[i], moved[i], median, median_moved);
    }
  }

  Report report() {
    for (const auto& ps : ps_) memory_.add(ps->memory());
    report_.outcomes.add(outcomes());
    Report out = report_;
    out.hash = world_.hash();
    out.events = world_.events();
    out.applied = tasks_ != nullptr ? tasks_->pushes().applied_count() : ledger_.applied_count();
    out.acknowledged =
        tasks_ != nullptr ? tasks_->pushes().acknowledged_count() : ledger_.acknowledged_count();
    if (tasks_ != nullptr) out.kept = tasks_->pushes().kept_count();
    out.memory = memory_;
    out.complaints = ledger_.complaints();
    return out;
  }

  const Scenario& scenario_;
  Ledger ledger_;
  sys::sim::World world_;
  Rng rng_;
  Context context_;
  std::vector<Host*> ps_hosts_, worker_hosts_;
  std::unique_ptr<Tasks> tasks_;             // nullptr: lanes only
  std::vector<std::unique_ptr<PsLife>> ps_;  // nullptr: dead
  std::vector<std::unique_ptr<WorkerLife>> workers_;
  uint64_t lives_ = 0;  // of workers
  Memory memory_;
  Report report_;
};

}  // namespace

std::string Report::to_string() const {
  return fmt::format(
      "trace {:016x}, {} events, {} faults; {} pushes applied, {} acknowledged, {} kept; calls: {} "
      "well, {} "
      "refused, {} past their deadline, {} cancelled, {} lost, {} unknown, {} without room; {} "
      "connections went on; calm "
      "pushes {} to {} a worker; at most {} bytes received and {} waiting to be sent at a time",
      hash, events, faults, applied, acknowledged, kept, outcomes.ok, outcomes.refused,
      outcomes.late, outcomes.cancelled, outcomes.lost, outcomes.unknown, outcomes.no_room,
      outcomes.resumed, slowest, fastest, memory.receive_bytes_max, memory.send_bytes_max);
}

Report run(const Scenario& scenario, std::function<void(int64_t, std::string_view)> trace) {
  return Simulation(scenario, std::move(trace)).run();
}

}  // namespace sidereal::sim
