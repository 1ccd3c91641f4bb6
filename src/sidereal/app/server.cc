#include "sidereal/app/server.h"

#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

#include "sidereal/app/cluster.h"
#include "sidereal/app/control.grpc.pb.h"
#include "sidereal/app/internal/grpc_status.h"
#include "sidereal/app/job.h"
#include "sidereal/app/ps_lane.h"
#include "sidereal/base/log.h"
#include "sidereal/exec/kernel.h"
#include "sidereal/kernels/initializer.h"
#include "sidereal/metrics/lane_metrics.h"
#include "sidereal/ops/ops.h"
#include "sidereal/security/listener.h"
#include "sidereal/sys/posix/posix.h"

namespace sidereal::app {

namespace v1 = control::v1;

namespace {

using base::invalid_argument;

constexpr int64_t kReadRowsAtOnce = 16384;
/// Of the process numbers of a trace.
constexpr int32_t kProcessMax = 1 << 30;
/// What a job that runs gets to end in when its server stops, and then the calls that are left.
constexpr std::chrono::seconds kJobEnd(2);
constexpr std::chrono::milliseconds kLastReplies(200);

Result<store::UpdateRule> rule_of(const v1::Variable& variable) {
  const auto& given = variable.optimizer_parameters();
  const std::map<std::string, double, std::less<>> parameters(given.begin(), given.end());
  if (variable.optimizer().empty()) return store::UpdateRule();
  Result<store::UpdateRule> rule = store::UpdateRule::make(variable.optimizer(), parameters);
  if (rule.ok()) return rule;
  return base::with_context(rule.status(), fmt::format("variable '{}'", variable.name()));
}

Result<VariableSpec> spec_of(const v1::Variable& variable) {
  VariableSpec spec;
  spec.name = variable.name();
  spec.embedding = variable.embedding();
  int64_t elements = 1;
  for (const int64_t extent : variable.dims()) {
    if (extent < 0 || extent > (int64_t{1} << 40) ||
        (extent > 0 && elements > (int64_t{1} << 44) / extent)) {
      return invalid_argument("variable '{}' is too large", spec.name);
    }
    elements *= std::max<int64_t>(extent, 1);
    spec.shape.append(extent);
  }
  SR_ASSIGN_OR_RETURN(spec.rule, rule_of(variable));
  SR_ASSIGN_OR_RETURN(spec.initializer.kind,
                      kernels::initializer_kind_from_name(variable.initializer()));
  spec.initializer.a = static_cast<float>(variable.a());
  spec.initializer.b = static_cast<float>(variable.b());
  spec.initializer.seed = variable.seed();
  spec.initializer.stream = kernels::Initializer::stream_of(variable.name());
  SR_RETURN_IF_ERROR(spec.initializer.validate());
  spec.shard = variable.shard();
  spec.lanes.assign(variable.lanes().begin(), variable.lanes().end());
  return spec;
}

}  // namespace

class Server::Impl final : public v1::Control::Service {
 public:
  ~Impl() override { stop(); }

  Status start(const ServerOptions& options) {
    options_ = options;
    task_ = task_name(options.job, options.task);
    SR_RETURN_IF_ERROR(check());
    SR_RETURN_IF_ERROR(listen());
    SR_RETURN_IF_ERROR(start_lanes());
    return start_control();
  }

  bool wait(double seconds) {
    std::unique_lock lock(mutex_);
    return ended_.wait_for(lock, std::chrono::duration<double>(seconds),
                           [this] { return shutdown_; });
  }

  void stop() {
    {
      const std::lock_guard lock(mutex_);
      shutdown_ = true;
      ended_.notify_all();
      if (stopped_) return;
      stopped_ = true;
    }
    // Jobs see shutdown_ and end; those that do not in time are cancelled with the other calls.
    // gRPC gets a short time only: it waits for clients to hang up, and one that is not in a call
    // looks at its connection every few seconds.
    {
      std::unique_lock job(job_mutex_, std::defer_lock);
      static_cast<void>(job.try_lock_for(kJobEnd));
    }
    if (listener_ != nullptr) listener_->stop();
    if (control_ != nullptr) control_->Shutdown(std::chrono::system_clock::now() + kLastReplies);
    for (auto& lane : ps_lanes_) stop_lane(&lane->lane());
    for (auto& lane : worker_lanes_) stop_lane(lane.get());
  }

