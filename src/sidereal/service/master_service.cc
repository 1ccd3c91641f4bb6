#include "sidereal/service/master_service.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "sidereal/base/log.h"
#include "sidereal/base/strings.h"
#include "sidereal/cluster/task_name.h"
#include "sidereal/ir/text.h"
#include "sidereal/master/master_session.h"
#include "sidereal/passes/pipeline.h"
#include "sidereal/service/callback_order.h"
#include "sidereal/service/channels.h"
#include "sidereal/service/internal/caller_checks.h"
#include "sidereal/service/internal/closure_stream.h"
#include "sidereal/service/internal/grpc_status.h"
#include "sidereal/service/internal/job_command_streams.h"
#include "sidereal/service/internal/lease_end.h"
#include "sidereal/service/internal/loop_stream.h"
#include "sidereal/service/internal/master_sessions.h"
#include "sidereal/service/internal/server_stream.h"
#include "sidereal/service/internal/timeouts.h"
#include "sidereal/service/job_command_relay.h"
#include "sidereal/service/job_leases.h"
#include "sidereal/service/known_cluster.h"
#include "sidereal/service/session.grpc.pb.h"
#include "sidereal/service/worker_service.h"
#include "sidereal/task/failure.h"
#include "sidereal/task/prefetched_pulls.h"

