#include "sidereal/service/session.h"

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <mutex>
#include <optional>

#include "sidereal/base/log.h"
#include "sidereal/cluster/protocol.h"
#include "sidereal/ir/text.h"
#include "sidereal/security/channel.h"
#include "sidereal/service/channels.h"
#include "sidereal/service/internal/client_stream.h"
#include "sidereal/service/internal/closure_call.h"
#include "sidereal/service/internal/grpc_status.h"
#include "sidereal/service/internal/heard_commands.h"
#include "sidereal/service/internal/lease_times.h"
#include "sidereal/service/internal/loop_call.h"
#include "sidereal/service/job_lease.h"
#include "sidereal/service/known_cluster.h"
#include "sidereal/service/session.grpc.pb.h"
#include "sidereal/service/worker_service.h"
#include "sidereal/sys/address.h"
#include "sidereal/task/event.h"
#include "sidereal/task/failure.h"

namespace sidereal::service {

namespace v1 = session::v1;
using std::chrono::milliseconds;
using tensor::Tensor;

namespace {

/// What a master gets to answer after the deadline of a step, with words of its own.
constexpr milliseconds kLastWords(3000);
constexpr milliseconds kCloseTimeout(2000);
/// One try to reach a master.
constexpr milliseconds kTry(2000);
constexpr milliseconds kFirstLog(3000);
constexpr milliseconds kLogEvery(10'000);

/// A RunStep call.
class StepCallStream final : public ClientStream<v1::StepRequest, v1::StepReply> {
 public:
  explicit StepCallStream(std::string peer) : peer_(std::move(peer)) {}

  void run(v1::Master::Stub* stub, const v1::StepHead& head,
           const std::vector<Session::Feed>& feeds) {
    fetches_.resize(head.fetches_size());
    joiner_.emplace(head.fetches_size());
    if (head.timeout_ms() > 0) {
      context_.set_deadline(std::chrono::system_clock::now() + milliseconds(head.timeout_ms()) +
                            kLastWords);
    }
    stub->async()->RunStep(&context_, this);
    begin();
    v1::StepRequest request;
    *request.mutable_head() = head;
    if (feeds.empty()) return put(std::move(request));
    put(std::move(request), 0, feeds[0].second);
    for (size_t i = 1; i < feeds.size(); ++i) put(static_cast<int32_t>(i), feeds[i].second);
  }

  void wait(const std::function<bool()>& interrupted) {
    ended_.wait(interrupted, [this] { hang_up(); });
  }

  /// Once wait() is over.
  Result<std::vector<Tensor>> take_result(RunMetadata* metadata) {
    SR_RETURN_IF_ERROR(status_);
    if (metadata != nullptr) metadata->trace = std::move(trace_);
    for (size_t i = 0; i < fetches_.size(); ++i) {
      if (!fetches_[i].defined()) return base::internal("{} gave no value {}", peer_, i);
    }
    return std::move(fetches_);
  }

 private:
  void take(v1::StepReply* reply) override {
    if (reply->has_piece()) {
      auto value = joiner_->add(reply->piece());
      if (!value.ok()) {
        status_ = base::with_context(value.status(), peer_);
        return hang_up();
      }
      if (*value) fetches_[(*value)->first] = std::move((*value)->second);
    }
    if (!reply->has_tail()) return;
    has_tail_ = true;
    if (status_.ok() && reply->tail().has_failure())
      status_ = task::from_proto(reply->tail().failure());
    trace_ = std::move(*reply->mutable_tail()->mutable_trace());
    close();
    // The stream ends by itself, which nobody needs to wait for.
    ended_.set();
  }

  void ended(const grpc::Status& status) override {
    if (!has_tail_ && status_.ok()) {
      status_ = status.ok() ? base::unavailable("{} ended a step without a result", peer_)
                            : from_grpc(status, peer_);
    }
    ended_.set();
  }

  const std::string peer_;
  std::optional<PieceJoiner> joiner_;
  std::vector<Tensor> fetches_;
  std::string trace_;
  Status status_;
  bool has_tail_ = false;
  task::Event ended_;
};

v1::PlacementOverrides to_proto(const ir::PlacementOverrides& overrides) {
  v1::PlacementOverrides out;
  for (const auto& [name, device] : overrides.variables) (*out.mutable_variables())[name] = device;
  for (const auto& [task, other] : overrides.tasks) (*out.mutable_tasks())[task] = other;
  return out;
}

v1::SessionConfig config_message(const SessionOptions& options) {
  v1::SessionConfig out;
  out.set_allow_soft_placement(options.allow_soft_placement);
  out.set_log_device_placement(options.log_device_placement);
  for (const std::string& filter : options.device_filters) out.add_device_filters(filter);
  out.set_operation_timeout_ms(options.operation_timeout.count());
  out.set_isolate_session_state(options.isolate_session_state);
  out.set_state_group(options.state_group);
  if (options.lease != nullptr) out.set_lease(options.lease->number());
  out.set_compute_dtype(options.compute_dtype);
  out.set_tensor_fuse(options.tensor_fuse);
  if (options.pull_prefetch_ms) out.set_pull_prefetch_ms(*options.pull_prefetch_ms);
  if (!options.overrides.empty()) *out.mutable_overrides() = to_proto(options.overrides);
  return out;
}

/// Where a master is, and the protocol it is said to run with; "grpc://" says none: sessions speak
/// gRPC with every master.
struct Target {
  std::string address;
  std::string protocol;
};

Result<Target> parse_target(const std::string& text) {
  constexpr std::string_view kMark = "://";
  const size_t mark = text.find(kMark);
  if (mark == std::string::npos || !cluster::parse_protocol(text.substr(0, mark)).ok()) {
    return base::not_found("'{}' is no target of a session: \"grpc://host:port\" is", text);
  }
  Target out{.address = text.substr(mark + kMark.size()), .protocol = text.substr(0, mark)};
  if (out.protocol == "grpc") out.protocol.clear();
  SR_RETURN_IF_ERROR(sys::Address::parse(out.address).status());
  return out;
}

}  // namespace

class Session::Impl {
 public:
  ~Impl() { static_cast<void>(close()); }

