#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "sidereal/base/event_log.h"
#include "sidereal/cluster/cluster_spec.h"
#include "sidereal/data/reader_shelf.h"
#include "sidereal/exec/kernel.h"
#include "sidereal/ir/device_spec.h"
#include "sidereal/ir/graph.h"
#include "sidereal/ir/schema.h"
#include "sidereal/master/alarm.h"
#include "sidereal/master/lost_tasks.h"
#include "sidereal/master/step_run.h"
#include "sidereal/master/threads.h"
#include "sidereal/partition/by_device.h"
#include "sidereal/passes/pipeline.h"
#include "sidereal/program/program.h"
#include "sidereal/task/loop.h"

/// A session, as its master has it.
namespace sidereal::master {

class LoopRun;
class LoopSink;

/// What a client asked for when it made a session. Value type.
struct SessionConfig {
  bool allow_soft_placement = false;
  bool log_device_placement = false;
  std::vector<std::string> device_filters;
  std::chrono::milliseconds operation_timeout{0};  ///< 0: none.
  task::SessionState state = {};
  ir::DType compute_dtype = ir::DType::kFloat32;
  bool tensor_fuse = false;
  int64_t pull_prefetch_ms = task::kPullPrefetchMs;
  /// A part of the server's, or all of it: the tasks that the session sees. Empty: all there are.
  cluster::ClusterSpec cluster = {};
  uint64_t lease = 0;                     ///< Of the job that it belongs to; 0: of none.
  ir::PlacementOverrides overrides = {};  ///< Until extend() says others.
};

/// What sessions use of their server. Borrowed; outlives them.
struct MasterContext {
  ir::OpRegistry registry;
  exec::KernelTable kernels;  ///< For constants.
  task::Task* task = nullptr;
  ClusterTasks* tasks = nullptr;
  NewAlarm new_alarm;  ///< For deadlines of steps.
  cluster::Protocol protocol = cluster::Protocol::kGrpc;
  /// What steps go over between tasks, by lane of this one; empty: gRPC.
  std::vector<task::DataChannels*> data;
  Threads* threads = nullptr;
  std::function<uint64_t()> random;
  base::EventSource source;                    ///< Of what is told of sessions.
  LostTasks* lost = nullptr;                   ///< What sessions have seen of other tasks.
  std::vector<ir::DeviceSpec> device_filters;  ///< Of other tasks, what fits one of these; or all.
  SessionConfig defaults;                      ///< Where clients ask for nothing else.
};

/// One step, as clients ask for it.
struct StepCall {
  std::vector<std::string> feeds;  ///< Values of the graph, by name.
  std::vector<tensor::Tensor> feed_values;
  std::vector<std::string> fetches;
  std::vector<std::string> targets;
  std::chrono::milliseconds timeout{0};  ///< 0: none.
  bool trace = false;
  bool waits_for_pushes = false;  ///< See ProgramCall.
  int lane = -1;                  ///< Where it runs: lane_hint(); -1: where the session's steps do.
  task::ClosureKey closure = {};  ///< Of one that may be run again.
};

/// A graph on the devices of a cluster. For every set of feeds, fetches and targets it keeps what
/// placing and cutting gave, registered on the tasks that take part.
/// Thread: any.
class MasterSession : public std::enable_shared_from_this<MasterSession> {
 public:
  /// kInvalidArgument for device filters that are no devices.
  static Result<std::shared_ptr<MasterSession>> create(MasterContext* context, uint64_t id,
                                                       SessionConfig config);
  ~MasterSession();

  [[nodiscard]] uint64_t id() const { return id_; }
  [[nodiscard]] const SessionConfig& config() const { return config_; }
  /// The devices it may use: those of its own task, and those its filters let through, but for
  /// those of tasks that overrides leave.
  [[nodiscard]] std::vector<ir::DeviceSpec> devices();

