#include "sidereal/app/server.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "sidereal/app/endpoint_map.h"
#include "sidereal/app/server_settings.h"
#include "sidereal/base/event_log.h"
#include "sidereal/base/log.h"
#include "sidereal/cluster/task_name.h"
#include "sidereal/dataset/feed.h"
#include "sidereal/lane/spin.h"
#include "sidereal/master/master_session.h"
#include "sidereal/metrics/lane_metrics.h"
#include "sidereal/ops/ops.h"
#include "sidereal/passes/pipeline.h"
#include "sidereal/scrape/prometheus_text.h"
#include "sidereal/scrape/scrape_server.h"
#include "sidereal/security/listener.h"
#include "sidereal/service/callback_threads.h"
#include "sidereal/service/channels.h"
#include "sidereal/service/data_finder.h"
#include "sidereal/service/grpc_alarm.h"
#include "sidereal/service/grpc_server.h"
#include "sidereal/service/job_leases.h"
#include "sidereal/service/known_cluster.h"
#include "sidereal/service/master_service.h"
#include "sidereal/service/remote_link.h"
#include "sidereal/service/standbys.h"
#include "sidereal/service/tensor_pieces.h"
#include "sidereal/service/voting.h"
#include "sidereal/service/worker_service.h"
#include "sidereal/sys/address.h"
#include "sidereal/sys/clock.h"
#include "sidereal/sys/posix/cpus.h"
#include "sidereal/sys/posix/posix.h"
#include "sidereal/sys/posix/process.h"
#include "sidereal/task/data_channels.h"
#include "sidereal/task/data_port.h"
#include "sidereal/task/prefetched_pulls.h"

namespace sidereal::app {

namespace {

/// What clients get to read last words after everything has ended.
constexpr std::chrono::milliseconds kLastReplies(200);
constexpr std::chrono::milliseconds kLook(20);

}  // namespace

class Server::Impl {
 public:
  ~Impl() {
    stop(0);
    if (ending_.joinable()) ending_.join();
  }

  Status start(const ServerOptions& options) {
    service::keep_callback_threads();
    if (options.logs_sessions) log_level_ = base::LogLevel::kInfo;
    SR_ASSIGN_OR_RETURN(const std::string address, own_address(options));
    SR_RETURN_IF_ERROR(check_addresses(options.cluster));
    const std::string listen = options.listen.empty() ? address : options.listen;
    SR_RETURN_IF_ERROR(sys::Address::parse(listen).status());
    SR_ASSIGN_OR_RETURN(credentials_, security::Credentials::create(options.security));
    Result<std::unique_ptr<security::Listener>> listener =
        security::Listener::create(listen, credentials_);
    if (listener.status().code() == StatusCode::kAlreadyExists) {
      return base::make_status(StatusCode::kUnknown, "Could not start gRPC server: " +
                                                         base::message_of(listener.status()));
    }
    SR_RETURN_IF_ERROR(listener.status());
    listener_ = *std::move(listener);
    task_name_ = cluster::task_name(options.job, options.task);
    SR_RETURN_IF_ERROR(set_cluster(options, address));
    address_ = listener_->address();
    target_ = "grpc://" + address_;
    SR_RETURN_IF_ERROR(start_services(options));
    SR_RETURN_IF_ERROR(start_scrapes(options));
    SR_RETURN_IF_ERROR(listener_->start());
    base::EventFields fields = {{"target", target_},
                                {"security", credentials_->kind()},
                                {"protocol", std::string(cluster::name_of(protocol_))},
                                {"data_port", data_port()}};
    if (scrapes_ != nullptr) fields.emplace_back("metrics", metrics_address());
    base::emit(context_.source, base::Event::kTaskUp, fields);
    return {};
  }

  bool join(double seconds) {
    std::unique_lock lock(mutex_);
    if (seconds < 0) {
      ended_.wait(lock, [this] { return stopped_; });
      return true;
    }
    return ended_.wait_for(lock, std::chrono::duration<double>(seconds),
                           [this] { return stopped_; });
  }

