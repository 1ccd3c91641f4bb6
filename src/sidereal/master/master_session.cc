#include "sidereal/master/master_session.h"

#include <condition_variable>
#include <optional>
#include <tuple>
#include <utility>

#include "sidereal/base/log.h"
#include "sidereal/cluster/task_name.h"
#include "sidereal/exec/one_op.h"
#include "sidereal/ir/function.h"
#include "sidereal/ir/text.h"
#include "sidereal/kernels/prepared_matmul.h"
#include "sidereal/kernels/thread.h"
#include "sidereal/master/loop_run.h"
#include "sidereal/master/placement.h"
#include "sidereal/partition/by_device.h"
#include "sidereal/partition/lanes.h"
#include "sidereal/passes/feeds.h"
#include "sidereal/passes/pipeline.h"
#include "sidereal/passes/place_devices.h"
#include "sidereal/passes/placement_report.h"
#include "sidereal/program/compile.h"
#include "sidereal/task/origin.h"

namespace sidereal::master {

using std::chrono::steady_clock;
using tensor::Tensor;

namespace {

constexpr std::chrono::milliseconds kRetry(200);
constexpr std::chrono::seconds kLogEvery(10);
/// Steps of a session at once.
constexpr size_t kStepsMax = 16'384;
/// Plans of a session: sets of feeds, fetches and targets.
constexpr size_t kPlansMax = 16'384;

std::chrono::milliseconds shorter(std::chrono::milliseconds a, std::chrono::milliseconds b) {
  if (a.count() <= 0) return b;
  return b.count() <= 0 ? a : std::min(a, b);
}

/// The devices of all nodes, of bodies of functions too.
void collect_devices(const ir::Graph& graph, std::set<std::string>* out) {
  for (const ir::Node& node : graph.nodes()) out->insert(node.device);
  for (const ir::NamedFunction& function : graph.functions()) {
    collect_devices(function.function->body(), out);
  }
}

/// How many of `tasks` have the job of `task`, which is one of them.
int tasks_beside(const std::vector<std::string>& tasks, std::string_view task) {
  const std::string_view job = task.substr(0, task.find("/task:"));
  const auto count = std::count_if(tasks.begin(), tasks.end(), [&](std::string_view other) {
    return other.substr(0, other.find("/task:")) == job;
  });
  return std::max(1, static_cast<int>(count));
}

/// The same whenever the closure is run: then its random ops give the same numbers, and what it
/// does in loops is known by the numbers of their iterations.
uint64_t number_of(const task::ClosureKey& closure) {
  const uint64_t number = closure.client ^ closure.closure;
  return number == 0 ? 1 : number;
}

}  // namespace

/// A step that was asked for: being planned, or running. Thread: any.
class MasterSession::Request final : public MasterSession::Handle {
 public:
  explicit Request(std::function<void(StepResult)> done) : done_(std::move(done)) {}

  void cancel(const Status& why) override {
    std::shared_ptr<StepRun> run;
    {
      const std::lock_guard lock(mutex_);
      if (cancelled_.ok()) cancelled_ = why;
      run = run_;
    }
    if (run != nullptr) run->cancel(why);
  }

  /// What it was cancelled with before `run` was made.
  Status begin(std::shared_ptr<StepRun> run) {
    const std::lock_guard lock(mutex_);
    if (cancelled_.ok()) run_ = std::move(run);
    return cancelled_;
  }

  [[nodiscard]] Status cancelled() {
    const std::lock_guard lock(mutex_);
    return cancelled_;
  }

  /// The tasks that it calls; under the session's lock, as calls_to().
  void calls(const std::set<std::string>& tasks) { called_ = tasks; }
  [[nodiscard]] bool calls_to(const std::string& task) const { return called_.contains(task); }

  void finish(StepResult result) {
    std::function<void(StepResult)> done;
    {
      const std::lock_guard lock(mutex_);
      done = std::exchange(done_, nullptr);
      run_ = nullptr;
    }
    if (done) done(std::move(result));
  }

