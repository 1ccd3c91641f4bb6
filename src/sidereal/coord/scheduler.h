#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "sidereal/base/status.h"
#include "sidereal/coord/staleness.h"
#include "sidereal/coord/steps.h"

/// Which worker of a coordinator runs what, and what becomes of it when tasks fail.
namespace sidereal::coord {

using ResourceId = uint64_t;  ///< 1, 2, ... in the order in which they were created.

/// Where a failure comes from, as far as a task has told. Value type.
struct Origin {
  enum class Job : uint8_t { kNone, kWorker, kPs };
  Job job = Job::kNone;
  int task = 0;
  bool is_restarted = false;  ///< The task runs again, and knows nothing of what it was sent.
};

/// How a closure, or the making of a resource, ended on a worker.
struct Outcome {
  Status status;
  Origin origin = {};
};

/// Value type. Source: tf.distribute.coordinator and its environment variables.
struct SchedulerOptions {
  int workers = 0;
  int ps = 0;
  size_t queue_max = size_t{256} << 10;  ///< Closures that wait for a worker; 0: any number.
  /// Closures that one worker runs at a time. It gets more when half of them have ended: what is
  /// told to many workers is told in few messages, and none of them waits.
  int in_flight_max = 1;
  /// Of closures of the queue: Staleness has it. In_flight_max is 1 then.
  std::optional<int64_t> staleness_max = {};
  /// Closures that contribute begin in a step, and how many end it: Steps has them; 0: there are no
  /// steps. In_flight_max is 1 then.
  int64_t step_size = 0;
  int64_t step_quorum = 0;
  /// A step that lacks closures ends when none has been scheduled for so long, or when somebody
  /// waits for those that there are.
  int64_t step_patience_ns = int64_t{1} * 1'000'000'000;
  /// Failures of one ps within failure_window_ns that end the job; those before are tried again. 0:
  /// the first one does. What was begun before a failure was heard of is the same failure.
  int transient_ps_failures = 3;
  /// No failure of a ps ends the job: what fails for it is tried again, until the owner says with
  /// ps_lost() that it does not come back with what it held.
  bool ps_come_back = false;
  int transient_timeouts = -1;  ///< The same of closures past a deadline; -1: a tenth of `workers`.
  int64_t failure_window_ns = int64_t{600} * 1'000'000'000;
  int64_t start_delay_ns = 0;                       ///< Worker i begins i times so late,
  int64_t start_delay_max_ns = 0;                   ///< but at most so late; 0: no bound.
  int64_t report_ns = int64_t{60} * 1'000'000'000;  ///< So often missing workers are named.
};

/// What a Scheduler asks for. Nothing here may call it back before it returns.
class SchedulerHooks {
 public:
  virtual ~SchedulerHooks() = default;
  /// Run it there; ended() is to come, unless the worker is lost. `life` is that of the worker,
  /// `step` what a closure that contributes does so to.
  virtual void run(int worker, uint64_t life, ClosureId closure, int64_t step) = 0;
  /// End it soon, if it has not; ended() is to come all the same.
  virtual void cancel(int worker, ClosureId closure) = 0;
  /// Make the worker's own of a resource; built() is to come, unless the worker is lost.
  virtual void build(int worker, uint64_t life, ResourceId resource) = 0;
  /// Nobody uses the worker's own of it any more.
  virtual void drop(int worker, ResourceId resource) = 0;
  /// Variables are to change by what these closures have contributed to a step; step_done() is to
  /// come. What is contributed to it later is to be dropped.
  virtual void end_step(int64_t step, std::span<const ClosureId> closures) = 0;
  /// What was contributed to the steps before this one, and not used, is to be dropped;
  /// step_done() is to come.
  virtual void forget_steps(int64_t step) = 0;
  /// It has its value (ok), its error, or was cancelled (is_cancelled()). Comes once for each.
  virtual void closure_ended(ClosureId closure, const Status& status) = 0;
  /// Whoever was told to wait is to ask again.
  virtual void wake() = 0;
  /// These workers have been lost for a while; the longest of them since `since_ns`.
  virtual void missing(std::span<const int> workers, int64_t since_ns) = 0;
};

/// Errors of a closure whose per-worker resource could not be made.
/// Source: tf.distribute.coordinator ClosureInputError.
bool is_input_error(const Status& status);
/// Errors of a parameter server that is lost: the job cannot go on.
/// Source: tf.distribute.experimental.coordinator PSUnavailableError.
bool is_ps_failure(const Status& status);

/// The closures of a ClusterCoordinator: a queue from which workers take them, first come first
/// served. A closure whose worker is lost goes to the end of the queue and runs again; so it runs
/// at least once. (One that contributes goes to its beginning.) The first other failure is kept,
/// and raised once: the next call of schedule(), join() or done() cancels all closures, waits until
/// none is under way, and returns it.
///
/// Closures that contribute train in step (Steps), in whatever order others run beside them. One
/// has ended when variables have changed by what it contributed: its step.
///
/// It does no I/O, has no clock and no thread: the owner tells it what happened, and when (any
/// clock that does not go back), and does what SchedulerHooks asks for.
/// Thread: one at a time.
/// Source: tensorflow/python/distribute/coordinator/cluster_coordinator.py,
/// _CoordinatedClosureQueue.
class Scheduler {
 public:
  /// What was cancelled so often, and not from here, is not tried again.
  static constexpr int kCancelsMax = 16;