  void stop(double drain_s) {
    {
      std::unique_lock lock(mutex_);
      if (std::exchange(stopping_, true)) {
        lock.unlock();
        static_cast<void>(join(-1));
        return;
      }
    }
    if (listener_ != nullptr) listener_->stop();
    if (master_ != nullptr) {
      master_->drain();
      worker_->drain();
      for (const auto& lane : data_lanes_) lane->port->drain();
      const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(drain_s);
      std::unique_lock lock(mutex_);
      while (running() > 0 && std::chrono::steady_clock::now() < until) {
        ended_.wait_for(lock, kLook);
      }
      lock.unlock();
      master_->close_all(base::cancelled("{} is stopping: the step was cancelled", task_name_));
    }
    if (scrapes_ != nullptr) scrapes_->stop();
    if (standbys_ != nullptr) standbys_->stop();
    if (task_ != nullptr) task_->stop();
    if (grpc_ != nullptr) grpc_->stop(kLastReplies);
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    ended_.notify_all();
  }

  /// All that is counted here. A row is all that a new figure needs.
  metrics::Readings figures() const {
    using metrics::counter;
    using metrics::gauge;
    using metrics::Unit;
    metrics::Readings out = task_->figures();
    int64_t sent = worker_->bytes_sent();
    int64_t received = data_lanes_.empty() ? peers_->bytes_received() : 0;
    for (const auto& lane : data_lanes_) {
      sent += lane->endpoint->metrics().bytes_out.value();
      received += lane->endpoint->metrics().bytes_in.value();
      lane->port->figures().read(&out);
    }
    out.add(counter("sidereal_task_sent_bytes_total", Unit::kBytes,
                    "Bytes of tensors, or of all frames, that went to other tasks."),
            sent);
    out.add(counter("sidereal_task_received_bytes_total", Unit::kBytes,
                    "Bytes of tensors, or of all frames, that came from other tasks."),
            received);
    out.add(gauge("sidereal_task_arriving_bytes", Unit::kBytes,
                  "What feeds that are arriving take, as they were announced."),
            static_cast<int64_t>(arriving_->taken()));
    out.add(gauge("sidereal_master_steps_running", Unit::kCount,
                  "Steps of this server's clients that have begun and not ended."),
            master_->running());
    out.add(gauge("sidereal_master_loops_running", Unit::kCount,
                  "Loops of this server's clients that have begun and not ended."),
            master_->loops_running());
    const sys::posix::ProcessFigures process = sys::posix::process_figures();
    out.add(gauge("sidereal_task_uptime_seconds", Unit::kSeconds, "Time since the server started."),
            clock_->now() - began_);
    out.add(gauge("sidereal_task_memory_bytes", Unit::kBytes, "Memory that the process holds."),
            process.memory_used);
    out.add(gauge("sidereal_task_threads", Unit::kCount, "Threads of the process."),
            process.threads);
    out.add(gauge("sidereal_task_open_files", Unit::kCount, "Open files of the process."),
            process.open_files);
    out.add(gauge("sidereal_standby_copies", Unit::kCount,
                  "Copies of the variables of other tasks that are here and in sync."),
            standbys_ == nullptr ? 0 : standbys_->current());
    out.add(gauge("sidereal_view", Unit::kCount,
                  "The view in which this start of a task counts, or did last; 0: the cluster has "
                  "no voters, or it never has."),
            standbys_ == nullptr ? 0 : static_cast<int64_t>(standbys_->view()));
    add_peers(&out);
    if (scrapes_ != nullptr) scrapes_->figures().read(&out);
    return out;
  }

  [[nodiscard]] std::string metrics_address() const {
    return scrapes_ == nullptr ? "" : scrapes_->address();
  }

  [[nodiscard]] int data_port() const {
    return data_lanes_.empty() ? 0 : data_lanes_.front()->port->port();
  }

  [[nodiscard]] const base::EventSource& source() const { return context_.source; }

