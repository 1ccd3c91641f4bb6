#include "sidereal/train/placed_model.h"

#include <algorithm>
#include <numeric>
#include <thread>
#include <utility>

#include "sidereal/base/strings.h"
#include "sidereal/cluster/cluster_spec.h"
#include "sidereal/cluster/task_name.h"
#include "sidereal/ops/ops.h"
#include "sidereal/security/channel.h"
#include "sidereal/sys/posix/control_groups.h"
#include "sidereal/sys/posix/posix.h"
#include "sidereal/train/memory_plan.h"

namespace sidereal::train {

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using tensor::DType;
using tensor::Tensor;

constexpr milliseconds kReachDeadline(10'000);
/// What grants leases: clusters that are trained on have it.
constexpr const char* kGranter = "/job:ps/replica:0/task:0";
constexpr milliseconds kAskAgain(100);
/// Who does not answer for so long is asked again: somebody else may be there by then.
constexpr milliseconds kAskDeadline(5'000);
constexpr milliseconds kCheckDeadline(2'000);
/// A worker that may be missed is left out when it does not answer for so long.
constexpr milliseconds kMissDeadline(2'000);
/// How often those that are left out are asked.
constexpr milliseconds kLookEvery(1'000);
constexpr milliseconds kLookDeadline(250);
constexpr milliseconds kInitializeDeadline(600'000);
constexpr milliseconds kReadDeadline(600'000);

/// Whether who does not answer may be there later.
bool is_away(const Status& status) {
  return status.code() == StatusCode::kUnavailable ||
         status.code() == StatusCode::kDeadlineExceeded;
}

Status not_again(milliseconds limit, const Status& reached) {
  return base::deadline_exceeded("not all tasks were there again within {:.0f} s: {}",
                                 std::chrono::duration<double>(limit).count(),
                                 base::message_of(reached));
}

/// Calls `work` for each index below `count`, all at once; the first error by index.
Status for_all(size_t count, const std::function<Status(size_t)>& work) {
  std::vector<Status> results(count);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < count; ++i) threads.emplace_back([&, i] { results[i] = work(i); });
  for (std::thread& thread : threads) thread.join();
  for (const Status& result : results) SR_RETURN_IF_ERROR(result);
  return {};
}

int lanes_of(const service::TaskReport& report) {
  return static_cast<int>(std::max<int64_t>(1, report.figures.value("sidereal_task_lanes")));
}

}  // namespace

bool is_ps(const std::string& task) { return task.starts_with("/job:ps/"); }

PlacedModel::PlacedModel(app::Cluster* cluster, CompiledModel model, service::JobOptions job,
                         PlacementOptions placement)
    : cluster_(cluster),
      model_(std::move(model)),
      placement_options_(placement),
      job_(std::move(job)) {
  ops::register_all(&registry_);
  if (!job_.name.empty()) return;
  job_.name = fmt::format("job-{:08x}", sys::posix::create_random()->next() & 0xffff'ffff);
}

Status PlacedModel::place() {
  SR_RETURN_IF_ERROR(reach_tasks(kReachDeadline, false, nullptr));
  SR_RETURN_IF_ERROR(check_memory(model_, cluster_->spec(), sys::posix::usable_memory()));
  Status placed = take_lease();
  if (placed.code() == StatusCode::kAlreadyExists) return placed;
  if (placed.ok()) placed = give_first_values();
  return placed.ok() ? placed : root_cause(cluster_, placed);
}

/// Unless it is held.
Status PlacedModel::take_lease() {
  if (lease_ != nullptr && lease_->check().ok()) return {};
  lease_ = nullptr;
  service::SessionOptions options = cluster_->session_options();
  options.connect_timeout = kReachDeadline;
  SR_ASSIGN_OR_RETURN(lease_, service::JobLease::create(cluster_->spec(), job_, options));
  // Once: who takes it over from this one keeps it.
  if (std::exchange(job_.take_over, false)) took_over_ = true;
  return {};
}

Status PlacedModel::place_again(milliseconds limit, bool may_miss,
                                const std::function<bool()>& cancelled) {
  close_sessions();
  const Status reached = reach_tasks(limit, may_miss, cancelled);
  if (is_away(reached)) return not_again(limit, reached);
  SR_RETURN_IF_ERROR(reached);
  // A server that was started again knows nothing of the lease.
  if (std::ranges::find(replaced_, kGranter) != replaced_.end()) lease_ = nullptr;
  Status placed = take_lease();
  if (placed.ok()) placed = give_first_values();
  if (!placed.ok()) close_sessions();
  // A task that was lost meanwhile may come again.
  if (placed.code() != StatusCode::kDeadlineExceeded) return placed;
  return base::unavailable("{}", base::message_of(placed));
}

Status PlacedModel::join_again(milliseconds limit, bool may_miss,
                               const std::function<bool()>& cancelled) {
  const auto until = steady_clock::now() + limit;
  while (true) {
    const auto left = std::chrono::duration_cast<milliseconds>(until - steady_clock::now());
    Status joined = join_once(std::max(left, milliseconds(0)), may_miss, cancelled);
    // One that answered may be stopping, or is lost just now.
    const bool may_come = is_away(joined) || joined.code() == StatusCode::kAborted;
    if (!may_come) return joined;
    // It may be lost for good.
    SR_RETURN_IF_ERROR(cluster_->check_alive());
    if (steady_clock::now() + kAskAgain >= until) return not_again(limit, joined);
    if (cancelled && cancelled()) return base::cancelled("interrupted");
    std::this_thread::sleep_for(kAskAgain);
  }
}

Status PlacedModel::join_once(milliseconds limit, bool may_miss,
                              const std::function<bool()>& cancelled) {
  const std::map<std::string, int> ps_lanes = ps_lanes_;
  const std::vector<int> worker_lanes = worker_lanes_;
  has_found_ = false;
  SR_RETURN_IF_ERROR(reach_tasks(limit, may_miss, cancelled));
  const bool lost_ps = std::ranges::any_of(replaced_, is_ps);
  if (ps_lanes_ != ps_lanes || (lost_ps && !pushes_are_answered_)) {
    return base::data_loss("{} lost what a push had changed", base::join(replaced_, ", "));
  }
  if (std::ranges::find(replaced_, kGranter) != replaced_.end()) lease_ = nullptr;
  SR_RETURN_IF_ERROR(take_lease());
  // Variables are there as long as a session has them.
  const Sessions old = std::exchange(now_.sessions, {});
  // A server that takes what a standby has lets sessions in when it has it.
  const auto made =
      make_sessions(&now_, "float32", now_.distributed.graph, "", std::max(limit, kReachDeadline));
  if (!made.ok()) {
    // The old ones are of these workers.
    now_.sessions = old;
    worker_lanes_ = worker_lanes;
    return made.status();
  }
  first_ = first_of(**made).session;
  close_all(old);
  if (lost_ps) SR_RETURN_IF_ERROR(check_taken());
  placed_on_ = incarnations_;
  return {};
}

/// Whether servers that were started again have all that they had answered before.
Status PlacedModel::check_taken() {
  const std::vector<service::TaskReport> reports = everybody_->ask(kAskDeadline);
  for (const service::TaskReport& ps : reports) {
    if (!is_ps(ps.task) || std::ranges::find(replaced_, ps.task) == replaced_.end()) {
      continue;
    }
    SR_RETURN_IF_ERROR(ps.status);
    if (!ps.taken) return base::data_loss("{} has nothing from a standby", ps.task);
    const uint64_t life = placed_on_.at(ps.task);
    for (const service::TaskReport& worker : reports) {
      for (const resources::PushedSoFar& answered : worker.answered) {
        if (answered.life != life) continue;
        const auto has = std::ranges::find_if(ps.taken->pushed, [&](const auto& taken) {
          return taken.life == life && taken.lane == answered.lane;
        });
        if (has != ps.taken->pushed.end() && has->number >= answered.number) continue;
        return base::data_loss("{} lost pushes that {} did not have", ps.task, ps.taken->from);
      }
    }
  }
  SR_ASSIGN_OR_RETURN(const std::vector<Tensor> known,
                      first_->run({}, now_.distributed.has_value, {}, {.timeout = kReadDeadline}));
  const auto has_value = [](const Tensor& one) {
    return one.dtype() == DType::kBool && one.num_elements() == 1 && one.data<const bool>()[0];
  };
  if (std::ranges::all_of(known, has_value)) return {};
  return base::data_loss("a variable of {} was in no copy", base::join(replaced_, ", "));
}

bool PlacedModel::has_found_workers() {
  if (missing_workers().empty()) return false;
  const auto now = steady_clock::now();
  if (has_found_ || now - looked_ < kLookEvery) return has_found_;
  looked_ = now;
  size_t worker = 0;
  for (const service::TaskReport& report : everybody_->ask(kLookDeadline, "worker")) {
    has_found_ = has_found_ || (worker_lanes_[worker] == 0 && report.status.ok());
    ++worker;
  }
  return has_found_;
}

Status PlacedModel::give_first_values() {
  if (now_.placement.ps.empty()) {
    SR_ASSIGN_OR_RETURN(const int ps, cluster_->spec().num_tasks("ps"));
    Topology topology{.ps = ps};
    for (const auto& [task, lanes] : ps_lanes_) topology.lanes = std::max(topology.lanes, lanes);
    SR_ASSIGN_OR_RETURN(now_.placement, first_placement(model_, topology, placement_options_));
  }
  SR_ASSIGN_OR_RETURN(now_.distributed, distribute(model_, now_.placement, registry_));
  state_group_ = fmt::format("model-{:016x}", sys::posix::create_random()->next());
  SR_ASSIGN_OR_RETURN(const std::vector<WorkerSession>* workers,
                      make_sessions(&now_, "float32", now_.distributed.graph, "", kReachDeadline));
  const std::shared_ptr<service::Session> first = first_of(*workers).session;
  // The other workers begin then.
  const service::RunOptions options = {.timeout = kInitializeDeadline, .waits_for_pushes = true};
  SR_RETURN_IF_ERROR(first->run({}, {}, {now_.distributed.initializer}, options).status());
  first_ = first;
  placed_on_ = incarnations_;
  return {};
}

/// All at once: one of a worker that is gone takes a while.
void PlacedModel::close_all(const Sessions& sessions) {
  std::vector<std::shared_ptr<service::Session>> all;
  for (const auto& [kind, workers] : sessions) {
    for (const WorkerSession& worker : workers) {
      if (worker.session != nullptr) all.push_back(worker.session);
    }
  }
  // What becomes of a session that was lost already is nothing to tell.
  static_cast<void>(for_all(all.size(), [&](size_t i) { return all[i]->close(); }).ok());
}

void PlacedModel::close_sessions() {
  drop_prepared();
  close_all(std::exchange(now_.sessions, {}));
  first_ = nullptr;
}

std::vector<std::string> PlacedModel::lost_tasks() {
  std::vector<std::string> out;
  for (const service::TaskReport& report : everybody_->ask(kAskDeadline)) {
    const auto known = incarnations_.find(report.task);
    if (known == incarnations_.end()) continue;
    if (!report.status.ok() || known->second != report.incarnation) out.push_back(report.task);
  }
  return out;
}

std::vector<std::string> PlacedModel::tasks_started_again() {
  std::vector<std::string> out;
  for (const service::TaskReport& report : everybody_->ask(kAskDeadline)) {
    const auto known = incarnations_.find(report.task);
    const bool is_known = report.status.ok() && known != incarnations_.end();
    if (is_known && known->second != report.incarnation) out.push_back(report.task);
  }
  return out;
}

/// Those that it is on, or begins on.
std::vector<int> PlacedModel::used_ps() const {
  if (!now_.placement.ps.empty()) return now_.placement.ps;
  const auto all = cluster_->spec().num_tasks("ps");
  const int64_t start = placement_options_.start_ps;
  const int count = all.ok() ? *all : 0;
  std::vector<int> out(static_cast<size_t>(start > 0 && start < count ? start : count));
  std::iota(out.begin(), out.end(), 0);
  return out;
}

/// The workers of the cluster, and some of its parameter servers.
Result<cluster::ClusterSpec> PlacedModel::spec_of(const std::vector<int>& ps) const {
  cluster::ClusterSpec out;
  cluster::ClusterSpec::Tasks tasks;
  for (const int task : ps) {
    SR_ASSIGN_OR_RETURN(tasks[task], cluster_->spec().task_address("ps", task));
  }
  SR_RETURN_IF_ERROR(out.add_job("ps", std::move(tasks)));
  SR_ASSIGN_OR_RETURN(const std::vector<std::string> workers, cluster_->spec().addresses("worker"));
  SR_RETURN_IF_ERROR(out.add_job("worker", workers));
  return out;
}

/// What asks the workers and these parameter servers how they are.
Result<std::unique_ptr<service::StatusClient>> PlacedModel::status_of(
    const std::vector<int>& ps) const {
  SR_ASSIGN_OR_RETURN(const cluster::ClusterSpec spec, spec_of(ps));
  return service::StatusClient::create(spec, cluster_->security());
}

/// From now on the job does without the parameter servers that are none of these.
void PlacedModel::need_only(const std::vector<int>& ps) {
  const auto all = cluster_->spec().task_indices("ps");
  if (!all.ok()) return;
  for (const int task : *all) {
    const std::string name = cluster::task_name("ps", task);
    if (std::ranges::find(ps, task) == ps.end()) {
      cluster_->give_up(name);
    } else {
      cluster_->take_back(name);
    }
  }
}

/// Asks the parameter servers that it is on and all workers, until they answer, who they are.
/// `may_miss`: the ps, and one worker.
Status PlacedModel::reach_tasks(milliseconds limit, bool may_miss,
                                const std::function<bool()>& cancelled) {
  SR_ASSIGN_OR_RETURN(const auto credentials, security::Credentials::create(cluster_->security()));
  SR_ASSIGN_OR_RETURN(everybody_, status_of(used_ps()));
  need_only(used_ps());
  const auto until = steady_clock::now() + limit;
  while (true) {
    const auto left = std::chrono::duration_cast<milliseconds>(until - steady_clock::now());
    const milliseconds patience = may_miss ? kMissDeadline : std::min(left, kAskDeadline);
    const std::vector<service::TaskReport> reports =
        everybody_->ask(std::max(patience, milliseconds(1)));
    const auto lost = std::ranges::find_if(reports, [&](const auto& report) {
      return !report.status.ok() && (!may_miss || is_ps(report.task));
    });
    const bool has_worker = std::ranges::any_of(
        reports, [](const auto& report) { return report.status.ok() && !is_ps(report.task); });
    for (const service::TaskReport& report : reports) {
      if (may_miss && has_worker && !report.status.ok()) cluster_->give_up(report.task);
    }
    if (lost == reports.end() && has_worker) {
      take_tasks(reports);
      return {};
    }
    SR_RETURN_IF_ERROR(cluster_->check_alive());
    const service::TaskReport& missed = lost == reports.end() ? reports.back() : *lost;
    Status missing = missed.status;
    // gRPC does not say that the other side hung up for a secret.
    SR_RETURN_IF_ERROR(base::with_context(
        security::check_credentials(missed.address, credentials.get(), kCheckDeadline),
        fmt::format("{} at {}", missed.task, missed.address)));
    if (!is_away(missing) || steady_clock::now() + kAskAgain >= until) return missing;
    if (cancelled && cancelled()) return base::cancelled("interrupted");
    std::this_thread::sleep_for(kAskAgain);
  }
}

void PlacedModel::take_tasks(const std::vector<service::TaskReport>& reports) {
  incarnations_.clear();
  replaced_.clear();
  ps_lanes_.clear();
  worker_lanes_.clear();
  for (const service::TaskReport& report : reports) {
    if (!report.status.ok()) {
      worker_lanes_.push_back(0);
      continue;
    }
    incarnations_[report.task] = report.incarnation;
    const auto known = placed_on_.find(report.task);
    if (known != placed_on_.end() && known->second != report.incarnation) {
      replaced_.push_back(report.task);
    }
    const int lanes = lanes_of(report);
    if (is_ps(report.task)) {
      pushes_are_answered_ =
          report.protocol != cluster::name_of(cluster::Protocol::kStarServerLite);
      ps_lanes_[report.task] = lanes;
    } else {
      worker_lanes_.push_back(lanes);
    }
  }
}

std::vector<std::string> PlacedModel::missing_workers() const {
  std::vector<std::string> out;
  for (size_t i = 0; i < worker_lanes_.size(); ++i) {
    if (worker_lanes_[i] == 0) out.push_back(cluster::task_name("worker", static_cast<int>(i)));
  }
  return out;
}

int64_t PlacedModel::workers() const {
  return std::ranges::count_if(worker_lanes_, [](int lanes) { return lanes > 0; });
}

int64_t PlacedModel::replicas() const {
  return std::accumulate(worker_lanes_.begin(), worker_lanes_.end(), int64_t{0});
}

Result<const std::vector<WorkerSession>*> PlacedModel::sessions(const std::string& compute_dtype) {
  return sessions(compute_dtype, now_.distributed.graph, "");
}

Result<const std::vector<WorkerSession>*> PlacedModel::sessions(const std::string& compute_dtype,
                                                                const ir::Graph& graph,
                                                                const std::string& kind) {
  SR_RETURN_IF_ERROR(check_placed());
  return make_sessions(&now_, compute_dtype, graph, kind, kReachDeadline);
}

Status PlacedModel::check_placed() const {
  if (first_ != nullptr) return {};
  return base::unavailable(
      "the model's variables went with a task that was lost and did not come back; make another "
      "model, and go on from the directory of its checkpoints if it has one");
}

Result<const std::vector<WorkerSession>*> PlacedModel::make_sessions(
    Spread* spread, const std::string& compute_dtype, const ir::Graph& graph,
    const std::string& kind, milliseconds limit) {
  const auto [at, is_new] = spread->sessions.try_emplace({compute_dtype, kind});
  if (!is_new) return &at->second;
  std::vector<WorkerSession> made(worker_lanes_.size());
  Status status = for_all(made.size(), [&](size_t i) -> Status {
    const int index = static_cast<int>(i);
    made[i].task = app::task_name("worker", index);
    made[i].lanes = worker_lanes_[i];
    if (worker_lanes_[i] == 0) return {};
    SR_ASSIGN_OR_RETURN(made[i].session, make_session(index, compute_dtype, graph, limit));
    return {};
  });
  if (!status.ok()) {
    spread->sessions.erase(at);
    return status;
  }
  at->second = std::move(made);
  return &at->second;
}

Result<std::shared_ptr<service::Session>> PlacedModel::make_session(
    int worker, const std::string& compute_dtype, const ir::Graph& graph, milliseconds limit) {
  service::SessionOptions options = cluster_->session_options();
  options.state_group = state_group_;
  options.lease = lease_;
  options.compute_dtype = compute_dtype;
  options.connect_timeout = limit;
  SR_ASSIGN_OR_RETURN(auto made,
                      service::Session::create(cluster_->target("worker", worker),
                                               on_worker(graph, worker, registry_), options));
  return std::shared_ptr<service::Session>(std::move(made));
}

Status PlacedModel::prepare(Placement next) {
  SR_RETURN_IF_ERROR(check_placed());
  drop_prepared();
  SR_ASSIGN_OR_RETURN(next_everybody_, status_of(next.ps));
  next_incarnations_ = incarnations_;
  next_lanes_.clear();
  for (const service::TaskReport& report : next_everybody_->ask(kAskDeadline, "ps")) {
    SR_RETURN_IF_ERROR(report.status);
    const auto known = incarnations_.find(report.task);
    if (known != incarnations_.end() && known->second != report.incarnation) {
      return base::aborted("{} was started again", report.task);
    }
    next_incarnations_[report.task] = report.incarnation;
    next_lanes_[report.task] = lanes_of(report);
  }
  SR_ASSIGN_OR_RETURN(DistributedModel made, distribute(model_, next, registry_));
  next_ = Spread{.placement = std::move(next), .distributed = std::move(made), .sessions = {}};
  const Status status = prepared_sessions("float32", next_->distributed.graph, "").status();
  if (!status.ok()) drop_prepared();
  return status;
}

Result<const std::vector<WorkerSession>*> PlacedModel::prepared_sessions(
    const std::string& compute_dtype, const ir::Graph& graph, const std::string& kind) {
  return make_sessions(&*next_, compute_dtype, graph, kind, kReachDeadline);
}

void PlacedModel::take_prepared() {
  const Spread old = std::exchange(now_, *std::exchange(next_, std::nullopt));
  first_ = first_of(now_.sessions.at({"float32", ""})).session;
  close_all(old.sessions);
  incarnations_ = std::exchange(next_incarnations_, {});
  ps_lanes_ = std::exchange(next_lanes_, {});
  std::erase_if(incarnations_, [&](const auto& one) {
    return is_ps(one.first) && !ps_lanes_.contains(one.first);
  });
  placed_on_ = incarnations_;
  everybody_ = std::move(next_everybody_);
  need_only(now_.placement.ps);
}

void PlacedModel::drop_prepared() {
  if (!next_) return;
  close_all(std::exchange(next_, std::nullopt)->sessions);
}

Status PlacedModel::run_once(const ir::Graph& graph, const std::vector<std::string>& fetches) {
  const auto worker = std::ranges::find_if(worker_lanes_, [](int lanes) { return lanes > 0; });
  SR_ASSIGN_OR_RETURN(const auto session,
                      make_session(static_cast<int>(worker - worker_lanes_.begin()), "float32",
                                   graph, kReachDeadline));
  Status ran = session->run({}, fetches, {}, {.timeout = kReadDeadline}).status();
  const Status closed = session->close();
  return ran.ok() ? closed : ran;
}

Result<Tensor> PlacedModel::read_variable(const std::string& name) {
  const ModelVariable* const variable = model_.find_variable(name);
  if (variable == nullptr) {
    std::vector<std::string> names;
    for (const ModelVariable& known : model_.variables) names.push_back(known.name);
    return base::not_found("the model has no variable '{}'; it has {}", name,
                           fmt::join(names, ", "));
  }
  const std::vector<std::string>& parts = now_.distributed.variables.at(name).reads;
  if (parts.size() == 1) return read_part(parts[0], variable->options.dtype, variable->shape);
  Tensor out = Tensor::zeros(DType::kFloat32, variable->shape);
  const int64_t rows = variable->shape.dim(0);
  const int64_t dim = variable->shape.dim(1);
  const auto count = static_cast<int64_t>(parts.size());
  float* const table = out.data<float>().data();
  for (int64_t k = 0; k < count; ++k) {
    const int64_t mine = (rows - k + count - 1) / count;
    SR_ASSIGN_OR_RETURN(const Tensor part,
                        read_part(parts[static_cast<size_t>(k)], DType::kFloat32, {mine, dim}));
    const float* const from = part.data<const float>().data();
    for (int64_t i = 0; i < mine; ++i) {
      std::copy_n(from + i * dim, dim, table + (i * count + k) * dim);
    }
  }
  return out;
}

Result<Tensor> PlacedModel::read_part(const std::string& node, DType dtype,
                                      const tensor::Shape& shape) {
  SR_RETURN_IF_ERROR(check_placed());
  SR_ASSIGN_OR_RETURN(std::vector<Tensor> read,
                      first_->run({}, {node}, {}, {.timeout = kReadDeadline}));
  if (read.size() != 1 || read[0].dtype() != dtype || read[0].shape() != shape) {
    return base::internal("'{}' is not {} {}", node, tensor::name_of(dtype), shape.to_string());
  }
  return std::move(read[0]);
}

Result<std::vector<TaskStats>> PlacedModel::ps_stats() {
  std::vector<TaskStats> stats;
  for (const service::TaskReport& report : everybody_->ask(kReachDeadline, "ps")) {
    SR_RETURN_IF_ERROR(report.status);
    const metrics::Readings& figures = report.figures;
    const auto seconds = [&](const char* name) {
      return static_cast<double>(figures.value(name)) * 1e-9;
    };
    stats.push_back({.task = app::task_name("ps", used_ps()[stats.size()]),
                     .steps = figures.value("sidereal_task_steps_total"),
                     .bytes_in = figures.value("sidereal_task_received_bytes_total"),
                     .bytes_out = figures.value("sidereal_task_sent_bytes_total"),
                     .compute_s = seconds("sidereal_lane_busy_seconds_total"),
                     .wait_s = seconds("sidereal_lane_spin_seconds_total") +
                               seconds("sidereal_lane_sleep_seconds_total")});
  }
  return stats;
}

}  // namespace sidereal::train