  static Result<std::unique_ptr<Impl>> connect(const std::string& target,
                                               const SessionOptions& options) {
    SR_ASSIGN_OR_RETURN(const Target parsed, parse_target(target));
    SR_ASSIGN_OR_RETURN(const auto credentials, security::Credentials::create(options.security));
    auto out = std::make_unique<Impl>();
    out->options_ = options;
    out->peer_ = "the master at " + target;
    out->protocol_ = parsed.protocol;
    out->address_ = parsed.address;
    out->credentials_ = credentials;
    out->channel_ = make_channel(parsed.address, *credentials);
    out->stub_ = v1::Master::NewStub(out->channel_);
    return out;
  }

  Status create(const ir::Graph& graph) {
    std::string cluster;
    SR_RETURN_IF_ERROR(reach(&cluster));
    if (!options_.job.name.empty()) SR_RETURN_IF_ERROR(take_lease(cluster));
    v1::CreateSessionRequest request;
    request.set_graph(ir::to_text(graph));
    return create(&request);
  }

  Status hold(const JobHolder& holder, bool take_over) {
    SR_RETURN_IF_ERROR(reach());
    v1::CreateSessionRequest request;
    request.set_graph(ir::to_text(ir::Graph()));
    to_proto(holder, request.mutable_job()->mutable_holder());
    request.mutable_job()->set_take_over(take_over);
    SR_RETURN_IF_ERROR(create(&request));
    if (lease_ != 0) return {};
    return base::failed_precondition(
        "{} knows no leases of jobs; use one release for the whole cluster", peer_);
  }

