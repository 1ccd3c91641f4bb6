#include "sidereal/app/cluster_coordinator.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "sidereal/base/log.h"
#include "sidereal/cluster/task_name.h"
#include "sidereal/resources/changes_made.h"
#include "sidereal/sys/clock.h"
#include "sidereal/sys/posix/posix.h"
#include "sidereal/task/event.h"
#include "sidereal/task/origin.h"

namespace sidereal::app {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using tensor::Tensor;

namespace {

/// Between two tries to reach a worker.
constexpr milliseconds kRetry(500);
/// One try: others wait for its thread.
constexpr milliseconds kTry(10'000);
/// Threads that make, extend and end sessions, of which each is another one's at most so long.
constexpr size_t kThreadsMax = 64;
constexpr milliseconds kTickMax(1000);
/// Closures that are scheduled so soon after another one leave together, on a thread of their own.
constexpr std::chrono::microseconds kBurst(100);

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             steady_clock::now().time_since_epoch())
      .count();
}

/// As the scheduler wants to know it.
coord::Origin origin_of(const Status& status) {
  const std::optional<task::Origin> told = task::origin_of(status);
  if (!told) return {};
  const std::optional<cluster::TaskName> name = cluster::parse_task_name(told->task);
  if (!name) return {};
  coord::Origin out{.task = name->index, .is_restarted = told->is_restarted};
  if (name->job == "worker") out.job = coord::Origin::Job::kWorker;
  if (name->job == "ps") out.job = coord::Origin::Job::kPs;
  return out;
}

/// Thread: any.
class Timings {
 public:
  void record(Timing what, std::chrono::nanoseconds took) {
    const std::lock_guard lock(mutex_);
    all_[static_cast<size_t>(what)].record(took.count());
  }
  /// Counts the time since `begin`.
  void record_since(Timing what, steady_clock::time_point begin) {
    record(what, steady_clock::now() - begin);
  }
  [[nodiscard]] metrics::HistogramSnapshot of(Timing what) const {
    return all_[static_cast<size_t>(what)].snapshot();
  }

 private:
  std::mutex mutex_;  ///< Of who writes.
  std::array<metrics::Histogram, kTimings.size()> all_;
};

class Value final : public RemoteValue {
 public:
  explicit Value(std::shared_ptr<Timings> timings) : timings_(std::move(timings)) {}
  [[nodiscard]] bool is_ready() const override {
    const std::lock_guard lock(mutex_);
    return is_ready_;
  }
  Result<std::vector<Tensor>> wait(milliseconds timeout,
                                   const std::function<bool()>& interrupt) override {
    const steady_clock::time_point begin = steady_clock::now();
    const steady_clock::time_point until = begin + timeout;
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, task::kLook, [this] { return is_ready_; })) {
      if (timeout.count() > 0 && steady_clock::now() >= until) {
        return base::deadline_exceeded("the value was not there after {} ms", timeout.count());
      }
      lock.unlock();
      const bool is_interrupted = interrupt && interrupt();
      lock.lock();
      if (is_interrupted) return base::cancelled("waiting for the value was interrupted");
    }
    timings_->record_since(Timing::kRemoteValueFetch, begin);
    SR_RETURN_IF_ERROR(status_);
    return fetches_;
  }
  void set(const Status& status, std::vector<Tensor> fetches) {
    const std::lock_guard lock(mutex_);
    status_ = status;
    fetches_ = std::move(fetches);
    is_ready_ = true;
    changed_.notify_all();
  }

 private:
  const std::shared_ptr<Timings> timings_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool is_ready_ = false;
  Status status_;
  std::vector<Tensor> fetches_;
};

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
  std::vector<bool> knows_plan;  ///< By number.
  bool is_extending = false;
  bool is_unsent = false;          ///< Something waits for flush() of its calls.
  bool is_over = false;            ///< Its session is of no use any more: a task of it is lost.
  std::deque<uint64_t> waiting;    ///< Calls whose plan its session does not know yet.
  std::deque<uint64_t> cancelled;  ///< Of these.
  /// Resources that are being made, and whether they are dropped then.
  absl::flat_hash_map<coord::ResourceId, bool> making;
};

