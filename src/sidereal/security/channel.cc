#include "sidereal/security/channel.h"

#include <grpcpp/grpcpp.h>

#include <array>

#include "sidereal/security/cluster_key.h"
#include "sidereal/security/tls.h"
#include "sidereal/sys/posix/posix.h"

namespace sidereal::security {
namespace {

using Clock = std::chrono::steady_clock;

/// Shakes hands with the member at `address`: how that ended, or kDeadlineExceeded.
Status shake_hands(const std::string& address, const Credentials& credentials,
                   Clock::time_point until) {
  SR_ASSIGN_OR_RETURN(const sys::Address asked, sys::Address::parse(address));
  const std::unique_ptr<sys::Network> network = sys::posix::create_network();
  SR_ASSIGN_OR_RETURN(const sys::Address number, network->resolve(asked));
  SR_ASSIGN_OR_RETURN(const std::shared_ptr<const Tls> tls, Tls::create(credentials));
  SR_ASSIGN_OR_RETURN(std::unique_ptr<sys::Stream> stream, network->connect(number));
  SR_ASSIGN_OR_RETURN(stream, tls->connect(std::move(stream), asked.host));
  SR_ASSIGN_OR_RETURN(const std::unique_ptr<sys::Poller> poller, network->create_poller());
  SR_RETURN_IF_ERROR(poller->add(*stream, 1, stream->connecting_interest()));
  Status status;
  while (true) {
    const Result<bool> shaken = stream->connected();
    if (!shaken.ok() || *shaken) {
      status = shaken.status();
      break;
    }
    const auto left =
        std::chrono::duration_cast<std::chrono::nanoseconds>(until - Clock::now()).count();
    if (left <= 0) {
      status = base::deadline_exceeded("no answer from {}", address);
      break;
    }
    status = poller->update(*stream, 1, stream->connecting_interest());
    if (!status.ok()) break;
    std::array<sys::Event, 1> events;
    static_cast<void>(poller->wait(events, left));
  }
  poller->remove(*stream);
  return status;
}

}  // namespace

std::shared_ptr<grpc::Channel> make_channel(const std::string& address,
                                            const Credentials* credentials,
                                            const ChannelOptions& options) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(options.message_bytes_max);
  arguments.SetMaxSendMessageSize(options.message_bytes_max);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, options.keepalive_ms);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, options.keepalive_timeout_ms);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, options.keepalive_when_idle ? 1 : 0);
  if (options.idle_ms > 0) arguments.SetInt(GRPC_ARG_CLIENT_IDLE_TIMEOUT_MS, options.idle_ms);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, options.connect_ms);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  if (credentials == nullptr) {
    return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
  }
  credentials->channel_arguments(&arguments);
  return grpc::CreateCustomChannel(address, credentials->channel(), arguments);
}

Status check_credentials(const std::string& address, const Credentials* credentials,
                         std::chrono::milliseconds limit) {
  const Clock::time_point until = Clock::now() + limit;
  if (credentials != nullptr && credentials->proves_peers()) {
    const Status shaken = shake_hands(address, *credentials, until);
    return shaken.code() == StatusCode::kUnauthenticated ? shaken : Status();
  }
  // A secret of no cluster: a member that speaks TLS shows a certificate that is not this one's.
  Result<std::shared_ptr<const Credentials>> other =
      Credentials::create({.secret = random_secret()});
  if (!other.ok() || shake_hands(address, **other, until).code() != StatusCode::kUnauthenticated) {
    return {};
  }
  return base::unauthenticated(
      "it wants a secret or certificates, and none were given: use those that it was started with "
      "(tasks of a local cluster serve the program that started them only)");
}

}  // namespace sidereal::security