  Status create(v1::CreateSessionRequest* given) {
    v1::CreateSessionRequest& request = *given;
    if (options_.lease != nullptr) SR_RETURN_IF_ERROR(options_.lease->check());
    request.set_version(kSessionVersion);
    *request.mutable_config() = config_message(options_);
    request.set_protocol(protocol_);
    if (!options_.cluster.empty()) request.set_cluster(options_.cluster.to_json());
    const milliseconds timeout = waiting_time() + (request.has_job() ? kEndLease : milliseconds(0));
    request.set_timeout_ms(timeout.count());
    v1::CreateSessionReply reply;
    SR_RETURN_IF_ERROR(call(timeout + kLastWords, [&](auto* context, auto done) {
      stub_->async()->CreateSession(context, &request, &reply, done);
    }));
    session_ = reply.session();
    lease_ = request.has_job() ? reply.lease() : request.config().lease();
    job_lease_ = std::move(options_.lease);
    version_ = reply.graph_version();
    placement_ = reply.placement();
    if (!reply.notice().empty()) base::log_info("{}: {}", peer_, reply.notice());
    keep_alive_request_.set_session(session_);
    stub_->async()->KeepSessionAlive(&keep_alive_, &keep_alive_request_, &keep_alive_reply_,
                                     [this](const grpc::Status& status) {
                                       end(status);
                                       keep_alive_ended_.set();
                                     });
    return {};
  }

  Status extend(const ir::Graph& graph, const ir::PlacementOverrides* overrides) {
    SR_RETURN_IF_ERROR(check_lease());
    const std::lock_guard lock(extend_mutex_);
    v1::ExtendSessionRequest request;
    request.set_session(session_);
    request.set_graph_version(version_);
    request.set_graph(ir::to_text(graph));
    if (overrides != nullptr) *request.mutable_overrides() = to_proto(*overrides);
    const milliseconds timeout = waiting_time();
    request.set_timeout_ms(timeout.count());
    v1::ExtendSessionReply reply;
    SR_RETURN_IF_ERROR(call(timeout + kLastWords, [&](auto* context, auto done) {
      stub_->async()->ExtendSession(context, &request, &reply, done);
    }));
    version_ = reply.graph_version();
    placement_ += reply.placement();
    return {};
  }

  std::string take_placement() {
    const std::lock_guard lock(extend_mutex_);
    return std::exchange(placement_, {});
  }

  Result<std::vector<Tensor>> run(const std::vector<Feed>& feeds,
                                  const std::vector<std::string>& fetches,
                                  const std::vector<std::string>& targets,
                                  const RunOptions& options, RunMetadata* metadata) {
    SR_RETURN_IF_ERROR(check_lease());
    v1::StepHead head;
    head.set_session(session_);
    for (const Feed& feed : feeds) head.add_feeds(feed.first);
    head.mutable_fetches()->Assign(fetches.begin(), fetches.end());
    head.mutable_targets()->Assign(targets.begin(), targets.end());
    milliseconds timeout = options_.operation_timeout;
    if (options.timeout.count() > 0 && (timeout.count() <= 0 || options.timeout < timeout)) {
      timeout = options.timeout;
    }
    head.set_timeout_ms(timeout.count());
    head.set_trace(options.trace);
    head.set_waits_for_pushes(options.waits_for_pushes);
    const auto stream = std::make_shared<StepCallStream>(peer_);
    stream->run(stub_.get(), head, feeds);
    stream->wait(interrupted());
    Result<std::vector<Tensor>> result = stream->take_result(metadata);
    SR_RETURN_IF_ERROR(unless_lost(result.status()));
    return result;
  }

  Result<task::LoopResult> run_loop(task::LoopOptions options, const task::LoopObserver& observer) {
    SR_RETURN_IF_ERROR(check_lease());
    if (options.step_timeout.count() == 0) options.step_timeout = options_.operation_timeout;
    const auto call = std::make_shared<LoopCall>(peer_, options, observer);
    call->start(stub_.get(), session_);
    Result<task::LoopResult> result = call->wait(interrupted());
    SR_RETURN_IF_ERROR(unless_lost(result.status()));
    return result;
  }

