#include "sidereal/service/worker_service.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <mutex>
#include <utility>

#include "sidereal/base/event_log.h"
#include "sidereal/base/log.h"
#include "sidereal/base/log_format.h"
#include "sidereal/base/strings.h"
#include "sidereal/cluster/task_name.h"
#include "sidereal/service/callback_order.h"
#include "sidereal/service/figures_message.h"
#include "sidereal/service/hot_rows_message.h"
#include "sidereal/service/internal/caller_checks.h"
#include "sidereal/service/internal/copy_stream.h"
#include "sidereal/service/internal/follow_stream.h"
#include "sidereal/service/internal/grpc_status.h"
#include "sidereal/service/internal/move_stream.h"
#include "sidereal/service/internal/outbox.h"
#include "sidereal/service/internal/server_stream.h"
#include "sidereal/service/internal/tensor_group_message.h"
#include "sidereal/service/job_leases.h"
#include "sidereal/service/known_cluster.h"
#include "sidereal/service/session.grpc.pb.h"
#include "sidereal/service/standbys.h"
#include "sidereal/service/tensor_pieces.h"
#include "sidereal/service/voting.h"
#include "sidereal/sys/posix/process.h"
#include "sidereal/task/failure.h"

namespace sidereal::service {

namespace v1 = session::v1;
using tensor::Tensor;

namespace {

/// Programs of other masters that run, and receive requests of peers that are open, at once.
constexpr int64_t kPartsMax = 65'536;
constexpr int64_t kReceiveRequestsMax = 65'536;
/// Tensors that all open receive requests wait for.
constexpr int64_t kOpenKeysMax = int64_t{1} << 18;
/// Of the name of a task.
constexpr size_t kNameBytesMax = 256;
/// Of a name that is none, in an error.
constexpr size_t kNameBytesShown = 200;

/// What the streams of a worker share.
struct Common {
  task::Task* task = nullptr;
  std::shared_ptr<KnownCluster> cluster;
  std::shared_ptr<ArrivingBytes> arriving;
  std::shared_ptr<Leases> leases;
  std::atomic<bool> draining = false;
  std::atomic<int64_t> parts = 0;
  std::atomic<int64_t> receive_requests = 0;
  std::atomic<int64_t> followers = 0;
  std::atomic<int64_t> open_keys = 0;
  std::atomic<int64_t> bad_requests = 0;
  std::atomic<int64_t> bytes_sent = 0;
  std::string protocol;
  std::function<void(v1::TaskStatus*)> fill_status;
};

class AttachStream final : public ServerStream<v1::AttachRequest, v1::AttachReply> {
 public:
  explicit AttachStream(std::shared_ptr<Common> common) : common_(std::move(common)) {}

 private:
  void refused() override { ++common_->bad_requests; }
  Status take(v1::AttachRequest* request) override {
    if (request->has_head()) return open(request->head());
    if (!open_) return base::invalid_argument("a program came before the head of the stream");
    // Nothing of it stays with the stream, which lasts as long as the session.
    task::NewProgram program = {.bytes = std::move(*request->mutable_program()),
                                .lane = request->lane()};
    for (v1::Peer& peer : *request->mutable_peers()) {
      program.peers.push_back(
          {.device = std::move(*peer.mutable_device()), .incarnation = peer.incarnation()});
    }
    const Result<uint64_t> number = common_->task->register_program(session_, std::move(program));
    v1::AttachReply reply;
    if (number.ok()) {
      reply.set_program(*number);
    } else {
      task::to_proto(number.status(), false, reply.mutable_failure());
    }
    put(std::move(reply));
    return {};
  }