/// Numbers of closures that may be run again: places (resources::ClosureKey), of which each is that
/// of one closure at a time.
class ClosureNumbers {
 public:
  /// kResourceExhausted when there is no place.
  Result<uint64_t> take() {
    if (free_.empty()) {
      if (turns_.size() >> resources::kClosurePlaceBits != 0) {
        return base::resource_exhausted(
            "{} closures have been run and wait to be run again, as many as effectively_once takes",
            turns_.size());
      }
      free_.push_back(turns_.size());
      turns_.push_back(0);
    }
    const uint64_t place = free_.back();
    free_.pop_back();
    return resources::closure_number(place, ++turns_[place]);
  }
  /// The closure has ended.
  void give_back(uint64_t number) {
    const uint64_t place = resources::place_of_closure(number);
    if (turns_[place] < resources::kClosureTurnsMax) free_.push_back(place);
  }

 private:
  std::vector<uint64_t> turns_;  // By place: how many have had it.
  std::vector<uint64_t> free_;   // Those that were used last are last: few are used.
};

/// What the calls of a stream are for; their numbers say it.
enum class Call : uint8_t { kClosure, kMake, kDrop };
constexpr uint64_t call_of(Call what, uint64_t id) { return id << 2 | static_cast<uint64_t>(what); }
constexpr Call what_of(uint64_t call) { return static_cast<Call>(call & 3); }
constexpr uint64_t id_of(uint64_t call) { return call >> 2; }