  grpc::Status GetStatus(grpc::ServerContext*, const v1::GetStatusRequest* request,
                         v1::TaskStatus* reply) override {
    if (request->version() != kControlVersion) {
      return to_grpc(base::failed_precondition(
          "{} speaks control version {}, the caller {}; use one release for the whole cluster",
          task_, kControlVersion, request->version()));
    }
    return to_grpc(fill_status(reply));
  }

  grpc::Status CreateVariables(grpc::ServerContext*, const v1::CreateVariablesRequest* request,
                               v1::CreateVariablesReply* reply) override {
    return to_grpc(create_variables(*request, reply));
  }

  grpc::Status ScaleLearningRate(grpc::ServerContext*, const v1::ScaleLearningRateRequest* request,
                                 v1::ScaleLearningRateReply*) override {
    const std::lock_guard lock(control_mutex_);
    for (auto& lane : ps_lanes_) {
      const Status scaled = lane->scale_learning_rate(request->factor());
      if (!scaled.ok()) return to_grpc(scaled);
    }
    return grpc::Status::OK;
  }

  grpc::Status ReadVariable(grpc::ServerContext*, const v1::ReadVariableRequest* request,
                            grpc::ServerWriter<v1::Chunk>* writer) override {
    return to_grpc(read_variable(*request, writer));
  }

  grpc::Status StartTrace(grpc::ServerContext*, const v1::StartTraceRequest* request,
                          v1::StartTraceReply*) override {
    const std::lock_guard lock(control_mutex_);
    for (auto& lane : ps_lanes_) {
      const Status started = lane->start_trace(request->first_step(), request->end_step());
      if (!started.ok()) return to_grpc(started);
    }
    return grpc::Status::OK;
  }

  grpc::Status TakeTrace(grpc::ServerContext*, const v1::TakeTraceRequest* request,
                         grpc::ServerWriter<v1::Chunk>* writer) override {
    return to_grpc(take_trace(*request, writer));
  }

  grpc::Status RegisterProgram(grpc::ServerContext*, const v1::RegisterProgramRequest* request,
                               v1::RegisterProgramReply* reply) override {
    const std::lock_guard lock(control_mutex_);
    const Result<PsLane*> lane = find_lane(request->lane());
    if (!lane.ok()) return to_grpc(lane.status());
    const Result<uint64_t> hash = (*lane)->register_program(request->program());
    if (!hash.ok()) return to_grpc(hash.status());
    reply->set_hash(*hash);
    return grpc::Status::OK;
  }

  grpc::Status RunJob(grpc::ServerContext* context, const v1::RunJobRequest* request,
                      grpc::ServerWriter<v1::JobEvent>* writer) override {
    return to_grpc(run_one_job(context, *request, writer));
  }

  grpc::Status Shutdown(grpc::ServerContext*, const v1::ShutdownRequest*,
                        v1::ShutdownReply*) override {
    const std::lock_guard lock(mutex_);
    shutdown_ = true;
    ended_.notify_all();
    return grpc::Status::OK;
  }

  std::string address_;
  std::string task_;

 private:
  Status check() const {
    if (options_.job != "ps" && options_.job != "worker") {
      return invalid_argument("job '{}' is neither ps nor worker", options_.job);
    }
    if (options_.task < 0) return invalid_argument("task {} is negative", options_.task);
    if (options_.lanes < 1 || options_.lanes > 1024) {
      return invalid_argument("lanes is {}; it must be from 1 to 1024", options_.lanes);
    }
    return config::validate(options_.options);
  }

  /// The port of the control service, before anything else is made. Nobody is answered yet.
  Status listen() {
    SR_ASSIGN_OR_RETURN(credentials_, security::Credentials::create(options_.security));
    SR_RETURN_IF_ERROR(security::check_listen(options_.address, *credentials_));
    SR_ASSIGN_OR_RETURN(listen_, sys::Address::parse(options_.address));
    SR_ASSIGN_OR_RETURN(listener_, security::Listener::create(options_.address, credentials_));
    address_ = listener_->address();
    return {};
  }

