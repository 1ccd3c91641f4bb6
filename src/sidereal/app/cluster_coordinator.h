#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/coord/scheduler.h"
#include "sidereal/ir/graph.h"
#include "sidereal/metrics/histogram.h"
#include "sidereal/service/closure_calls.h"
#include "sidereal/service/session.h"
#include "sidereal/tensor/tensor.h"

namespace sidereal::app {

/// What the variables on a ps have lived through: in another one they are lost. Value type.
struct PsLife {
  uint64_t incarnation = 0;  ///< 0: not known.
  /// Of their group (service::DeviceAttributes::state), which ends when all sessions of it were
  /// given up, though the ps was only stopped for a while; 0: not known.
  uint64_t state = 0;

  bool operator==(const PsLife&) const = default;
};

/// Value type.
struct ClusterCoordinatorOptions {
  /// Targets of the workers' servers, as those of sessions, by number.
  std::vector<std::string> workers;
  int ps = 0;  ///< Tasks of the job "ps".
  /// Their lives, by number, when what they hold was made: one in another life has lost it. Not
  /// known, or none: that in which it is met first.
  std::vector<PsLife> ps_lives = {};
  /// Of the session that each worker has, with itself as the master. Device filters are set here.
  service::SessionOptions session;
  /// But for `workers`, `ps`, and what `consistency` says.
  coord::SchedulerOptions scheduler;
  std::chrono::milliseconds closure_timeout{0};  ///< 0: none.
  /// A ps that does not answer workers for so long is lost.
  std::chrono::milliseconds ps_timeout{30'000};
  /// A ps that was started again, and has lost what it held, does not end the job: nothing runs
  /// until ps_restored() says that it holds it again.
  bool restores_ps = false;
  /// What closures that run at once on workers miss of each other's changes: any ("async"), as
  /// coord::Staleness has it ("bounded(s)", s from 1), or, of those that contribute to steps, all
  /// ("sync", "sync(k of n)" of n workers, "bounded(0)", and "hybrid", where what a closure
  /// contributes is of dense variables): coord::Steps. As config::parse_consistency() takes it.
  std::string consistency = "async";
  /// Where there are steps: the target of the server at the ps `step_ps`, which ends them.
  std::string step_target = {};
  int step_ps = 0;
  /// Closures that are run again make their changes of variables once (resources/changes_made.h),
  /// and contribute once; so it is in any case where there are steps. Steps of star_server_lite
  /// wait for what they push, then.
  bool effectively_once = false;
};

/// What takes a coordinator time, by the names of kTimings. Source: TensorFlow's metrics
/// /tensorflow/api/ps_strategy/coordinator/...
enum class Timing : uint8_t {
  kFunctionTracing,
  kClosureExecution,
  kRemoteValueFetch,
  kServerDefUpdate
};
inline constexpr std::array<std::string_view, 4> kTimings = {
    "function_tracing", "closure_execution", "remote_value_fetch", "server_def_update"};

/// What ends a step for variables that closures contribute to: `update` changes them by what was
/// contributed, `forget` drops that. The first feed of both, int64, is the number of the step that
/// begins then; others of `update` are what feed_step() says. Value type.
struct StepPlans {
  service::ClosurePlan update;
  service::ClosurePlan forget;
};

/// What a plan is told when it runs. Value type.
struct PlanUse {
  /// What it contributes to, of add_step(): then a feed, int64, is the number of its step.
  std::vector<uint64_t> steps = {};
  /// Its last feed, int64, is the number of the worker that runs it, behind that of the step.
  bool tells_worker = false;
};

/// The value of a closure, once it has one. Thread: any.
/// Source: tf.distribute.experimental.coordinator.RemoteValue.
class RemoteValue {
 public:
  virtual ~RemoteValue() = default;
  /// Whether the closure has ended.
  [[nodiscard]] virtual bool is_ready() const = 0;
  /// Waits until it has; `timeout` 0: as long as it takes. The values of the fetches of its plan.
  /// Errors: that of the closure; kDeadlineExceeded; kCancelled when `interrupt` says so.
  virtual Result<std::vector<tensor::Tensor>> wait(std::chrono::milliseconds timeout,
                                                   const std::function<bool()>& interrupt) = 0;
};

/// Runs closures on the workers of a cluster: coord::Scheduler says where, sessions of which each
/// worker is the master carry them. The session of a worker that is lost is made anew until the
/// worker is back, and nobody waits for it meanwhile. Makes threads of its own.
/// Thread: any.
/// Source: tf.distribute.coordinator.ClusterCoordinator.
class ClusterCoordinator {
 public:
  /// Begins to look for the workers. Ends all that runs when it goes. kInvalidArgument without any.
  static Result<std::shared_ptr<ClusterCoordinator>> create(ClusterCoordinatorOptions options);
  virtual ~ClusterCoordinator() = default;

