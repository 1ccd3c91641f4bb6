#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "sidereal/coord/scheduler.h"
#include "tests/sim/scenario.h"

/// A coordinator's scheduler among virtual workers, parameter servers and users, while everything
/// goes wrong that may. Nothing of it waits: a run is a queue of events with times.
namespace sidereal::sim {

/// What is asked of a scheduler here; those with planted bugs are other classes.
class SchedulerUnderTest {
 public:
  virtual ~SchedulerUnderTest() = default;
  virtual Result<std::optional<coord::ClosureId>> schedule(
      std::span<const coord::ResourceId> resources, int64_t now_ns, bool contributes) = 0;
  virtual void await(int64_t now_ns) = 0;
  virtual void begin_join() = 0;
  virtual Result<bool> joined() = 0;
  virtual void leave_join() = 0;
  virtual Result<std::optional<bool>> done() = 0;
  virtual coord::ResourceId create_resource(int64_t now_ns) = 0;
  virtual void release_resource(coord::ResourceId resource) = 0;
  virtual void worker_found(int worker, uint64_t life, int64_t now_ns) = 0;
  virtual void worker_lost(int worker, uint64_t life, int64_t now_ns) = 0;
  virtual void ps_lost(int ps, const Status& why) = 0;
  virtual void ended(int worker, uint64_t life, coord::ClosureId closure,
                     const coord::Outcome& outcome, int64_t now_ns) = 0;
  virtual void built(int worker, uint64_t life, coord::ResourceId resource,
                     const coord::Outcome& outcome, int64_t now_ns) = 0;
  virtual void step_lost(int64_t now_ns) = 0;
  virtual void step_done(int64_t step, const coord::Outcome& outcome, int64_t now_ns) = 0;
  virtual int64_t tick(int64_t now_ns) = 0;
  virtual void hold() = 0;
  [[nodiscard]] virtual bool is_idle() const = 0;
  virtual void go_on(int64_t now_ns) = 0;
  [[nodiscard]] virtual size_t queued() const = 0;
  [[nodiscard]] virtual size_t in_flight() const = 0;
  [[nodiscard]] virtual size_t resources() const = 0;
};

/// Makes any class that is called as coord::Scheduler is one of these.
template <class Scheduler>
class AnyScheduler final : public SchedulerUnderTest {
 public:
  AnyScheduler(const coord::SchedulerOptions& options, coord::SchedulerHooks* hooks, int64_t now_ns)
      : it_(options, hooks, now_ns) {}
  Result<std::optional<coord::ClosureId>> schedule(std::span<const coord::ResourceId> resources,
                                                   int64_t now_ns, bool contributes) override {
    return it_.schedule(resources, now_ns, contributes);
  }
  void await(int64_t now_ns) override { it_.await(now_ns); }
  void begin_join() override { it_.begin_join(); }
  Result<bool> joined() override { return it_.joined(); }
  void leave_join() override { it_.leave_join(); }
  Result<std::optional<bool>> done() override { return it_.done(); }
  coord::ResourceId create_resource(int64_t now_ns) override { return it_.create_resource(now_ns); }
  void release_resource(coord::ResourceId resource) override { it_.release_resource(resource); }
  void worker_found(int worker, uint64_t life, int64_t now_ns) override {
    it_.worker_found(worker, life, now_ns);
  }
  void worker_lost(int worker, uint64_t life, int64_t now_ns) override {
    it_.worker_lost(worker, life, now_ns);
  }
  void ps_lost(int ps, const Status& why) override { it_.ps_lost(ps, why); }
  void ended(int worker, uint64_t life, coord::ClosureId closure, const coord::Outcome& outcome,
             int64_t now_ns) override {
    it_.ended(worker, life, closure, outcome, now_ns);
  }
  void built(int worker, uint64_t life, coord::ResourceId resource, const coord::Outcome& outcome,
             int64_t now_ns) override {
    it_.built(worker, life, resource, outcome, now_ns);
  }
  void step_lost(int64_t now_ns) override { it_.step_lost(now_ns); }
  void step_done(int64_t step, const coord::Outcome& outcome, int64_t now_ns) override {
    it_.step_done(step, outcome, now_ns);
  }
  int64_t tick(int64_t now_ns) override { return it_.tick(now_ns); }
  void hold() override { it_.hold(); }
  [[nodiscard]] bool is_idle() const override { return it_.is_idle(); }
  void go_on(int64_t now_ns) override { it_.go_on(now_ns); }
  [[nodiscard]] size_t queued() const override { return it_.queued(); }
  [[nodiscard]] size_t in_flight() const override { return it_.in_flight(); }
  [[nodiscard]] size_t resources() const override { return it_.resources(); }