  Status start_lanes() {
    ops::register_all(&ops_);
    exec::register_kernels(&kernels_);
    transport::Identity identity{.cluster_id = options_.cluster_id,
                                 .task = task_,
                                 .incarnation = random_->next(),
                                 .lane_count = static_cast<uint32_t>(options_.lanes)};
    incarnation_ = identity.incarnation;
    for (int i = 0; i < options_.lanes; ++i) {
      const lane::LaneOptions lane{.name = fmt::format("{}/lane:{}", task_, i),
                                   .index = i,
                                   .spin_us = options_.options.spin_us,
                                   .inbox_slots = options_.options.inbox_slots,
                                   .network = network_.get(),
                                   .clock = clock_.get()};
      if (options_.job == "ps") {
        SR_ASSIGN_OR_RETURN(
            auto made, PsLane::create(lane, identity, options_.options,
                                      {.host = listen_.host, .port = 0}, &kernels_, credentials_));
        made->lane().start();
        ps_lanes_.push_back(std::move(made));
      } else {
        SR_ASSIGN_OR_RETURN(auto made, lane::Lane::create(lane));
        SR_ASSIGN_OR_RETURN(
            auto endpoint,
            transport::Endpoint::create(made.get(), identity, options_.options, credentials_));
        made->start();
        worker_.lanes.push_back(made.get());
        worker_.endpoints.push_back(endpoint.get());
        worker_lanes_.push_back(std::move(made));
        endpoints_.push_back(std::move(endpoint));
      }
    }
    worker_.task = task_;
    worker_.credentials = credentials_;
    worker_.ops = &ops_;
    worker_.kernels = &kernels_;
    worker_.random = random_.get();
    return {};
  }

  Status start_control() {
    grpc::ServerBuilder builder;
    listener_->attach(&builder);
    builder.RegisterService(this);
    builder.SetMaxReceiveMessageSize(256 << 20);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1000);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    control_ = builder.BuildAndStart();
    if (control_ == nullptr) return base::internal("the control service does not start");
    return listener_->start();
  }

  void stop_lane(lane::Lane* lane) {
    const Status stopped = lane->stop();
    if (!stopped.ok()) base::log_error("stop failed error=\"{}\"", base::message_of(stopped));
  }

  Result<PsLane*> find_lane(int lane) {
    if (lane < 0 || static_cast<size_t>(lane) >= ps_lanes_.size()) {
      return invalid_argument("{} has no ps lane {}", task_, lane);
    }
    return ps_lanes_[lane].get();
  }

  Status fill_status(v1::TaskStatus* reply) {
    reply->set_version(kControlVersion);
    reply->set_task(task_);
    reply->set_incarnation(incarnation_);
    reply->set_cluster_id(options_.cluster_id);
    reply->set_pid(getpid());
    const security::ListenerCounters peers = listener_->counters();
    reply->set_connections(peers.accepted);
    reply->set_connections_refused(peers.refused_garbage + peers.refused_certificate +
                                   peers.idle_closed + peers.over_limit);
    metrics::Readings all;
    for (auto& lane : ps_lanes_) {
      reply->add_data_addresses(lane->address().to_string());
      SR_ASSIGN_OR_RETURN(const PsLaneFigures figures, lane->figures());
      reply->set_calls(reply->calls() + figures.calls);
      reply->set_rows(reply->rows() + figures.rows);
      lane->lane().metrics().figures.read(&all);
    }
    for (auto& lane : worker_lanes_) {
      reply->add_data_addresses("");
      lane->metrics().figures.read(&all);
    }
    reply->set_connections_refused(reply->connections_refused() +
                                   all.value("sidereal_refused_total") -
                                   all.series("sidereal_refused_total{why=\"frames\"}"));
    const auto seconds = [&](const char* name) {
      return static_cast<double>(all.value(name)) * 1e-9;
    };
    reply->set_bytes_in(all.value("sidereal_transport_received_bytes_total"));
    reply->set_bytes_out(all.value("sidereal_transport_sent_bytes_total"));
    reply->set_busy_s(seconds("sidereal_lane_busy_seconds_total"));
    reply->set_idle_s(seconds("sidereal_lane_spin_seconds_total") +
                      seconds("sidereal_lane_sleep_seconds_total"));
    return {};
  }

  Status create_variables(const v1::CreateVariablesRequest& request,
                          v1::CreateVariablesReply* reply) {
    const std::lock_guard lock(control_mutex_);
    std::vector<std::vector<VariableSpec>> specs(ps_lanes_.size());
    for (const v1::LaneVariables& lane : request.lanes()) {
      SR_RETURN_IF_ERROR(find_lane(lane.lane()).status());
      for (const v1::Variable& variable : lane.variables()) {
        SR_ASSIGN_OR_RETURN(VariableSpec spec, spec_of(variable));
        specs[lane.lane()].push_back(std::move(spec));
      }
    }
    for (size_t i = 0; i < ps_lanes_.size(); ++i) {
      SR_ASSIGN_OR_RETURN(const int64_t bytes, ps_lanes_[i]->create_variables(specs[i]));
      reply->set_bytes(reply->bytes() + bytes);
    }
    return {};
  }

