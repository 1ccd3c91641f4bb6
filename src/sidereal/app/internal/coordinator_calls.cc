#include <algorithm>
#include <optional>
#include <utility>

#include "sidereal/app/internal/coordinator.h"
#include "sidereal/base/event_log.h"
#include "sidereal/base/log.h"
#include "sidereal/resources/changes_made.h"
#include "sidereal/task/origin.h"

// Closures and resources of workers: what the scheduler wants done, and what became of it.
namespace sidereal::app::coordinator {

namespace {

constexpr milliseconds kTickMax(1000);
/// Closures that are scheduled so soon after another one leave together, on a thread of their own.
constexpr std::chrono::microseconds kBurst(100);

}  // namespace

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

void Coordinator::run(int worker, uint64_t /*life*/, coord::ClosureId closure, int64_t step) {
  const auto found = closures_.find(closure);
  if (found != closures_.end()) {
    found->second.step = step;
    if (++found->second.runs > 1) {
      base::emit({}, base::Event::kClosureRetried,
                 {{"closure", closure}, {"worker", name_of(worker)}, {"run", found->second.runs}});
    }
  }
  call(worker, call_of(Call::kClosure, closure));
}

void Coordinator::cancel(int worker, coord::ClosureId closure) {
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

void Coordinator::build(int worker, uint64_t /*life*/, coord::ResourceId resource) {
  Connection* const connection = connection_of(worker);
  if (connection != nullptr) connection->making[resource] = false;
  call(worker, call_of(Call::kMake, resource));
}

void Coordinator::drop(int worker, coord::ResourceId resource) {
  Connection* const connection = connection_of(worker);
  if (connection == nullptr) return;  // It goes with the worker, or its session.
  const auto making = connection->making.find(resource);
  if (making != connection->making.end()) {
    making->second = true;
  } else {
    call(worker, call_of(Call::kDrop, resource));
  }
}

void Coordinator::closure_ended(coord::ClosureId id, const Status& status) {
  const auto found = closures_.find(id);
  if (found == closures_.end()) return;
  found->second.value->set(status, std::move(found->second.fetches));
  if (status.ok()) ++done_;
  if (found->second.number != 0) numbers_.give_back(found->second.number);
  closures_.erase(found);
}

void Coordinator::missing(std::span<const int> workers, int64_t since_ns) {
  base::log_warning("waiting for workers missing={} for_s={:.0f} last_error=\"{}\"",
                    names_of(workers), static_cast<double>(now_ns() - since_ns) / 1e9,
                    base::message_of(last_error_));
}

void Coordinator::ended(const std::shared_ptr<Connection>& connection,
                        std::vector<service::ClosureResult> results) {
  std::unique_lock lock(mutex_);
  is_flushing_ = true;
  take_results(connection, &results);
  is_flushing_ = false;
  flush(&lock);
}

void Coordinator::take_results(const std::shared_ptr<Connection>& connection,
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

void Coordinator::lost(const std::shared_ptr<Connection>& connection, const Status& why) {
  const std::lock_guard lock(mutex_);
  last_error_ = why;
  connection->is_over = true;
  if (workers_[static_cast<size_t>(connection->worker)] != connection) return;
  base::emit({}, base::Event::kWorkerLost,
             {{"worker", name_of(connection->worker)}, {"error", base::message_of(why)}});
  lose(*connection, kRetry);
}

uint64_t Coordinator::plan_of(uint64_t call) {
  if (what_of(call) == Call::kClosure) return closures_[id_of(call)].plan;
  const OfWorkers& resource = resources_[id_of(call) - 1];
  return what_of(call) == Call::kMake ? resource.make : resource.drop;
}

void Coordinator::call(int worker, uint64_t id) {
  Connection* const connection = connection_of(worker);
  if (connection == nullptr) return;
  if (knows(*connection, plans_[plan_of(id)]) && !connection->is_over) {
    return send(connection, id);
  }
  connection->waiting.push_back(id);
  extend_soon(connection);
}

void Coordinator::send(Connection* connection, uint64_t id) {
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
    if (!plans_[plan].steps.empty()) feeds.push_back(Tensor::scalar(closure.step));
    closure.sent = steady_clock::now();
  }
  if (plans_[plan].tells_worker) feeds.push_back(Tensor::scalar<int64_t>(connection->worker));
  connection->calls->run(id, plan, std::move(feeds), options_.closure_timeout, number);
  is_said(connection);
}

uint64_t Coordinator::new_number() {
  const Result<uint64_t> number = numbers_.take();
  if (number.ok()) return *number;
  if (failed_.ok()) failed_ = number.status();
  changed_.notify_all();
  return 0;
}

void Coordinator::is_said(Connection* connection) {
  if (!std::exchange(connection->is_unsent, true)) {
    unsent_.push_back(connection->shared_from_this());
  }
  if (!is_flushing_) unsent_changed_.notify_one();
}

void Coordinator::flush(std::unique_lock<std::mutex>* lock) {
  std::vector<std::shared_ptr<Connection>> unsent = std::exchange(unsent_, {});
  for (const auto& one : unsent) one->is_unsent = false;
  lock->unlock();
  for (const auto& one : unsent) one->calls->flush();
  unsent.clear();
  lock->lock();
}

void Coordinator::flush_or_burst(std::unique_lock<std::mutex>* lock) {
  if (unsent_.empty()) return;
  const steady_clock::time_point now = steady_clock::now();
  const bool is_burst = now - std::exchange(flushed_, now) < kBurst;
  if (is_burst) return unsent_changed_.notify_one();
  flush(lock);
}

void Coordinator::send_bursts() {
  std::unique_lock lock(mutex_);
  while (!is_stopping_) {
    if (unsent_.empty()) {
      unsent_changed_.wait(lock);
    } else {
      flush(&lock);
    }
  }
}

void Coordinator::tell(Connection* connection, service::ClosureResult* result) {
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

void Coordinator::keep_time() {
  std::unique_lock lock(mutex_);
  while (!is_stopping_) {
    const int64_t now = now_ns();
    const int64_t next = scheduler_.tick(now);
    const milliseconds left(std::clamp<int64_t>((next - now) / 1'000'000, 1, kTickMax.count()));
    time_.wait_for(lock, left);
  }
}

void Connection::ended(std::vector<service::ClosureResult> results) {
  const std::shared_ptr<Coordinator> coordinator = owner.lock();
  if (coordinator != nullptr) coordinator->ended(shared_from_this(), std::move(results));
}

void Connection::lost(const Status& why) {
  const std::shared_ptr<Coordinator> coordinator = owner.lock();
  if (coordinator != nullptr) coordinator->lost(shared_from_this(), why);
}

}  // namespace sidereal::app::coordinator