  cluster::Protocol protocol_ = cluster::Protocol::kGrpc;
  std::string address_;
  std::string target_;
  std::string task_name_;
  std::shared_ptr<service::KnownCluster> cluster_;
  std::shared_ptr<const security::Credentials> credentials_;

 private:
  /// Of the task: in its cluster, or where it is to listen.
  static Result<std::string> own_address(const ServerOptions& options) {
    if (!options.cluster.empty()) return options.cluster.task_address(options.job, options.task);
    if (options.listen.empty()) {
      return base::invalid_argument("a server without a cluster needs an address to listen at");
    }
    cluster::ClusterSpec named;
    SR_RETURN_IF_ERROR(
        named.add_job(options.job, cluster::ClusterSpec::Tasks{{options.task, options.listen}}));
    return options.listen;
  }

  /// kInvalidArgument for a member at an address that nobody can connect to.
  static Status check_addresses(const cluster::ClusterSpec& cluster) {
    for (const std::string& job : cluster.jobs()) {
      SR_ASSIGN_OR_RETURN(const cluster::ClusterSpec::Tasks tasks, cluster.tasks(job));
      for (const auto& [index, address] : tasks) {
        const Status read = sys::Address::parse(address).status();
        SR_RETURN_IF_ERROR(base::with_context(read, cluster::task_name(job, index)));
      }
    }
    return {};
  }

  /// What is known of the cluster, with the port that was chosen for this task.
  Status set_cluster(const ServerOptions& options, const std::string& address) {
    SR_ASSIGN_OR_RETURN(sys::Address own, sys::Address::parse(address));
    SR_ASSIGN_OR_RETURN(const sys::Address bound, sys::Address::parse(listener_->address()));
    if (own.port == 0) own.port = bound.port;
    cluster::ClusterSpec cluster;
    for (const std::string& job : options.cluster.jobs()) {
      SR_ASSIGN_OR_RETURN(cluster::ClusterSpec::Tasks tasks, options.cluster.tasks(job));
      if (job == options.job) tasks[options.task] = own.to_string();
      SR_RETURN_IF_ERROR(cluster.add_job(job, std::move(tasks)));
    }
    const service::KnownCluster::Own task = {
        .job = options.job, .index = options.task, .address = own.to_string()};
    cluster_ = std::make_shared<service::KnownCluster>(
        task, cluster, [this](const cluster::ClusterSpec& taken) {
          base::log_line(log_level_, fmt::format("a session named the cluster task={} cluster={}",
                                                 task_name_, taken.to_json()));
          warn_of_endpoint_map(taken);
        });
    return {};
  }

