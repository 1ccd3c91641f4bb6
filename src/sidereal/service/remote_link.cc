#include "sidereal/service/remote_link.h"

#include <grpcpp/grpcpp.h>

#include <deque>
#include <mutex>
#include <utility>

#include "sidereal/service/internal/client_stream.h"
#include "sidereal/service/internal/grpc_status.h"
#include "sidereal/service/session.grpc.pb.h"
#include "sidereal/service/worker_service.h"
#include "sidereal/task/data_channels.h"
#include "sidereal/task/failure.h"

namespace sidereal::service {

namespace v1 = session::v1;
using tensor::Tensor;

namespace {

/// A task, and what messages call it.
struct PeerName {
  std::string task;
  std::string shown;
};

/// Why a stream to `peer` ended that should not have.
Status lost(const grpc::Status& status, const PeerName& peer) {
  if (status.ok()) {
    return task::with_origin(base::unavailable("{} ended the session", peer.shown),
                             {.task = peer.task});
  }
  Status out = from_grpc(status, peer.shown);
  if (out.code() != StatusCode::kUnavailable) return out;
  return task::with_origin(std::move(out), {.task = peer.task});
}

/// The Attach stream.
class Attachment final : public ClientStream<v1::AttachRequest, v1::AttachReply> {
 public:
  Attachment(PeerName peer, std::function<void(Status)> on_lost)
      : peer_(std::move(peer)), on_lost_(std::move(on_lost)) {}

  void attach(v1::Worker::Stub* stub, const v1::AttachHead& head,
              std::function<void(Result<master::Link::Attached>)> done) {
    on_attached_ = std::move(done);
    stub->async()->Attach(&context_, this);
    begin();
    v1::AttachRequest request;
    *request.mutable_head() = head;
    put(std::move(request));
  }

  void register_program(task::NewProgram program, std::function<void(Result<uint64_t>)> done) {
    {
      const std::lock_guard lock(state_mutex_);
      if (ended_) {
        const Status status = status_;
        return done(status);
      }
      waiting_.push_back(std::move(done));
    }
    v1::AttachRequest request;
    request.set_program(std::move(program.bytes));
    request.set_lane(program.lane);
    for (ports::TensorSource& peer : program.peers) {
      v1::Peer* const out = request.add_peers();
      out->set_device(std::move(peer.device));
      out->set_incarnation(peer.incarnation);
    }
    put(std::move(request));
  }

  void detach() {
    {
      const std::lock_guard lock(state_mutex_);
      on_lost_ = nullptr;
    }
    close();
  }
  using ClientStream::hang_up;

 private:
  void take(v1::AttachReply* reply) override {
    if (reply->has_status()) {
      const auto& devices = reply->status().devices();
      const auto done = std::exchange(on_attached_, nullptr);
      if (done) {
        done(master::Link::Attached{.incarnation = devices.empty() ? 0 : devices[0].incarnation(),
                                    .lanes = 1 + reply->status().lane_ports_size()});
      }
      return;
    }
    std::function<void(Result<uint64_t>)> done;
    {
      const std::lock_guard lock(state_mutex_);
      if (waiting_.empty()) return;
      done = std::move(waiting_.front());
      waiting_.pop_front();
    }
    if (reply->has_failure()) {
      done(base::with_context(task::from_proto(reply->failure()), peer_.shown));
    } else {
      done(reply->program());
    }
  }

  void ended(const grpc::Status& status) override {
    std::deque<std::function<void(Result<uint64_t>)>> waiting;
    std::function<void(Status)> on_lost;
    {
      const std::lock_guard lock(state_mutex_);
      ended_ = true;
      status_ = lost(status, peer_);
      waiting = std::move(waiting_);
      on_lost = std::exchange(on_lost_, nullptr);
    }
    const auto attached = std::exchange(on_attached_, nullptr);
    if (attached) {
      attached(status_);
    } else if (on_lost) {
      on_lost(status_);
    }
    for (const auto& done : waiting) done(status_);
  }