  std::shared_ptr<ClosureCalls> run_closures(std::shared_ptr<ClosureObserver> observer,
                                             uint64_t client) {
    const auto call = std::make_shared<ClosureCall>(peer_, std::move(observer));
    call->start(stub_.get(), session_, client);
    std::shared_ptr<JobLease> lease;
    {
      const std::lock_guard lock(lease_mutex_);
      lease = job_lease_;
    }
    if (lease != nullptr) lease->watch(call);
    return call;
  }

  Status close() {
    const uint64_t session = session_.exchange(0);
    if (session == 0) return {};
    std::shared_ptr<JobLease> lease;
    {
      const std::lock_guard lock(lease_mutex_);
      lease.swap(job_lease_);
    }
    v1::CloseSessionRequest request;
    request.set_session(session);
    request.set_is_unfinished(is_unfinished_);
    v1::CloseSessionReply reply;
    Status status = call(kCloseTimeout, [&](auto* context, auto done) {
      stub_->async()->CloseSession(context, &request, &reply, done);
    });
    keep_alive_.TryCancel();
    keep_alive_ended_.wait(nullptr, [] {});
    // The job that took over has ended it, and its calls have said so.
    const bool is_held = lease != nullptr && lease->check().ok();
    const bool was_taken =
        lease_ != 0 && !is_held && status.code() == StatusCode::kFailedPrecondition;
    if (was_taken) status = {};
    // Pushes may be under way that were not waited for.
    if (lease != nullptr && !status.ok()) lease->leave_unfinished();
    // The lease goes only now: another job of the name finds nothing of this one.
    return status;
  }

  Result<std::vector<DeviceAttributes>> list_devices() {
    v1::ListDevicesRequest request;
    request.set_session(session_);
    v1::ListDevicesReply reply;
    SR_RETURN_IF_ERROR(call(waiting_time(), [&](auto* context, auto done) {
      stub_->async()->ListDevices(context, &request, &reply, done);
    }));
    std::vector<DeviceAttributes> out;
    for (const v1::Device& device : reply.devices()) {
      out.push_back({.name = device.name(),
                     .type = device.type(),
                     .memory_bytes = device.memory_bytes(),
                     .incarnation = device.incarnation(),
                     .state = device.state()});
    }
    return out;
  }

  Status reset(const std::vector<std::string>& containers) {
    SR_RETURN_IF_ERROR(reach());
    v1::ResetRequest request;
    for (const std::string& container : containers) request.add_containers(container);
    if (!options_.cluster.empty()) request.set_cluster(options_.cluster.to_json());
    v1::ResetReply reply;
    return call(waiting_time(), [&](auto* context, auto done) {
      stub_->async()->Reset(context, &request, &reply, done);
    });
  }

  [[nodiscard]] Status check() const {
    const std::lock_guard lock(lease_mutex_);
    return why_ended_;
  }
  void when_ended(std::weak_ptr<void> asker, std::function<void()> told) {
    Watch watch{.asker = std::move(asker), .told = std::move(told)};
    {
      const std::lock_guard lock(lease_mutex_);
      if (why_ended_.ok()) {
        std::erase_if(watches_, [](const Watch& one) { return one.asker.expired(); });
        watches_.push_back(std::move(watch));
        return;
      }
    }
    watch.tell();
  }
  void leave_unfinished() { is_unfinished_ = true; }
  std::unique_ptr<JobCommands> hear_commands() {
    return service::hear_commands(stub_.get(), lease_, [this] { return check().ok(); });
  }
  [[nodiscard]] uint64_t lease() const { return lease_; }

  std::function<bool()> interrupt_;

 private:
  /// See when_ended().
  struct Watch {
    std::weak_ptr<void> asker;
    std::function<void()> told;
    void tell() const {
      if (const std::shared_ptr<void> held = asker.lock()) told();
    }
  };