  Status start_services(const ServerOptions& options) {
    sys::posix::keep_freed_memory();
    channels_ = std::make_unique<service::Channels>(cluster_, credentials_);
    peers_ = std::make_unique<service::RemotePeers>(channels_.get());
    uint64_t incarnation = 0;
    while (incarnation == 0) incarnation = random_->next();
    const bool has_data_port = cluster::has_data_port(options.protocol);
    SR_RETURN_IF_ERROR(config::validate(options.data));
    task::TaskOptions task{
        .name = task_name_,
        .incarnation = incarnation,
        .lanes = options.lanes,
        .intra_op_threads = options.intra_op_threads,
        .standby_timeout_ns = options.data.standby_timeout_ms * sys::kMillisecond,
        .min_insync_replicas = static_cast<int>(options.data.min_insync_replicas),
        .host_functions = options.host_functions,
        .datasets = dataset::make_datasets(random_->next()),
        .disk = sys::posix::create_disk()};
    if (has_data_port) set_up_lanes(options, &task);
    SR_ASSIGN_OR_RETURN(task_, task::Task::create(std::move(task)));
    protocol_ = options.protocol;
    if (has_data_port) SR_RETURN_IF_ERROR(open_data_ports(options));
    std::vector<int> data_ports;
    std::vector<task::Peers*> peers;
    for (const auto& lane : data_lanes_) {
      data_ports.push_back(lane->port->port());
      peers.push_back(lane->channels.get());
      context_.data.push_back(lane->channels.get());
    }
    if (peers.empty()) peers.push_back(peers_.get());
    // Half of the machine: the other half is for what is made of it.
    const auto memory = static_cast<uint64_t>(sys::posix::process_figures().memory_limit);
    arriving_ = std::make_shared<service::ArrivingBytes>(memory / 2);
    SR_RETURN_IF_ERROR(set_standbys(options));
    SR_RETURN_IF_ERROR(set_voting(options));
    worker_ = std::make_unique<service::WorkerService>(
        service::WorkerServiceOptions{.task = task_.get(),
                                      .figures = [this] { return figures(); },
                                      .cluster = cluster_,
                                      .credentials = credentials_,
                                      .threads = &threads_,
                                      .arriving = arriving_,
                                      .leases = leases_,
                                      .standbys = standbys_,
                                      .voting = voting_,
                                      .protocol = protocol_,
                                      .data_ports = std::move(data_ports),
                                      .settings = settings_});
    ops::register_all(&context_.registry);
    exec::register_kernels(&context_.kernels);
    context_.task = task_.get();
    tasks_ = std::make_unique<service::RemoteTasks>(channels_.get());
    context_.tasks = tasks_.get();
    context_.new_alarm = service::grpc_alarm;
    context_.protocol = protocol_;
    context_.threads = &threads_;
    context_.random = [this] { return random_->next(); };
    context_.source = {
        .task = task_name_, .incarnation = incarnation, .logs = options.logs_sessions};
    lost_tasks_ = std::make_unique<master::LostTasks>(context_.source);
    context_.lost = lost_tasks_.get();
    SR_RETURN_IF_ERROR(set_defaults(options));
    master_ = std::make_unique<service::MasterService>(&context_, channels_.get(), cluster_,
                                                       arriving_, leases_);
    task_->start(peers);

    grpc_ = service::GrpcServer::start({worker_->service(), master_->service()}, listener_.get());
    if (grpc_ == nullptr) {
      return base::make_status(StatusCode::kUnknown, "Could not start gRPC server");
    }
    if (standbys_ != nullptr) standbys_->start();
    return {};
  }

  /// Standbys of other tasks, and what this one has from its own.
  Status set_standbys(const ServerOptions& options) {
    if (options.data.min_insync_replicas > options.data.replicas) {
      return base::invalid_argument(
          "min_insync_replicas is {}, and replicas is {}: there are never so many copies, and "
          "pushes would wait for ever; give as many replicas",
          options.data.min_insync_replicas, options.data.replicas);
    }
    if (options.data.replicas <= 1) return {};
    SR_ASSIGN_OR_RETURN(
        standbys_,
        service::Standbys::create(
            {.task = task_.get(),
             .job = options.job,
             .index = options.task,
             .replicas = static_cast<int>(options.data.replicas),
             .wait = std::chrono::milliseconds(options.data.standby_wait_ms),
             .ask_limit = std::chrono::milliseconds(options.data.standby_timeout_ms),
             .lease = std::chrono::milliseconds(options.data.lease_ms),
             .deposed = [this] { end_deposed(); },
             .cluster = cluster_,
             .credentials = credentials_,
             .source = {.task = task_name_, .incarnation = task_->incarnation(), .logs = true}}));
    return {};
  }

  /// The vote of a task that has one.
  Status set_voting(const ServerOptions& options) {
    if (options.job != service::kVoterJob) {
      if (options.votes_file.empty()) return {};
      return base::invalid_argument("a file of votes is given for {}, which is not of the job '{}'",
                                    task_name_, service::kVoterJob);
    }
    SR_ASSIGN_OR_RETURN(
        voting_,
        service::Voting::create(
            {.lease_ns = options.data.lease_ms * sys::kMillisecond,
             .file = options.votes_file,
             .source = {.task = task_name_, .incarnation = task_->incarnation(), .logs = true}}));
    return {};
  }

