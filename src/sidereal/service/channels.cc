#include "sidereal/service/channels.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <optional>
#include <utility>

#include "sidereal/cluster/task_name.h"
#include "sidereal/security/channel.h"
#include "sidereal/service/callback_order.h"
#include "sidereal/service/callback_threads.h"
#include "sidereal/service/internal/grpc_status.h"
#include "sidereal/service/internal/tensor_group_message.h"
#include "sidereal/service/session.grpc.pb.h"
#include "sidereal/task/origin.h"

namespace sidereal::service {

namespace v1 = session::v1;
using ports::TensorGroup;

std::shared_ptr<grpc::Channel> make_channel(const std::string& target,
                                            const security::Credentials& credentials) {
  keep_callback_threads();
  // A silent peer is noticed within 7 s.
  return security::make_channel(target, &credentials,
                                {.keepalive_ms = 2000,
                                 .keepalive_timeout_ms = 5000,
                                 .idle_ms = task::kChannelIdleMs,
                                 .connect_ms = 3000});
}

Channels::Channels(std::shared_ptr<const KnownCluster> cluster,
                   std::shared_ptr<const security::Credentials> credentials)
    : cluster_(std::move(cluster)), credentials_(std::move(credentials)) {}

Channels::~Channels() = default;

std::string Channels::address(const std::string& task) const {
  const std::map<std::string, std::string>& addresses = cluster_->now().addresses;
  const auto found = addresses.find(task);
  return found == addresses.end() ? "" : found->second;
}

std::string Channels::describe(const std::string& task) const {
  const std::map<std::string, std::string>& addresses = cluster_->now().addresses;
  const auto found = addresses.find(task);
  return found == addresses.end() ? task : task + " at " + found->second;
}

Result<std::shared_ptr<grpc::Channel>> Channels::to(const std::string& task, uint64_t incarnation) {
  return find(task, incarnation, true);
}

Result<std::shared_ptr<grpc::Channel>> Channels::passing(const std::string& task,
                                                         uint64_t incarnation) {
  return find(task, incarnation, false);
}

Result<std::shared_ptr<grpc::Channel>> Channels::find(const std::string& task, uint64_t incarnation,
                                                      bool keep) {
  const std::map<std::string, std::string>& addresses = cluster_->now().addresses;
  const auto address = addresses.find(task);
  if (address == addresses.end()) {
    if (cluster_->is_known()) return base::not_found("there is no {} in this cluster", task);
    return base::not_found(
        "{} is not known here: this server was started without a cluster, and no session has named "
        "one; make a session with the option \"cluster\"",
        task);
  }
  const std::lock_guard lock(mutex_);
  Known& known = channels_[task];
  std::shared_ptr<grpc::Channel> channel = known.channel.lock();
  const bool is_of_another = incarnation != 0 && known.incarnation != incarnation;
  const bool is_known_good = known.incarnation == 0 && channel != nullptr &&
                             channel->GetState(false) == GRPC_CHANNEL_READY;
  if (channel == nullptr || (is_of_another && !is_known_good)) {
    channel = make_channel(address->second, *credentials_);
    known.channel = channel;
  }
  if (keep || known.kept != nullptr) known.kept = channel;
  if (incarnation != 0) known.incarnation = incarnation;
  return channel;
}

/// Calls that are under way, so that nothing is told to who is gone.
struct RemotePeers::Shared {
  std::mutex mutex;
  std::condition_variable changed;
  int calls = 0;
  std::atomic<int64_t> bytes = 0;
  task::ArrivalMemory memory;
};

namespace {

/// The call Worker.RecvTensors, as bytes: see tensor_group_message.h.
class RecvCall final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                       public task::Peers::ReceiveRequest {
 public:
  /// `memory` is borrowed until `on_done`.
  RecvCall(std::string task, std::string peer, uint64_t step,
           std::span<const task::Peers::Wanted> wanted, task::Peers::Requester* requester,
           task::ArrivalMemory* memory, std::function<void(int64_t bytes)> on_done)
      : task_(std::move(task)),
        peer_(std::move(peer)),
        step_(step),
        missing_(wanted.size()),
        requester_(requester->weak_from_this()),
        on_done_(std::move(on_done)) {
    for (const task::Peers::Wanted& one : wanted) tensor_groups_.emplace_back(one, memory);
  }

  void start(std::shared_ptr<grpc::Channel> channel, base::RefPtr<RecvCall> self) {
    self_ = std::move(self);
    stub_.emplace(std::move(channel));
    bool own_buffer = false;
    static_cast<void>(grpc::SerializationTraits<v1::RecvTensorsRequest>::Serialize(
        request, &request_bytes_, &own_buffer));
    stub_->PrepareBidiStreamingCall(&context_, kMethod, {}, this);
    StartWriteLast(&request_bytes_, {});
    StartRead(&message_);
    StartCall();
  }