  Status open(const v1::AttachHead& head) {
    const std::string& name = common_->task->name();
    if (open_) return base::invalid_argument("a second head");
    SR_RETURN_IF_ERROR(check_version(head.version(), name));
    SR_RETURN_IF_ERROR(check_meant(head.task(), name));
    const std::string protocol = head.protocol().empty() ? "grpc" : head.protocol();
    if (protocol != common_->protocol) {
      return base::failed_precondition(
          "{} runs with protocol \"{}\", its master with \"{}\"; start all servers of a cluster "
          "with the same one",
          name, common_->protocol, protocol);
    }
    if (!head.cluster().empty()) {
      SR_ASSIGN_OR_RETURN(const cluster::ClusterSpec cluster,
                          parse_session_cluster(head.cluster()));
      SR_RETURN_IF_ERROR(common_->cluster->take(cluster));
    }
    SR_ASSIGN_OR_RETURN(const task::SessionState state,
                        task::session_state(head.isolated(), head.state_group()));
    const bool is_named = !head.master().empty();
    if (is_named && (head.master().size() > kNameBytesMax ||
                     !cluster::parse_task_name(head.master()).has_value())) {
      return base::invalid_argument("the master of a session is said to be '{}', which is no task",
                                    base::message_text(head.master(), kNameBytesShown));
    }
    SR_RETURN_IF_ERROR(common_->task->open_session(head.session(), state, head.master()));
    Status joined = common_->leases->sessions.join(head.lease(), head.session());
    if (!joined.ok()) {
      common_->task->close_session(head.session());
      return joined;
    }
    session_ = head.session();
    lease_ = head.lease();
    open_ = true;
    v1::AttachReply reply;
    common_->fill_status(reply.mutable_status());
    put(std::move(reply));
    return {};
  }

  void hung_up() override {
    if (!std::exchange(open_, false)) return;
    common_->leases->sessions.leave(lease_, session_);
    common_->task->close_session(session_);
  }
  bool said_all() const override { return true; }

  const std::shared_ptr<Common> common_;
  uint64_t session_ = 0;
  uint64_t lease_ = 0;
  bool open_ = false;
};

class ProgramStream final : public ServerStream<v1::ProgramRequest, v1::ProgramReply> {
 public:
  explicit ProgramStream(std::shared_ptr<Common> common)
      : common_(std::move(common)), is_too_much_(++common_->parts > kPartsMax) {}
  ~ProgramStream() override {
    common_->bytes_sent += bytes_written();
    --common_->parts;
  }

 private:
  void refused() override { ++common_->bad_requests; }

  Status check(const v1::ProgramHead& head) const {
    const std::string& name = common_->task->name();
    if (joiner_) return base::invalid_argument("a second head");
    if (common_->draining) return task::is_stopping(name);
    if (is_too_much_) {
      return base::resource_exhausted("{} runs {} steps, as many as it takes", name, kPartsMax);
    }
    return common_->task->check(head.session(), head.program(), head.feeds());
  }

  Status take(v1::ProgramRequest* request) override {
    if (request->has_head()) {
      const v1::ProgramHead& head = request->head();
      SR_RETURN_IF_ERROR(check(head));
      call_ = {.session = head.session(),
               .program = head.program(),
               .step = head.step(),
               .feeds = std::vector<Tensor>(head.feeds()),
               .trace = head.trace(),
               .number = head.number(),
               .closure = {.client = head.client(), .closure = head.closure()}};
      missing_ = head.feeds();
      joiner_.emplace(head.feeds(), common_->arriving);
      if (missing_ == 0) run();
    }
    if (request->has_piece()) {
      if (!joiner_) return base::invalid_argument("a piece before the head");
      SR_ASSIGN_OR_RETURN(auto value, joiner_->add(request->piece()));
      if (value) {
        call_.feeds[value->first] = std::move(value->second);
        if (--missing_ == 0) run();
      }
    }
    if (request->cancel() && ran_ && !std::exchange(cancelled_, true)) {
      common_->task->cancel(call_.step);
    }
    return {};
  }

  void run() {
    ran_ = true;
    const uint64_t step = call_.step;
    common_->task->run(&call_, [self = shared_from_this(), this](task::ProgramResult& result) {
      answer(&result);
    });
    call_.step = step;
  }

  void answer(task::ProgramResult* result) {
    // The step of that number is another stream's.
    if (result->status.code() == StatusCode::kAlreadyExists) ended_step_ = true;
    for (size_t i = 0; i < result->fetches.size(); ++i) {
      put(static_cast<int32_t>(i), std::move(result->fetches[i]));
    }
    v1::ProgramReply reply;
    task::to_proto(result, reply.mutable_tail());
    answered_ = true;
    put(std::move(reply));
  }

  void hung_up() override {
    if (ran_ && !ended_step_.exchange(true)) common_->task->end_step(call_.step);
  }
  bool said_all() const override { return !ran_ || answered_; }

