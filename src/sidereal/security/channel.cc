#include "sidereal/security/channel.h"

#include <grpcpp/grpcpp.h>

namespace sidereal::security {

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

}  // namespace sidereal::security
