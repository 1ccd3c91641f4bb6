#include "sidereal/service/grpc_server.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>

#include <utility>

#include "sidereal/security/listener.h"

namespace sidereal::service {

namespace {

/// Threads for calls that wait: sessions that are made.
constexpr int kThreadsMax = 512;
/// What gRPC's buffers may hold; beyond it gRPC ends streams.
constexpr size_t kBufferBytesMax = size_t{4} << 30;
/// What is read of a connection at once: all calls in it begin before the next look at floods.
constexpr int kReadBytesMax = 256 << 10;
/// Calls on one connection.
constexpr int kStreamsMax = 1024;

}  // namespace

std::unique_ptr<GrpcServer> GrpcServer::start(const std::vector<grpc::Service*>& services,
                                              security::Listener* listener, int message_bytes_max) {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::ServerBuilder builder;
  for (grpc::Service* const service : services) builder.RegisterService(service);
  builder.SetMaxReceiveMessageSize(message_bytes_max);
  builder.SetMaxSendMessageSize(-1);
  grpc::ResourceQuota quota("sidereal");
  quota.SetMaxThreads(kThreadsMax);
  quota.Resize(kBufferBytesMax);
  builder.SetResourceQuota(quota);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1000);
  builder.AddChannelArgument(GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, kReadBytesMax);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kStreamsMax);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 4000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  listener->attach(&builder);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) return nullptr;
  return std::unique_ptr<GrpcServer>(new GrpcServer(std::move(server)));
}

GrpcServer::GrpcServer(std::unique_ptr<grpc::Server> server) : server_(std::move(server)) {}
GrpcServer::~GrpcServer() = default;

void GrpcServer::stop(std::chrono::milliseconds after) {
  server_->Shutdown(std::chrono::system_clock::now() + after);
}

}  // namespace sidereal::service