  const std::shared_ptr<Common> common_;
  const bool is_too_much_;
  task::ProgramCall call_;
  std::optional<PieceJoiner> joiner_;
  int missing_ = 0;
  std::atomic<bool> ran_ = false;
  bool cancelled_ = false;
  std::atomic<bool> ended_step_ = false;
  std::atomic<bool> answered_ = false;
};

/// Answers the receive request of a peer.
class TensorStream final : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                           public task::Task::Receiver {
 public:
  TensorStream(std::shared_ptr<Common> common, uint64_t step)
      : common_(std::move(common)),
        step_(step),
        is_too_much_(++common_->receive_requests > kReceiveRequestsMax) {}
  ~TensorStream() override {
    --common_->receive_requests;
    common_->open_keys -= keys_;
  }

  void start(const base::RefPtr<TensorStream>& self, const v1::RecvTensorsRequest& request) {
    self_ = self;
    task::Task* const task = common_->task;
    if (request.incarnation() != 0 && request.incarnation() != task->incarnation()) {
      return end(task::wrong_incarnation(task->name(), task->name(), task->incarnation(),
                                         request.incarnation()));
    }
    keys_ = request.keys_size();
    const int64_t open_keys = common_->open_keys += keys_;
    if (is_too_much_ || keys_ > task::kReceiveRequestKeysMax || open_keys > kOpenKeysMax) {
      ++common_->bad_requests;
      return end(base::resource_exhausted(
          "{} was asked for {} tensors at once; {} a receive request, {} in all and {} receive "
          "requests are "
          "allowed",
          task->name(), keys_, task::kReceiveRequestKeysMax, kOpenKeysMax, kReceiveRequestsMax));
    }
    asked_ = true;
    std::vector<ports::RendezvousKey> keys;
    for (const v1::TensorKey& key : request.keys()) {
      keys.push_back({.edge = key.edge(), .step = key.step()});
    }
    task->ask(step_, keys, self);
  }

  void refuse(const base::RefPtr<TensorStream>& self, Status status) {
    self_ = self;
    end(std::move(status));
  }

  void give(size_t index, std::span<const Tensor> values) override {
    const std::lock_guard lock(mutex_);
    if (broken_) return;
    outbox_.emplace_back(static_cast<int32_t>(index),
                         ports::TensorGroup(values.begin(), values.end()));
    go_on();
  }

  void end(Status status) override {
    const std::lock_guard lock(mutex_);
    if (ended_) return;
    ended_ = true;
    status_ = std::move(status);
    go_on();
  }

  void OnWriteDone(bool ok) override {
    const std::lock_guard lock(mutex_);
    writing_ = false;
    if (!ok) {
      broken_ = true;
      outbox_.clear();
    }
    go_on();
  }

  void OnCancel() override {
    if (asked_) common_->task->withdraw(step_, self());
    end(base::cancelled("the peer does not want it any more"));
    callback_ran(this);
  }

  void OnDone() override {
    callback_runs(this);
    base::RefPtr<TensorStream> last;
    const std::lock_guard lock(self_mutex_);
    last = std::move(self_);
  }

 private:
  base::RefPtr<TensorStream> self() {
    const std::lock_guard lock(self_mutex_);
    return self_;
  }

  void go_on() {
    if (writing_ || finished_) return;
    if (!outbox_.empty()) {
      writing_ = true;
      message_ = outbox_.front().next();
      common_->bytes_sent += static_cast<int64_t>(outbox_.front().bytes());
      if (outbox_.front().done()) outbox_.pop_front();
      StartWrite(&message_);
    } else if (ended_) {
      finished_ = true;
      Finish(to_grpc(status_));
    }
  }