  /// A later start has the place of this one. Called once, by a thread that stop() waits for.
  void end_deposed() {
    ending_ = std::thread([this] { stop(0); });
  }

  /// How lanes wait and where they run; says so.
  void set_up_lanes(const ServerOptions& options, task::TaskOptions* task) {
    const sys::posix::UsableCpus usable = sys::posix::usable_cpus();
    task->spin_us = options.data.spin_us;
    if (task->spin_us == lane::kSpinAdaptive && options.lanes > usable.count()) {
      task->spin_us = lane::kSpinBriefly;
    }
    if (options.pin_cores) pin_lanes(options.lanes, usable, task);
    std::string said;
    for (const SettingReport& one : report_settings(options)) {
      settings_[one.name] = fmt::format("{} ({})", one.value, one.from);
      said += fmt::format(" {}={}", one.name, settings_[one.name]);
    }
    if (!task->cpus.empty()) settings_["pinned_to"] = sys::posix::cpu_list(task->cpus);
    settings_["cpus"] = usable.to_string();
    base::log_line(options.logs_settings ? base::LogLevel::kInfo : base::LogLevel::kDebug,
                   fmt::format("settings task={} protocol={}{}{} cpus={}", task_name_,
                               cluster::name_of(options.protocol), said,
                               task->cpus.empty() ? "" : " pinned_to=" + settings_["pinned_to"],
                               settings_["cpus"]));
  }

  void pin_lanes(int lanes, const sys::posix::UsableCpus& usable, task::TaskOptions* task) {
    claimed_ = sys::posix::CpuClaim::create(usable.cpus, lanes);
    if (static_cast<int>(claimed_->cpus().size()) == lanes) {
      task->cpus = claimed_->cpus();
      return;
    }
    base::log_warning(
        "lanes are not pinned: {} of the processors {} are left by others that pin, for {} lanes",
        claimed_->cpus().size(), sys::posix::cpu_list(usable.cpus), lanes);
    claimed_ = nullptr;
  }

  /// What carries calls of a lane of the task, and takes calls of others.
  struct DataLane {
    std::unique_ptr<transport::Endpoint> endpoint;
    std::unique_ptr<service::DataFinder> finder;
    std::unique_ptr<task::DataChannels> channels;
    std::unique_ptr<task::DataPort> port;
  };

  /// Where other tasks' lanes connect, and connections to theirs.
  Status open_data_ports(const ServerOptions& options) {
    SR_RETURN_IF_ERROR(read_endpoint_map(options));
    SR_ASSIGN_OR_RETURN(sys::Address address, data_address(options));
    for (int index = 0; index < task_->lanes(); ++index) {
      auto lane = std::make_unique<DataLane>();
      SR_RETURN_IF_ERROR(open_lane(options, index, address, lane.get()));
      data_lanes_.push_back(std::move(lane));
      address.port = 0;  // The lanes after the first are found by asking.
    }
    return {};
  }

  Status open_lane(const ServerOptions& options, int index, const sys::Address& address,
                   DataLane* out) {
    SR_ASSIGN_OR_RETURN(out->endpoint, transport::Endpoint::create(
                                           task_->lane(index),
                                           {.task = task_name_,
                                            .incarnation = task_->incarnation(),
                                            .lane_count = static_cast<uint32_t>(task_->lanes())},
                                           options.data, credentials_));
    SR_ASSIGN_OR_RETURN(out->port,
                        task::DataPort::create(task_.get(), index, out->endpoint.get(), address));
    out->finder = std::make_unique<service::DataFinder>(
        channels_.get(), task_.get(), index,
        std::chrono::milliseconds(options.data.connect_deadline_ms));
    out->channels = std::make_unique<task::DataChannels>(
        task_.get(), out->endpoint.get(),
        [this, index, finder = out->finder.get()](
            const std::string& task, int lane, uint64_t peer,
            std::function<void(Result<task::LaneAddress>)> done) {
          const std::optional<sys::Address> mapped = endpoint_map_.find(channels_->address(task));
          if (!mapped) return finder->find(task, lane, peer, std::move(done));
          // A map knows one port of a task, that of its first lane, which passes calls on.
          static_cast<void>(task_->post_urgent(index, [done = std::move(done), address = *mapped] {
            done(task::LaneAddress{.address = address, .lane = 0});
          }));
        },
        [this](const std::string& task) { return channels_->describe(task); }, random_.get());
    return {};
  }

