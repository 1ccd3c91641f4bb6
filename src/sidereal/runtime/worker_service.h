#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "sidereal/runtime/task.h"

namespace grpc {
class Service;
}

namespace sidereal::runtime {

class ArrivingBytes;

/// Of session.proto; a server and its callers must agree.
inline constexpr int kSessionVersion = 1;

/// The Worker service of session.proto on a Task.
/// Thread: any. Must outlive the gRPC server it is registered with.
class WorkerService {
 public:
  /// `task` is borrowed. `peers_refused` gives what a status says of peers that were not let in,
  /// `bytes_received` the bytes of tensors that came to this task. `cluster`: who is in it, as
  /// cluster::ClusterSpec::to_json() has it. `arriving` bounds feeds.
  WorkerService(Task* task, std::function<std::map<std::string, int64_t>()> peers_refused,
                std::function<int64_t()> bytes_received, std::string cluster,
                std::shared_ptr<ArrivingBytes> arriving);
  ~WorkerService();
  WorkerService(const WorkerService&) = delete;
  WorkerService& operator=(const WorkerService&) = delete;

  [[nodiscard]] grpc::Service* service();
  /// Takes no parts of steps of other masters any more.
  void drain();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sidereal::runtime