  const std::shared_ptr<Common> common_;
  const uint64_t step_;
  const bool is_too_much_;
  int64_t keys_ = 0;
  std::atomic<bool> asked_ = false;
  std::mutex mutex_;
  std::deque<TensorGroupCutter> outbox_;
  grpc::ByteBuffer message_;
  bool writing_ = false;
  bool broken_ = false;
  bool ended_ = false;
  bool finished_ = false;
  Status status_;
  std::mutex self_mutex_;
  base::RefPtr<TensorStream> self_;
};

/// Ends a call that takes no time.
grpc::ServerUnaryReactor* answered(grpc::CallbackServerContext* call, const grpc::Status& status) {
  grpc::ServerUnaryReactor* const reactor = call->DefaultReactor();
  reactor->Finish(status);
  return reactor;
}

}  // namespace

class WorkerService::Impl final
    : public v1::Worker::WithRawCallbackMethod_RecvTensors<v1::Worker::CallbackService> {
 public:
  explicit Impl(WorkerServiceOptions options) : options_(std::move(options)) {
    common_->task = options_.task;
    common_->cluster = options_.cluster;
    common_->arriving = options_.arriving;
    common_->leases = options_.leases;
    common_->protocol = cluster::name_of(options_.protocol);
    moves_->task = options_.task;
    moves_->cluster = options_.cluster;
    moves_->credentials = options_.credentials;
    moves_->threads = options_.threads;
    common_->fill_status = [this](v1::TaskStatus* status) { fill(status); };
  }

  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* call,
                                      const v1::GetStatusRequest* request,
                                      v1::TaskStatus* reply) override {
    if (const Status same = check_version(request->version(), common_->task->name()); !same.ok()) {
      ++common_->bad_requests;
      return answered(call, to_grpc(same));
    }
    fill(reply);
    reply->mutable_devices(0)->set_state(common_->task->state_of(request->session()));
    reply->set_cluster(options_.cluster->now().json);
    write_figures(options_.figures(), reply);
    for (const resources::PushedSoFar& one : std::as_const(*common_->task).answered_pushes()) {
      task::to_proto(one, reply->add_answered());
    }
    if (const auto taken = options_.standbys == nullptr ? std::nullopt : options_.standbys->taken();
        taken.has_value()) {
      to_proto(*taken, reply->mutable_taken());
    }
    for (const RunningJob& job : options_.leases->jobs.running()) {
      v1::RunningJob* const out = reply->add_jobs();
      to_proto(job.holder, out->mutable_holder());
      out->set_since_s(job.since_s);
    }
    const auto wanted = static_cast<size_t>(std::max(0, request->events()));
    for (std::string& line : base::recent_events(wanted)) {
      reply->add_events(std::move(line));
    }
    if (request->hot_rows() > 0) {
      std::vector<task::HotVariable> hot = common_->task->hot_variables();
      task::keep_hottest(&hot,
                         std::min(static_cast<size_t>(request->hot_rows()), task::kHotRowsMax));
      write_hot_variables(hot, reply);
    }
    return answered(call, grpc::Status::OK);
  }

  grpc::ServerBidiReactor<v1::AttachRequest, v1::AttachReply>* Attach(
      grpc::CallbackServerContext*) override {
    const auto stream = std::make_shared<AttachStream>(common_);
    stream->start(stream);
    return stream.get();
  }

  grpc::ServerBidiReactor<v1::ProgramRequest, v1::ProgramReply>* RunProgram(
      grpc::CallbackServerContext*) override {
    const auto stream = std::make_shared<ProgramStream>(common_);
    stream->start(stream);
    return stream.get();
  }

  grpc::ServerWriteReactor<grpc::ByteBuffer>* RecvTensors(grpc::CallbackServerContext*,
                                                          const grpc::ByteBuffer* bytes) override {
    v1::RecvTensorsRequest request;
    grpc::ByteBuffer read = *bytes;
    const grpc::Status taken =
        grpc::SerializationTraits<v1::RecvTensorsRequest>::Deserialize(&read, &request);
    const auto stream = base::RefPtr<TensorStream>::make(common_, request.step());
    if (taken.ok()) {
      stream->start(stream, request);
    } else {
      stream->refuse(stream, base::invalid_argument("the receive request cannot be read"));
    }
    return stream.get();
  }

  grpc::ServerBidiReactor<v1::FollowRequest, v1::FollowReply>* FollowChanges(
      grpc::CallbackServerContext* call) override {
    const auto stream = std::make_shared<FollowStream>(
        common_->task, options_.standbys, call,
        std::shared_ptr<std::atomic<int64_t>>(common_, &common_->followers),
        std::shared_ptr<std::atomic<int64_t>>(common_, &common_->bad_requests));
    stream->start(stream);
    return stream.get();
  }