  /// Takes a graph that begins with the nodes it has, if `version` is still that of the session:
  /// the new version. Places it, and waits at most until `deadline` for the tasks it needs, and not
  /// once `gone` says that nobody waits for this any more: kCancelled.
  /// kAborted for another version; kInvalidArgument for another graph, or one that cannot be
  /// placed; kUnavailable naming a task that does not answer.
  /// `overrides`, where given: the session's from now on, by which what was there is placed anew;
  /// it lets go of tasks that nothing is placed on then. Steps that run go on where they are: the
  /// client has none that uses what is placed elsewhere.
  Result<int64_t> extend(const ir::Graph& graph, int64_t version,
                         std::chrono::steady_clock::time_point deadline,
                         const std::function<bool()>& gone,
                         const std::optional<ir::PlacementOverrides>& overrides = {});

  /// With log_device_placement: where nodes were placed since this was last asked, and the report.
  std::string take_placement();

  /// A step that was asked for. Cancelling it ends it with kCancelled.
  class Handle {
   public:
    virtual ~Handle() = default;
    virtual void cancel(const Status& why) = 0;
  };
  /// Runs a step; `done` is called once, from any thread, maybe before this returns.
  /// kResourceExhausted when too many run.
  std::shared_ptr<Handle> run(StepCall call, std::function<void(StepResult)> done);

  /// What steps of the same feeds, fetches and targets share, so that it is not looked up for each.
  class Prepared;
  /// Of the names in `names`; whether they are there the first step says.
  static std::shared_ptr<Prepared> prepare(StepCall names);
  /// As the other run(): with values for the feeds, in their order. `closure`: see StepCall.
  std::shared_ptr<Handle> run(const std::shared_ptr<Prepared>& prepared,
                              std::vector<tensor::Tensor> feed_values,
                              std::chrono::milliseconds timeout, const task::ClosureKey& closure,
                              std::function<void(StepResult)> done);

  /// Runs a loop; its end goes to `sink`, also when it does not begin. kInvalidArgument for options
  /// out of range, kResourceExhausted when too many run.
  Result<std::shared_ptr<LoopRun>> run_loop(task::LoopOptions options,
                                            std::shared_ptr<LoopSink> sink);

  /// Ends all steps and loops, and lets go of all tasks when their asynchronous pushes are done;
  /// then calls `done`, from any thread, with a failure of these that no step has told. `why` is
  /// what later calls get.
  void close(
      const Status& why, std::function<void(const Status&)> done = [](const Status&) {});
  /// What those who use it should know of the protocol; "": nothing.
  [[nodiscard]] std::string notice() const;

 private:
  class Request;
  struct Plan {
    std::vector<PartPlan> parts;
    uint64_t placement = 0;        ///< Of placements_ when it was made.
    size_t fetches = 0;            ///< Of all parts.
    std::set<std::string> called;  ///< Tasks that the only part calls.
    bool calls_wait = false;       ///< What it calls may wait for what steps share.
  };
  struct Attached {
    std::shared_ptr<Link> link;
    uint64_t incarnation = 0;
    int lanes = 1;
    Status lost;  ///< Why it is not attached any more.
  };

  MasterSession(MasterContext* context, uint64_t id, SessionConfig config)
      : context_(context),
        id_(id),
        config_(std::move(config)),
        cluster_json_(config_.cluster.empty() ? "" : config_.cluster.to_json()),
        overrides_(config_.overrides) {}