  /// All workers are lost at first. `hooks` is borrowed.
  Scheduler(const SchedulerOptions& options, SchedulerHooks* hooks, int64_t now_ns);
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // ---- What users ask for. Nothing (or false): wait for wake(), and ask again.

  /// Takes one more closure, which uses these resources. Waits while the queue is full, or somebody
  /// joins. `contributes`: to a step, where there are steps. Errors: the one that is raised;
  /// kNotFound for a resource that is not there.
  Result<std::optional<ClosureId>> schedule(std::span<const ResourceId> resources, int64_t now_ns,
                                            bool contributes = false);
  /// A closure of one worker's own: it runs there before those of the queue, again when the worker
  /// returns, and is none of those that schedule(), joined() and done() wait for or cancel; its
  /// error is told to its owner only. `waits` false: it is of use to the worker in its present life
  /// only, and ends with kUnavailable when that does, or there is none. Errors: kNotFound, as
  /// schedule(); kUnavailable.
  Result<ClosureId> schedule_on(int worker, std::span<const ResourceId> resources, int64_t now_ns,
                                bool waits = true);
  /// Somebody joins from here on, until joined() says more than false, or leave_join().
  void begin_join() { ++joining_; }
  /// True when every closure has ended. Errors: the one that is raised.
  Result<bool> joined();
  void leave_join();
  /// Whether every closure has ended; nothing while they are being cancelled. Errors: the one that
  /// is raised.
  Result<std::optional<bool>> done();

  /// Somebody waits for the value of a closure: the step that it is in does not wait for others
  /// that may be scheduled.
  void await(int64_t now_ns);

  /// Something that every worker has one of, made anew when a worker returns.
  ResourceId create_resource(int64_t now_ns);
  /// Goes when no closure uses it any more. A number that is not there is ignored.
  void release_resource(ResourceId resource);

  // ---- What happened. Reports of an earlier life of a worker are ignored.

  /// The worker can be reached. `life` is a number of the owner's: another one whenever the worker
  /// was started, or reached, anew.
  void worker_found(int worker, uint64_t life, int64_t now_ns);
  /// What it ran runs elsewhere, and its resources are gone.
  void worker_lost(int worker, uint64_t life, int64_t now_ns);
  /// The job cannot go on: the ps, and what it held, is gone.
  void ps_lost(int ps, const Status& why);
  /// The value, if any, has been copied to the coordinator.
  void ended(int worker, uint64_t life, ClosureId closure, const Outcome& outcome, int64_t now_ns);
  void built(int worker, uint64_t life, ResourceId resource, const Outcome& outcome,
             int64_t now_ns);
  /// A ps does not have any more what was contributed to it: closures of this step run again.
  void step_lost(int64_t now_ns);
  /// Of end_step() and forget_steps().
  void step_done(int64_t step, const Outcome& outcome, int64_t now_ns);
  /// Lets time pass. When to be called next; INT64_MAX: not before something happens.
  int64_t tick(int64_t now_ns);

  // ---- What its owner wants.

  /// Nothing begins on workers from here on, until go_on(): no closure, and no making of a
  /// resource. Users may ask for all as before. A step ends with what has begun of it.
  void hold();
  /// Whether nothing is under way on workers, and no step has begun. wake() comes when it becomes
  /// so while all is held.
  [[nodiscard]] bool is_idle() const;
  void go_on(int64_t now_ns);

  // ---- How it stands.

  [[nodiscard]] size_t queued() const { return queue_.size(); }
  [[nodiscard]] size_t in_flight() const { return in_flight_; }
  [[nodiscard]] size_t resources() const { return resources_.size(); }
  /// How often closures were put back into the queue.
  [[nodiscard]] int64_t retried() const { return retried_; }
  [[nodiscard]] int workers_found() const;

