#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "sidereal/base/status.h"
#include "sidereal/service/known_cluster.h"
#include "sidereal/task/task.h"

namespace grpc {
class Channel;
}
namespace sidereal::security {
class Credentials;
}

namespace sidereal::service {

/// A channel to a server, which notices within 7 s that it has gone. `target` is "host:port".
std::shared_ptr<grpc::Channel> make_channel(const std::string& target,
                                            const security::Credentials& credentials);

/// Connections to the tasks of a cluster, made when they are first asked for. Until a server knows
/// its cluster that is itself alone.
/// Thread: any.
class Channels {
 public:
  Channels(std::shared_ptr<const KnownCluster> cluster,
           std::shared_ptr<const security::Credentials> credentials);
  ~Channels();

  /// The channel to a task, by its full name. kNotFound when the cluster has no such task. With an
  /// incarnation that is not 0, one that has not failed to reach an earlier start of the task: such
  /// a channel refuses calls for up to a second after the task is back.
  Result<std::shared_ptr<grpc::Channel>> to(const std::string& task, uint64_t incarnation = 0);
  /// The same for a receive request now and then: a channel that nobody has by to() goes with the
  /// last who has it.
  Result<std::shared_ptr<grpc::Channel>> passing(const std::string& task, uint64_t incarnation = 0);
  /// "host:port" of a task's control service, by its full name; "" when there is no such task.
  [[nodiscard]] std::string address(const std::string& task) const;
  /// "/job:ps/replica:0/task:0 at host:port", for messages.
  [[nodiscard]] std::string describe(const std::string& task) const;
  /// Full names of all tasks, sorted by job and index.
  [[nodiscard]] const std::vector<std::string>& tasks() const { return cluster_->now().tasks; }

 private:
  struct Known {
    std::weak_ptr<grpc::Channel> channel;
    std::shared_ptr<grpc::Channel> kept;
    uint64_t incarnation = 0;  ///< That it was last asked for with; 0: none.
  };
  Result<std::shared_ptr<grpc::Channel>> find(const std::string& task, uint64_t incarnation,
                                              bool keep);

  const std::shared_ptr<const KnownCluster> cluster_;
  const std::shared_ptr<const security::Credentials> credentials_;
  std::mutex mutex_;
  std::map<std::string, Known> channels_;
};

/// Asks by RecvTensors calls.
/// Thread: any. Must outlive its receive requests: stop() waits for them.
class RemotePeers final : public task::Peers {
 public:
  explicit RemotePeers(Channels* channels);
  ~RemotePeers() override;
  base::RefPtr<ReceiveRequest> ask(const ports::TensorSource& source, uint64_t step,
                                   std::span<const Wanted> wanted, Requester* requester) override;
  size_t give_back_unused() override;
  /// Bytes of tensors that came.
  [[nodiscard]] int64_t bytes_received() const;

 private:
  struct Shared;
  Channels* channels_;
  std::shared_ptr<Shared> shared_;
};

}  // namespace sidereal::service