  Status find_devices();
  [[nodiscard]] Status check_extends(const ir::Graph& graph) const;
  Result<ir::Graph> place(const ir::Graph& graph, const ir::PlacementOverrides& overrides);
  using PlacedGraph = std::shared_ptr<const ir::Graph>;
  void let_go_of_others(const std::set<std::string>& tasks);
  struct Attempts;
  Status attach(const std::set<std::string>& tasks, std::chrono::steady_clock::time_point deadline,
                const std::function<bool()>& gone);
  Status try_to_attach(const std::shared_ptr<Attempts>& attempts,
                       std::chrono::steady_clock::time_point deadline,
                       const std::function<bool()>& gone);
  std::shared_ptr<Link> make_link(const std::string& task);
  void note_lost(const std::string& task, const Status& why);
  Status unless_closed(const Status& status);
  static std::string key_of(const StepCall& call);
  Result<std::shared_ptr<const Plan>> find_plan(const StepCall& call);
  Result<std::shared_ptr<const Plan>> make_plan(const StepCall& call);
  Result<std::shared_ptr<const Plan>> register_parts(
      const std::vector<partition::DevicePartition>& cut,
      const std::map<std::string, size_t>& feed_index, int lane);
  /// Of protocols that call: the one program of this master's task, which drives the step.
  /// `whole`: the graph of the session, placed.
  Result<std::shared_ptr<const Plan>> plan_of_calls(const ir::Graph& whole,
                                                    const passes::StepGraph& step,
                                                    const std::map<std::string, size_t>& feed_index,
                                                    int lane);
  struct Registration {
    std::shared_ptr<Link> link;
    task::NewProgram program;
  };
  static Result<std::vector<uint64_t>> register_all(std::vector<Registration> wanted);
  static Result<std::vector<size_t>> feeds_of(const program::Program& program,
                                              const std::map<std::string, size_t>& feed_index);
  Result<std::shared_ptr<Link>> link_to(const std::string& task);
  int lanes_of(const std::string& task);
  /// The devices, with the starts of their tasks that the session is attached to.
  std::vector<ports::TensorSource> sources(const std::vector<std::string>& devices);
  /// Those of the lane that the session's steps run on here.
  [[nodiscard]] task::DataChannels* data_channels() const;
  /// A step that waits for its plan.
  struct Unplanned {
    std::shared_ptr<Request> request;
    StepCall call;
    std::shared_ptr<Prepared> prepared;  ///< Gets the plan; or nullptr.
  };
  std::shared_ptr<Handle> run(StepCall call, const std::shared_ptr<Prepared>& prepared,
                              std::function<void(StepResult)> done);
  void make_waiting_plans();
  void start(const std::shared_ptr<Request>& request, const Plan& plan, const StepCall& call);
  void forget(const std::shared_ptr<Request>& request);
  Status begin_loop(const std::shared_ptr<LoopRun>& loop);
  [[nodiscard]] int lane_of_loop(size_t index) const;
  void forget_loop(const std::shared_ptr<LoopRun>& loop);

  MasterContext* const context_;
  const uint64_t id_;
  const SessionConfig config_;
  const std::string cluster_json_;       // What tasks are told of it; "": nothing.
  std::vector<ir::DeviceSpec> devices_;  // Also those that overrides leave.
  ir::DeviceSpec local_device_;

  std::mutex planning_mutex_;  // Held while a graph or a plan is made.
  std::mutex mutex_;
  PlacedGraph graph_ = std::make_shared<ir::Graph>();  // Placed,
  PlacedGraph plain_ = graph_;                         // and as it asks, without overrides.
  ir::Graph given_;                                    // As clients wrote it.
  int64_t version_ = 0;
  ir::PlacementOverrides overrides_;  // Also under planning_mutex_ when they change.
  std::atomic<uint64_t> placements_{
      0};  // How often they have changed: plans of before are not used.
  uint64_t steps_begun_ = 0;
  size_t nodes_told_ = 0;  // Of graph_: what take_placement() has told.
  std::map<std::string, std::shared_ptr<const Plan>> plans_;
  std::map<std::string, Attached> attached_;
  std::set<std::shared_ptr<Request>> running_;
  std::set<std::shared_ptr<LoopRun>> loops_;
  const std::shared_ptr<data::ReaderShelf> shelf_ = std::make_shared<data::ReaderShelf>();
  // Steps that wait for a plan, which one thread makes after the other.
  std::deque<Unplanned> unplanned_;
  bool is_planning_ = false;
  Status closed_;
};

/// Thread: any.
class MasterSession::Prepared {
 public:
  explicit Prepared(StepCall names) : names_(std::move(names)) {}

  [[nodiscard]] const StepCall& names() const { return names_; }

 private:
  friend class MasterSession;
  /// nullptr: it is to be found, as that of an earlier placement.
  [[nodiscard]] std::shared_ptr<const Plan> plan(uint64_t placement) {
    const std::lock_guard lock(mutex_);
    if (plan_ != nullptr && plan_->placement != placement) plan_ = nullptr;
    return plan_;
  }
  void take(std::shared_ptr<const Plan> plan) {
    const std::lock_guard lock(mutex_);
    plan_ = std::move(plan);
  }

  const StepCall names_;
  std::mutex mutex_;
  std::shared_ptr<const Plan> plan_;  // Once it was made.
};

}  // namespace sidereal::master
