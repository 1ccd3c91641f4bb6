#include "sidereal/app/cluster_coordinator.h"

#include <algorithm>
#include <utility>

#include "sidereal/app/internal/coordinator.h"
#include "sidereal/config/consistency.h"
#include "sidereal/sys/posix/posix.h"
#include "sidereal/task/event.h"

namespace sidereal::app {
namespace coordinator {

namespace {

/// Threads that make, extend and end sessions, of which each is another one's at most so long.
constexpr size_t kThreadsMax = 64;

}  // namespace

Coordinator::Coordinator(ClusterCoordinatorOptions options)
    : options_(std::move(options)),
      scheduler_(options_.scheduler, this, now_ns()),
      overrides_(options_.session.overrides),
      workers_(options_.workers.size()),
      ps_(static_cast<size_t>(options_.ps)) {
  for (size_t i = 0; i < std::min(ps_.size(), options_.ps_lives.size()); ++i) {
    ps_[i].life = options_.ps_lives[i];
  }
  if (!options_.effectively_once) return;
  const std::unique_ptr<sys::Random> random = sys::posix::create_random();
  while (client_ == 0) client_ = random->next();
}

void Coordinator::start() {
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < workers_.size(); ++i) connects_.emplace(steady_clock::now(), i);
  const size_t threads = std::min(workers_.size(), kThreadsMax) + 1;
  connecting_max_ = threads - 1;
  for (size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
  threads_.emplace_back([this] { keep_time(); });
  threads_.emplace_back([this] { send_bursts(); });
  if (options_.scheduler.step_size > 0) threads_.emplace_back([this] { end_steps(); });
}

void Coordinator::stop() {
  std::vector<std::shared_ptr<service::ClosureCalls>> calls;
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
    for (size_t i = 0; i < workers_.size(); ++i) {
      if (workers_[i] != nullptr) calls.push_back(workers_[i]->calls);
      drop_connection(i);
    }
    changed_.notify_all();
    work_.notify_all();
    time_.notify_all();
    unsent_changed_.notify_all();
    step_work_.notify_all();
  }
  for (const auto& one : calls) one->hang_up();
  for (std::thread& thread : threads_) thread.join();
  const Status why = base::cancelled("the coordinator has ended");
  const std::lock_guard lock(mutex_);
  for (auto& [id, closure] : closures_) closure.value->set(why, {});
}

void Coordinator::set_graph(const ir::Graph& graph) {
  auto copy = std::make_shared<const ir::Graph>(graph);
  const std::lock_guard lock(mutex_);
  graph_ = std::move(copy);
  ++graph_version_;
}

uint64_t Coordinator::add_plan(service::ClosurePlan plan, PlanUse use) {
  const std::lock_guard lock(mutex_);
  plans_.push_back({.what = std::move(plan),
                    .steps = std::move(use.steps),
                    .tells_worker = use.tells_worker,
                    .graph_version = graph_version_});
  return plans_.size() - 1;
}

Result<std::shared_ptr<RemoteValue>> Coordinator::schedule(
    uint64_t plan, std::vector<Tensor> feeds, std::span<const coord::ResourceId> resources,
    milliseconds timeout, const std::function<bool()>& interrupt) {
  std::unique_lock lock(mutex_);
  SR_RETURN_IF_ERROR(check_feeds(plan, feeds.size()));
  auto value = new_value();
  Closure closure{.plan = plan, .feeds = std::move(feeds), .fetches = {}, .value = value};
  const Until until = until_of(timeout);
  while (true) {
    SR_RETURN_IF_ERROR(failed_);
    SR_ASSIGN_OR_RETURN(const bool is_taken, hand_over(&closure, [&] {
                          return scheduler_.schedule(resources, now_ns(),
                                                     !plans_[plan].steps.empty());
                        }));
    if (is_taken) {
      flush_or_burst(&lock);
      return std::shared_ptr<RemoteValue>(std::move(value));
    }
    SR_RETURN_IF_ERROR(wait(&lock, until, interrupt, "room in the queue"));
  }
}

Result<std::shared_ptr<RemoteValue>> Coordinator::schedule_on(
    int worker, uint64_t plan, std::vector<Tensor> feeds,
    std::span<const coord::ResourceId> resources, bool waits) {
  std::unique_lock lock(mutex_);
  SR_RETURN_IF_ERROR(check_feeds(plan, feeds.size()));
  auto value = new_value();
  if (!plans_[plan].steps.empty()) {
    return base::invalid_argument("a function of one worker's own contributes to steps of all");
  }
  Closure closure{.plan = plan, .feeds = std::move(feeds), .fetches = {}, .value = value};
  const auto ask = [&]() -> Result<std::optional<coord::ClosureId>> {
    return scheduler_.schedule_on(worker, resources, now_ns(), waits);
  };
  SR_RETURN_IF_ERROR(hand_over(&closure, ask).status());
  flush(&lock);
  return std::shared_ptr<RemoteValue>(std::move(value));
}

Status Coordinator::join(milliseconds timeout, const std::function<bool()>& interrupt) {
  const Until until = until_of(timeout);
  std::unique_lock lock(mutex_);
  scheduler_.begin_join();
  while (true) {
    if (!failed_.ok()) {
      scheduler_.leave_join();
      return failed_;
    }
    // An error has left already.
    SR_ASSIGN_OR_RETURN(const bool all_ended, scheduler_.joined());
    if (all_ended) return {};
    Status waited = wait(&lock, until, interrupt, "closures to end");
    if (waited.ok()) continue;
    scheduler_.leave_join();
    return waited;
  }
}

Result<bool> Coordinator::done(const std::function<bool()>& interrupt) {
  std::unique_lock lock(mutex_);
  while (true) {
    SR_RETURN_IF_ERROR(failed_);
    SR_ASSIGN_OR_RETURN(const std::optional<bool> all_ended, scheduler_.done());
    if (all_ended) return *all_ended;
    SR_RETURN_IF_ERROR(wait(&lock, std::nullopt, interrupt, "closures to be cancelled"));
  }
}

coord::ResourceId Coordinator::create_resource(uint64_t make, uint64_t drop) {
  const std::lock_guard lock(mutex_);
  // As closures: it may be made at once.
  const coord::ResourceId id = resources_.size() + 1;
  resources_.push_back({.make = make, .drop = drop});
  static_cast<void>(scheduler_.create_resource(now_ns()));
  return id;
}

void Coordinator::release_resource(coord::ResourceId resource) {
  const std::lock_guard lock(mutex_);
  scheduler_.release_resource(resource);
}

Status Coordinator::hold(milliseconds timeout, const std::function<bool()>& interrupt) {
  const Until until = until_of(timeout);
  std::unique_lock lock(mutex_);
  if (std::exchange(is_held_, true)) {
    return base::failed_precondition("the coordinator is held already");
  }
  scheduler_.hold();
  while (!scheduler_.is_idle()) {
    Status waited = failed_.ok() ? wait(&lock, until, interrupt, "what runs to end") : failed_;
    if (waited.ok()) continue;
    resume(&lock);
    return waited;
  }
  return {};
}

void Coordinator::place(const ir::PlacementOverrides& overrides) {
  const std::lock_guard lock(mutex_);
  overrides_ = overrides;
  ++overrides_version_;
  for (size_t i = 0; i < ps_.size(); ++i) {
    if (overrides.tasks.contains(cluster::task_name("ps", static_cast<int>(i)))) ps_[i] = {};
  }
  for (const auto& connection : workers_) {
    if (connection != nullptr) extend_soon(connection.get());
  }
}

void Coordinator::go_on() {
  std::unique_lock lock(mutex_);
  resume(&lock);
}

void Coordinator::resume(std::unique_lock<std::mutex>* lock) {
  is_held_ = false;
  is_flushing_ = true;
  scheduler_.go_on(now_ns());
  is_flushing_ = false;
  flush(lock);
}

std::optional<Coordinator::LostPs> Coordinator::next_lost_ps() {
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < ps_.size(); ++i) {
    const std::optional<PsLife> met = std::exchange(ps_[i].met, std::nullopt);
    if (met.has_value() && *met != ps_[i].life) {
      return LostPs{.task = static_cast<int>(i), .life = *met};
    }
  }
  return std::nullopt;
}