  const PeerName peer_;
  std::function<void(Result<master::Link::Attached>)> on_attached_;
  std::mutex state_mutex_;
  std::function<void(Status)> on_lost_;
  std::deque<std::function<void(Result<uint64_t>)>> waiting_;
  bool ended_ = false;
  Status status_;
};

/// Fetches of one part that a task may send.
constexpr int32_t kFetchesMax = 1 << 20;

/// A RunProgram stream.
class RemotePart final : public ClientStream<v1::ProgramRequest, v1::ProgramReply>,
                         public task::StepPart {
 public:
  RemotePart(PeerName peer, task::AnsweredPushes* answered,
             std::function<void(task::ProgramResult)> done)
      : peer_(std::move(peer)), answered_(answered), done_with_(std::move(done)) {}

  void run(v1::Worker::Stub* stub, task::ProgramCall call) {
    stub->async()->RunProgram(&context_, this);
    begin();
    v1::ProgramRequest request;
    v1::ProgramHead* const head = request.mutable_head();
    head->set_session(call.session);
    head->set_program(call.program);
    head->set_step(call.step);
    head->set_number(call.number);
    head->set_feeds(static_cast<int32_t>(call.feeds.size()));
    head->set_trace(call.trace);
    head->set_client(call.closure.client);
    head->set_closure(call.closure.closure);
    if (call.feeds.empty()) return put(std::move(request));
    put(std::move(request), 0, std::move(call.feeds[0]));
    for (size_t i = 1; i < call.feeds.size(); ++i) {
      put(static_cast<int32_t>(i), std::move(call.feeds[i]));
    }
  }

  void cancel() override {
    v1::ProgramRequest request;
    request.set_cancel(true);
    put(std::move(request));
  }

  void end() override {
    {
      const std::lock_guard lock(result_mutex_);
      ended_ = true;
      if (done_with_ == nullptr) {
        close();
        return;
      }
    }
    hang_up();
  }

 private:
  void take(v1::ProgramReply* reply) override {
    if (reply->has_piece()) {
      auto value = joiner_.add(reply->piece());
      if (!value.ok()) return give({.status = base::with_context(value.status(), peer_.shown)});
      if (*value) {
        const auto index = static_cast<size_t>((*value)->first);
        if (fetches_.size() <= index) fetches_.resize(index + 1);
        fetches_[index] = std::move((*value)->second);
      }
    }
    if (!reply->has_tail()) return;
    task::ProgramResult result;
    task::from_proto(reply->mutable_tail(), &result);
    if (answered_ != nullptr) answered_->note(result.pushed);
    result.fetches = std::move(fetches_);
    give(std::move(result));
  }

  void ended(const grpc::Status& status) override {
    task::ProgramResult result;
    {
      const std::lock_guard lock(result_mutex_);
      result.derived = ended_;
    }
    result.status = lost(status, peer_);
    give(std::move(result));
  }

  void give(task::ProgramResult result) {
    std::function<void(task::ProgramResult)> done;
    {
      const std::lock_guard lock(result_mutex_);
      done = std::exchange(done_with_, nullptr);
    }
    if (done) done(std::move(result));
  }

  const PeerName peer_;
  task::AnsweredPushes* const answered_;
  std::mutex result_mutex_;
  std::function<void(task::ProgramResult)> done_with_;
  bool ended_ = false;
  PieceJoiner joiner_{kFetchesMax};
  std::vector<Tensor> fetches_;
};

/// Parts that run over the data port of a task. A peer there may be silent while it runs a long op:
/// whether it lives is for the Attach stream to say.
class DataParts {
 public:
  void add(const std::shared_ptr<task::DataChannels::Part>& part) {
    Status lost;
    {
      const std::lock_guard lock(mutex_);
      lost = lost_;
      std::erase_if(parts_, [](const auto& one) { return one.expired(); });
      parts_.push_back(part);
    }
    if (!lost.ok()) part->lose(lost);
  }
  void lose(const Status& why) {
    std::vector<std::weak_ptr<task::DataChannels::Part>> parts;
    {
      const std::lock_guard lock(mutex_);
      lost_ = why;
      parts.swap(parts_);
    }
    for (const auto& one : parts) {
      const std::shared_ptr<task::DataChannels::Part> part = one.lock();
      if (part != nullptr) part->lose(why);
    }
  }