  /// `known`: the cluster of the master, as JSON.
  Status take_lease(const std::string& known) {
    SR_ASSIGN_OR_RETURN(cluster::ClusterSpec cluster, cluster::ClusterSpec::from_json(known));
    // A session may see a part of the cluster, but leases are of the whole. A master that nobody
    // has told its cluster knows itself alone.
    if (Members(cluster).tasks.size() == 1 && !options_.cluster.empty()) {
      cluster = options_.cluster;
    }
    SR_ASSIGN_OR_RETURN(options_.lease, JobLease::create(cluster, options_.job, options_));
    return {};
  }

  /// The master has it no more.
  void end(const grpc::Status& status) {
    Status why = status.ok() ? task::from_proto(keep_alive_reply_.why()) : from_grpc(status, peer_);
    if (why.ok()) why = base::aborted("{} has ended the session", peer_);
    std::vector<Watch> watches;
    {
      const std::lock_guard lock(lease_mutex_);
      why_ended_ = std::move(why);
      watches.swap(watches_);
    }
    for (const Watch& watch : watches) watch.tell();
  }

  /// Why the lease has ended that the session belongs to.
  [[nodiscard]] Status check_lease() const {
    const std::lock_guard lock(lease_mutex_);
    return job_lease_ == nullptr ? Status() : job_lease_->check();
  }
  /// What ends calls.
  [[nodiscard]] std::function<bool()> interrupted() const {
    if (lease_ == 0) return interrupt_;
    return [this] { return !check_lease().ok() || (interrupt_ && interrupt_()); };
  }
  /// What is told of a call that may have ended with the lease.
  [[nodiscard]] Status unless_lost(const Status& status) const {
    if (status.code() != StatusCode::kCancelled) return status;
    const Status lost = check_lease();
    return lost.ok() ? status : lost;
  }

  [[nodiscard]] milliseconds waiting_time() const {
    return options_.operation_timeout.count() > 0 ? options_.operation_timeout
                                                  : options_.connect_timeout;
  }

  /// Waits until the master answers, and says now and then why it does not.
  /// `cluster`, if given, gets what the master says of its cluster.
  Status reach(std::string* cluster = nullptr) {
    const auto worker = v1::Worker::NewStub(channel_);
    const auto began = std::chrono::steady_clock::now();
    auto next_log = began + kFirstLog;
    auto next_doubt = began;
    while (true) {
      v1::GetStatusRequest request;
      request.set_version(kSessionVersion);
      v1::TaskStatus reply;
      Status asked = call(kTry, [&](auto* context, auto done) {
        worker->async()->GetStatus(context, &request, &reply, done);
      });
      const bool again =
          asked.code() == StatusCode::kUnavailable || asked.code() == StatusCode::kDeadlineExceeded;
      if (!again) {
        if (cluster != nullptr) *cluster = reply.cluster();
        return asked;
      }
      if (interrupt_ && interrupt_()) {
        return base::cancelled("looking for {} was interrupted", peer_);
      }
      const auto now = std::chrono::steady_clock::now();
      // A master that is not there yet may come; one that refuses the credentials never answers.
      if (now >= next_doubt) {
        const Status refused = security::check_credentials(address_, credentials_.get(), kTry);
        if (!refused.ok()) return base::with_context(refused, peer_);
        next_doubt = now + kLogEvery;
      }
      if (now - began >= waiting_time()) {
        return base::deadline_exceeded("no answer within {} ms from {}", waiting_time().count(),
                                       base::message_of(asked));
      }
      if (now >= next_log) {
        base::log_info("still waiting: {}", base::message_of(asked));
        next_log = now + kLogEvery;
      }
      task::Event nothing;
      nothing.wait_for(task::kLook);
    }
  }

  /// Makes a call and waits for its end.
  template <class Start>
  Status call(milliseconds timeout, Start start) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + timeout);
    task::Event ended;
    grpc::Status status;
    start(&context, [&](const grpc::Status& result) {
      status = result;
      ended.set();
    });
    ended.wait(interrupted(), [&] { context.TryCancel(); });
    return unless_lost(from_grpc(status, peer_));
  }