  /// What became of connections to the gRPC services, and of requests there.
  void add_peers(metrics::Readings* out) const {
    using metrics::counter;
    using metrics::refused;
    using metrics::Unit;
    const security::ListenerCounters seen = listener_->counters();
    const auto number = [](uint64_t count) { return static_cast<int64_t>(count); };
    out->add(counter("sidereal_listener_accepted_total", Unit::kCount,
                     "Connections to the server's port, whatever became of them."),
             number(seen.accepted));
    out->add(counter("sidereal_listener_admitted_total", Unit::kCount,
                     "Connections to the server's port that proved who they are."),
             number(seen.admitted));
    out->add(counter("sidereal_listener_gone_total", Unit::kCount,
                     "Connections to the server's port that left before they could be judged."),
             number(seen.gone));
    out->add(refused("garbage"), number(seen.refused_garbage));
    out->add(refused("certificate"), number(seen.refused_certificate));
    out->add(refused("idle"), number(seen.idle_closed));
    out->add(refused("over_limit"), number(seen.over_limit));
    out->add(refused("flood"), number(seen.flood));
    out->add(refused("requests"), master_->bad_requests() + worker_->bad_requests());
  }

  /// Where Prometheus asks, if anywhere.
  Status start_scrapes(const ServerOptions& options) {
    if (!options.metrics_port) return {};
    SR_ASSIGN_OR_RETURN(sys::Address address, sys::Address::parse(listener_->address()));
    address.port = *options.metrics_port;
    SR_ASSIGN_OR_RETURN(
        scrapes_, scrape::ScrapeServer::create(
                      {.listen = address.to_string(), .credentials = credentials_, .text = [this] {
                         return scrape::prometheus_text(figures(), task_name_);
                       }}));
    return scrapes_->start();
  }

  Status read_endpoint_map(const ServerOptions& options) {
    if (options.endpoint_map_path.empty()) return {};
    SR_ASSIGN_OR_RETURN(endpoint_map_, EndpointMap::read(options.endpoint_map_path));
    if (cluster_->is_known()) warn_of_endpoint_map(cluster_->now().spec);
    return {};
  }

  void warn_of_endpoint_map(const cluster::ClusterSpec& cluster) const {
    for (const std::string& line : endpoint_map_.not_in(cluster)) {
      base::log_warning("{}: no task of the cluster has this address, the line does nothing", line);
    }
  }

  /// Where this task's data port listens.
  Result<sys::Address> data_address(const ServerOptions& options) const {
    if (!options.data_listen.empty()) return sys::Address::parse(options.data_listen);
    SR_ASSIGN_OR_RETURN(sys::Address out, sys::Address::parse(listener_->address()));
    const std::string own = channels_->address(task_name_);
    const std::optional<sys::Address> mapped = endpoint_map_.find(own);
    out.port = mapped ? mapped->port : 0;
    // A host that the cluster knows too is where `listen` says; another one may be another network.
    if (mapped && mapped->host != sys::Address::parse(own)->host) out.host = mapped->host;
    return out;
  }