 private:
  std::mutex mutex_;
  std::vector<std::weak_ptr<task::DataChannels::Part>> parts_;
  Status lost_;
};

class RemoteLink final : public master::Link {
 public:
  RemoteLink(std::shared_ptr<grpc::Channel> channel, std::string peer, master::LinkOptions options)
      : stub_(v1::Worker::NewStub(std::move(channel))),
        peer_{.task = options.task, .shown = std::move(peer)},
        answered_(options.answered),
        data_(options.data),
        attachment_(std::make_shared<Attachment>(
            peer_, [parts = parts_, on_lost = std::move(options.on_lost)](const Status& why) {
              on_lost(why);
              parts->lose(why);
            })) {
    head_.set_version(kSessionVersion);
    head_.set_task(std::move(options.task));
    head_.set_session(options.session);
    set_state(std::move(options.state));
    head_.set_protocol(std::string(cluster::name_of(options.protocol)));
    head_.set_cluster(std::move(options.cluster));
    head_.set_master(std::move(options.master));
    head_.set_lease(options.lease);
  }
  ~RemoteLink() override { attachment_->hang_up(); }

  void attach(std::function<void(Result<Attached>)> done) override {
    attachment_->attach(stub_.get(), head_,
                        [incarnation = incarnation_, done = std::move(done)](Result<Attached> got) {
                          if (got.ok()) *incarnation = got->incarnation;
                          done(std::move(got));
                        });
  }
  void register_program(task::NewProgram program,
                        std::function<void(Result<uint64_t>)> done) override {
    attachment_->register_program(std::move(program), std::move(done));
  }
  std::shared_ptr<task::StepPart> run(task::ProgramCall call,
                                      std::function<void(task::ProgramResult)> done) override {
    call.session = head_.session();
    if (data_ != nullptr) {
      auto part = data_->run(peer_.task, *incarnation_, std::move(call), std::move(done));
      parts_->add(part);
      return part;
    }
    auto part = std::make_shared<RemotePart>(peer_, answered_, std::move(done));
    part->run(stub_.get(), std::move(call));
    return part;
  }
  void detach() override { attachment_->detach(); }

 private:
  void set_state(task::SessionState state) {
    switch (state.kind) {
      case task::SessionState::Kind::kShared:
        return;
      case task::SessionState::Kind::kOwn:
        return head_.set_isolated(true);
      case task::SessionState::Kind::kGroup:
        return head_.set_state_group(std::move(state.group));
    }
  }

  const std::unique_ptr<v1::Worker::Stub> stub_;
  const PeerName peer_;
  task::AnsweredPushes* const answered_;
  task::DataChannels* const data_;
  v1::AttachHead head_;
  // Known once attached, which is before anything runs.
  const std::shared_ptr<uint64_t> incarnation_ = std::make_shared<uint64_t>(0);
  const std::shared_ptr<DataParts> parts_ = std::make_shared<DataParts>();
  const std::shared_ptr<Attachment> attachment_;
};

}  // namespace

Result<std::shared_ptr<master::Link>> RemoteTasks::link(master::LinkOptions options) {
  SR_ASSIGN_OR_RETURN(std::shared_ptr<grpc::Channel> channel, channels_->to(options.task));
  std::string peer = channels_->describe(options.task);
  return std::make_shared<RemoteLink>(std::move(channel), std::move(peer), std::move(options));
}

}  // namespace sidereal::service