 private:
  std::mutex mutex_;
  std::function<void(StepResult)> done_;
  std::shared_ptr<StepRun> run_;
  Status cancelled_;
  std::set<std::string> called_;
};

Result<std::shared_ptr<MasterSession>> MasterSession::create(MasterContext* context, uint64_t id,
                                                             SessionConfig config) {
  std::shared_ptr<MasterSession> session(new MasterSession(context, id, std::move(config)));
  SR_RETURN_IF_ERROR(session->find_devices());
  return session;
}

MasterSession::~MasterSession() = default;

Status MasterSession::find_devices() {
  SR_ASSIGN_OR_RETURN(local_device_,
                      ir::DeviceSpec::parse(context_->task->name() + "/device:CPU:0"));
  const auto lets = [](const std::vector<ir::DeviceSpec>& filters, const ir::DeviceSpec& device) {
    return filters.empty() ||
           std::any_of(filters.begin(), filters.end(),
                       [&](const ir::DeviceSpec& filter) { return filter.fits(device); });
  };
  std::vector<ir::DeviceSpec> filters;
  for (const std::string& filter : config_.device_filters) {
    SR_ASSIGN_OR_RETURN(filters.emplace_back(), ir::DeviceSpec::parse(filter));
  }
  const auto is_of_session = [&](const std::string& task) {
    const std::optional<cluster::TaskName> name = cluster::parse_task_name(task);
    return config_.cluster.empty() ||
           (name && config_.cluster.task_address(name->job, name->index).ok());
  };
  for (const std::string& task : context_->tasks->names()) {
    if (!is_of_session(task)) continue;
    SR_ASSIGN_OR_RETURN(const ir::DeviceSpec device, ir::DeviceSpec::parse(task + "/device:CPU:0"));
    if (device == local_device_ ||
        (lets(filters, device) && lets(context_->device_filters, device))) {
      devices_.push_back(device);
    }
  }
  return {};
}

std::vector<ir::DeviceSpec> MasterSession::devices() {
  std::set<std::string> left;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [task, other] : overrides_.tasks) left.insert(task);
  }
  std::vector<ir::DeviceSpec> out = devices_;
  std::erase_if(out, [&](const ir::DeviceSpec& device) {
    return left.contains(cluster::task_of(device.to_string()));
  });
  return out;
}

Result<ir::Graph> MasterSession::place(const ir::Graph& graph,
                                       const ir::PlacementOverrides& overrides) {
  passes::Devices devices;
  devices.all = devices_;
  devices.local = local_device_;
  devices.overrides = overrides;
  devices.allow_soft_placement = config_.allow_soft_placement;
  devices.has_kernel = [](std::string_view, std::string_view type) { return type == "CPU"; };
  for (const ir::Node& node : plain_->nodes()) devices.assigned[node.name] = node.device;
  ir::Graph placed = graph;
  SR_RETURN_IF_ERROR(passes::place_devices(&placed, devices, context_->registry));
  return placed;
}

Result<int64_t> MasterSession::extend(const ir::Graph& graph, int64_t version,
                                      steady_clock::time_point deadline,
                                      const std::function<bool()>& gone,
                                      const std::optional<ir::PlacementOverrides>& overrides) {
  const std::lock_guard planning(planning_mutex_);
  {
    const std::lock_guard lock(mutex_);
    SR_RETURN_IF_ERROR(closed_);
    if (version != version_) {
      return base::aborted(
          "the session's graph has version {}; it was to be extended from version {}: somebody "
          "else extended it",
          version_, version);
    }
  }
  SR_RETURN_IF_ERROR(check_extends(graph));
  SR_ASSIGN_OR_RETURN(ir::Graph asked, place(graph, {}));
  const auto plain = std::make_shared<const ir::Graph>(std::move(asked));
  PlacedGraph placed = plain;
  const ir::PlacementOverrides now = overrides.value_or(overrides_);
  if (!now.empty()) {
    SR_ASSIGN_OR_RETURN(ir::Graph moved, place(graph, now));
    placed = std::make_shared<const ir::Graph>(std::move(moved));
  }
  std::set<std::string> names;
  collect_devices(*placed, &names);
  std::set<std::string> tasks;
  for (const std::string& device : names) {
    if (!device.empty()) tasks.insert(cluster::task_of(device));
  }
  // It drives the steps, whatever it runs of them itself.
  if (cluster::is_pull_push(context_->protocol)) tasks.insert(context_->task->name());
  SR_RETURN_IF_ERROR(attach(tasks, deadline, gone));
  if (config_.log_device_placement) {
    base::log_info("placement\n{}", passes::to_text(passes::placement_report(*placed)));
  }
  if (overrides) let_go_of_others(tasks);
  const std::lock_guard lock(mutex_);
  graph_ = std::move(placed);
  plain_ = plain;
  given_ = graph;
  if (overrides) {
    overrides_ = now;
    plans_.clear();
    ++placements_;
  }
  return ++version_;
}

