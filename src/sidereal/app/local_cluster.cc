#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "sidereal/app/cluster.h"
#include "sidereal/app/process.h"
#include "sidereal/app/running_clusters.h"
#include "sidereal/app/server.h"
#include "sidereal/base/event_log.h"
#include "sidereal/base/log.h"
#include "sidereal/base/strings.h"
#include "sidereal/cluster/task_name.h"
#include "sidereal/lane/spin.h"
#include "sidereal/security/cluster_key.h"
#include "sidereal/service/silence.h"
#include "sidereal/sys/posix/cpus.h"
#include "sidereal/sys/posix/event_file.h"
#include "sidereal/sys/posix/posix.h"

namespace sidereal::app {
namespace {

constexpr std::chrono::seconds kOrderlyStop(5);
/// Between questions to tasks whether they are there.
constexpr std::chrono::milliseconds kAskEvery(1000);
constexpr const char* kListen = "127.0.0.1:0";

/// By which this process tells what it sees of its tasks.
base::EventSource own_source() { return {.task = sys::posix::kLauncherEvents}; }

/// Looking before sleeping pays only while every lane has a CPU of its own.
int64_t choose_spin_us(const LocalClusterOptions& options) {
  if (options.spin_us != lane::kSpinAdaptive) return options.spin_us;
  const int lanes = options.ps * options.ps_lanes + options.workers * options.worker_lanes;
  return lanes <= sys::posix::usable_cpus().count() ? lane::kSpinAdaptive : 0;
}

Result<std::string> find_program(const std::string& wanted) {
  if (!wanted.empty()) return wanted;
  std::array<char, 4096> self{};
  const ssize_t length = readlink("/proc/self/exe", self.data(), self.size() - 1);
  if (length > 0) {
    const std::string here(self.data(), static_cast<size_t>(length));
    const std::string folder = here.substr(0, here.rfind('/'));
    for (const std::string& candidate : {folder + "/sidereal", folder + "/../bin/sidereal"}) {
      if (access(candidate.c_str(), X_OK) == 0) return candidate;
    }
  }
  const char* path = std::getenv("PATH");
  for (const std::string& folder : base::split(path == nullptr ? "" : path, ':')) {
    std::string candidate = folder + "/sidereal";
    if (!folder.empty() && access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return base::not_found(
      "the program 'sidereal' is neither beside this one nor on PATH; name it "
      "in LocalClusterOptions::program");
}

Status validate(const LocalClusterOptions& options) {
  const std::pair<const char*, int> counts[] = {{"ps", options.ps},
                                                {"workers", options.workers},
                                                {"ps_lanes", options.ps_lanes},
                                                {"worker_lanes", options.worker_lanes}};
  for (const auto& [name, count] : counts) {
    if (count < 1 || count > 1024) {
      return base::invalid_argument("{} is {}; it must be from 1 to 1024", name, count);
    }
  }
  if (options.replicas < 1 || options.replicas > options.ps) {
    return base::invalid_argument(
        "replicas is {}; it must be from 1 to the number of ps, which is {}: start more ps",
        options.replicas, options.ps);
  }
  if (options.min_insync_replicas < 1 || options.min_insync_replicas > options.replicas) {
    return base::invalid_argument(
        "min_insync_replicas is {}; it must be from 1 to replicas, which is {}",
        options.min_insync_replicas, options.replicas);
  }
  if (options.restarts_max < 0) {
    return base::invalid_argument("restarts_max is {}; it must not be negative",
                                  options.restarts_max);
  }
  // NaN is neither.
  for (const auto& [name, seconds] : {std::pair("restart_window_s", options.restart_window_s),
                                      {"silence_s", options.silence_s}}) {
    if (!(seconds >= 0 && seconds < 1e9)) {
      return base::invalid_argument("{} is {}; it must not be negative", name, seconds);
    }
  }
  return {};
}

class LocalCluster final : public Cluster {
 public:
  explicit LocalCluster(LocalClusterOptions options) : options_(std::move(options)) {}
  ~LocalCluster() override {
    static_cast<void>(LocalCluster::stop().ok());
    for (const int end : stopping_) {
      if (end >= 0) close(end);
    }
    security::wipe(&security_.secret);
  }

  Status start() {
    SR_RETURN_IF_ERROR(validate(options_));
    SR_RETURN_IF_ERROR(open_events());
    security_.secret = security::random_secret();
    spin_us_ = choose_spin_us(options_);
    SR_RETURN_IF_ERROR(options_.in_process ? start_servers() : start_processes());
    SR_RETURN_IF_ERROR(spec_.add_job("ps", ps_));
    SR_RETURN_IF_ERROR(spec_.add_job("worker", worker_));
    if (options_.replicas > 1) SR_RETURN_IF_ERROR(tell_cluster());
    announcement_ = announce_cluster(spec_, security_.secret);
    return options_.restarts && !options_.in_process ? supervise() : Status();
  }

  [[nodiscard]] const cluster::ClusterSpec& spec() const override { return spec_; }

  // Loopback is open to all users of the machine, so every cluster has a secret of its own.
  [[nodiscard]] const security::SecurityOptions& security() const override { return security_; }

  Status check_alive() override {
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < processes_.size(); ++i) {
      // A dead one that is being started again is not lost.
      if (i < lives_.size() && !lives_[i].is_over) continue;
      if (given_up_.contains(i)) continue;
      SR_RETURN_IF_ERROR(processes_[i]->check_alive());
    }
    return {};
  }

  void give_up(const std::string& task) override {
    const size_t index = index_of(task);
    const std::lock_guard lock(mutex_);
    given_up_.insert(index);
  }

  void take_back(const std::string& task) override {
    const size_t index = index_of(task);
    const std::lock_guard lock(mutex_);
    given_up_.erase(index);
  }

  // What lives in this process cannot be lost without it.
  [[nodiscard]] bool restarts() const override { return options_.restarts || options_.in_process; }

  Status stop() override {
    stop_supervising();
    const std::lock_guard lock(mutex_);
    if (stopped_) return {};
    stopped_ = true;
    announcement_ = nullptr;
    // Workers first, to their end: a ps that goes away under a worker would look like a fault.
    for (auto it = servers_.rbegin(); it != servers_.rend(); ++it) (*it)->stop();
    stop_job("worker");
    stop_job("ps");
    return {};
  }

 private:
  struct Planned {
    std::string job;
    int index;
    int lanes;
    std::vector<std::string>* addresses;
  };
  static std::string full_name(const Planned& task) {
    return cluster::task_name(task.job, task.index);
  }

  /// In plan().
  size_t index_of(const std::string& task) {
    const std::vector<Planned> tasks = plan();
    return static_cast<size_t>(std::ranges::find(tasks, task, full_name) - tasks.begin());
  }

  /// What a supervised task has been through.
  struct Lives {
    std::deque<std::chrono::steady_clock::time_point> losses;  ///< Within the window.
    bool is_over = false;  ///< It was lost too often, or is not to be started again.
  };

  Status open_events() {
    if (options_.event_dir.empty()) return {};
    const Status made = sys::posix::create_disk()->make_directories(options_.event_dir);
    if (!made.ok()) return base::with_context(made, "event_dir");
    events_ = sys::posix::write_events(
        sys::posix::event_file(options_.event_dir, sys::posix::kLauncherEvents));
    return {};
  }

  std::vector<Planned> plan() {
    std::vector<Planned> tasks;
    for (int i = 0; i < options_.ps; ++i) {
      tasks.push_back({"ps", i, options_.ps_lanes, &ps_});
    }
    for (int i = 0; i < options_.workers; ++i) {
      tasks.push_back({"worker", i, options_.worker_lanes, &worker_});
    }
    return tasks;
  }

  Status start_servers() {
    for (const Planned& task : plan()) {
      ServerOptions server;
      server.job = task.job;
      server.task = task.index;
      server.listen = kListen;
      server.security = security_;
      server.protocol = options_.protocol;
      server.lanes = task.lanes;
      server.data.spin_us = spin_us_;
      if (task.job == "ps") {
        server.data.replicas = options_.replicas;
        server.data.min_insync_replicas = options_.min_insync_replicas;
      }
      // The log is that of somebody else's program, who has set nothing.
      server.logs_settings = false;
      Result<std::unique_ptr<Server>> started = Server::create(server);
      security::wipe(&server.security.secret);
      SR_ASSIGN_OR_RETURN(auto made, std::move(started));
      task.addresses->push_back(made->address());
      servers_.push_back(std::move(made));
    }
    return {};
  }

  Result<std::unique_ptr<TaskProcess>> spawn(const Planned& task, const std::string& listen) {
    std::vector<std::string> arguments = {"serve",
                                          "--job",
                                          task.job,
                                          "--task",
                                          std::to_string(task.index),
                                          "--lanes",
                                          std::to_string(task.lanes),
                                          "--listen",
                                          listen,
                                          "--protocol",
                                          std::string(cluster::name_of(options_.protocol)),
                                          "--spin-us",
                                          std::to_string(spin_us_),
                                          "--endpoint-map",
                                          "",
                                          "--drain",
                                          "0"};
    if (task.job == "ps" && options_.replicas > 1) {
      arguments.insert(arguments.end(),
                       {"--option", fmt::format("replicas={}", options_.replicas), "--option",
                        fmt::format("min_insync_replicas={}", options_.min_insync_replicas)});
      // One that is started again knows where its standbys are.
      if (!spec_.empty()) arguments.insert(arguments.end(), {"--cluster", spec_.to_json()});
    }
    if (!options_.event_dir.empty()) {
      arguments.insert(
          arguments.end(),
          {"--event-log",
           sys::posix::event_file(options_.event_dir, fmt::format("{}-{}", task.job, task.index))});
    }
    return TaskProcess::spawn(task_name(task.job, task.index), program_, arguments,
                              security_.secret);
  }

  Status start_processes() {
    SR_ASSIGN_OR_RETURN(program_, find_program(options_.program));
    const std::vector<Planned> tasks = plan();
    for (const Planned& task : tasks) {
      SR_ASSIGN_OR_RETURN(auto process, spawn(task, kListen));
      processes_.push_back(std::move(process));
    }
    for (size_t i = 0; i < tasks.size(); ++i) {
      SR_ASSIGN_OR_RETURN(std::string address,
                          processes_[i]->read_report(options_.start_deadline_s));
      tasks[i].addresses->push_back(std::move(address));
    }
    return {};
  }

  /// Each ps: it keeps standbys of others as soon as it knows them.
  Status tell_cluster() {
    for (size_t i = 0; i < ps_.size(); ++i) {
      const auto told = service::Session::create(target("ps", static_cast<int>(i)), ir::Graph(),
                                                 session_options());
      SR_RETURN_IF_ERROR(told.status());
    }
    return {};
  }

  // ---- Tasks that are started again.

  Status supervise() {
    if (pipe2(stopping_.data(), O_CLOEXEC) != 0) {
      return base::resource_exhausted("cannot make a pipe to supervise the cluster with");
    }
    lives_.resize(processes_.size());
    if (options_.silence_s > 0) {
      const auto silence = std::chrono::duration_cast<std::chrono::milliseconds>(
          std::chrono::duration<double>(options_.silence_s));
      SR_ASSIGN_OR_RETURN(
          watch_, service::SilenceWatch::create(spec_, security_,
                                                std::max(silence, std::chrono::milliseconds(1))));
      const std::vector<Planned> tasks = plan();
      for (size_t i = 0; i < tasks.size(); ++i) heard(tasks[i], *processes_[i]);
      watcher_ = std::thread([this] { kill_silent_ones(); });
    }
    supervisor_ = std::thread([this] {
      while (wait_for_a_loss()) restart_lost();
    });
    return {};
  }

  void stop_supervising() {
    {
      const std::lock_guard lock(mutex_);
      stops_ = true;
    }
    stop_asked_.notify_all();
    if (watcher_.joinable()) watcher_.join();
    if (!supervisor_.joinable()) return;
    static_cast<void>(write(stopping_[1], "x", 1));
    supervisor_.join();
  }

  /// A process that has told its address is up.
  void heard(const Planned& task, const TaskProcess& process) {
    if (watch_ == nullptr) return;
    watch_->heard(full_name(task), process.pid());
  }

  /// A process that hangs becomes one that has died, which the supervisor sees.
  void kill_silent_ones() {
    std::unique_lock lock(mutex_);
    while (!stop_asked_.wait_for(lock, kAskEvery, [this] { return stops_; })) {
      lock.unlock();
      const std::vector<service::SilentTask> found = watch_->look();
      lock.lock();
      for (const service::SilentTask& silent : found) {
        // Of this life of the task: who was started again since has not been silent.
        const auto it = std::ranges::find_if(
            processes_, [&](const auto& process) { return process->pid() == silent.pid; });
        if (stops_ || it == processes_.end() || !(*it)->check_alive().ok()) continue;
        base::emit(own_source(), base::Event::kTaskHung,
                   {{"task", silent.task}, {"pid", silent.pid}, {"silent_s", silent.silent_s}},
                   fmt::format("{} (pid {}) has not answered for {:.1f} s and is killed",
                               (*it)->task(), silent.pid, silent.silent_s));
        (*it)->kill();
      }
    }
  }

  /// False: the cluster stops.
  bool wait_for_a_loss() {
    std::vector<pollfd> watched{{.fd = stopping_[0], .events = POLLIN, .revents = 0}};
    bool is_lost = false;
    {
      const std::lock_guard lock(mutex_);
      for (size_t i = 0; i < lives_.size(); ++i) {
        if (lives_[i].is_over) continue;
        // One that has been reaped has no handle.
        is_lost = is_lost || !processes_[i]->check_alive().ok();
        watched.push_back({.fd = processes_[i]->open_handle(), .events = POLLIN, .revents = 0});
      }
    }
    poll(watched.data(), watched.size(), is_lost ? 0 : -1);
    for (size_t i = 1; i < watched.size(); ++i) close(watched[i].fd);
    return watched[0].revents == 0;
  }

  void restart_lost() {
    const std::vector<Planned> tasks = plan();
    for (size_t i = 0; i < lives_.size(); ++i) {
      {
        const std::lock_guard lock(mutex_);
        const Status lost = lives_[i].is_over ? Status() : processes_[i]->check_alive();
        if (lost.ok() || !may_live_again(&lives_[i], tasks[i], *processes_[i], lost)) continue;
      }
      // Others may ask meanwhile; nobody else puts processes there.
      const std::string& address = (*tasks[i].addresses)[static_cast<size_t>(tasks[i].index)];
      Result<std::unique_ptr<TaskProcess>> made = spawn(tasks[i], address);
      if (made.ok()) {
        Result<std::string> report = (*made)->read_report(options_.start_deadline_s);
        if (!report.ok()) {
          base::log_warning("{}", base::message_of(report.status()));
          (*made)->kill();  // That is the next loss.
        } else {
          heard(tasks[i], **made);
          base::emit(
              own_source(), base::Event::kTaskRestarted,
              {{"task", full_name(tasks[i])}, {"address", address}, {"pid", (*made)->pid()}});
        }
        const std::lock_guard lock(mutex_);
        processes_[i] = *std::move(made);
        continue;
      }
      base::log_warning("a task cannot be started again error=\"{}\"",
                        base::message_of(made.status()));
      const std::lock_guard lock(mutex_);
      lives_[i].is_over = true;
    }
  }

  /// Counts a loss, and says what becomes of the task.
  bool may_live_again(Lives* lives, const Planned& task, const TaskProcess& process,
                      const Status& lost) const {
    const auto tell = [&](const std::string& said) {
      base::emit(own_source(), base::Event::kTaskDown,
                 {{"task", full_name(task)},
                  {"pid", process.pid()},
                  {"why", base::message_of(lost)},
                  {"signal", process.signal()}},
                 said);
    };
    const auto now = std::chrono::steady_clock::now();
    const std::chrono::duration<double> window(options_.restart_window_s);
    while (!lives->losses.empty() && now - lives->losses.front() > window) {
      lives->losses.pop_front();
    }
    lives->is_over = lives->losses.size() >= static_cast<size_t>(options_.restarts_max);
    if (lives->is_over) {
      tell(fmt::format("{}; it was started again {} times within {:.0f} s, which is enough",
                       base::message_of(lost), lives->losses.size(), options_.restart_window_s));
      return false;
    }
    lives->losses.push_back(now);
    tell(fmt::format("{} and is started again; restart {} of at most {} within {:.0f} s",
                     base::message_of(lost), lives->losses.size(), options_.restarts_max,
                     options_.restart_window_s));
    return true;
  }

  /// Asks the tasks of one job to end, waits, and kills those that have not ended in time.
  void stop_job(const std::string& job) {
    std::vector<TaskProcess*> tasks;
    for (auto& process : processes_) {
      if (process->task().starts_with("/job:" + job + "/")) tasks.push_back(process.get());
    }
    for (TaskProcess* task : tasks) task->terminate();
    const auto until = std::chrono::steady_clock::now() + kOrderlyStop;
    for (TaskProcess* task : tasks) {
      const std::chrono::duration<double> left = until - std::chrono::steady_clock::now();
      if (task->wait(std::max(0.0, left.count()))) continue;
      base::log_warning("a task did not stop within {} s and is killed task={} pid={}",
                        kOrderlyStop.count(), task->task(), task->pid());
      task->kill();
    }
  }

  LocalClusterOptions options_;
  std::unique_ptr<base::EventSinkRegistration> events_;
  std::unique_ptr<ClusterAnnouncement> announcement_;  // Once it is up.
  security::SecurityOptions security_;
  int64_t spin_us_ = 0;
  std::vector<std::string> ps_;      // Addresses of tasks that came up.
  std::vector<std::string> worker_;  // As ps_.
  cluster::ClusterSpec spec_;        // Once all came up.
  std::mutex mutex_;                 // Guards the processes, stops_ and stopped_.
  std::vector<std::unique_ptr<Server>> servers_;
  std::vector<std::unique_ptr<TaskProcess>> processes_;
  std::set<size_t> given_up_;  // Of plan(): tasks that are not missed.
  std::string program_;
  std::vector<Lives> lives_;                // Of each task; none if they are not supervised.
  std::array<int, 2> stopping_ = {-1, -1};  // A pipe that wakes the supervisor.
  std::thread supervisor_;
  std::unique_ptr<service::SilenceWatch> watch_;
  std::thread watcher_;
  std::condition_variable stop_asked_;
  bool stops_ = false;
  bool stopped_ = false;
};

}  // namespace

Result<std::unique_ptr<Cluster>> start_local_cluster(const LocalClusterOptions& options) {
  auto cluster = std::make_unique<LocalCluster>(options);
  SR_RETURN_IF_ERROR(cluster->start());
  return cluster;
}

}  // namespace sidereal::app