  grpc::ServerWriteReactor<v1::TakeCopyReply>* TakeCopy(
      grpc::CallbackServerContext* /*call*/, const v1::TakeCopyRequest* request) override {
    if (const Status same = check_version(request->version(), common_->task->name()); !same.ok()) {
      ++common_->bad_requests;
      return CopyStream::refuse(same);
    }
    if (options_.standbys == nullptr) return CopyStream::give({});
    if (request->only_asks()) {
      return CopyStream::say(options_.standbys->deposed_by(request->task(), request->life()));
    }
    return CopyStream::give(options_.standbys->hold(request->task(), request->life()));
  }

  grpc::ServerUnaryReactor* AskVote(grpc::CallbackServerContext* call,
                                    const v1::AskVoteRequest* request,
                                    v1::AskVoteReply* reply) override {
    return answered(call, to_grpc(vote(*request, reply)));
  }

  grpc::ServerBidiReactor<v1::MoveRequest, v1::MoveReply>* MoveVariables(
      grpc::CallbackServerContext*) override {
    const auto stream = std::make_shared<MoveStream>(moves_);
    stream->start(stream);
    return stream.get();
  }

  grpc::ServerUnaryReactor* ResetContainers(grpc::CallbackServerContext* call,
                                            const v1::ResetRequest* request,
                                            v1::ResetReply*) override {
    return answered(call, to_grpc(common_->task->reset(
                              {request->containers().begin(), request->containers().end()})));
  }

  grpc::ServerUnaryReactor* SetLogLevel(grpc::CallbackServerContext* call,
                                        const v1::SetLogLevelRequest* request,
                                        v1::SetLogLevelReply*) override {
    const Result<base::LogLevel> level = base::parse_log_level(request->level());
    if (!level.ok()) return answered(call, to_grpc(level.status()));
    base::set_log_level(*level);
    return answered(call, grpc::Status::OK);
  }

  Status vote(const v1::AskVoteRequest& request, v1::AskVoteReply* reply) {
    const std::string& name = common_->task->name();
    SR_RETURN_IF_ERROR(check_version(request.version(), name));
    if (options_.voting == nullptr) {
      return base::failed_precondition(
          "{} has no vote: tasks of the job '{}' have; give all of the cluster the same spec", name,
          kVoterJob);
    }
    const Result<membership::Vote> vote = options_.voting->vote(from_proto(request));
    if (vote.status().code() == StatusCode::kInvalidArgument) ++common_->bad_requests;
    SR_RETURN_IF_ERROR(vote.status());
    to_proto(*vote, reply);
    return {};
  }

  /// Who this is, and how it is reached.
  void fill(v1::TaskStatus* status) const {
    const task::Task& task = *common_->task;
    status->set_version(kSessionVersion);
    status->set_task(task.name());
    const sys::posix::ProcessFigures machine = sys::posix::process_figures();
    v1::Device* const device = status->add_devices();
    device->set_name(task.name() + "/device:CPU:0");
    device->set_type("CPU");
    device->set_memory_bytes(machine.memory_limit);
    device->set_incarnation(task.incarnation());
    status->set_pid(machine.pid);
    status->set_protocol(common_->protocol);
    if (!options_.data_ports.empty()) status->set_data_port(options_.data_ports.front());
    for (size_t i = 1; i < options_.data_ports.size(); ++i) {
      status->add_lane_ports(options_.data_ports[i]);
    }
    for (const auto& [name, value] : options_.settings) (*status->mutable_settings())[name] = value;
  }

  void drain() { common_->draining = true; }
  [[nodiscard]] int64_t bytes_sent() const { return common_->bytes_sent; }
  [[nodiscard]] int64_t bad_requests() const {
    return common_->bad_requests + moves_->bad_requests;
  }

 private:
  const WorkerServiceOptions options_;
  std::shared_ptr<Common> common_ = std::make_shared<Common>();
  std::shared_ptr<MoveStream::Shared> moves_ = std::make_shared<MoveStream::Shared>();
};

WorkerService::WorkerService(WorkerServiceOptions options)
    : impl_(std::make_unique<Impl>(std::move(options))) {}
WorkerService::~WorkerService() = default;
grpc::Service* WorkerService::service() { return impl_.get(); }
void WorkerService::drain() { impl_->drain(); }
int64_t WorkerService::bytes_sent() const { return impl_->bytes_sent(); }
int64_t WorkerService::bad_requests() const { return impl_->bad_requests(); }

}  // namespace sidereal::service
