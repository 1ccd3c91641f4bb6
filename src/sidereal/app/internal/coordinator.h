#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "sidereal/app/cluster_coordinator.h"
#include "sidereal/app/internal/coordinator_parts.h"
#include "sidereal/cluster/task_name.h"
#include "sidereal/coord/scheduler.h"
#include "sidereal/service/closure_calls.h"
#include "sidereal/service/session.h"

/// The coordinator behind ClusterCoordinator: what users call is in cluster_coordinator.cc, what
/// runs on workers in coordinator_calls.cc, and their sessions in coordinator_sessions.cc.
namespace sidereal::app::coordinator {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using tensor::Tensor;

/// Between two tries to reach a worker.
inline constexpr milliseconds kRetry(500);

inline int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             steady_clock::now().time_since_epoch())
      .count();
}

/// As the scheduler wants to know it.
coord::Origin origin_of(const Status& status);

class Coordinator;

/// A worker in one of its lives.
struct Connection final : service::ClosureObserver, std::enable_shared_from_this<Connection> {
  void ended(std::vector<service::ClosureResult> results) override;
  void lost(const Status& why) override;

  std::weak_ptr<Coordinator> owner;
  int worker = 0;
  uint64_t life = 0;
  std::shared_ptr<service::ClosureCalls> calls;
  // Under the owner's lock.
  std::shared_ptr<service::Session> session;  ///< Ends with its last user.
  int64_t graph_version = 0;
  int64_t overrides_version = 0;
  std::vector<bool> knows_plan;  ///< By number.
  bool is_extending = false;
  bool is_unsent = false;          ///< Something waits for flush() of its calls.
  bool is_over = false;            ///< Its session is of no use any more: a task of it is lost.
  std::deque<uint64_t> waiting;    ///< Calls whose plan its session does not know yet.
  std::deque<uint64_t> cancelled;  ///< Of these.
  /// Resources that are being made, and whether they are dropped then.
  absl::flat_hash_map<coord::ResourceId, bool> making;
};

/// What the calls of a stream are for; their numbers say it.
enum class Call : uint8_t { kClosure, kMake, kDrop };
constexpr uint64_t call_of(Call what, uint64_t id) { return id << 2 | static_cast<uint64_t>(what); }
constexpr Call what_of(uint64_t call) { return static_cast<Call>(call & 3); }
constexpr uint64_t id_of(uint64_t call) { return call >> 2; }