 private:
  struct Closure {
    std::vector<ResourceId> resources;
    int64_t began_ns = 0;
    int cancels = 0;  ///< How often it ended so, and nobody had asked.
    bool is_cancelled = false;
    bool is_own = false;  ///< Of schedule_on(),
    bool waits = true;    ///< for the worker to return.
    bool contributes = false;
    int64_t step = 0;      ///< In which it was begun last.
    bool is_void = false;  ///< That was given up, and what it contributes is not used.
  };
  enum class Made : uint8_t { kNo, kUnderWay, kYes, kFailed };
  struct Copy {
    Made made = Made::kNo;
    Status why = {};  ///< kFailed.
    int64_t began_ns = 0;
    int cancels = 0;
  };
  struct Resource {
    std::vector<Copy> copies;  ///< By worker.
    int64_t uses = 0;          ///< Closures that have not ended.
    bool is_released = false;
  };
  struct Worker {
    bool is_found = false;
    bool is_free = false;  ///< In free_.
    uint64_t life = 0;
    int64_t starts_ns = 0;
    int64_t lost_ns = 0;
    int missing = 0;  ///< Resources of it that are not made, nor have failed.
    std::vector<ClosureId> running;
    std::deque<ClosureId> own;  ///< What waits of schedule_on().
  };
  using Tries = std::deque<int64_t>;  ///< When failures were heard of that were tried again.
  enum class Verdict : uint8_t { kAgain, kWorkerLost, kPsLost, kFailed };

  void note(int64_t now_ns) { now_ns_ = std::max(now_ns_, now_ns); }
  void tell_if_idle();
  [[nodiscard]] Verdict judge(int worker, const Outcome& outcome, int64_t began_ns, int* cancels);
  [[nodiscard]] bool try_again(Tries* tries, int limit, int64_t began_ns) const;
  /// The worker, when a report of this life of it counts; else nullptr.
  [[nodiscard]] Worker* living(int worker, uint64_t life);
  [[nodiscard]] bool is_full() const {
    return options_.queue_max > 0 && queue_.size() >= options_.queue_max;
  }
  [[nodiscard]] bool can_run(const Worker& worker) const;
  void put_free(int worker);
  void offer(int worker);
  void be_free(std::vector<int>* workers);
  void dispatch();
  void dispatch_own(int worker);
  [[nodiscard]] bool is_of_step(const Closure& closure) const {
    return closure.contributes && closure.step == steps_.number();
  }
  void leave_step(const Closure& closure);
  void contribute(ClosureId id);
  [[nodiscard]] bool lacks_closures() const;
  void end_step_if_complete();
  void void_running();
  /// What has been contributed to this step is not used; the closures that ended in it.
  std::vector<ClosureId> give_step_up();
  [[nodiscard]] Status check(std::span<const ResourceId> resources) const;
  ClosureId add(std::span<const ResourceId> resources, bool contributes);
  /// Whether no closure is left, but for workers' own.
  [[nodiscard]] bool all_ended() const { return closures_.size() == own_; }
  void start(int worker, ClosureId id);
  void retry(int worker, ClosureId id);
  void end(ClosureId id, const Status& status);
  void lose(int worker);
  void fail_job(int ps, const Status& why);
  void build_missing(int worker);
  void forget_if_unused(ResourceId id);
  void record(const Status& error);
  [[nodiscard]] bool has_error() const { return !error_.ok(); }
  /// Ends what waits and asks what runs to end; true when nothing runs any more.
  bool cancel_all();
  Status raise();
  void finish_cancel();

  const SchedulerOptions options_;
  SchedulerHooks* const hooks_;
  Staleness staleness_;
  Steps steps_;
  bool is_awaited_ = false;    ///< Somebody waits for what was scheduled.
  int64_t resting_ns_ = 0;     ///< Since when the step lacks closures.
  int64_t step_began_ns_ = 0;  ///< Of its end.
  int step_cancels_ = 0;       ///< As those of closures.
  std::vector<Worker> workers_;
  std::deque<int> free_;  ///< Workers that can run one more, the longest waiting first.
  std::deque<ClosureId> queue_;
  absl::flat_hash_map<ClosureId, Closure> closures_;  ///< Not ended.
  std::map<ResourceId, Resource> resources_;          ///< As created.
  ClosureId last_closure_ = 0;
  ResourceId last_resource_ = 0;
  size_t in_flight_ = 0;  ///< Without workers' own.
  size_t own_ = 0;        ///< Of schedule_on(), not ended.
  int joining_ = 0;
  bool is_held_ = false;
  bool is_cancelling_ = false;
  Status error_;       ///< The first failure that nobody was told of.
  Status ps_failure_;  ///< Is raised from then on.
  std::vector<Tries> ps_tries_;
  Tries timeouts_;
  int64_t retried_ = 0;
  int64_t now_ns_;
  int64_t reported_ns_;
};

}  // namespace sidereal::coord
