#include "tests/sim/control.h"

#include <utility>

#include "tests/sim/task_ps.h"
#include "tests/sim/task_worker.h"

namespace sidereal::sim {

using sys::kMillisecond;
using task::LaneAddress;

namespace {

constexpr int64_t kRetry = 50 * kMillisecond;

}  // namespace

Control::Control(const Context& context, const std::vector<sys::sim::Host*>& ps,
                 const std::vector<sys::sim::Host*>& workers, const std::vector<StepPlan>& plans)
    : context_(context),
      ps_hosts_(ps),
      worker_hosts_(workers),
      rng_(context.world->random().fork()),
      programs_(ps.size()),
      plans_(plans.size()),
      ps_(ps.size()) {
  for (size_t i = 0; i < ps.size(); ++i) {
    tasks_[task_of_ps(static_cast<int>(i))] = static_cast<int>(i);
  }
  for (size_t i = 0; i < workers.size(); ++i) {
    tasks_[task_of_worker(static_cast<int>(i))] = static_cast<int>(ps.size() + i);
  }
  // What is equal is registered once.
  std::map<std::tuple<int, int, std::string>, size_t> known;
  for (size_t plan = 0; plan < plans.size(); ++plan) {
    std::vector<size_t> of_plan(ps.size());
    for (const StepPlan::Remote& remote : plans[plan].remotes) {
      std::vector<Registered>& all = programs_[at(remote.ps)];
      const auto [found, is_new] =
          known.try_emplace({remote.ps, remote.program.lane, remote.program.bytes}, all.size());
      if (is_new) all.push_back({.program = remote.program, .uses = {}});
      all[found->second].uses.emplace_back(plan, of_plan[at(remote.ps)]++);
    }
  }
}

void Control::on_ps(int index, uint64_t life, std::function<void(TaskPs*)> fn) {
  TaskPs* const ps = ps_[at(index)];
  if (ps == nullptr || ps->life() != life) return;
  const bool posted = ps->task()->lane(0)->post([this, ps, index, fn] {
    if (ps_[at(index)] == ps) fn(ps);
  });
  if (!posted) later(kMillisecond, [this, index, life, fn] { on_ps(index, life, fn); });
}

void Control::on_worker(uint64_t number, std::function<void(TaskWorker*)> fn) {
  const auto found = workers_.find(number);
  if (found == workers_.end()) return;
  const bool posted = found->second->task()->lane(0)->post([this, number, fn] {
    const auto still = workers_.find(number);
    if (still != workers_.end()) fn(still->second);
  });
  if (!posted) later(kMillisecond, [this, number, fn] { on_worker(number, fn); });
}

void Control::ps_ends(int index) {
  const uint64_t life = ps_[at(index)]->life();
  ps_[at(index)] = nullptr;
  for (auto& [session, one] : sessions_) {
    if (one.lives[at(index)] != life) continue;
    // Streams break soon, or are found to be silent.
    later(delay() + rng_.around(200 * kMillisecond),
          [this, session = session, worker = one.worker, index] {
            on_worker(worker, [session, index](TaskWorker* to) { to->lost(session, index); });
          });
  }
}

void Control::worker_began(TaskWorker* worker) { workers_[worker->number()] = worker; }

void Control::worker_ends(TaskWorker* worker) {
  workers_.erase(worker->number());
  std::vector<uint64_t> open;
  for (const auto& [session, one] : sessions_) {
    if (one.worker == worker->number()) open.push_back(session);
  }
  for (const uint64_t session : open) close(session);
}

void Control::attach(TaskWorker* worker, uint64_t session) {
  sessions_[session] = {.worker = worker->number(), .lives = std::vector<uint64_t>(ps_.size())};
  for (size_t i = 0; i < ps_.size(); ++i) {
    later(delay(), [this, session, ps = static_cast<int>(i)] { try_attach(session, ps); });
  }
}

void Control::try_attach(uint64_t session, int ps) {
  if (!sessions_.contains(session)) return;
  if (ps_[at(ps)] == nullptr) {
    return later(kRetry, [this, session, ps] { try_attach(session, ps); });
  }
  on_ps(ps, ps_[at(ps)]->life(), [this, session, ps](TaskPs* there) {
    const auto found = sessions_.find(session);
    if (found == sessions_.end() || found->second.lives[at(ps)] != 0) return;
    const auto worker = workers_.find(found->second.worker);
    if (worker == workers_.end()) return;
    found->second.lives[at(ps)] = there->life();
    Attached made = {.ps = ps, .life = there->life(), .programs = {}};
    register_programs(session, there, *worker->second, &made);
    later(delay(), [this, session, number = worker->first, made = std::move(made)] {
      on_worker(number, [session, made](TaskWorker* to) { to->attached(session, made); });
    });
  });
  // Should it end before it comes to that.
  later(kRetry, [this, session, ps] {
    const auto found = sessions_.find(session);
    if (found != sessions_.end() && found->second.lives[at(ps)] == 0) try_attach(session, ps);
  });
}

void Control::register_programs(uint64_t session, TaskPs* ps, const TaskWorker& worker,
                                Attached* out) {
  Status status = ps->task()->open_session(session);
  out->programs.resize(plans_);
  for (const Registered& one : programs_[at(out->ps)]) {
    task::NewProgram made = {
        .bytes = one.program.bytes,
        .lane = one.program.lane < 0 ? task::lane_hint(session) : one.program.lane};
    for (const std::string& peer : one.program.peers) {
      const bool is_worker = peer == kPlanWorker;
      made.peers.push_back({.device = is_worker ? worker.device() : peer,
                            .incarnation = is_worker ? worker.life() : 0});
    }
    const Result<uint64_t> number = ps->task()->register_program(session, std::move(made));
    if (status.ok()) status = number.status();
    for (const auto& [plan, place] : one.uses) {
      std::vector<uint64_t>& programs = out->programs[plan];
      programs.resize(std::max(programs.size(), place + 1));
      programs[place] = number.ok() ? *number : 0;
    }
  }
  if (!status.ok()) {
    context_.ledger->complain("a session cannot attach: {}", base::message_of(status));
  }
}

void Control::close(uint64_t session) {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return;
  const std::vector<uint64_t> lives = std::move(found->second.lives);
  sessions_.erase(found);
  for (size_t i = 0; i < lives.size(); ++i) {
    if (lives[i] == 0) continue;
    later(delay() + rng_.around(100 * kMillisecond),
          [this, session, ps = static_cast<int>(i), life = lives[i]] {
            on_ps(ps, life, [session](TaskPs* there) { there->task()->close_session(session); });
          });
  }
}

Result<LaneAddress> Control::address(const std::string& task, int which) const {
  const auto found = tasks_.find(task);
  if (found == tasks_.end()) return base::not_found("no task {}", task);
  const auto ps = static_cast<int>(ps_.size());
  if (found->second >= ps) {
    return LaneAddress{.address = {worker_hosts_[at(found->second - ps)]->address(), kPort}};
  }
  const sys::sim::Host* const host = ps_hosts_[at(found->second)];
  if (context_.scenario->mapped) return LaneAddress{.address = {host->address(), kPort}};
  const TaskPs* const there = ps_[at(found->second)];
  if (there == nullptr) return base::unavailable("{} does not answer", task);
  const int lanes = context_.scenario->lanes;
  return LaneAddress{.address = {host->address(), kPort + which % lanes},
                     .lane = which % lanes,
                     .lanes = lanes,
                     .incarnation = there->life()};
}

void Control::find(sys::sim::Node* node, lane::Lane* lane, const std::string& task, int which,
                   std::function<void(Result<LaneAddress>)> done) {
  lane->run_after(kMillisecond + node->random().around(5 * kMillisecond),
                  [this, task, which, done = std::move(done)] { done(address(task, which)); });
}

}  // namespace sidereal::sim