  void OnReadDone(bool ok) override {
    callback_runs(this);
    if (!ok) return;
    const Status taken = take();
    if (!taken.ok()) {
      wrong_ = taken;
      context_.TryCancel();
    }
    callback_ran(this);
    StartRead(&message_);
  }

  void OnDone(const grpc::Status& status) override {
    callback_runs(this);
    if (wrong_.ok() && status.ok() && missing_ > 0) {
      wrong_ =
          base::data_loss("{} of the tensor groups that were asked for did not come", missing_);
    }
    if (const std::shared_ptr<task::Peers::Requester> requester = requester_.lock();
        requester != nullptr) {
      Status ended = wrong_.ok() ? from_grpc(status, peer_) : base::with_context(wrong_, peer_);
      requester->ended(step_, this, task::from_call(std::move(ended), task_));
    }
    on_done_(bytes_);
    const base::RefPtr<RecvCall> last = std::move(self_);
  }

  void cancel() override { context_.TryCancel(); }

  v1::RecvTensorsRequest request;

 private:
  static constexpr const char* kMethod = "/sidereal.session.v1.Worker/RecvTensors";

  /// A tensor group that is arriving.
  struct Arriving {
    Arriving(const task::Peers::Wanted& wanted, task::ArrivalMemory* memory)
        : key(wanted.key),
          values(wanted.count),
          missing(wanted.count),
          joiner(static_cast<int32_t>(wanted.count), memory) {}
    ports::RendezvousKey key;
    TensorGroup values;
    size_t missing;
    PieceJoiner joiner;
  };

  Status take() {
    Arriving* tensor_group = nullptr;
    const auto joiner_of = [&](int32_t key) -> Result<PieceJoiner*> {
      if (key < 0 || static_cast<size_t>(key) >= tensor_groups_.size()) {
        return base::invalid_argument("tensor group {} of {}", key, tensor_groups_.size());
      }
      tensor_group = &tensor_groups_[static_cast<size_t>(key)];
      return &tensor_group->joiner;
    };
    const auto take_tensor = [&](int32_t index, tensor::Tensor value) {
      tensor_group->values[static_cast<size_t>(index)] = std::move(value);
      if (--tensor_group->missing > 0) return;
      --missing_;
      const std::shared_ptr<task::Peers::Requester> requester = requester_.lock();
      if (requester != nullptr) requester->arrived(step_, tensor_group->key, tensor_group->values);
    };
    SR_ASSIGN_OR_RETURN(const int64_t bytes,
                        read_tensor_group_message(&message_, joiner_of, take_tensor));
    bytes_ += bytes;
    return {};
  }

  const std::string task_;
  const std::string peer_;
  const uint64_t step_;
  size_t missing_;
  std::deque<Arriving> tensor_groups_;
  const std::weak_ptr<task::Peers::Requester> requester_;
  std::function<void(int64_t)> on_done_;
  std::optional<grpc::TemplatedGenericStub<grpc::ByteBuffer, grpc::ByteBuffer>> stub_;
  grpc::ClientContext context_;
  grpc::ByteBuffer request_bytes_;
  grpc::ByteBuffer message_;
  Status wrong_;
  int64_t bytes_ = 0;
  base::RefPtr<RecvCall> self_;
};

}  // namespace

RemotePeers::RemotePeers(Channels* channels)
    : channels_(channels), shared_(std::make_shared<Shared>()) {}

RemotePeers::~RemotePeers() {
  std::unique_lock lock(shared_->mutex);
  shared_->changed.wait(lock, [this] { return shared_->calls == 0; });
}

int64_t RemotePeers::bytes_received() const { return shared_->bytes; }

size_t RemotePeers::give_back_unused() { return shared_->memory.trim(); }

base::RefPtr<task::Peers::ReceiveRequest> RemotePeers::ask(const ports::TensorSource& source,
                                                           uint64_t step,
                                                           std::span<const Wanted> wanted,
                                                           Requester* requester) {
  const std::string task = cluster::task_of(source.device);
  Result<std::shared_ptr<grpc::Channel>> channel = channels_->to(task, source.incarnation);
  if (!channel.ok()) {
    requester->ended(step, nullptr, channel.status());
    return nullptr;
  }
  {
    const std::lock_guard lock(shared_->mutex);
    ++shared_->calls;
  }
  auto call = base::RefPtr<RecvCall>::make(task, channels_->describe(task), step, wanted, requester,
                                           &shared_->memory, [shared = shared_](int64_t bytes) {
                                             shared->bytes += bytes;
                                             const std::lock_guard lock(shared->mutex);
                                             --shared->calls;
                                             shared->changed.notify_all();
                                           });
  call->request.set_step(step);
  call->request.set_incarnation(source.incarnation);
  for (const Wanted& one : wanted) {
    v1::TensorKey* const key = call->request.add_keys();
    key->set_edge(one.key.edge);
    key->set_step(one.key.step);
  }
  call->start(*std::move(channel), call);
  return call;
}

}  // namespace sidereal::service
