#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <utility>

#include "sidereal/app/cluster.h"
#include "sidereal/app/process.h"
#include "sidereal/app/server.h"
#include "sidereal/base/log.h"
#include "sidereal/base/strings.h"
#include "sidereal/lane/spin.h"
#include "sidereal/security/cluster_key.h"
#include "sidereal/sys/posix/cpus.h"

namespace sidereal::app {
namespace {

constexpr std::chrono::seconds kOrderlyStop(5);
constexpr const char* kListen = "127.0.0.1:0";

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
  return {};
}

class LocalCluster final : public Cluster {
 public:
  explicit LocalCluster(LocalClusterOptions options) : options_(std::move(options)) {}
  ~LocalCluster() override {
    static_cast<void>(LocalCluster::stop().ok());
    security::wipe(&security_.secret);
  }

  Status start() {
    SR_RETURN_IF_ERROR(validate(options_));
    security_.secret = security::random_secret();
    spin_us_ = choose_spin_us(options_);
    SR_RETURN_IF_ERROR(options_.in_process ? start_servers() : start_processes());
    SR_RETURN_IF_ERROR(spec_.add_job("ps", ps_));
    return spec_.add_job("worker", worker_);
  }

  [[nodiscard]] const cluster::ClusterSpec& spec() const override { return spec_; }

  // Loopback is open to all users of the machine, so every cluster has a secret of its own.
  [[nodiscard]] const security::SecurityOptions& security() const override { return security_; }

  Status check_alive() override {
    const std::lock_guard lock(mutex_);
    for (auto& process : processes_) SR_RETURN_IF_ERROR(process->check_alive());
    return {};
  }

  Status stop() override {
    const std::lock_guard lock(mutex_);
    if (stopped_) return {};
    stopped_ = true;
    // Workers first, to their end: a ps that goes away under a worker would look like a fault.
    for (auto it = servers_.rbegin(); it != servers_.rend(); ++it) (*it)->stop();
    const Status workers = stop_job("worker");
    const Status ps = stop_job("ps");
    return workers.ok() ? ps : workers;
  }

 private:
  struct Planned {
    std::string job;
    int index;
    int lanes;
    std::vector<std::string>* addresses;
  };

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
      Result<std::unique_ptr<Server>> started = Server::create(server);
      security::wipe(&server.security.secret);
      SR_ASSIGN_OR_RETURN(auto made, std::move(started));
      task.addresses->push_back(made->address());
      servers_.push_back(std::move(made));
    }
    return {};
  }

  Status start_processes() {
    SR_ASSIGN_OR_RETURN(const std::string program, find_program(options_.program));
    const std::vector<Planned> tasks = plan();
    for (const Planned& task : tasks) {
      const std::vector<std::string> arguments = {"serve",
                                                  "--job",
                                                  task.job,
                                                  "--task",
                                                  std::to_string(task.index),
                                                  "--lanes",
                                                  std::to_string(task.lanes),
                                                  "--listen",
                                                  kListen,
                                                  "--protocol",
                                                  std::string(cluster::name_of(options_.protocol)),
                                                  "--spin-us",
                                                  std::to_string(spin_us_),
                                                  "--endpoint-map",
                                                  "",
                                                  "--drain",
                                                  "0"};
      SR_ASSIGN_OR_RETURN(auto process, TaskProcess::spawn(task_name(task.job, task.index), program,
                                                           arguments, security_.secret));
      processes_.push_back(std::move(process));
    }
    for (size_t i = 0; i < tasks.size(); ++i) {
      SR_ASSIGN_OR_RETURN(std::string address,
                          processes_[i]->read_report(options_.start_deadline_s));
      tasks[i].addresses->push_back(std::move(address));
    }
    return {};
  }

  /// Asks the tasks of one job to end, waits, and kills those that have not ended in time.
  Status stop_job(const std::string& job) {
    std::vector<TaskProcess*> tasks;
    for (auto& process : processes_) {
      if (process->task().starts_with("/job:" + job + "/")) tasks.push_back(process.get());
    }
    for (TaskProcess* task : tasks) task->terminate();
    Status status;
    const auto until = std::chrono::steady_clock::now() + kOrderlyStop;
    for (TaskProcess* task : tasks) {
      const std::chrono::duration<double> left = until - std::chrono::steady_clock::now();
      if (task->wait(std::max(0.0, left.count()))) continue;
      base::log_warning("killing a task that did not stop task={} pid={}", task->task(),
                        task->pid());
      task->kill();
      status = base::deadline_exceeded("{} did not stop within {} s and was killed", task->task(),
                                       kOrderlyStop.count());
    }
    return status;
  }

  LocalClusterOptions options_;
  security::SecurityOptions security_;
  int64_t spin_us_ = 0;
  std::vector<std::string> ps_;      // Addresses of tasks that came up.
  std::vector<std::string> worker_;  // As ps_.
  cluster::ClusterSpec spec_;        // Once all came up.
  std::mutex mutex_;                 // Guards the processes and stopped_.
  std::vector<std::unique_ptr<Server>> servers_;
  std::vector<std::unique_ptr<TaskProcess>> processes_;
  bool stopped_ = false;
};

}  // namespace

Result<std::unique_ptr<Cluster>> start_local_cluster(const LocalClusterOptions& options) {
  auto cluster = std::make_unique<LocalCluster>(options);
  SR_RETURN_IF_ERROR(cluster->start());
  return cluster;
}

}  // namespace sidereal::app
