#include "sidereal/service/callback_threads.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <future>
#include <memory>

#include "sidereal/service/session.grpc.pb.h"

namespace sidereal::service {

namespace v1 = session::v1;

namespace {

/// A channel that has made a call with a callback holds the threads as long as it exists.
std::shared_ptr<grpc::Channel> used_channel() {
  // Nobody is asked: the deadline has passed before the call begins.
  std::shared_ptr<grpc::Channel> channel =
      grpc::CreateChannel("ipv4:127.0.0.1:1", grpc::InsecureChannelCredentials());
  const auto stub = v1::Worker::NewStub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now());
  const v1::GetStatusRequest request;
  v1::TaskStatus reply;
  std::promise<void> ended;
  stub->async()->GetStatus(&context, &request, &reply,
                           [&](const grpc::Status&) { ended.set_value(); });
  ended.get_future().wait();
  return channel;
}

}  // namespace

void keep_callback_threads() {
  // Never destroyed: gRPC may be gone by the end of the process.
  [[gnu::used]] static const auto* const kept = new std::shared_ptr<grpc::Channel>(used_channel());
}

}  // namespace sidereal::service