/// Of those that are none of these, where nothing of the session is any more.
void MasterSession::let_go_of_others(const std::set<std::string>& tasks) {
  std::vector<std::shared_ptr<Link>> left;
  {
    const std::lock_guard lock(mutex_);
    for (auto one = attached_.begin(); one != attached_.end();) {
      if (tasks.contains(one->first)) {
        ++one;
        continue;
      }
      left.push_back(std::move(one->second.link));
      one = attached_.erase(one);
    }
  }
  for (const std::shared_ptr<Link>& link : left) link->detach();
}

std::string MasterSession::take_placement() {
  if (!config_.log_device_placement) return "";
  const std::lock_guard lock(mutex_);
  const size_t first = std::exchange(nodes_told_, graph_->size());
  return placement_lines(*graph_, first) + passes::to_text(passes::placement_report(*graph_));
}

Status MasterSession::check_extends(const ir::Graph& graph) const {
  for (const ir::Node& old : given_.nodes()) {
    const bool is_there = static_cast<size_t>(old.id.value) < graph.size();
    const ir::Node* const node = is_there ? &graph.node(old.id) : nullptr;
    if (node == nullptr || ir::to_text(graph, *node) != ir::to_text(given_, old)) {
      return base::invalid_argument(
          "the graph does not begin with the nodes the session has: {} '{}', which was created by "
          "a previous call, is gone or changed",
          old.op, old.name);
    }
  }
  return {};
}

std::shared_ptr<Link> MasterSession::make_link(const std::string& task) {
  if (task == context_->task->name()) {
    return local_link(context_->task, id_, config_.state);
  }
  Result<std::shared_ptr<Link>> link =
      context_->tasks->link({.task = task,
                             .session = id_,
                             .state = config_.state,
                             .protocol = context_->protocol,
                             .lease = config_.lease,
                             .cluster = cluster_json_,
                             .master = context_->task->name(),
                             .data = data_channels(),
                             .answered = &context_->task->answered_pushes(0),
                             .on_lost = [weak = weak_from_this(), task](const Status& why) {
                               const std::shared_ptr<MasterSession> self = weak.lock();
                               if (self != nullptr) self->note_lost(task, why);
                             }});
  return link.ok() ? *std::move(link) : nullptr;
}

void MasterSession::note_lost(const std::string& task, const Status& why) {
  std::vector<std::shared_ptr<Request>> calling;
  std::vector<std::shared_ptr<LoopRun>> loops;
  uint64_t incarnation = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto found = attached_.find(task);
    if (found != attached_.end() && found->second.lost.ok()) {
      found->second.lost = why;
      incarnation = found->second.incarnation;
    }
    for (const auto& loop : loops_) {
      if (loop->calls_to(task)) loops.push_back(loop);
    }
    for (const auto& request : running_) {
      if (request->calls_to(task)) calling.push_back(request);
    }
  }
  if (incarnation != 0 && context_->lost != nullptr) {
    context_->lost->note_lost(task, incarnation, id_, why);
  }
  // No part of theirs runs there, whose end would end them.
  for (const auto& request : calling) request->cancel(why);
  for (const auto& loop : loops) loop->cancel(why);
  context_->task->lose_async_pushes(id_, task, why);
}

namespace {

/// Attaching to one task: tried again until it answers.
struct Attempt {
  std::shared_ptr<Link> link;
  bool pending = false;
  steady_clock::time_point next;
  Status failure;
  Link::Attached attached;  ///< Once its incarnation is not 0.
};

}  // namespace

struct MasterSession::Attempts {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, Attempt> by_task;
};

