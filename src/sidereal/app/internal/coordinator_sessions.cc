#include <algorithm>
#include <utility>

#include "sidereal/app/internal/coordinator.h"
#include "sidereal/base/log.h"
#include "sidereal/service/job_lease.h"
#include "sidereal/task/origin.h"

// Sessions of workers: made, extended and ended by threads that may wait.
namespace sidereal::app::coordinator {

namespace {

/// One try to reach a worker: others wait for its thread.
constexpr milliseconds kTry(10'000);

}  // namespace

void Coordinator::add_job(std::function<void()> job) {
  jobs_.push_back(std::move(job));
  work_.notify_one();
}

void Coordinator::drop_connection(size_t worker) {
  if (workers_[worker] == nullptr) return;
  const std::shared_ptr<Connection> over = std::move(workers_[worker]);
  workers_[worker] = nullptr;
  over->waiting.clear();
  add_job([calls = over->calls, session = std::move(over->session)] { calls->hang_up(); });
}

void Coordinator::connect_anew(size_t worker, milliseconds after) {
  drop_connection(worker);
  connects_.emplace(steady_clock::now() + after, worker);
  work_.notify_one();
}

void Coordinator::lose(const Connection& connection, milliseconds after) {
  scheduler_.worker_lost(connection.worker, connection.life, now_ns());
  connect_anew(static_cast<size_t>(connection.worker), after);
}

void Coordinator::work() {
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
    const Program known = program();
    lock.unlock();
    Result<std::shared_ptr<Connection>> made = connect(worker, known);
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

Coordinator::Program Coordinator::program() const {
  return {.graph = graph_,
          .graph_version = graph_version_,
          .overrides = overrides_,
          .overrides_version = overrides_version_};
}

bool Coordinator::knows(const Connection& connection, const Plan& plan) const {
  return plan.graph_version <= connection.graph_version &&
         connection.overrides_version == overrides_version_;
}

void Coordinator::extend_soon(Connection* connection) {
  if (connection->is_over || std::exchange(connection->is_extending, true)) return;
  add_job([this, connection = connection->shared_from_this()] { extend(connection); });
}

Result<std::shared_ptr<service::Session>> Coordinator::open_session(const std::string& target,
                                                                    const Program& program) {
  service::SessionOptions options = options_.session;
  options.overrides = program.overrides;
  // A ps that does not answer is found out by tries that end.
  options.connect_timeout =
      std::min({options.connect_timeout, kTry, std::max(options_.ps_timeout, kRetry)});
  // Its own task is seen in any case; other workers may be missing.
  options.device_filters = {"/job:ps"};
  options.interrupt = [this] {
    const std::lock_guard lock(mutex_);
    return is_stopping_;
  };
  return service::Session::create(target, *program.graph, options);
}

Result<std::shared_ptr<Connection>> Coordinator::connect(size_t worker, const Program& program) {
  const steady_clock::time_point begin = steady_clock::now();
  auto out = std::make_shared<Connection>();
  out->owner = weak_from_this();
  out->worker = static_cast<int>(worker);
  out->graph_version = program.graph_version;
  out->overrides_version = program.overrides_version;
  SR_ASSIGN_OR_RETURN(out->session, open_session(options_.workers[worker], program));
  SR_RETURN_IF_ERROR(check_devices(out->session.get()));
  {
    const std::lock_guard lock(mutex_);
    out->life = ++last_life_;
  }
  out->calls = out->session->run_closures(out, client_);
  timings_->record_since(Timing::kServerDefUpdate, begin);
  return out;
}

Status Coordinator::extend_to(const Program& known, int64_t overrides_version,
                              service::Session* session) {
  const bool moves = overrides_version != known.overrides_version;
  return moves ? session->extend(*known.graph, known.overrides) : session->extend(*known.graph);
}

Status Coordinator::check_devices(service::Session* session) {
  SR_ASSIGN_OR_RETURN(const auto devices, session->list_devices());
  const std::lock_guard lock(mutex_);
  return check_ps(devices);
}

Status Coordinator::check_ps(const std::vector<service::DeviceAttributes>& devices) {
  for (const service::DeviceAttributes& device : devices) {
    const auto name = cluster::parse_task_name(cluster::task_of(device.name));
    if (!name || name->job != "ps" || name->index >= options_.ps) continue;
    Ps& ps = ps_[static_cast<size_t>(name->index)];
    ps.silent_since = std::nullopt;
    if (ps.life.incarnation == 0) ps.life.incarnation = device.incarnation;
    if (ps.life.state == 0) ps.life.state = device.state;
    const bool is_same = ps.life.incarnation == device.incarnation;
    // A session that has lost it again has the next one ask.
    if (is_same && (device.state == 0 || ps.life.state == device.state)) continue;
    ps.met = PsLife{.incarnation = device.incarnation, .state = device.state};
    constexpr const char* kGivenUp =
        "it has lost its variables: all sessions there were given up, as it, or their master, did "
        "not answer for a while";
    constexpr const char* kRestarted =
        "it was restarted: it expects a different device incarnation";
    return task::with_origin(base::aborted("{}", is_same ? kGivenUp : kRestarted),
                             {.task = cluster::task_name("ps", name->index), .is_restarted = true});
  }
  return {};
}

void Coordinator::take(size_t worker, Result<std::shared_ptr<Connection>> made) {
  if (made.ok()) {
    const std::shared_ptr<Connection>& connection = *made;
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
  const auto& lease = options_.session.lease;
  const bool is_over = lease != nullptr && !lease->check().ok();
  const bool may_pass =
      !is_over && (task::is_of_network(why) || why.code() == StatusCode::kDeadlineExceeded ||
                   why.code() == StatusCode::kCancelled || is_ps);
  if (!may_pass && failed_.ok()) {
    failed_ = base::with_context(why, name_of(static_cast<int>(worker)));
    changed_.notify_all();
  }
  connect_anew(worker, kRetry);
}

void Coordinator::note_silent_ps(const coord::Origin& origin, const Status& why) {
  // It is there, and being restored.
  if (origin.is_restarted && options_.restores_ps) return;
  Ps& ps = ps_[static_cast<size_t>(origin.task)];
  const steady_clock::time_point now = steady_clock::now();
  if (!ps.silent_since) ps.silent_since = now;
  if (origin.is_restarted || now - *ps.silent_since >= options_.ps_timeout) {
    scheduler_.ps_lost(origin.task, why);
  }
}

void Coordinator::extend(const std::shared_ptr<Connection>& connection) {
  Program known;
  std::shared_ptr<service::Session> session;
  int64_t overrides_version = 0;
  {
    const std::lock_guard lock(mutex_);
    if (connection->session == nullptr) return;
    session = connection->session;
    known = program();
    overrides_version = connection->overrides_version;
  }
  const steady_clock::time_point begin = steady_clock::now();
  Status extended = extend_to(known, overrides_version, session.get());
  // It may be attached to a ps from now on that it was not attached to before.
  if (extended.ok()) extended = check_devices(session.get());
  timings_->record_since(Timing::kServerDefUpdate, begin);
  const std::lock_guard lock(mutex_);
  connection->is_extending = false;
  if (workers_[static_cast<size_t>(connection->worker)] != connection) return;
  if (!extended.ok()) {
    // A new session says whether the graph is at fault.
    last_error_ = extended;
    return lose(*connection, milliseconds(0));
  }
  connection->graph_version = known.graph_version;
  connection->overrides_version = known.overrides_version;
  for (const uint64_t id : std::exchange(connection->waiting, {})) {
    if (what_of(id) == Call::kClosure && !closures_.contains(id_of(id))) continue;
    call(connection->worker, id);
  }
  for (const uint64_t id : std::exchange(connection->cancelled, {})) {
    connection->calls->cancel(id);
    is_said(connection.get());
  }
}

}  // namespace sidereal::app::coordinator