  /// What sessions of this master get where their clients ask for nothing else.
  Status set_defaults(const ServerOptions& options) {
    for (const std::string& filter : options.device_filters) {
      SR_ASSIGN_OR_RETURN(context_.device_filters.emplace_back(), ir::DeviceSpec::parse(filter));
    }
    const service::SessionOptions& given = options.session_defaults;
    SR_ASSIGN_OR_RETURN(const ir::DType compute, passes::parse_compute_dtype(given.compute_dtype));
    SR_RETURN_IF_ERROR(task::check_pull_prefetch(given.pull_prefetch_ms.value_or(0)));
    SR_ASSIGN_OR_RETURN(task::SessionState state,
                        task::session_state(given.isolate_session_state, given.state_group));
    context_.defaults = {
        .allow_soft_placement = given.allow_soft_placement,
        .log_device_placement = given.log_device_placement,
        .device_filters = given.device_filters,
        .operation_timeout = given.operation_timeout,
        .state = std::move(state),
        .compute_dtype = compute,
        .tensor_fuse = given.tensor_fuse,
        .pull_prefetch_ms = given.pull_prefetch_ms.value_or(task::kPullPrefetchMs)};
    return {};
  }

  /// Steps that run, of this master and of others.
  int64_t running() const {
    return task_->figures().value("sidereal_task_steps_running") + master_->running() +
           master_->loops_running();
  }

  std::mutex mutex_;
  std::condition_variable ended_;
  bool stopping_ = false;
  bool stopped_ = false;

  const std::unique_ptr<sys::Clock> clock_ = sys::posix::create_clock();
  const int64_t began_ = clock_->now();
  std::shared_ptr<service::ArrivingBytes> arriving_;
  const std::shared_ptr<service::Leases> leases_ = std::make_shared<service::Leases>();
  std::unique_ptr<sys::Random> random_ = sys::posix::create_random();
  base::LogLevel log_level_ = base::LogLevel::kDebug;  // Of what it says of its work.
  std::map<std::string, std::string> settings_;        // With who said them.
  std::unique_ptr<sys::posix::CpuClaim> claimed_;
  std::unique_ptr<security::Listener> listener_;
  std::unique_ptr<service::Channels> channels_;
  std::unique_ptr<service::RemotePeers> peers_;
  std::unique_ptr<task::Task> task_;
  EndpointMap endpoint_map_;
  // On the lanes of the task, which have stopped when they go.
  std::vector<std::unique_ptr<DataLane>> data_lanes_;
  std::shared_ptr<service::Standbys> standbys_;
  std::shared_ptr<service::Voting> voting_;
  std::unique_ptr<service::RemoteTasks> tasks_;
  std::unique_ptr<master::LostTasks> lost_tasks_;
  master::MasterContext context_;
  std::unique_ptr<service::WorkerService> worker_;
  std::unique_ptr<service::MasterService> master_;
  std::unique_ptr<service::GrpcServer> grpc_;
  std::thread ending_;                             // That of end_deposed().
  master::Threads threads_;                        // Its threads use all of the above.
  std::unique_ptr<scrape::ScrapeServer> scrapes_;  // Reads figures of all of the above.
};

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() = default;

Result<std::unique_ptr<Server>> Server::create(const ServerOptions& options) {
  auto impl = std::make_unique<Impl>();
  SR_RETURN_IF_ERROR(impl->start(options));
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

Result<std::unique_ptr<Server>> Server::create_local(int intra_op_threads) {
  ServerOptions options;
  SR_RETURN_IF_ERROR(options.cluster.add_job("localhost", std::vector<std::string>{"127.0.0.1:0"}));
  options.job = "localhost";
  options.intra_op_threads = intra_op_threads;
  return create(options);
}

const std::string& Server::target() const { return impl_->target_; }
const std::string& Server::address() const { return impl_->address_; }
const std::string& Server::task() const { return impl_->task_name_; }
const base::EventSource& Server::source() const { return impl_->source(); }
const cluster::ClusterSpec& Server::cluster() const { return impl_->cluster_->now().spec; }
cluster::Protocol Server::protocol() const { return impl_->protocol_; }
std::string Server::metrics_address() const { return impl_->metrics_address(); }
metrics::Readings Server::figures() const { return impl_->figures(); }
int Server::data_port() const { return impl_->data_port(); }
const char* Server::security() const { return impl_->credentials_->kind(); }
bool Server::join(double seconds) { return impl_->join(seconds); }
void Server::stop(double drain_s) { impl_->stop(drain_s); }

}  // namespace sidereal::app