Status MasterSession::attach(const std::set<std::string>& tasks, steady_clock::time_point deadline,
                             const std::function<bool()>& gone) {
  const auto attempts = std::make_shared<Attempts>();
  {
    const std::lock_guard lock(mutex_);
    for (const std::string& task : tasks) {
      if (!attached_.contains(task)) attempts->by_task[task];
    }
  }
  Status status = try_to_attach(attempts, deadline, gone);
  if (status.ok() && context_->lost != nullptr) {
    // Before a loss of one can be noted.
    const std::lock_guard lock(attempts->mutex);
    for (const auto& [task, attempt] : attempts->by_task) {
      context_->lost->note_attached(task, attempt.attached.incarnation);
    }
  }
  std::vector<std::shared_ptr<Link>> unused;
  {
    const std::lock_guard lock(attempts->mutex);
    const std::lock_guard state(mutex_);
    if (status.ok()) status = closed_;
    for (auto& [task, attempt] : attempts->by_task) {
      if (status.ok()) {
        attached_[task] = {.link = attempt.link,
                           .incarnation = attempt.attached.incarnation,
                           .lanes = attempt.attached.lanes,
                           .lost = {}};
      } else if (attempt.link != nullptr) {
        unused.push_back(std::move(attempt.link));
      }
    }
  }
  for (const std::shared_ptr<Link>& link : unused) link->detach();
  return status;
}

Status MasterSession::try_to_attach(const std::shared_ptr<Attempts>& attempts,
                                    steady_clock::time_point deadline,
                                    const std::function<bool()>& gone) {
  const auto first_missing = [&]() -> std::pair<std::string, Attempt*> {
    for (auto& [task, attempt] : attempts->by_task) {
      if (attempt.attached.incarnation == 0) return {task, &attempt};
    }
    return {"", nullptr};
  };
  steady_clock::time_point next_log = steady_clock::now() + kLogEvery;
  std::unique_lock lock(attempts->mutex);
  while (true) {
    const auto [missing, attempt] = first_missing();
    if (attempt == nullptr) return {};
    if (gone()) return base::cancelled("nobody waits for the session any more");
    const steady_clock::time_point now = steady_clock::now();
    const std::string waits = fmt::format(
        "CreateSession still waiting for response from worker: {}{}",
        context_->tasks->describe(missing),
        attempt->failure.ok() ? ""
                              : fmt::format(" (last try: {})", base::message_of(attempt->failure)));
    if (now >= deadline) {
      return task::with_origin(base::deadline_exceeded("{}", waits), {.task = missing});
    }
    if (now >= next_log) {
      base::log_info("{}", waits);
      next_log = now + kLogEvery;
    }
    for (auto& [task, one] : attempts->by_task) {
      if (one.attached.incarnation != 0 || one.pending || now < one.next) continue;
      if (!one.failure.ok() && one.failure.code() != StatusCode::kUnavailable) return one.failure;
      one.pending = true;
      one.link = make_link(task);
      const std::shared_ptr<Link> link = one.link;
      lock.unlock();
      link->attach([attempts, name = task](const Result<Link::Attached>& attached) {
        const std::lock_guard inner(attempts->mutex);
        Attempt& done = attempts->by_task[name];
        done.pending = false;
        done.next = steady_clock::now() + kRetry;
        done.failure = attached.status();
        if (attached.ok()) done.attached = *attached;
        attempts->changed.notify_all();
      });
      lock.lock();
      break;
    }
    // A task of this process has answered by now.
    const bool all_pending =
        std::all_of(attempts->by_task.begin(), attempts->by_task.end(), [&](const auto& one) {
          return one.second.attached.incarnation != 0 || one.second.pending ||
                 steady_clock::now() < one.second.next;
        });
    if (all_pending && first_missing().second != nullptr) {
      attempts->changed.wait_until(lock,
                                   std::min({deadline, next_log, steady_clock::now() + kRetry}));
    }
    const std::lock_guard state(mutex_);
    SR_RETURN_IF_ERROR(closed_);
  }
}

std::string MasterSession::key_of(const StepCall& call) {
  return fmt::format("{}\n{}\n{}\n{}", fmt::join(call.feeds, " "), fmt::join(call.fetches, " "),
                     fmt::join(call.targets, " "), call.lane);
}