  Status read_variable(const v1::ReadVariableRequest& request,
                       grpc::ServerWriter<v1::Chunk>* writer) {
    const std::lock_guard lock(control_mutex_);
    SR_ASSIGN_OR_RETURN(PsLane* const lane, find_lane(request.lane()));
    for (int64_t from = 0;; from += kReadRowsAtOnce) {
      SR_ASSIGN_OR_RETURN(std::string bytes,
                          lane->read(request.name(), request.shard(), from, kReadRowsAtOnce));
      if (bytes.empty()) return {};
      v1::Chunk chunk;
      chunk.set_data(std::move(bytes));
      if (!writer->Write(chunk)) return base::cancelled("the reader is gone");
    }
  }

  Status take_trace(const v1::TakeTraceRequest& request, grpc::ServerWriter<v1::Chunk>* writer) {
    if (request.process() < 0 || request.process() > kProcessMax || request.begin_unix_ns() < 0) {
      return invalid_argument("process {} of a trace that begins at {} ns", request.process(),
                              request.begin_unix_ns());
    }
    const std::lock_guard lock(control_mutex_);
    for (size_t i = 0; i < ps_lanes_.size(); ++i) {
      v1::Chunk chunk;
      SR_ASSIGN_OR_RETURN(
          *chunk.mutable_data(),
          ps_lanes_[i]->take_trace({.process = request.process() + static_cast<int32_t>(i),
                                    .process_name = fmt::format("{} lane {}", task_, i),
                                    .offset_ns = -request.begin_unix_ns()}));
      if (!writer->Write(chunk)) return base::cancelled("the reader is gone");
    }
    return {};
  }

  Status run_one_job(grpc::ServerContext* context, const v1::RunJobRequest& request,
                     grpc::ServerWriter<v1::JobEvent>* writer) {
    if (worker_.lanes.empty()) {
      return base::failed_precondition("{} runs no jobs; ask a worker", task_);
    }
    std::unique_lock lock(job_mutex_, std::defer_lock);
    if (!lock.try_lock_for(std::chrono::seconds(5))) {
      return base::resource_exhausted("{} runs another job; try again when it has ended", task_);
    }
    const JobObserver observer{
        .cancelled = [this, context] { return context->IsCancelled() || wait(0); },
        .emit = [writer](const v1::JobEvent& event) { return writer->Write(event); }};
    // It may have waited for another one.
    if (observer.cancelled()) return base::cancelled("the job was cancelled");
    Status status = run_job(worker_, request, observer);
    if (!status.ok() && status.code() != StatusCode::kCancelled) {
      base::log_error("job failed code={} error=\"{}\"", base::code_name(status.code()),
                      base::message_of(status));
    }
    return status;
  }

  ServerOptions options_;
  sys::Address listen_;
  std::shared_ptr<const security::Credentials> credentials_;
  uint64_t incarnation_ = 0;
  std::unique_ptr<sys::Clock> clock_ = sys::posix::create_clock();
  std::unique_ptr<sys::Random> random_ = sys::posix::create_random();
  std::unique_ptr<sys::Network> network_ = sys::posix::create_network();
  ir::OpRegistry ops_;
  exec::KernelTable kernels_;
  std::vector<std::unique_ptr<PsLane>> ps_lanes_;
  // Lanes before endpoints: an endpoint outlives the lane that runs on it, so it is declared first.
  std::vector<std::unique_ptr<transport::Endpoint>> endpoints_;
  std::vector<std::unique_ptr<lane::Lane>> worker_lanes_;
  WorkerParts worker_;
  std::mutex control_mutex_;    // One change of variables or programs at a time.
  std::timed_mutex job_mutex_;  // One job at a time.
  std::mutex mutex_;            // Guards shutdown_ and stopped_.
  std::condition_variable ended_;
  bool shutdown_ = false;
  bool stopped_ = false;
  std::unique_ptr<security::Listener> listener_;
  std::unique_ptr<grpc::Server> control_;
};

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() = default;

Result<std::unique_ptr<Server>> Server::create(const ServerOptions& options) {
  auto impl = std::make_unique<Impl>();
  SR_RETURN_IF_ERROR(impl->start(options));
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

const std::string& Server::address() const { return impl_->address_; }
const std::string& Server::task() const { return impl_->task_; }
bool Server::wait(double seconds) { return impl_->wait(seconds); }
void Server::stop() { impl_->stop(); }

}  // namespace sidereal::app