  SessionOptions options_;
  mutable std::mutex lease_mutex_;
  Status why_ended_;
  std::vector<Watch> watches_;
  std::shared_ptr<JobLease> job_lease_;  ///< That it belongs to, until it is closed.
  uint64_t lease_ = 0;                   ///< The number of that, or of the one that it holds.
  std::atomic<bool> is_unfinished_ = false;
  std::string peer_;
  std::string protocol_;  ///< That the target names, or "".
  std::string address_;
  std::shared_ptr<const security::Credentials> credentials_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Master::Stub> stub_;
  std::atomic<uint64_t> session_ = 0;
  std::mutex extend_mutex_;
  int64_t version_ = 0;
  std::string placement_;
  grpc::ClientContext keep_alive_;
  v1::KeepSessionAliveRequest keep_alive_request_;
  v1::KeepSessionAliveReply keep_alive_reply_;
  task::Event keep_alive_ended_;
};

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::~Session() = default;

Result<std::unique_ptr<Session>> Session::create(const std::string& target, const ir::Graph& graph,
                                                 const SessionOptions& options) {
  SR_ASSIGN_OR_RETURN(std::unique_ptr<Impl> impl, Impl::connect(target, options));
  impl->interrupt_ = options.interrupt;
  SR_RETURN_IF_ERROR(impl->create(graph));
  return std::unique_ptr<Session>(new Session(std::move(impl)));
}

Result<std::unique_ptr<Session>> Session::hold(const std::string& target, const JobHolder& holder,
                                               bool take_over, const SessionOptions& options) {
  SR_ASSIGN_OR_RETURN(std::unique_ptr<Impl> impl, Impl::connect(target, options));
  impl->interrupt_ = options.interrupt;
  SR_RETURN_IF_ERROR(impl->hold(holder, take_over));
  return std::unique_ptr<Session>(new Session(std::move(impl)));
}

Status Session::extend(const ir::Graph& graph) { return impl_->extend(graph, nullptr); }
Status Session::extend(const ir::Graph& graph, const ir::PlacementOverrides& overrides) {
  return impl_->extend(graph, &overrides);
}
Result<std::vector<Tensor>> Session::run(const std::vector<Feed>& feeds,
                                         const std::vector<std::string>& fetches,
                                         const std::vector<std::string>& targets,
                                         const RunOptions& options, RunMetadata* metadata) {
  return impl_->run(feeds, fetches, targets, options, metadata);
}
Result<task::LoopResult> Session::run_loop(const task::LoopOptions& options,
                                           const task::LoopObserver& observer) {
  return impl_->run_loop(options, observer);
}
std::shared_ptr<ClosureCalls> Session::run_closures(std::shared_ptr<ClosureObserver> observer,
                                                    uint64_t client) {
  return impl_->run_closures(std::move(observer), client);
}
std::string Session::take_placement() { return impl_->take_placement(); }
Status Session::close() { return impl_->close(); }
Status Session::check() const { return impl_->check(); }
void Session::when_ended(std::weak_ptr<void> asker, std::function<void()> told) {
  impl_->when_ended(std::move(asker), std::move(told));
}
void Session::leave_unfinished() { impl_->leave_unfinished(); }
std::unique_ptr<JobCommands> Session::hear_commands() { return impl_->hear_commands(); }
uint64_t Session::lease() const { return impl_->lease(); }
Result<std::vector<DeviceAttributes>> Session::list_devices() { return impl_->list_devices(); }

Status Session::reset(const std::string& target, const std::vector<std::string>& containers,
                      const SessionOptions& options) {
  SR_ASSIGN_OR_RETURN(const std::unique_ptr<Impl> impl, Impl::connect(target, options));
  impl->interrupt_ = options.interrupt;
  return impl->reset(containers);
}

}  // namespace sidereal::service