Result<std::shared_ptr<const MasterSession::Plan>> MasterSession::find_plan(const StepCall& call) {
  const std::string key = key_of(call);
  const std::lock_guard planning(planning_mutex_);
  {
    const std::lock_guard lock(mutex_);
    const auto found = plans_.find(key);
    if (found != plans_.end()) return found->second;
    if (plans_.size() >= kPlansMax) {
      return base::resource_exhausted(
          "the session has {} sets of feeds, fetches and targets, as many as it takes: make a new "
          "session",
          plans_.size());
    }
  }
  SR_ASSIGN_OR_RETURN(std::shared_ptr<const Plan> plan, make_plan(call));
  const std::lock_guard lock(mutex_);
  plans_[key] = plan;
  return plan;
}

namespace {

/// Waits for the registration of programs that was begun.
class Registrations {
 public:
  explicit Registrations(size_t count) : missing_(count), programs_(count) {}

  void set(size_t i, Result<uint64_t> program) {
    const std::lock_guard lock(mutex_);
    programs_[i] = std::move(program);
    --missing_;
    changed_.notify_all();
  }
  std::vector<Result<uint64_t>> wait() {
    std::unique_lock lock(mutex_);
    // Each answers: a task that is gone ends what waits for it.
    changed_.wait(lock, [this] { return missing_ == 0; });
    return programs_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t missing_;
  std::vector<Result<uint64_t>> programs_;
};

}  // namespace

Result<std::shared_ptr<const MasterSession::Plan>> MasterSession::make_plan(const StepCall& call) {
  std::shared_ptr<const ir::Graph> graph;
  {
    const std::lock_guard lock(mutex_);
    graph = graph_;
  }
  std::vector<ir::Output> feeds;
  std::vector<ir::Output> fetches;
  std::vector<ir::NodeId> targets;
  for (const std::string& name : call.feeds) {
    SR_ASSIGN_OR_RETURN(feeds.emplace_back(), graph->find_output(name));
  }
  for (const std::string& name : call.fetches) {
    SR_ASSIGN_OR_RETURN(fetches.emplace_back(), graph->find_output(name));
  }
  for (const std::string& name : call.targets) {
    const ir::Node* const node = graph->find(name);
    if (node == nullptr) return base::not_found("there is no node '{}' in the graph", name);
    targets.push_back(node->id);
  }
  SR_ASSIGN_OR_RETURN(const passes::FedGraph fed,
                      passes::cut_at_feeds(*graph, feeds, fetches, targets));
  const auto evaluate = [this](const ir::Node& node, const std::vector<Tensor>& inputs) {
    const kernels::ScopedFlushToZero flush;  // As the lanes that would run it.
    return exec::run_one_op(node, inputs, context_->kernels);
  };
  const bool lowers = config_.compute_dtype == ir::DType::kBFloat16 && kernels::has_bfloat_units();
  SR_ASSIGN_OR_RETURN(
      const passes::StepGraph step,
      passes::run_passes(fed.graph, fed.fetches, fed.targets, context_->registry,
                         {.evaluate = evaluate,
                          .compute_dtype = lowers ? ir::DType::kBFloat16 : ir::DType::kFloat32}));
  std::map<std::string, size_t> feed_index;
  for (size_t i = 0; i < fed.feeds.size(); ++i) {
    feed_index[fed.graph.node(fed.feeds[i].node).name] = i;
  }
  const int lane = call.lane < 0 ? task::lane_hint(id_) : call.lane;
  if (cluster::is_pull_push(context_->protocol)) {
    return plan_of_calls(*graph, step, feed_index, lane);
  }
  SR_ASSIGN_OR_RETURN(
      const std::vector<partition::DevicePartition> cut,
      partition::by_device(step.graph, step.fetches, step.targets, context_->registry,
                           {.tensor_fuse = config_.tensor_fuse}));
  return register_parts(cut, feed_index, lane);
}

Result<std::shared_ptr<const MasterSession::Plan>> MasterSession::plan_of_calls(
    const ir::Graph& whole, const passes::StepGraph& step,
    const std::map<std::string, size_t>& feed_index, int own_lane) {
  using Mode = partition::PullPushOptions::Mode;
  const bool is_lite = context_->protocol == cluster::Protocol::kStarServerLite;
  const std::string& own = context_->task->name();
  const std::string driver = own + "/device:CPU:0";
  ir::Graph graph = step.graph;
  const auto lanes = [&](const std::string& device) -> partition::DeviceLanes {
    if (device == driver) return {};
    const std::string task = cluster::task_of(device);
    return {.lanes = lanes_of(task), .tasks = tasks_beside(context_->tasks->names(), task)};
  };
  partition::assign_lanes(&graph, lanes, partition::leading_names(whole));
  SR_ASSIGN_OR_RETURN(
      const partition::PartitionedGraph cut,
      partition::pull_push_by_device(graph, driver, step.fetches, step.targets, context_->registry,
                                     {.mode = is_lite ? Mode::kLite : Mode::kLayers}));
  SR_ASSIGN_OR_RETURN(const program::CompiledStep compiled, program::compile(cut));
  auto plan = std::make_shared<Plan>();
  plan->placement = placements_;
  PartPlan& part = plan->parts.emplace_back();
  part.task = own;
  if (is_lite) part.pull_prefetch_ms = config_.pull_prefetch_ms;
  SR_ASSIGN_OR_RETURN(part.feeds, feeds_of(compiled.worker, feed_index));
  for (size_t i = 0; i < cut.fetches.size(); ++i) part.fetches.push_back(i);
  plan->fetches = cut.fetches.size();
  // Equal programs are registered once.
  std::set<std::tuple<std::string, int, uint64_t>> known;
  std::vector<Registration> wanted;
  for (const program::RemoteProgram& remote : compiled.remotes) {
    const std::string task = cluster::task_of(remote.device);
    plan->called.insert(task);
    plan->calls_wait |= remote.program.parks;
    const int lane = partition::lane_of(remote.device);
    if (!known.emplace(task, lane, remote.hash).second) continue;
    SR_ASSIGN_OR_RETURN(std::shared_ptr<Link> link, link_to(task));
    wanted.push_back({.link = std::move(link), .program = {.bytes = remote.bytes, .lane = lane}});
  }
  SR_ASSIGN_OR_RETURN(part.link, link_to(own));
  wanted.push_back({.link = part.link,
                    .program = {.bytes = program::encode(compiled.worker), .lane = own_lane}});
  SR_ASSIGN_OR_RETURN(const std::vector<uint64_t> programs, register_all(std::move(wanted)));
  part.program = programs.back();
  return plan;
}

int MasterSession::lanes_of(const std::string& task) {
  const std::lock_guard lock(mutex_);
  const auto found = attached_.find(task);
  return found == attached_.end() ? 1 : found->second.lanes;
}

std::vector<ports::TensorSource> MasterSession::sources(const std::vector<std::string>& devices) {
  std::vector<ports::TensorSource> out;
  const std::lock_guard lock(mutex_);
  for (const std::string& device : devices) {
    const auto found = attached_.find(cluster::task_of(device));
    out.push_back({.device = device,
                   .incarnation = found == attached_.end() ? 0 : found->second.incarnation});
  }
  return out;
}

task::DataChannels* MasterSession::data_channels() const {
  const std::vector<task::DataChannels*>& all = context_->data;
  return all.empty() ? nullptr : all[static_cast<size_t>(task::lane_hint(id_)) % all.size()];
}

Result<std::shared_ptr<Link>> MasterSession::link_to(const std::string& task) {
  const std::lock_guard lock(mutex_);
  const auto found = attached_.find(task);
  if (found == attached_.end()) {
    return closed_.ok() ? base::internal("{} is not attached", task) : closed_;
  }
  return found->second.link;
}

/// A task that the session has just left says that it does not know it: why it has left is what
/// its client is to hear.
Status MasterSession::unless_closed(const Status& status) {
  if (status.code() != StatusCode::kAborted) return status;
  const std::lock_guard lock(mutex_);
  return closed_.ok() ? status : closed_;
}

Result<std::vector<size_t>> MasterSession::feeds_of(
    const program::Program& program, const std::map<std::string, size_t>& feed_index) {
  std::vector<size_t> out;
  for (const std::string& name : program.feed_names) {
    const auto found = feed_index.find(name);
    if (found == feed_index.end()) {
      return base::invalid_argument(
          "Placeholder '{}' is needed for what is run, and has no value: You must feed a value "
          "for placeholder tensor '{}'",
          name, name);
    }
    out.push_back(found->second);
  }
  return out;
}

Result<std::vector<uint64_t>> MasterSession::register_all(std::vector<Registration> wanted) {
  const auto registrations = std::make_shared<Registrations>(wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    wanted[i].link->register_program(std::move(wanted[i].program),
                                     [registrations, i](Result<uint64_t> program) {
                                       registrations->set(i, std::move(program));
                                     });
  }
  std::vector<uint64_t> out;
  for (const Result<uint64_t>& registered : registrations->wait()) {
    SR_ASSIGN_OR_RETURN(out.emplace_back(), registered);
  }
  return out;
}

Result<std::shared_ptr<const MasterSession::Plan>> MasterSession::register_parts(
    const std::vector<partition::DevicePartition>& cut,
    const std::map<std::string, size_t>& feed_index, int lane) {
  auto plan = std::make_shared<Plan>();
  plan->placement = placements_;
  std::vector<Registration> wanted;
  for (const partition::DevicePartition& part : cut) {
    PartPlan& out = plan->parts.emplace_back();
    out.task = cluster::task_of(part.device);
    SR_ASSIGN_OR_RETURN(out.link, link_to(out.task));
    SR_ASSIGN_OR_RETURN(const program::Program program, program::compile(part));
    SR_ASSIGN_OR_RETURN(out.feeds, feeds_of(program, feed_index));
    out.fetches = part.fetch_indices;
    plan->fetches += out.fetches.size();
    wanted.push_back(
        {.link = out.link,
         .program = {
             .bytes = program::encode(program), .lane = lane, .peers = sources(part.peers)}});
  }
  SR_ASSIGN_OR_RETURN(const std::vector<uint64_t> programs, register_all(std::move(wanted)));
  for (size_t i = 0; i < programs.size(); ++i) plan->parts[i].program = programs[i];
  return plan;
}

std::shared_ptr<MasterSession::Prepared> MasterSession::prepare(StepCall names) {
  return std::make_shared<Prepared>(std::move(names));
}

std::shared_ptr<MasterSession::Handle> MasterSession::run(const std::shared_ptr<Prepared>& prepared,
                                                          std::vector<Tensor> feed_values,
                                                          std::chrono::milliseconds timeout,
                                                          const task::ClosureKey& closure,
                                                          std::function<void(StepResult)> done) {
  StepCall call = prepared->plan(placements_) == nullptr ? prepared->names() : StepCall();
  call.feed_values = std::move(feed_values);
  call.timeout = timeout;
  call.closure = closure;
  return run(std::move(call), prepared, std::move(done));
}

std::shared_ptr<MasterSession::Handle> MasterSession::run(StepCall call,
                                                          std::function<void(StepResult)> done) {
  return run(std::move(call), nullptr, std::move(done));
}

std::shared_ptr<MasterSession::Handle> MasterSession::run(StepCall call,
                                                          const std::shared_ptr<Prepared>& prepared,
                                                          std::function<void(StepResult)> done) {
  const auto request = std::make_shared<Request>(std::move(done));
  std::shared_ptr<const Plan> plan;
  Status closed;
  {
    const std::lock_guard lock(mutex_);
    closed = closed_;
    if (closed.ok() && running_.size() >= kStepsMax) {
      closed = base::resource_exhausted("the session runs {} steps, as many as it takes",
                                        running_.size());
    }
    if (closed.ok()) {
      running_.insert(request);
      if (prepared != nullptr) plan = prepared->plan(placements_);
      if (plan == nullptr) {
        const auto found = plans_.find(key_of(call));
        if (found != plans_.end()) plan = found->second;
      }
    }
  }
  if (!closed.ok()) {
    request->finish({.status = closed});
    return request;
  }
  if (plan != nullptr) {
    if (prepared != nullptr) prepared->take(plan);
    start(request, *plan, call);
    return request;
  }
  {
    const std::lock_guard lock(mutex_);
    unplanned_.push_back({.request = request, .call = std::move(call), .prepared = prepared});
    if (std::exchange(is_planning_, true)) return request;
  }
  context_->threads->run([self = shared_from_this()] { self->make_waiting_plans(); });
  return request;
}

void MasterSession::make_waiting_plans() {
  while (true) {
    Unplanned next;
    {
      const std::lock_guard lock(mutex_);
      is_planning_ = !unplanned_.empty();
      if (!is_planning_) return;
      next = std::move(unplanned_.front());
      unplanned_.pop_front();
    }
    const auto& [request, call, prepared] = next;
    const Status cancelled = request->cancelled();
    const Result<std::shared_ptr<const Plan>> plan =
        cancelled.ok() ? find_plan(call) : Result<std::shared_ptr<const Plan>>(cancelled);
    if (plan.ok()) {
      if (prepared != nullptr) prepared->take(*plan);
      start(request, **plan, call);
      continue;
    }
    forget(request);
    request->finish({.status = unless_closed(plan.status())});
  }
}

void MasterSession::forget(const std::shared_ptr<Request>& request) {
  const std::lock_guard lock(mutex_);
  running_.erase(request);
}

void MasterSession::start(const std::shared_ptr<Request>& request, const Plan& plan,
                          const StepCall& call) {
  Status ready;
  uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    number = call.closure.client == 0 ? ++steps_begun_ : number_of(call.closure);
    for (const PartPlan& part : plan.parts) {
      const auto found = attached_.find(part.task);
      if (ready.ok() && found != attached_.end()) ready = found->second.lost;
    }
    for (const std::string& task : plan.called) {
      const auto found = attached_.find(task);
      if (ready.ok() && found != attached_.end()) ready = found->second.lost;
    }
    request->calls(plan.called);
  }
  const auto run =
      std::make_shared<StepRun>(plan.parts, plan.fetches, context_->new_alarm,
                                [self = shared_from_this(), request](StepResult result) {
                                  self->forget(request);
                                  result.status = self->unless_closed(result.status);
                                  request->finish(std::move(result));
                                });
  if (ready.ok()) ready = request->begin(run);
  if (!ready.ok()) {
    forget(request);
    return request->finish({.status = ready});
  }
  run->start(task::step_number(id_, context_->random()), number, call.feed_values,
             call.trace ? 1 : 0, shorter(call.timeout, config_.operation_timeout), nullptr,
             call.closure, call.waits_for_pushes);
}

