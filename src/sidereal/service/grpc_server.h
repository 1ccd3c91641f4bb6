#pragma once

#include <chrono>
#include <memory>
#include <vector>

namespace grpc {
class Server;
class Service;
}  // namespace grpc
namespace sidereal::security {
class Listener;
}

namespace sidereal::service {

/// A gRPC server with bounds on what its callers can make it hold. Thread: any.
class GrpcServer {
 public:
  /// Answers for `services`, which are borrowed, on connections of `listener`, and for health
  /// checks; takes no longer messages than `message_bytes_max`. nullptr when gRPC does not start
  /// it.
  static std::unique_ptr<GrpcServer> start(const std::vector<grpc::Service*>& services,
                                           security::Listener* listener,
                                           int message_bytes_max = 1 << 30);
  ~GrpcServer();
  GrpcServer(const GrpcServer&) = delete;
  GrpcServer& operator=(const GrpcServer&) = delete;

  /// Takes no calls any more, and ends those that have not ended `after` this long.
  void stop(std::chrono::milliseconds after);

 private:
  explicit GrpcServer(std::unique_ptr<grpc::Server> server);
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace sidereal::service