 private:
  Scheduler it_;
};

using MakeScheduler = std::function<std::unique_ptr<SchedulerUnderTest>(
    const coord::SchedulerOptions&, coord::SchedulerHooks*, int64_t now_ns)>;

template <class Scheduler>
std::unique_ptr<SchedulerUnderTest> make_scheduler(const coord::SchedulerOptions& options,
                                                   coord::SchedulerHooks* hooks, int64_t now_ns) {
  return std::make_unique<AnyScheduler<Scheduler>>(options, hooks, now_ns);
}

/// What one run is made of. Everything follows from the seed.
struct CoordinatorScenario {
  uint64_t seed = 0;
  coord::SchedulerOptions options;
  int users = 1;            ///< That schedule, join and ask whether all is done, at once.
  int closures = 0;         ///< That they schedule, all together.
  int resources = 0;        ///< That are there at a time, at most.
  int64_t run_ns = 0;       ///< Mean times: of a closure,
  int64_t build_ns = 0;     ///< of making a resource,
  int64_t delay_ns = 0;     ///< of a message,
  int64_t think_ns = 0;     ///< between two closures of a user,
  int64_t detect_ns = 0;    ///< until a loss is noticed,
  int64_t return_ns = 0;    ///< until a task is back.
  int64_t death_ns = 0;     ///< Between deaths of workers, of all together; 0: none.
  int64_t break_ns = 0;     ///< Between connections that break.
  int64_t hold_ns = 0;      ///< Between times when all is held.
  double slow = 0;          ///< Share of closures that take a hundred times as long.
  double failing = 0;       ///< Shares of closures that end so: an error of their own,
  double refused = 0;       ///< a ps that does not answer,
  double late = 0;          ///< a deadline,
  double derived = 0;       ///< cancelled, and not by the coordinator,
  double poisoned = 0;      ///< cancelled so whenever they run,
  double accused = 0;       ///< a worker that does not answer.
  double contributing = 0;  ///< Share of closures that contribute to steps, where there are any.
  double unbuildable = 0;   ///< Share of resources that some workers cannot make.
  bool ps_dies = false;

  [[nodiscard]] std::string to_string() const;
};

CoordinatorScenario draw_coordinator(uint64_t seed, const Wishes& wishes);

/// What came of a run.
struct CoordinatorReport {
  uint64_t hash = 0;
  uint64_t events = 0;
  int64_t values = 0, errors = 0, cancelled = 0;  ///< Of closures.
  int64_t raised = 0;
  int64_t runs = 0;
  int64_t deaths = 0;
  int64_t steps = 0;                    ///< That have ended well.
  int64_t held = 0;                     ///< How often nothing ran, as was asked for.
  std::vector<std::string> complaints;  ///< what must not be; empty: the run is good

  [[nodiscard]] std::string to_string() const;
};

CoordinatorReport run_coordinator(
    const CoordinatorScenario& scenario,
    const MakeScheduler& make = make_scheduler<coord::Scheduler>,
    const std::function<void(int64_t now_ns, std::string_view)>& trace = {});

}  // namespace sidereal::sim