namespace sidereal::service {

namespace v1 = session::v1;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

namespace {

constexpr int kFeedsMax = 1 << 20;
/// For tasks that are asked for their devices, or to reset containers.
constexpr milliseconds kAskTasks(10'000);
constexpr milliseconds kWaitForTasks(600'000);
/// Calls that make or extend sessions, each with a thread, at once.
constexpr int kMakingMax = 128;
/// Of why a lease has ended.
constexpr size_t kWhyBytes = 4096;

milliseconds or_else(int64_t ms, milliseconds otherwise) {
  return ms > 0 ? milliseconds(std::min(ms, kTimeoutMsMax)) : otherwise;
}

ir::PlacementOverrides from_proto(const v1::PlacementOverrides& given) {
  ir::PlacementOverrides out;
  for (const auto& one : given.variables()) out.variables[one.first] = one.second;
  for (const auto& one : given.tasks()) out.tasks[one.first] = one.second;
  return out;
}

/// What a client asked for; where that is nothing, what the server was told.
Result<master::SessionConfig> config_of(const v1::SessionConfig& given,
                                        const master::SessionConfig& defaults) {
  master::SessionConfig out = defaults;
  out.allow_soft_placement |= given.allow_soft_placement();
  out.log_device_placement |= given.log_device_placement();
  if (given.device_filters_size() > 0) {
    out.device_filters.assign(given.device_filters().begin(), given.device_filters().end());
  }
  SR_ASSIGN_OR_RETURN(const milliseconds timeout, timeout_of(given.operation_timeout_ms()));
  if (timeout.count() > 0) out.operation_timeout = timeout;
  SR_ASSIGN_OR_RETURN(task::SessionState state,
                      task::session_state(given.isolate_session_state(), given.state_group()));
  if (state.kind != task::SessionState::Kind::kShared) out.state = std::move(state);
  out.tensor_fuse |= given.tensor_fuse();
  out.lease = given.lease();
  out.overrides = from_proto(given.overrides());
  if (given.has_pull_prefetch_ms()) {
    SR_RETURN_IF_ERROR(task::check_pull_prefetch(given.pull_prefetch_ms()));
    out.pull_prefetch_ms = given.pull_prefetch_ms();
  }
  if (!given.compute_dtype().empty() && given.compute_dtype() != "float32") {
    SR_ASSIGN_OR_RETURN(out.compute_dtype, passes::parse_compute_dtype(given.compute_dtype()));
  }
  return out;
}

/// What the calls of a master share.
struct Common {
  const std::shared_ptr<MasterSessions> sessions = std::make_shared<MasterSessions>();
  std::shared_ptr<ArrivingBytes> arriving;
  std::string name;
  const std::shared_ptr<std::atomic<int>> running = std::make_shared<std::atomic<int>>(0);
  const std::shared_ptr<std::atomic<int>> loops_running = std::make_shared<std::atomic<int>>(0);
  std::atomic<bool> draining = false;
  std::atomic<int64_t> bad_requests = 0;
};

/// A RunStep stream.
class StepStream final : public ServerStream<v1::StepRequest, v1::StepReply> {
 public:
  explicit StepStream(std::shared_ptr<Common> common) : common_(std::move(common)) {}

 private:
  void refused() override { ++common_->bad_requests; }

  Status take(v1::StepRequest* request) override {
    if (request->has_head()) SR_RETURN_IF_ERROR(begin(request->head()));
    if (request->has_piece()) {
      if (!joiner_) return base::invalid_argument("a piece before the head");
      SR_ASSIGN_OR_RETURN(auto value, joiner_->add(request->piece()));
      if (value) {
        call_.feed_values[value->first] = std::move(value->second);
        --missing_;
      }
    }
    if (joiner_ && missing_ == 0 && !ran_) run();
    return {};
  }

  Status begin(const v1::StepHead& head) {
    if (joiner_) return base::invalid_argument("a second head");
    if (head.feeds_size() > kFeedsMax) return base::invalid_argument("{} feeds", head.feeds_size());
    SR_ASSIGN_OR_RETURN(call_.timeout, timeout_of(head.timeout_ms()));
    if (common_->draining) return task::is_stopping(common_->name);
    SR_ASSIGN_OR_RETURN(session_, common_->sessions->find(head.session()));
    call_.feeds.assign(head.feeds().begin(), head.feeds().end());
    call_.fetches.assign(head.fetches().begin(), head.fetches().end());
    call_.targets.assign(head.targets().begin(), head.targets().end());
    call_.trace = head.trace();
    call_.waits_for_pushes = head.waits_for_pushes();
    call_.feed_values.resize(call_.feeds.size());
    missing_ = head.feeds_size();
    joiner_.emplace(missing_, common_->arriving);
    return {};
  }

  void run() {
    ran_ = true;
    ++*common_->running;
    auto handle = session_->run(
        std::move(call_),
        [self = shared_from_this(), this](master::StepResult result) { answer(&result); });
    bool is_late = false;
    {
      const std::lock_guard lock(handle_mutex_);
      handle_ = handle;
      is_late = has_gone_;
    }
    if (is_late && !answered_) handle->cancel(gone());
  }

  void answer(master::StepResult* result) {
    --*common_->running;
    for (size_t i = 0; i < result->fetches.size(); ++i) {
      put(static_cast<int32_t>(i), std::move(result->fetches[i]));
    }
    v1::StepReply reply;
    if (!result->status.ok())
      task::to_proto(result->status, false, reply.mutable_tail()->mutable_failure());
    reply.mutable_tail()->set_trace(std::move(result->trace));
    answered_ = true;
    put_last(std::move(reply));
    const std::lock_guard lock(handle_mutex_);
    handle_ = nullptr;
  }

  /// A client that has said all closes its side, and waits.
  Status half_closed() override {
    if (ran_) return {};
    if (!joiner_) return base::invalid_argument("a step without a head");
    return base::invalid_argument("the client closed its side of a step that {} of {} feeds lack",
                                  missing_, call_.feeds.size());
  }
  void hung_up() override {
    std::shared_ptr<master::MasterSession::Handle> handle;
    {
      const std::lock_guard lock(handle_mutex_);
      has_gone_ = true;
      handle = handle_;
    }
    if (handle != nullptr && !answered_) handle->cancel(gone());
  }
  void cancelled() override { hung_up(); }
  static Status gone() { return base::cancelled("the client has gone"); }
  bool said_all() const override { return !ran_; }

  const std::shared_ptr<Common> common_;
  std::shared_ptr<master::MasterSession> session_;
  master::StepCall call_;
  std::optional<PieceJoiner> joiner_;
  int missing_ = 0;
  std::atomic<bool> ran_ = false;
  std::atomic<bool> answered_ = false;
  std::mutex handle_mutex_;
  std::shared_ptr<master::MasterSession::Handle> handle_;
  bool has_gone_ = false;
};

/// A KeepSessionAlive call, which ends with the session or ends it.
class KeepAlive final : public grpc::ServerUnaryReactor {
 public:
  KeepAlive(std::shared_ptr<MasterSessions> sessions, uint64_t id, v1::KeepSessionAliveReply* reply)
      : sessions_(std::move(sessions)), id_(id), reply_(reply) {}

  void start(std::shared_ptr<KeepAlive> self) {
    self_ = self;
    callback_ran(this);
    sessions_->keep_alive(id_, [self](const Status& why) { self->finish(why); });
  }
  void OnCancel() override {
    callback_runs(this);
    const Status why = base::cancelled("the client has gone");
    sessions_->close(id_, why);
    finish(why);
  }
  void OnDone() override { const std::shared_ptr<KeepAlive> last = std::move(self_); }

 private:
  void finish(const Status& why) {
    if (finished_.exchange(true)) return;
    task::to_proto(why, false, reply_->mutable_why());
    Finish(grpc::Status::OK);
  }

  const std::shared_ptr<MasterSessions> sessions_;
  const uint64_t id_;
  v1::KeepSessionAliveReply* const reply_;
  std::atomic<bool> finished_ = false;
  std::shared_ptr<KeepAlive> self_;
};

using Base = v1::Master::WithCallbackMethod_RunStep<v1::Master::WithCallbackMethod_RunLoop<
    v1::Master::WithCallbackMethod_RunClosures<v1::Master::WithCallbackMethod_KeepSessionAlive<
        v1::Master::WithCallbackMethod_CloseSession<v1::Master::WithCallbackMethod_CommandJob<
            v1::Master::WithCallbackMethod_HearCommands<v1::Master::Service>>>>>>>;

}  // namespace

class MasterService::Impl final : public Base {
 public:
  Impl(master::MasterContext* context, Channels* channels, std::shared_ptr<KnownCluster> cluster,
       std::shared_ptr<ArrivingBytes> arriving, std::shared_ptr<Leases> leases)
      : context_(*context),
        channels_(*channels),
        cluster_(std::move(cluster)),
        leases_(std::move(leases)) {
    common_->arriving = std::move(arriving);
    common_->name = context->task->name();
    common_->sessions->source = context->source;
    leases_->jobs.source = context->source;
    // A server that is stopping ends its sessions: no job is lost for that.
    common_->sessions->on_ended = [leases = leases_, relay = relay_,
                                   common = std::weak_ptr<Common>(common_)](uint64_t id) {
      const std::shared_ptr<Common> here = common.lock();
      if (here && !here->draining) leases->jobs.ended(id, /*is_orderly=*/false);
      relay->lease_ended(id);
    };
  }

  grpc::Status CreateSession(grpc::ServerContext* call, const v1::CreateSessionRequest* request,
                             v1::CreateSessionReply* reply) override {
    return made(with_room([&] { return create(call, *request, reply); }));
  }

  grpc::Status ExtendSession(grpc::ServerContext* call, const v1::ExtendSessionRequest* request,
                             v1::ExtendSessionReply* reply) override {
    return made(with_room([&] { return extend(call, *request, reply); }));
  }

  grpc::ServerBidiReactor<v1::StepRequest, v1::StepReply>* RunStep(
      grpc::CallbackServerContext*) override {
    const auto stream = std::make_shared<StepStream>(common_);
    stream->start(stream);
    return stream.get();
  }

  grpc::ServerBidiReactor<v1::LoopRequest, v1::LoopEvent>* RunLoop(
      grpc::CallbackServerContext*) override {
    const auto stream = std::make_shared<LoopStream>(LoopService{
        .find = finder(),
        .arriving = common_->arriving,
        .running = common_->loops_running,
        .on_refused = [common = common_] { ++common->bad_requests; },
        .log_level = context_.source.logs ? base::LogLevel::kInfo : base::LogLevel::kDebug});
    stream->start(stream);
    return stream.get();
  }

  grpc::ServerBidiReactor<v1::ClosureRequest, v1::ClosureReply>* RunClosures(
      grpc::CallbackServerContext*) override {
    const auto stream = std::make_shared<ClosureStream>(
        ClosureService{.find = finder(),
                       .arriving = common_->arriving,
                       .running = common_->running,
                       .on_refused = [common = common_] { ++common->bad_requests; }});
    stream->start(stream);
    return stream.get();
  }

  grpc::ServerBidiReactor<v1::CommandJobRequest, v1::CommandJobReply>* CommandJob(
      grpc::CallbackServerContext*) override {
    const auto stream = std::make_shared<CommandStream>(command_service(), common_->name);
    stream->start(stream);
    return stream.get();
  }

  grpc::ServerBidiReactor<v1::HearCommandsRequest, v1::HearCommandsReply>* HearCommands(
      grpc::CallbackServerContext*) override {
    const auto stream = std::make_shared<HearStream>(command_service());
    stream->start(stream);
    return stream.get();
  }

  grpc::ServerUnaryReactor* KeepSessionAlive(grpc::CallbackServerContext*,
                                             const v1::KeepSessionAliveRequest* request,
                                             v1::KeepSessionAliveReply* reply) override {
    const auto keep_alive =
        std::make_shared<KeepAlive>(common_->sessions, request->session(), reply);
    keep_alive->start(keep_alive);
    return keep_alive.get();
  }

  grpc::ServerUnaryReactor* CloseSession(grpc::CallbackServerContext* call,
                                         const v1::CloseSessionRequest* request,
                                         v1::CloseSessionReply*) override {
    grpc::ServerUnaryReactor* const reactor = call->DefaultReactor();
    leases_->jobs.ended(request->session(), /*is_orderly=*/!request->is_unfinished());
    common_->sessions->close_as_asked(
        request->session(), [reactor](const Status& closed) { reactor->Finish(to_grpc(closed)); });
    return reactor;
  }

  grpc::Status Reset(grpc::ServerContext* call, const v1::ResetRequest* request,
                     v1::ResetReply*) override {
    const Result<cluster::ClusterSpec> cluster = take_cluster(request->cluster());
    if (!cluster.ok()) return made(cluster.status());
    v1::ResetRequest named = *request;
    named.clear_cluster();
    if (named.containers().empty()) named.add_containers("");
    // First: what their steps have sent and nobody has waited for would come to what is new.
    const Status why = base::aborted("the containers of the session's cluster were reset");
    common_->sessions->close_running(why);
    const auto reset_one = [&](v1::Worker::Stub* stub, grpc::ClientContext* context) {
      v1::ResetReply reply;
      return stub->ResetContainers(context, named, &reply);
    };
    Status status = ask_all(call, channels_.tasks(), reset_one);
    common_->sessions->close_running(why);  // Those made meanwhile.
    return to_grpc(status);
  }

  grpc::Status ListDevices(grpc::ServerContext* call, const v1::ListDevicesRequest* request,
                           v1::ListDevicesReply* reply) override {
    std::vector<std::string> tasks = channels_.tasks();
    if (request->session() != 0) {
      const auto session = common_->sessions->find(request->session());
      if (!session.ok()) return to_grpc(session.status());
      // What its filters hide it does not see, and it does not wait for it.
      std::set<std::string> seen;
      for (const ir::DeviceSpec& device : (*session)->devices()) {
        seen.insert(cluster::task_of(device.to_string()));
      }
      std::erase_if(tasks, [&](const std::string& task) { return !seen.contains(task); });
    }
    const auto ask_one = [&](v1::Worker::Stub* stub, grpc::ClientContext* context) {
      v1::GetStatusRequest ask;
      ask.set_version(kSessionVersion);
      ask.set_session(request->session());
      v1::TaskStatus status;
      grpc::Status answered = stub->GetStatus(context, ask, &status);
      for (const v1::Device& device : status.devices()) *reply->add_devices() = device;
      return answered;
    };
    return to_grpc(ask_all(call, tasks, ask_one));
  }

  grpc::Status EndLease(grpc::ServerContext*, const v1::EndLeaseRequest* request,
                        v1::EndLeaseReply*) override {
    Status why = task::from_proto(request->why());
    // Each task keeps it, and logs it.
    if (!why.ok()) {
      why = base::make_status(why.code(), base::message_text(base::message_of(why), kWhyBytes));
    }
    if (request->lease() == 0 || (request->has_why() && why.ok())) {
      return made(base::invalid_argument("a lease is to end, and it is not said which, or why"));
    }
    if (request->has_why()) {
      lease_end().end_sessions(request->lease(), why);
    } else {
      lease_end().end_attached(request->lease());
    }
    return grpc::Status::OK;
  }

  void drain() { common_->draining = true; }
  [[nodiscard]] int running() const { return *common_->running; }
  [[nodiscard]] int loops_running() const { return *common_->loops_running; }
  [[nodiscard]] int64_t bad_requests() const { return common_->bad_requests; }
  void close_all(const Status& why) { common_->sessions->close_all(why); }

 private:
  /// Gives sessions to streams, unless the server is stopping.
  std::function<Result<std::shared_ptr<master::MasterSession>>(uint64_t id)> finder() const {
    return [common = common_](uint64_t id) -> Result<std::shared_ptr<master::MasterSession>> {
      if (common->draining) return task::is_stopping(common->name);
      return common->sessions->find(id);
    };
  }

  CommandService command_service() const {
    return {.relay = relay_,
            .check =
                [common = common_] {
                  return common->draining ? task::is_stopping(common->name) : Status();
                },
            .on_refused = [common = common_] { ++common->bad_requests; }};
  }

  Result<ir::Graph> parse(const std::string& text) const {
    return ir::from_text(text, context_.registry);
  }

  /// What `status` of a call that made or extended a session becomes.
  grpc::Status made(const Status& status) {
    const StatusCode code = status.code();
    if (code == StatusCode::kInvalidArgument || code == StatusCode::kFailedPrecondition ||
        code == StatusCode::kResourceExhausted) {
      ++common_->bad_requests;
    }
    return to_grpc(status);
  }

  /// Calls `make` unless so many calls wait that no threads are left for others.
  template <class Make>
  Status with_room(Make make) {
    const bool has_room = ++making_ <= kMakingMax;
    Status status = has_room ? make()
                             : base::resource_exhausted("{} makes {} sessions already; try again",
                                                        common_->name, kMakingMax);
    --making_;
    return status;
  }

  /// Whether nobody waits for `call` any more.
  std::function<bool()> gone(grpc::ServerContext* call) {
    return [this, call] { return common_->draining || call->IsCancelled(); };
  }

  Status create(grpc::ServerContext* call, const v1::CreateSessionRequest& request,
                v1::CreateSessionReply* reply) {
    const steady_clock::time_point deadline =
        steady_clock::now() + or_else(request.timeout_ms(), kWaitForTasks);
    SR_RETURN_IF_ERROR(check_version(request.version(), context_.task->name()));
    const std::string_view protocol = cluster::name_of(context_.protocol);
    if (!request.protocol().empty() && request.protocol() != protocol) {
      return base::failed_precondition(
          "{} runs with protocol \"{}\", the target says \"{}\"; write grpc://host:port",
          context_.task->name(), protocol, request.protocol());
    }
    if (common_->draining) return task::is_stopping(common_->name);
    SR_ASSIGN_OR_RETURN(master::SessionConfig config,
                        config_of(request.config(), context_.defaults));
    SR_ASSIGN_OR_RETURN(const ir::Graph graph, parse(request.graph()));
    SR_ASSIGN_OR_RETURN(config.cluster, take_cluster(request.cluster()));
    if (request.has_job()) return grant(call, request.job(), std::move(config), reply);
    const uint64_t lease = config.lease;
    SR_RETURN_IF_ERROR(leases_->sessions.check(lease));
    SR_ASSIGN_OR_RETURN(
        const std::shared_ptr<master::MasterSession> session,
        master::MasterSession::create(&context_, context_.random(), std::move(config)));
    const Result<int64_t> version = session->extend(graph, 0, deadline, gone(call));
    Status status = version.status();
    if (status.code() == StatusCode::kInvalidArgument && !cluster_->is_known()) {
      status = base::with_context(status, context_.task->name() +
                                              ", which was started without a cluster and was told "
                                              "none by a session");
    }
    if (status.ok()) status = common_->sessions->add(session);
    if (!status.ok()) {
      session->close(status);
      return status;
    }
    Status why = gone(call)() ? base::cancelled("the client has gone")
                              : leases_->sessions.check(lease);  // It may have ended meanwhile.
    if (!why.ok()) {
      common_->sessions->close(session->id(), why);
      return why;
    }
    reply->set_session(session->id());
    reply->set_graph_version(*version);
    reply->set_placement(session->take_placement());
    reply->set_notice(session->notice());
    base::EventFields fields = {{"session", fmt::format("{:016x}", session->id())},
                                {"client", call->peer()},
                                {"protocol", std::string(protocol)}};
    if (!reply->notice().empty()) {
      fields.emplace_back("waits_for_pushes", false);
      fields.emplace_back("pull_prefetch_ms", session->config().pull_prefetch_ms);
    }
    base::emit(context_.source, base::Event::kSessionMade, fields);
    return {};
  }

  [[nodiscard]] LeaseEnd lease_end() const {
    return {
        .task = context_.task, .sessions = common_->sessions.get(), .leased = &leases_->sessions};
  }

  /// A job that two tasks know of would run twice.
  Status check_granter(const std::string& job) const {
    SR_ASSIGN_OR_RETURN(const LeaseGranter granter, granter_of(cluster_->now().spec));
    if (granter.task == common_->name) return {};
    return base::failed_precondition(
        "the lease of the job '{}' was asked for at {}; in its cluster {} at {} grants leases: ask "
        "there, with the whole cluster",
        job, common_->name, granter.task, granter.address);
  }

  /// A session that holds the lease of a job.
  Status grant(grpc::ServerContext* call, const v1::JobRequest& request,
               master::SessionConfig config, v1::CreateSessionReply* reply) {
    const JobHolder holder = from_proto(request.holder());
    if (holder.name.empty()) return base::invalid_argument("a job without a name");
    SR_RETURN_IF_ERROR(check_granter(holder.name));
    const uint64_t lease = context_.random();
    config.lease = lease;
    const auto end = [this](uint64_t before, const Status& why) {
      end_lease(lease_end(), &channels_, before, why);
    };
    SR_RETURN_IF_ERROR(leases_->jobs.grant(holder, request.take_over(), lease, end));
    const Result<std::shared_ptr<master::MasterSession>> session =
        master::MasterSession::create(&context_, lease, std::move(config));
    Status added = session.ok() ? common_->sessions->add(*session) : session.status();
    if (!added.ok()) {
      leases_->jobs.ended(lease, /*is_orderly=*/true);
      if (session.ok()) (*session)->close(added);
      return added;
    }
    if (gone(call)()) {
      Status why = base::cancelled("the client has gone");
      common_->sessions->close(lease, why);
      return why;
    }
    reply->set_session(lease);
    reply->set_lease(lease);
    return {};
  }

  Status extend(grpc::ServerContext* call, const v1::ExtendSessionRequest& request,
                v1::ExtendSessionReply* reply) {
    const steady_clock::time_point deadline =
        steady_clock::now() + or_else(request.timeout_ms(), kWaitForTasks);
    SR_ASSIGN_OR_RETURN(const std::shared_ptr<master::MasterSession> session,
                        common_->sessions->find(request.session()));
    SR_ASSIGN_OR_RETURN(const ir::Graph graph, parse(request.graph()));
    std::optional<ir::PlacementOverrides> overrides;
    if (request.has_overrides()) overrides = from_proto(request.overrides());
    SR_ASSIGN_OR_RETURN(const int64_t version, session->extend(graph, request.graph_version(),
                                                               deadline, gone(call), overrides));
    reply->set_graph_version(version);
    reply->set_placement(session->take_placement());
    return {};
  }

  /// The cluster that a client names, which is the server's from now on or fits it; empty when it
  /// names none.
  Result<cluster::ClusterSpec> take_cluster(const std::string& text) {
    if (text.empty()) return cluster::ClusterSpec();
    SR_ASSIGN_OR_RETURN(cluster::ClusterSpec named, parse_session_cluster(text));
    SR_RETURN_IF_ERROR(cluster_->take(named));
    return named;
  }

  /// Calls every one of `tasks`; the first error, naming the task.
  template <class Call>
  Status ask_all(grpc::ServerContext* call, const std::vector<std::string>& tasks, Call one) {
    for (const std::string& task : tasks) {
      SR_ASSIGN_OR_RETURN(const std::shared_ptr<grpc::Channel> channel, channels_.to(task));
      const auto stub = v1::Worker::NewStub(channel);
      // Ends with the call it is made for.
      const std::unique_ptr<grpc::ClientContext> context =
          grpc::ClientContext::FromServerContext(*call);
      context->set_wait_for_ready(true);
      context->set_deadline(
          std::min(call->deadline(), std::chrono::system_clock::now() + kAskTasks));
      SR_RETURN_IF_ERROR(from_grpc(one(stub.get(), context.get()), channels_.describe(task)));
    }
    return {};
  }

  master::MasterContext& context_;
  Channels& channels_;
  const std::shared_ptr<KnownCluster> cluster_;
  const std::shared_ptr<Leases> leases_;
  const std::shared_ptr<JobCommandRelay> relay_ =
      std::make_shared<JobCommandRelay>(std::shared_ptr<const JobLeases>(leases_, &leases_->jobs));
  const std::shared_ptr<Common> common_ = std::make_shared<Common>();
  std::atomic<int> making_ = 0;
};

MasterService::MasterService(master::MasterContext* context, Channels* channels,
                             std::shared_ptr<KnownCluster> cluster,
                             std::shared_ptr<ArrivingBytes> arriving,
                             std::shared_ptr<Leases> leases)
    : impl_(std::make_unique<Impl>(context, channels, std::move(cluster), std::move(arriving),
                                   std::move(leases))) {}
MasterService::~MasterService() = default;
grpc::Service* MasterService::service() { return impl_.get(); }
void MasterService::drain() { impl_->drain(); }
int MasterService::running() const { return impl_->running(); }
int MasterService::loops_running() const { return impl_->loops_running(); }
int64_t MasterService::bad_requests() const { return impl_->bad_requests(); }
void MasterService::close_all(const Status& why) { impl_->close_all(why); }

}  // namespace sidereal::service