void Coordinator::ps_restored(const LostPs& ps) {
  const std::lock_guard lock(mutex_);
  if (ps.task < 0 || static_cast<size_t>(ps.task) >= ps_.size()) return;
  ps_[static_cast<size_t>(ps.task)].life = ps.life;
  scheduler_.step_lost(now_ns());
  // Workers that wait for it go on at once.
  std::multimap<steady_clock::time_point, size_t> due;
  for (const auto& [when, worker] : connects_) due.emplace(steady_clock::now(), worker);
  connects_ = std::move(due);
  work_.notify_all();
}

void Coordinator::ps_failed(int task, const Status& why) {
  const std::lock_guard lock(mutex_);
  if (task >= 0 && task < options_.ps) scheduler_.ps_lost(task, why);
}

Coordinator::Figures Coordinator::figures() const {
  const std::lock_guard lock(mutex_);
  return {.queued = scheduler_.queued(),
          .in_flight = scheduler_.in_flight(),
          .workers_found = scheduler_.workers_found(),
          .retried = scheduler_.retried(),
          .done = done_,
          .steps = steps_ended_};
}

metrics::HistogramSnapshot Coordinator::timing(Timing what) const { return timings_->of(what); }

Coordinator::Until Coordinator::until_of(milliseconds timeout) {
  if (timeout.count() <= 0) return std::nullopt;
  return steady_clock::now() + timeout;
}

std::string Coordinator::names_of(std::span<const int> workers) {
  std::string out;
  for (const int worker : workers) out += (out.empty() ? "" : ",") + name_of(worker);
  return out;
}

std::string Coordinator::missing_workers() {
  std::vector<int> out;
  for (size_t i = 0; i < workers_.size(); ++i) {
    if (workers_[i] == nullptr) out.push_back(static_cast<int>(i));
  }
  return out.empty() ? "" : fmt::format("; these workers are missing: {}", names_of(out));
}