class Coordinator final : public ClusterCoordinator,
                          public coord::SchedulerHooks,
                          public std::enable_shared_from_this<Coordinator> {
 public:
  explicit Coordinator(ClusterCoordinatorOptions options)
      : options_(std::move(options)),
        scheduler_(options_.scheduler, this, now_ns()),
        workers_(options_.workers.size()),
        ps_(static_cast<size_t>(options_.ps)) {
    for (size_t i = 0; i < std::min(ps_.size(), options_.ps_incarnations.size()); ++i) {
      ps_[i].incarnation = options_.ps_incarnations[i];
    }
    if (!options_.effectively_once) return;
    const std::unique_ptr<sys::Random> random = sys::posix::create_random();
    while (client_ == 0) client_ = random->next();
  }

  void start() {
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < workers_.size(); ++i) connects_.emplace(steady_clock::now(), i);
    const size_t threads = std::min(workers_.size(), kThreadsMax) + 1;
    connecting_max_ = threads - 1;
    for (size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
    threads_.emplace_back([this] { keep_time(); });
    threads_.emplace_back([this] { send_bursts(); });
  }

  /// Ends all that runs. No call of users is under way.
  void stop() {
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
    }
    for (const auto& one : calls) one->hang_up();
    for (std::thread& thread : threads_) thread.join();
    const Status why = base::cancelled("the coordinator has ended");
    const std::lock_guard lock(mutex_);
    for (auto& [id, closure] : closures_) closure.value->set(why, {});
  }

  void set_graph(const ir::Graph& graph) override {
    auto copy = std::make_shared<const ir::Graph>(graph);
    const std::lock_guard lock(mutex_);
    graph_ = std::move(copy);
    ++graph_version_;
  }

  uint64_t add_plan(service::ClosurePlan plan, bool tells_worker) override {
    const std::lock_guard lock(mutex_);
    plans_.push_back(
        {.what = std::move(plan), .tells_worker = tells_worker, .graph_version = graph_version_});
    return plans_.size() - 1;
  }

  Result<std::shared_ptr<RemoteValue>> schedule(uint64_t plan, std::vector<Tensor> feeds,
                                                std::span<const coord::ResourceId> resources,
                                                milliseconds timeout,
                                                const std::function<bool()>& interrupt) override {
    std::unique_lock lock(mutex_);
    SR_RETURN_IF_ERROR(check_feeds(plan, feeds.size()));
    auto value = std::make_shared<Value>(timings_);
    Closure closure{.plan = plan, .feeds = std::move(feeds), .fetches = {}, .value = value};
    const Until until = until_of(timeout);
    while (true) {
      SR_RETURN_IF_ERROR(failed_);
      SR_ASSIGN_OR_RETURN(const bool is_taken, hand_over(&closure, [&] {
                            return scheduler_.schedule(resources, now_ns());
                          }));
      if (is_taken) {
        flush_or_burst(&lock);
        return std::shared_ptr<RemoteValue>(std::move(value));
      }
      SR_RETURN_IF_ERROR(wait(&lock, until, interrupt, "room in the queue"));
    }
  }

  Result<std::shared_ptr<RemoteValue>> schedule_on(
      int worker, uint64_t plan, std::vector<Tensor> feeds,
      std::span<const coord::ResourceId> resources) override {
    std::unique_lock lock(mutex_);
    SR_RETURN_IF_ERROR(check_feeds(plan, feeds.size()));
    auto value = std::make_shared<Value>(timings_);
    Closure closure{.plan = plan, .feeds = std::move(feeds), .fetches = {}, .value = value};
    const auto ask = [&]() -> Result<std::optional<coord::ClosureId>> {
      return scheduler_.schedule_on(worker, resources, now_ns());
    };
    SR_RETURN_IF_ERROR(hand_over(&closure, ask).status());
    flush(&lock);
    return std::shared_ptr<RemoteValue>(std::move(value));
  }

  Status join(milliseconds timeout, const std::function<bool()>& interrupt) override {
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

  Result<bool> done(const std::function<bool()>& interrupt) override {
    std::unique_lock lock(mutex_);
    while (true) {
      SR_RETURN_IF_ERROR(failed_);
      SR_ASSIGN_OR_RETURN(const std::optional<bool> all_ended, scheduler_.done());
      if (all_ended) return *all_ended;
      SR_RETURN_IF_ERROR(wait(&lock, std::nullopt, interrupt, "closures to be cancelled"));
    }
  }

  coord::ResourceId create_resource(uint64_t make, uint64_t drop) override {
    const std::lock_guard lock(mutex_);
    // As closures: it may be made at once.
    const coord::ResourceId id = resources_.size() + 1;
    resources_.push_back({.make = make, .drop = drop});
    static_cast<void>(scheduler_.create_resource(now_ns()));
    return id;
  }

  void release_resource(coord::ResourceId resource) override {
    const std::lock_guard lock(mutex_);
    scheduler_.release_resource(resource);
  }

  std::optional<LostPs> next_lost_ps() override {
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < ps_.size(); ++i) {
      const uint64_t met = std::exchange(ps_[i].met, 0);
      if (met == 0 || met == ps_[i].incarnation) continue;
      return LostPs{.task = static_cast<int>(i), .incarnation = met};
    }
    return std::nullopt;
  }

  void ps_restored(const LostPs& ps) override {
    const std::lock_guard lock(mutex_);
    if (ps.task < 0 || static_cast<size_t>(ps.task) >= ps_.size()) return;
    ps_[static_cast<size_t>(ps.task)].incarnation = ps.incarnation;
    // Workers that wait for it go on at once.
    std::multimap<steady_clock::time_point, size_t> due;
    for (const auto& [when, worker] : connects_) due.emplace(steady_clock::now(), worker);
    connects_ = std::move(due);
    work_.notify_all();
  }

  void ps_failed(int task, const Status& why) override {
    const std::lock_guard lock(mutex_);
    if (task >= 0 && task < options_.ps) scheduler_.ps_lost(task, why);
  }

  [[nodiscard]] Figures figures() const override {
    const std::lock_guard lock(mutex_);
    return {.queued = scheduler_.queued(),
            .in_flight = scheduler_.in_flight(),
            .workers_found = scheduler_.workers_found(),
            .retried = scheduler_.retried(),
            .done = done_};
  }

  void record(Timing what, std::chrono::nanoseconds took) override { timings_->record(what, took); }
  [[nodiscard]] metrics::HistogramSnapshot timing(Timing what) const override {
    return timings_->of(what);
  }

  // ---- What the scheduler asks for, under the lock.

  void run(int worker, uint64_t /*life*/, coord::ClosureId closure) override {
    call(worker, call_of(Call::kClosure, closure));
  }
  void cancel(int worker, coord::ClosureId closure) override {
    Connection* const connection = connection_of(worker);
    if (connection == nullptr) return;
    const uint64_t id = call_of(Call::kClosure, closure);
    if (std::ranges::find(connection->waiting, id) != connection->waiting.end()) {
      connection->cancelled.push_back(id);
    } else {
      connection->calls->cancel(id);
      is_said(connection);
    }
  }
  void build(int worker, uint64_t /*life*/, coord::ResourceId resource) override {
    Connection* const connection = connection_of(worker);
    if (connection != nullptr) connection->making[resource] = false;
    call(worker, call_of(Call::kMake, resource));
  }
  void drop(int worker, coord::ResourceId resource) override {
    Connection* const connection = connection_of(worker);
    if (connection == nullptr) return;  // It goes with the worker, or its session.
    const auto making = connection->making.find(resource);
    if (making != connection->making.end()) {
      making->second = true;
    } else {
      call(worker, call_of(Call::kDrop, resource));
    }
  }
  void closure_ended(coord::ClosureId id, const Status& status) override {
    const auto found = closures_.find(id);
    if (found == closures_.end()) return;
    found->second.value->set(status, std::move(found->second.fetches));
    if (status.ok()) ++done_;
    if (found->second.number != 0) numbers_.give_back(found->second.number);
    closures_.erase(found);
  }
  void wake() override { changed_.notify_all(); }
  void missing(std::span<const int> workers, int64_t since_ns) override {
    base::log_warning("waiting for workers missing={} for_s={:.0f} last_error=\"{}\"",
                      names_of(workers), static_cast<double>(now_ns() - since_ns) / 1e9,
                      base::message_of(last_error_));
  }

  // ---- What connections tell.

  void ended(const std::shared_ptr<Connection>& connection,
             std::vector<service::ClosureResult> results) {
    std::unique_lock lock(mutex_);
    is_flushing_ = true;
    take_results(connection, &results);
    is_flushing_ = false;
    flush(&lock);
  }

  void take_results(const std::shared_ptr<Connection>& connection,
                    std::vector<service::ClosureResult>* results) {
    const auto worker = static_cast<size_t>(connection->worker);
    for (const service::ClosureResult& result : *results) {
      // A session that has lost a task stays without it.
      const coord::Origin origin = origin_of(result.status);
      if (origin.job != coord::Origin::Job::kNone && task::is_of_network(result.status)) {
        connection->is_over = true;
        last_error_ = result.status;
      }
    }
    for (service::ClosureResult& result : *results) {
      if (workers_[worker] != connection) return;
      tell(connection.get(), &result);
    }
    if (connection->is_over && workers_[worker] == connection) lose(*connection, milliseconds(0));
  }

  void lost(const std::shared_ptr<Connection>& connection, const Status& why) {
    const std::lock_guard lock(mutex_);
    last_error_ = why;
    connection->is_over = true;
    if (workers_[static_cast<size_t>(connection->worker)] != connection) return;
    base::log_info("worker lost worker={} error=\"{}\"", name_of(connection->worker),
                   base::message_of(why));
    lose(*connection, kRetry);
  }

 private:
  using Until = std::optional<steady_clock::time_point>;
  struct Plan {
    service::ClosurePlan what;
    bool tells_worker = false;
    int64_t graph_version = 0;
  };
  struct Closure {
    uint64_t plan = 0;
    std::vector<Tensor> feeds;
    std::vector<Tensor> fetches;
    std::shared_ptr<Value> value;
    steady_clock::time_point sent = {};
    uint64_t number = 0;  ///< Of `numbers_`, once it was sent; 0: it has none.
  };
  /// The plans of a resource.
  struct OfWorkers {
    uint64_t make = 0;
    uint64_t drop = 0;
  };
  struct Ps {
    uint64_t incarnation = 0;  ///< That is meant; 0: the first that is met.
    uint64_t met = 0;          ///< Another one, which nobody was told of; 0: none.
    std::optional<steady_clock::time_point> silent_since;
  };

  static Until until_of(milliseconds timeout) {
    if (timeout.count() <= 0) return std::nullopt;
    return steady_clock::now() + timeout;
  }
  static std::string name_of(int worker) { return cluster::task_name("worker", worker); }
  static std::string names_of(std::span<const int> workers) {
    std::string out;
    for (const int worker : workers) out += (out.empty() ? "" : ",") + name_of(worker);
    return out;
  }
  std::string missing_workers() {
    std::vector<int> out;
    for (size_t i = 0; i < workers_.size(); ++i) {
      if (workers_[i] == nullptr) out.push_back(static_cast<int>(i));
    }
    return out.empty() ? "" : fmt::format("; these workers are missing: {}", names_of(out));
  }

  Status wait(std::unique_lock<std::mutex>* lock, Until until,
              const std::function<bool()>& interrupt, std::string_view what) {
    changed_.wait_for(*lock, task::kLook);
    if (until && steady_clock::now() >= *until) {
      return base::deadline_exceeded("waited too long for {}: {} are queued, {} run{}", what,
                                     scheduler_.queued(), scheduler_.in_flight(),
                                     missing_workers());
    }
    lock->unlock();
    const bool is_interrupted = interrupt && interrupt();
    lock->lock();
    if (is_interrupted) return base::cancelled("waiting for {} was interrupted", what);
    return {};
  }

  // ---- Calls. Under the lock.

  [[nodiscard]] Status check_feeds(uint64_t plan, size_t count) const {
    if (plan >= plans_.size()) return base::not_found("there is no plan {}", plan);
    const size_t wanted = plans_[plan].what.feeds.size() - (plans_[plan].tells_worker ? 1 : 0);
    if (count == wanted) return {};
    return base::invalid_argument("{} values for the {} feeds of a plan", count, wanted);
  }

  /// Gives the scheduler a closure by `ask`, in which it may run at once. False: it is not taken
  /// now, and the caller's again, as after an error.
  template <class Ask>
  Result<bool> hand_over(Closure* closure, const Ask& ask) {
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

  /// nullptr while the worker is lost.
  Connection* connection_of(int worker) { return workers_[static_cast<size_t>(worker)].get(); }

  uint64_t plan_of(uint64_t call) {
    if (what_of(call) == Call::kClosure) return closures_[id_of(call)].plan;
    const OfWorkers& resource = resources_[id_of(call) - 1];
    return what_of(call) == Call::kMake ? resource.make : resource.drop;
  }

  void call(int worker, uint64_t id) {
    Connection* const connection = connection_of(worker);
    if (connection == nullptr) return;
    const bool is_known = plans_[plan_of(id)].graph_version <= connection->graph_version;
    if (is_known && !connection->is_over) return send(connection, id);
    connection->waiting.push_back(id);
    if (connection->is_over || std::exchange(connection->is_extending, true)) return;
    add_job([this, connection = connection->shared_from_this()] { extend(connection); });
  }

  void send(Connection* connection, uint64_t id) {
    const uint64_t plan = plan_of(id);
    if (connection->knows_plan.size() <= plan) connection->knows_plan.resize(plan + 1);
    if (!connection->knows_plan[plan]) {
      connection->knows_plan[plan] = true;
      connection->calls->add_plan(plan, plans_[plan].what);
    }
    std::vector<Tensor> feeds;
    uint64_t number = 0;
    if (what_of(id) == Call::kClosure) {
      Closure& closure = closures_[id_of(id)];
      if (client_ != 0 && closure.number == 0) closure.number = new_number();
      number = closure.number;
      feeds = closure.feeds;
      closure.sent = steady_clock::now();
    }
    if (plans_[plan].tells_worker) feeds.push_back(Tensor::scalar<int64_t>(connection->worker));
    connection->calls->run(id, plan, std::move(feeds), options_.closure_timeout, number);
    is_said(connection);
  }

  /// Of a closure that runs; 0 when there is none, which ends all.
  uint64_t new_number() {
    const Result<uint64_t> number = numbers_.take();
    if (number.ok()) return *number;
    if (failed_.ok()) failed_ = number.status();
    changed_.notify_all();
    return 0;
  }

  /// Something is to leave: soon, unless somebody up the stack calls flush().
  void is_said(Connection* connection) {
    if (!std::exchange(connection->is_unsent, true)) {
      unsent_.push_back(connection->shared_from_this());
    }
    if (!is_flushing_) unsent_changed_.notify_one();
  }

  /// Writes what is to leave, without the lock.
  void flush(std::unique_lock<std::mutex>* lock) {
    std::vector<std::shared_ptr<Connection>> unsent = std::exchange(unsent_, {});
    for (const auto& one : unsent) one->is_unsent = false;
    lock->unlock();
    for (const auto& one : unsent) one->calls->flush();
    unsent.clear();
    lock->lock();
  }

  /// One closure leaves at once. Of many that follow each other, those for one worker leave in one
  /// message, as another thread gets to it.
  void flush_or_burst(std::unique_lock<std::mutex>* lock) {
    if (unsent_.empty()) return;
    const steady_clock::time_point now = steady_clock::now();
    const bool is_burst = now - std::exchange(flushed_, now) < kBurst;
    if (is_burst) return unsent_changed_.notify_one();
    flush(lock);
  }

  void send_bursts() {
    std::unique_lock lock(mutex_);
    while (!is_stopping_) {
      if (unsent_.empty()) {
        unsent_changed_.wait(lock);
      } else {
        flush(&lock);
      }
    }
  }

  void tell(Connection* connection, service::ClosureResult* result) {
    const coord::Outcome outcome{.status = result->status, .origin = origin_of(result->status)};
    const uint64_t id = id_of(result->closure);
    if (what_of(result->closure) == Call::kDrop) return;
    if (what_of(result->closure) == Call::kMake) {
      const auto making = connection->making.extract(id);
      if (!making.empty() && making.mapped()) {
        return call(connection->worker, call_of(Call::kDrop, id));
      }
      return scheduler_.built(connection->worker, connection->life, id, outcome, now_ns());
    }
    const auto found = closures_.find(id);
    if (found != closures_.end()) {
      found->second.fetches = std::move(result->fetches);
      timings_->record_since(Timing::kClosureExecution, found->second.sent);
    }
    scheduler_.ended(connection->worker, connection->life, id, outcome, now_ns());
  }

  // ---- Sessions. Jobs run without the lock.

  void add_job(std::function<void()> job) {
    jobs_.push_back(std::move(job));
    work_.notify_one();
  }

  /// The session ends on a thread that may wait.
  void drop_connection(size_t worker) {
    if (workers_[worker] == nullptr) return;
    const std::shared_ptr<Connection> over = std::move(workers_[worker]);
    workers_[worker] = nullptr;
    over->waiting.clear();
    add_job([calls = over->calls, session = std::move(over->session)] { calls->hang_up(); });
  }

  void connect_anew(size_t worker, milliseconds after) {
    drop_connection(worker);
    connects_.emplace(steady_clock::now() + after, worker);
    work_.notify_one();
  }

  /// Its closures run elsewhere; a new session is made `after` a while.
  void lose(const Connection& connection, milliseconds after) {
    scheduler_.worker_lost(connection.worker, connection.life, now_ns());
    connect_anew(static_cast<size_t>(connection.worker), after);
  }

  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      if (!jobs_.empty()) {
        std::function<void()> job = std::move(jobs_.front());
        jobs_.pop_front();
        lock.unlock();
        job();
        job = nullptr;  // The last user of a session, perhaps.
        lock.lock();
        continue;
      }
      if (is_stopping_) return;
      if (connects_.empty() || connecting_ >= connecting_max_) {
        work_.wait(lock);
        continue;
      }
      const auto [due, worker] = *connects_.begin();
      if (steady_clock::now() < due) {
        work_.wait_until(lock, due);
        continue;
      }
      connects_.erase(connects_.begin());
      ++connecting_;
      const std::shared_ptr<const ir::Graph> graph = graph_;
      const int64_t version = graph_version_;
      lock.unlock();
      Result<std::shared_ptr<Connection>> made = connect(worker, *graph, version);
      lock.lock();
      --connecting_;
      if (!is_stopping_) {
        take(worker, std::move(made));
      } else if (made.ok()) {
        workers_[worker] = *std::move(made);
        drop_connection(worker);
      }
    }
  }

  Result<std::shared_ptr<Connection>> connect(size_t worker, const ir::Graph& graph,
                                              int64_t version) {
    const steady_clock::time_point begin = steady_clock::now();
    service::SessionOptions options = options_.session;
    // A ps that does not answer is found out by tries that end.
    options.connect_timeout =
        std::min({options.connect_timeout, kTry, std::max(options_.ps_timeout, kRetry)});
    // Its own task is seen in any case; other workers may be missing.
    options.device_filters = {"/job:ps"};
    options.interrupt = [this] {
      const std::lock_guard lock(mutex_);
      return is_stopping_;
    };
    auto out = std::make_shared<Connection>();
    out->owner = weak_from_this();
    out->worker = static_cast<int>(worker);
    out->graph_version = version;
    SR_ASSIGN_OR_RETURN(out->session,
                        service::Session::create(options_.workers[worker], graph, options));
    SR_ASSIGN_OR_RETURN(const auto devices, out->session->list_devices());
    {
      const std::lock_guard lock(mutex_);
      out->life = ++last_life_;
      SR_RETURN_IF_ERROR(check_ps(devices));
    }
    out->calls = out->session->run_closures(out, client_);
    timings_->record_since(Timing::kServerDefUpdate, begin);
    return out;
  }

  /// kAborted for a ps that is another one than before, which has lost what it held.
  Status check_ps(const std::vector<service::DeviceAttributes>& devices) {
    for (const service::DeviceAttributes& device : devices) {
      const auto name = cluster::parse_task_name(cluster::task_of(device.name));
      if (!name || name->job != "ps" || name->index >= options_.ps) continue;
      Ps& ps = ps_[static_cast<size_t>(name->index)];
      ps.silent_since = std::nullopt;
      if (ps.incarnation == 0) ps.incarnation = device.incarnation;
      if (ps.incarnation == device.incarnation) continue;
      ps.met = device.incarnation;
      return task::with_origin(
          base::aborted("it was restarted: it expects a different device incarnation"),
          {.task = cluster::task_name("ps", name->index), .is_restarted = true});
    }
    return {};
  }

  /// Under the lock.
  void take(size_t worker, Result<std::shared_ptr<Connection>> made) {
    if (made.ok()) {
      const std::shared_ptr<Connection> connection = *made;
      workers_[worker] = connection;
      // Its stream may have ended already.
      if (connection->is_over) return connect_anew(worker, kRetry);
      base::log_debug("worker found worker={}", name_of(connection->worker));
      return scheduler_.worker_found(connection->worker, connection->life, now_ns());
    }
    const Status& why = made.status();
    last_error_ = why;
    const coord::Origin origin = origin_of(why);
    const bool is_ps = origin.job == coord::Origin::Job::kPs && origin.task < options_.ps;
    if (is_ps) note_silent_ps(origin, why);
    const bool may_pass = task::is_of_network(why) || why.code() == StatusCode::kDeadlineExceeded ||
                          why.code() == StatusCode::kCancelled || is_ps;
    if (!may_pass && failed_.ok()) {
      failed_ = base::with_context(why, name_of(static_cast<int>(worker)));
      changed_.notify_all();
    }
    connect_anew(worker, kRetry);
  }

  void note_silent_ps(const coord::Origin& origin, const Status& why) {
    // It is there, and being restored.
    if (origin.is_restarted && options_.restores_ps) return;
    Ps& ps = ps_[static_cast<size_t>(origin.task)];
    const steady_clock::time_point now = steady_clock::now();
    if (!ps.silent_since) ps.silent_since = now;
    if (origin.is_restarted || now - *ps.silent_since >= options_.ps_timeout) {
      scheduler_.ps_lost(origin.task, why);
    }
  }

  void extend(const std::shared_ptr<Connection>& connection) {
    std::shared_ptr<const ir::Graph> graph;
    std::shared_ptr<service::Session> session;
    int64_t version = 0;
    {
      const std::lock_guard lock(mutex_);
      if (connection->session == nullptr) return;
      session = connection->session;
      graph = graph_;
      version = graph_version_;
    }
    const steady_clock::time_point begin = steady_clock::now();
    Status extended = session->extend(*graph);
    // It may be attached to a ps from now on that it was not attached to before.
    auto devices = session->list_devices();
    timings_->record_since(Timing::kServerDefUpdate, begin);
    const std::lock_guard lock(mutex_);
    if (extended.ok()) extended = devices.status();
    if (extended.ok()) extended = check_ps(*devices);
    connection->is_extending = false;
    if (workers_[static_cast<size_t>(connection->worker)] != connection) return;
    if (!extended.ok()) {
      // A new session says whether the graph is at fault.
      last_error_ = extended;
      return lose(*connection, milliseconds(0));
    }
    connection->graph_version = version;
    for (const uint64_t id : std::exchange(connection->waiting, {})) {
      if (what_of(id) == Call::kClosure && !closures_.contains(id_of(id))) continue;
      call(connection->worker, id);
    }
    for (const uint64_t id : std::exchange(connection->cancelled, {})) {
      connection->calls->cancel(id);
      is_said(connection.get());
    }
  }

  void keep_time() {
    std::unique_lock lock(mutex_);
    while (!is_stopping_) {
      const int64_t now = now_ns();
      const int64_t next = scheduler_.tick(now);
      const milliseconds left(std::clamp<int64_t>((next - now) / 1'000'000, 1, kTickMax.count()));
      time_.wait_for(lock, left);
    }
  }

  const ClusterCoordinatorOptions options_;
  const std::shared_ptr<Timings> timings_ = std::make_shared<Timings>();
  mutable std::mutex mutex_;
  std::condition_variable changed_;  ///< For users.
  std::condition_variable work_;
  std::condition_variable time_;
  std::condition_variable unsent_changed_;
  std::vector<std::shared_ptr<Connection>> unsent_;  ///< With something that waits for flush().
  bool is_flushing_ = false;                         ///< What is said now is flushed up the stack.
  steady_clock::time_point flushed_;  ///< When schedule() last had something to send.
  coord::Scheduler scheduler_;
  std::shared_ptr<const ir::Graph> graph_ = std::make_shared<const ir::Graph>();
  int64_t graph_version_ = 0;
  std::vector<Plan> plans_;
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

void Connection::ended(std::vector<service::ClosureResult> results) {
  const std::shared_ptr<Coordinator> coordinator = owner.lock();
  if (coordinator != nullptr) coordinator->ended(shared_from_this(), std::move(results));
}

void Connection::lost(const Status& why) {
  const std::shared_ptr<Coordinator> coordinator = owner.lock();
  if (coordinator != nullptr) coordinator->lost(shared_from_this(), why);
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
  options.scheduler.workers = static_cast<int>(options.workers.size());
  options.scheduler.ps = options.ps;
  options.scheduler.ps_come_back = options.restores_ps;
  // A closure that has ended is not run again, whatever becomes of its pushes.
  if (options.effectively_once) options.session.pull_prefetch_ms = 0;
  // Callbacks of gRPC may hold it longer than its user, who ends it.
  const auto made = std::make_shared<Coordinator>(std::move(options));
  made->start();
  return std::shared_ptr<ClusterCoordinator>(made.get(),
                                             [made](ClusterCoordinator*) { made->stop(); });
}

}  // namespace sidereal::app
