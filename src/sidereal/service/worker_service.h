#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "sidereal/cluster/protocol.h"
#include "sidereal/metrics/figures.h"
#include "sidereal/security/credentials.h"
#include "sidereal/task/task.h"

namespace grpc {
class Service;
}

namespace sidereal::master {
class Threads;
}

namespace sidereal::service {

class ArrivingBytes;
class KnownCluster;
class Standbys;
class Voting;
struct Leases;

/// Of session.proto; a server and its callers must agree.
inline constexpr int kSessionVersion = 3;

struct WorkerServiceOptions {
  task::Task* task = nullptr;  ///< Borrowed.
  /// All that the server counts.
  std::function<metrics::Readings()> figures;
  std::shared_ptr<KnownCluster> cluster;  ///< Of the server.
  /// Of the server: how other tasks are reached.
  std::shared_ptr<const security::Credentials> credentials;
  master::Threads* threads = nullptr;            ///< Borrowed: for what waits.
  std::shared_ptr<ArrivingBytes> arriving;       ///< Bounds feeds.
  std::shared_ptr<Leases> leases;                ///< Of the server.
  std::shared_ptr<Standbys> standbys = nullptr;  ///< Of the server; or it keeps none.
  std::shared_ptr<Voting> voting = nullptr;      ///< Of a task that has a vote.
  cluster::Protocol protocol = cluster::Protocol::kGrpc;
  std::vector<int> data_ports = {};  ///< By lane; empty: none.
  /// Of lanes and connections, with who said them, by name.
  std::map<std::string, std::string> settings = {};
};

/// The Worker service of session.proto on a Task.
/// Thread: any. Must outlive the gRPC server it is registered with.
class WorkerService {
 public:
  explicit WorkerService(WorkerServiceOptions options);
  ~WorkerService();
  WorkerService(const WorkerService&) = delete;
  WorkerService& operator=(const WorkerService&) = delete;

  [[nodiscard]] grpc::Service* service();
  /// Takes no parts of steps of other masters any more.
  void drain();
  /// Bytes of tensors that it sent.
  [[nodiscard]] int64_t bytes_sent() const;
  /// Requests that were refused for what they say.
  [[nodiscard]] int64_t bad_requests() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sidereal::service