/// Thread: any.
class Coordinator final : public ClusterCoordinator,
                          public coord::SchedulerHooks,
                          public std::enable_shared_from_this<Coordinator> {
 public:
  explicit Coordinator(ClusterCoordinatorOptions options);
  void start();
  /// Ends all that runs. No call of users is under way.
  void stop();
  void set_graph(const ir::Graph& graph) override;
  uint64_t add_plan(service::ClosurePlan plan, PlanUse use) override;
  uint64_t add_step(StepPlans plans) override;
  Status feed_step(uint64_t step, std::vector<Tensor> values) override;
  Result<std::shared_ptr<RemoteValue>> schedule(uint64_t plan, std::vector<Tensor> feeds,
                                                std::span<const coord::ResourceId> resources,
                                                milliseconds timeout,
                                                const std::function<bool()>& interrupt) override;
  Result<std::shared_ptr<RemoteValue>> schedule_on(int worker, uint64_t plan,
                                                   std::vector<Tensor> feeds,
                                                   std::span<const coord::ResourceId> resources,
                                                   bool waits) override;
  Status join(milliseconds timeout, const std::function<bool()>& interrupt) override;
  Result<bool> done(const std::function<bool()>& interrupt) override;
  coord::ResourceId create_resource(uint64_t make, uint64_t drop) override;
  void release_resource(coord::ResourceId resource) override;
  Status hold(milliseconds timeout, const std::function<bool()>& interrupt) override;
  void place(const ir::PlacementOverrides& overrides) override;
  void go_on() override;
  std::optional<LostPs> next_lost_ps() override;
  void ps_restored(const LostPs& ps) override;
  void ps_failed(int task, const Status& why) override;
  [[nodiscard]] Figures figures() const override;
  void record(Timing what, std::chrono::nanoseconds took) override { timings_->record(what, took); }
  [[nodiscard]] metrics::HistogramSnapshot timing(Timing what) const override;

  // ---- What the scheduler asks for, under the lock.

  void run(int worker, uint64_t /*life*/, coord::ClosureId closure, int64_t step) override;
  void cancel(int worker, coord::ClosureId closure) override;
  void build(int worker, uint64_t /*life*/, coord::ResourceId resource) override;
  void drop(int worker, coord::ResourceId resource) override;
  void end_step(int64_t step, std::span<const coord::ClosureId> closures) override;
  void forget_steps(int64_t step) override;
  void closure_ended(coord::ClosureId id, const Status& status) override;
  void wake() override { changed_.notify_all(); }
  void missing(std::span<const int> workers, int64_t since_ns) override;

  /// A user waits for a value.
  void await();

  // ---- What connections tell.

  void ended(const std::shared_ptr<Connection>& connection,
             std::vector<service::ClosureResult> results);
  void take_results(const std::shared_ptr<Connection>& connection,
                    std::vector<service::ClosureResult>* results);
  void lost(const std::shared_ptr<Connection>& connection, const Status& why);

 private:
  using Until = std::optional<steady_clock::time_point>;
  struct Plan {
    service::ClosurePlan what;
    std::vector<uint64_t> steps;
    bool tells_worker = false;
    int64_t graph_version = 0;
  };
  struct Closure {
    uint64_t plan = 0;
    std::vector<Tensor> feeds;
    std::vector<Tensor> fetches;
    std::shared_ptr<Value> value;
    steady_clock::time_point sent = {};
    int runs = 0;
    int64_t step = 0;     ///< That it contributes to.
    uint64_t number = 0;  ///< Of `numbers_`, once it was sent; 0: it has none.
  };
  /// The plans of a resource.
  struct OfWorkers {
    uint64_t make = 0;
    uint64_t drop = 0;
  };
  struct Ps {
    PsLife life;                ///< That is meant; what is not known of it is as it is first met.
    std::optional<PsLife> met;  ///< Another one, not reported yet.
    std::optional<steady_clock::time_point> silent_since;
  };
  static Until until_of(milliseconds timeout);
  static std::string name_of(int worker) { return cluster::task_name("worker", worker); }
  static std::string names_of(std::span<const int> workers);
  std::string missing_workers();
  Status wait(std::unique_lock<std::mutex>* lock, Until until,
              const std::function<bool()>& interrupt, std::string_view what);

  /// After hold(): all goes on.
  void resume(std::unique_lock<std::mutex>* lock);

  // ---- Calls. Under the lock.

  [[nodiscard]] Status check_feeds(uint64_t plan, size_t count) const;
  [[nodiscard]] std::shared_ptr<Value> new_value();
  /// Gives the scheduler a closure by `ask`, in which it may run at once. False: it is not taken
  /// now, and the caller's again, as after an error.
  template <class Ask>
  Result<bool> hand_over(Closure* closure, const Ask& ask);
  /// nullptr while the worker is lost.
  Connection* connection_of(int worker) { return workers_[static_cast<size_t>(worker)].get(); }

  uint64_t plan_of(uint64_t call);
  void call(int worker, uint64_t id);
  void send(Connection* connection, uint64_t id);
  /// Of a closure that runs; 0 when there is none, which ends all.
  uint64_t new_number();
  /// There is a message to send: it leaves soon, unless a caller of this calls flush().
  void is_said(Connection* connection);
  /// Writes what is to leave, without the lock.
  void flush(std::unique_lock<std::mutex>* lock);
  /// One closure leaves at once. Of many that follow each other, those for one worker leave in one
  /// message, as another thread gets to it.
  void flush_or_burst(std::unique_lock<std::mutex>* lock);
  void send_bursts();
  void tell(Connection* connection, service::ClosureResult* result);

  // ---- Sessions. Jobs run without the lock.

  void add_job(std::function<void()> job);
  /// The session ends on a thread that may wait.
  void drop_connection(size_t worker);
  void connect_anew(size_t worker, milliseconds after);
  /// Its closures run elsewhere; a new session is made `after` a while.
  void lose(const Connection& connection, milliseconds after);
  void work();
  /// What sessions are made of. Value type.
  struct Program {
    std::shared_ptr<const ir::Graph> graph;
    int64_t graph_version = 0;
    ir::PlacementOverrides overrides;
    int64_t overrides_version = 0;
  };
  [[nodiscard]] Program program() const;
  /// Whether a session knows all that a plan needs.
  [[nodiscard]] bool knows(const Connection& connection, const Plan& plan) const;
  void extend_soon(Connection* connection);
  Result<std::shared_ptr<service::Session>> open_session(const std::string& target,
                                                         const Program& program);
  Result<std::shared_ptr<Connection>> connect(size_t worker, const Program& program);
  /// Gives a session what is new of `known`; `overrides_version`: of where it has variables.
  static Status extend_to(const Program& known, int64_t overrides_version,
                          service::Session* session);
  /// As check_ps(), of what a session has met. Without the lock.
  Status check_devices(service::Session* session);
  /// kAborted for a ps that is another one than before, which has lost what it held.
  Status check_ps(const std::vector<service::DeviceAttributes>& devices);
  /// Under the lock.
  void take(size_t worker, Result<std::shared_ptr<Connection>> made);
  void note_silent_ps(const coord::Origin& origin, const Status& why);
  void extend(const std::shared_ptr<Connection>& connection);
  void keep_time();

  // ---- Steps, by one thread.

  /// What functions contribute to.
  struct OfStep {
    StepPlans plans;
    std::vector<Tensor> values;  ///< For the feeds of its update but the first.
  };
  /// How a step ends. Value type.
  struct StepEnd {
    int64_t step = 0;
    bool updates = false;
    std::vector<std::pair<std::string, Tensor>> feeds;
    std::vector<std::string> targets;
    void add(const service::ClosurePlan& plan, int64_t next, std::span<const Tensor> values);
  };
  struct StepSession {
    std::shared_ptr<service::Session> session;
    int64_t graph_version = 0;
    int64_t overrides_version = 0;
  };
  void end_steps();
  /// With the lock, which it lets go of meanwhile.
  Status carry_out(const StepEnd& end, std::shared_ptr<StepSession>* session,
                   std::unique_lock<std::mutex>* lock);
  Status run_step(const StepEnd& end, const Program& known, std::shared_ptr<StepSession>* session);

  const ClusterCoordinatorOptions options_;
  const std::shared_ptr<Timings> timings_ = std::make_shared<Timings>();
  mutable std::mutex mutex_;
  std::condition_variable changed_;  ///< For users.
  std::condition_variable work_;
  std::condition_variable time_;
  std::condition_variable unsent_changed_;
  std::condition_variable step_work_;
  std::optional<StepEnd> ending_;
  int64_t steps_ended_ = 0;
  std::vector<std::shared_ptr<Connection>> unsent_;  ///< With something that waits for flush().
  bool is_flushing_ = false;                         ///< What is said now is flushed up the stack.
  steady_clock::time_point flushed_;  ///< When schedule() last had something to send.
  coord::Scheduler scheduler_;
  std::shared_ptr<const ir::Graph> graph_ = std::make_shared<const ir::Graph>();
  int64_t graph_version_ = 0;
  bool is_held_ = false;
  ir::PlacementOverrides overrides_;
  int64_t overrides_version_ = 0;
  std::vector<Plan> plans_;
  std::vector<OfStep> steps_;
  std::vector<OfWorkers> resources_;
  std::unordered_map<coord::ClosureId, Closure> closures_;  ///< Not ended.
  coord::ClosureId last_closure_ = 0;
  uint64_t client_ = 0;     ///< Of closures that are run again effectively once; else 0.
  ClosureNumbers numbers_;  ///< Of these.
  std::vector<std::shared_ptr<Connection>> workers_;  ///< nullptr: not found.
  std::vector<Ps> ps_;
  uint64_t last_life_ = 0;
  int64_t done_ = 0;
  Status last_error_;  ///< Of a worker that is missing.
  Status failed_;      ///< Why no worker can be of use.
  std::deque<std::function<void()>> jobs_;
  std::multimap<steady_clock::time_point, size_t> connects_;  ///< Workers to connect, and when.
  size_t connecting_ = 0;
  size_t connecting_max_ = 0;
  bool is_stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace sidereal::app::coordinator