  /// The graph that plans are of from now on; it begins with the nodes of the one before.
  virtual void set_graph(const ir::Graph& graph) = 0;
  /// A plan of the graph, by its number. Feeds of `use` are last, and given here.
  virtual uint64_t add_plan(service::ClosurePlan plan, PlanUse use = {}) = 0;
  /// What plans may contribute to, by its number. Of the graph, too.
  virtual uint64_t add_step(StepPlans plans) = 0;
  /// Values for the feeds of its update but the first, from now on. kNotFound for a number that
  /// there is not, kInvalidArgument for too many values, or too few.
  virtual Status feed_step(uint64_t step, std::vector<tensor::Tensor> values) = 0;
  /// Queues a closure: `plan` with values for its feeds, on a worker that has these resources.
  /// Waits while the queue is full, or somebody joins. Errors: the first one of a closure that
  /// nobody was told of; kNotFound for a plan or a resource; kDeadlineExceeded after `timeout` (0:
  /// none); kCancelled when `interrupt` says so.
  virtual Result<std::shared_ptr<RemoteValue>> schedule(
      uint64_t plan, std::vector<tensor::Tensor> feeds,
      std::span<const coord::ResourceId> resources, std::chrono::milliseconds timeout,
      const std::function<bool()>& interrupt) = 0;
  /// A closure that this worker runs, soon and, if it `waits`, again when it returns; see
  /// coord::Scheduler::schedule_on(). Errors: kNotFound for a plan, worker or resource;
  /// kInvalidArgument for a plan that contributes; kUnavailable for one that does not wait.
  virtual Result<std::shared_ptr<RemoteValue>> schedule_on(
      int worker, uint64_t plan, std::vector<tensor::Tensor> feeds,
      std::span<const coord::ResourceId> resources, bool waits) = 0;
  /// Waits until all closures have ended. Errors: as those of schedule(), naming workers that are
  /// waited for.
  virtual Status join(std::chrono::milliseconds timeout,
                      const std::function<bool()>& interrupt) = 0;
  /// Whether all closures have ended. Errors: as those of schedule().
  virtual Result<bool> done(const std::function<bool()>& interrupt) = 0;

  /// What each worker makes for itself by running `make`, and lets go of by running `drop`; these
  /// plans have no feeds but that one.
  virtual coord::ResourceId create_resource(uint64_t make, uint64_t drop) = 0;
  /// No more closures are going to use it.
  virtual void release_resource(coord::ResourceId resource) = 0;

  // ---- Variables that move to other ps (service/variable_moves.h).

  /// Lets nothing begin on workers any more, and waits until nothing runs there; what users ask for
  /// waits, and is not refused. Then nobody uses variables through this. Errors, after which all
  /// goes on: kDeadlineExceeded after `timeout`, naming what runs; kCancelled when `interrupt` says
  /// so; kFailedPrecondition when it is held already.
  virtual Status hold(std::chrono::milliseconds timeout,
                      const std::function<bool()>& interrupt) = 0;
  /// Where variables are for all that begins from now on, and which ps it does without; it forgets
  /// in which life it met these. While it is held.
  virtual void place(const ir::PlacementOverrides& overrides) = 0;
  /// After hold().
  virtual void go_on() = 0;

  /// A ps in its latest life. Value type.
  struct LostPs {
    int task = 0;
    PsLife life;
  };
  /// A ps that workers have met since, and that has lost what it held, most often because it was
  /// started again. May be the same again until it is restored.
  virtual std::optional<LostPs> next_lost_ps() = 0;
  /// A ps holds in this life what it held before: workers go on with it.
  virtual void ps_restored(const LostPs& ps) = 0;
  /// It never will: the job has failed.
  virtual void ps_failed(int task, const Status& why) = 0;

  /// Numbers of what it does now. Value type.
  struct Figures {
    size_t queued = 0;
    size_t in_flight = 0;
    int workers_found = 0;
    int64_t retried = 0;
    int64_t done = 0;   ///< Closures that have ended well.
    int64_t steps = 0;  ///< That closures contributed to, and that have ended well.
  };
  [[nodiscard]] virtual Figures figures() const = 0;
  /// Counts a time that this has no part in: kFunctionTracing.
  virtual void record(Timing what, std::chrono::nanoseconds took) = 0;
  /// How long it took each time, in ns: closures on their workers, waits for values, sessions that
  /// were made or got a graph.
  [[nodiscard]] virtual metrics::HistogramSnapshot timing(Timing what) const = 0;
};

}  // namespace sidereal::app
