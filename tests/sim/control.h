#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/sim/plans.h"
#include "tests/sim/task_life.h"

namespace sidereal::sim {

class TaskPs;
class TaskWorker;

/// What a session of a worker has at a ps.
struct Attached {
  int ps = 0;
  uint64_t life = 0;
  std::vector<std::vector<uint64_t>> programs;  ///< By plan; those of it that are for this ps.
};

/// The control plane of a cluster of tasks, which sessions go over: it knows everything, says it
/// after a while, and never loses anything. Thread: the world's.
class Control final : public Finder {
 public:
  /// All are borrowed.
  Control(const Context& context, const std::vector<sys::sim::Host*>& ps,
          const std::vector<sys::sim::Host*>& workers, const std::vector<StepPlan>& plans);

  void ps_began(int index, TaskPs* ps) { ps_[at(index)] = ps; }
  void ps_ends(int index);
  void worker_began(TaskWorker* worker);
  /// Its sessions are closed.
  void worker_ends(TaskWorker* worker);

  /// Attaches a session of a worker to all ps, as soon as each of them lives; the worker is told of
  /// each, and when one of them has ended.
  void attach(TaskWorker* worker, uint64_t session);
  void close(uint64_t session);
  /// Those that are open.
  [[nodiscard]] size_t sessions() const { return sessions_.size(); }

  void find(sys::sim::Node* node, lane::Lane* lane, const std::string& task, int which,
            std::function<void(Result<task::LaneAddress>)> done) override;

 private:
  struct Session {
    uint64_t worker = 0;          // its number
    std::vector<uint64_t> lives;  // of the ps it is attached to; 0: not yet
  };
  /// A program, and what it is of: plan and place among those of the plan for the ps.
  struct Registered {
    PlannedProgram program;
    std::vector<std::pair<size_t, size_t>> uses;
  };

  static size_t at(int index) { return static_cast<size_t>(index); }
  int64_t delay() { return sys::kMillisecond + rng_.around(5 * sys::kMillisecond); }
  void later(int64_t ns, std::function<void()> fn) { context_.world->after(ns, std::move(fn)); }
  /// Runs `fn` on the first lane of a life of a ps, unless that ends before.
  void on_ps(int index, uint64_t life, std::function<void(TaskPs*)> fn);
  /// The same of a worker.
  void on_worker(uint64_t number, std::function<void(TaskWorker*)> fn);
  void try_attach(uint64_t session, int ps);
  void register_programs(uint64_t session, TaskPs* ps, const TaskWorker& worker, Attached* out);
  [[nodiscard]] Result<task::LaneAddress> address(const std::string& task, int which) const;

  const Context& context_;
  const std::vector<sys::sim::Host*>& ps_hosts_;
  const std::vector<sys::sim::Host*>& worker_hosts_;
  sys::sim::Rng rng_;
  std::map<std::string, int> tasks_;               // ps by index, then workers
  std::vector<std::vector<Registered>> programs_;  // by ps
  size_t plans_ = 0;
  std::vector<TaskPs*> ps_;                  // nullptr: dead
  std::map<uint64_t, TaskWorker*> workers_;  // by number
  std::map<uint64_t, Session> sessions_;
};

}  // namespace sidereal::sim
