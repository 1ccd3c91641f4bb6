#pragma once

#include <cstdint>
#include <memory>

#include "sidereal/base/status.h"

namespace grpc {
class Service;
}

namespace sidereal::master {
struct MasterContext;
}  // namespace sidereal::master

namespace sidereal::service {

class ArrivingBytes;
class Channels;
class KnownCluster;
struct Leases;

/// The Master service of session.proto.
/// Thread: any. Must outlive the gRPC server it is registered with.
class MasterService {
 public:
  /// `context` and `channels` are borrowed; `cluster` and `leases` are the server's. `arriving`
  /// bounds feeds.
  MasterService(master::MasterContext* context, Channels* channels,
                std::shared_ptr<KnownCluster> cluster, std::shared_ptr<ArrivingBytes> arriving,
                std::shared_ptr<Leases> leases);
  ~MasterService();
  MasterService(const MasterService&) = delete;
  MasterService& operator=(const MasterService&) = delete;

  [[nodiscard]] grpc::Service* service();
  /// Takes no sessions and no steps any more.
  void drain();
  /// Steps that run.
  [[nodiscard]] int running() const;
  /// Loops that run.
  [[nodiscard]] int loops_running() const;
  /// Requests that were refused for what they say.
  [[nodiscard]] int64_t bad_requests() const;
  /// Ends all sessions with `why`.
  void close_all(const Status& why);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sidereal::service