Status Coordinator::wait(std::unique_lock<std::mutex>* lock, Until until,
                         const std::function<bool()>& interrupt, std::string_view what) {
  changed_.wait_for(*lock, task::kLook);
  if (until && steady_clock::now() >= *until) {
    return base::deadline_exceeded("waited too long for {}: {} are queued, {} run{}", what,
                                   scheduler_.queued(), scheduler_.in_flight(), missing_workers());
  }
  lock->unlock();
  const bool is_interrupted = interrupt && interrupt();
  lock->lock();
  if (is_interrupted) return base::cancelled("waiting for {} was interrupted", what);
  return {};
}

Status Coordinator::check_feeds(uint64_t plan, size_t count) const {
  if (plan >= plans_.size()) return base::not_found("there is no plan {}", plan);
  const Plan& known = plans_[plan];
  const size_t given_here = (known.tells_worker ? 1 : 0) + (known.steps.empty() ? 0 : 1);
  const size_t wanted = known.what.feeds.size() - std::min(known.what.feeds.size(), given_here);
  if (count == wanted) return {};
  return base::invalid_argument("{} values for the {} feeds of a plan", count, wanted);
}

std::shared_ptr<Value> Coordinator::new_value() {
  if (options_.scheduler.step_size == 0) return std::make_shared<Value>(timings_);
  return std::make_shared<Value>(timings_, [weak = weak_from_this()] {
    if (const std::shared_ptr<Coordinator> self = weak.lock()) self->await();
  });
}

template <class Ask>
Result<bool> Coordinator::hand_over(Closure* closure, const Ask& ask) {
  const coord::ClosureId id = last_closure_ + 1;
  closures_[id] = std::move(*closure);
  is_flushing_ = true;
  const Result<std::optional<coord::ClosureId>> taken = ask();
  is_flushing_ = false;
  if (taken.ok() && *taken) {
    last_closure_ = id;
    return true;
  }
  *closure = std::move(closures_.extract(id).mapped());
  SR_RETURN_IF_ERROR(taken.status());
  return false;
}

}  // namespace coordinator

namespace {

Status set_consistency(ClusterCoordinatorOptions* options) {
  using Kind = config::Consistency::Kind;
  SR_ASSIGN_OR_RETURN(const config::Consistency wanted,
                      config::parse_consistency(options->consistency));
  if (wanted.kind == Kind::kAsync) return {};
  const auto workers = static_cast<int64_t>(options->workers.size());
  if (options->scheduler.in_flight_max != 1) {
    return base::invalid_argument(
        "a worker runs {} closures at a time; with consistency '{}' it runs one: the next one "
        "begins when it has ended",
        options->scheduler.in_flight_max, wanted.to_string());
  }
  if (wanted.is_geo()) {
    if (!options->effectively_once) return {};
    return base::invalid_argument(
        "consistency is '{}', with which a worker that is lost takes what it has learned since it "
        "last told it; effectively_once is of the other ones: leave it out",
        wanted.to_string());
  }
  if (!wanted.is_in_step()) {
    options->scheduler.staleness_max = wanted.bound;
    return {};
  }
  if (wanted.quorum != 0 && wanted.replicas != workers) {
    return base::invalid_argument(
        "consistency is '{}'; the cluster has {} workers: write sync(k of {})", wanted.to_string(),
        workers, workers);
  }
  if (options->step_target.empty()) {
    return base::invalid_argument("consistency is '{}', and no ps is named that ends its steps",
                                  wanted.to_string());
  }
  options->scheduler.step_size = workers;
  options->scheduler.step_quorum = wanted.quorum == 0 ? workers : wanted.quorum;
  options->effectively_once = true;
  return {};
}

}  // namespace

Result<std::shared_ptr<ClusterCoordinator>> ClusterCoordinator::create(
    ClusterCoordinatorOptions options) {
  if (options.workers.empty()) {
    return base::invalid_argument("a coordinator needs at least one worker");
  }
  if (options.scheduler.in_flight_max < 1) {
    return base::invalid_argument("a worker runs {} closures at a time; it must run at least 1",
                                  options.scheduler.in_flight_max);
  }
  SR_RETURN_IF_ERROR(set_consistency(&options));
  options.scheduler.workers = static_cast<int>(options.workers.size());
  options.scheduler.ps = options.ps;
  options.scheduler.ps_come_back = options.restores_ps;
  // A closure that has ended is not run again, whatever becomes of its pushes.
  if (options.effectively_once) options.session.pull_prefetch_ms = 0;
  // What a closure reads it reads when it has begun.
  if (options.scheduler.staleness_max.has_value()) options.session.pull_prefetch_ms = 0;
  // Callbacks of gRPC may hold it longer than its user, who ends it.
  const auto made = std::make_shared<coordinator::Coordinator>(std::move(options));
  made->start();
  return std::shared_ptr<ClusterCoordinator>(made.get(),
                                             [made](ClusterCoordinator*) { made->stop(); });
}

}  // namespace sidereal::app