std::string MasterSession::notice() const {
  if (context_->protocol != cluster::Protocol::kStarServerLite || config_.pull_prefetch_ms == 0) {
    return "";
  }
  return fmt::format(
      "over star_server_lite a step ends before others are sure to see what it changed, and may "
      "use values that are up to {} ms old; an error of such a change is that of the next step, or "
      "of close(). With pull_prefetch_ms=0 steps wait for both",
      config_.pull_prefetch_ms);
}

void MasterSession::close(const Status& why, std::function<void(const Status&)> done) {
  std::set<std::shared_ptr<Request>> running;
  std::set<std::shared_ptr<LoopRun>> loops;
  std::map<std::string, Attached> attached;
  {
    std::unique_lock lock(mutex_);
    if (!closed_.ok()) {
      lock.unlock();
      return done({});
    }
    // A client that has lost a lease is told so, and not to make a new session.
    closed_ = why.code() == StatusCode::kFailedPrecondition
                  ? why
                  : base::aborted("the session was closed: {}", base::message_of(why));
    running = running_;
    loops = loops_;
    attached = std::move(attached_);
    attached_.clear();
    plans_.clear();
  }
  for (const auto& request : running) request->cancel(why);
  for (const auto& loop : loops) loop->cancel(why);
  context_->threads->run([shelf = shelf_] { shelf->close(); });
  // What is under way is done first: it runs elsewhere only while the session is attached there.
  context_->task->when_async_pushes_done(id_,
                                         [self = shared_from_this(), attached = std::move(attached),
                                          done = std::move(done)](const Status& untold) {
                                           for (const auto& [task, one] : attached)
                                             one.link->detach();
                                           done(untold);
                                         });
}

}  // namespace sidereal::master
