#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "sidereal/base/status.h"
#include "sidereal/security/credentials.h"

namespace grpc {
class Channel;
}

namespace sidereal::security {

/// How a channel connects, and how it notices that its peer is silent (stopped machine, cut
/// network).
struct ChannelOptions {
  int message_bytes_max = -1;        ///< Of messages in and out; -1: as long as they are.
  int keepalive_ms = 0;              ///< Silence after which the peer is asked whether it is there.
  int keepalive_timeout_ms = 0;      ///< What it gets to answer in.
  bool keepalive_when_idle = false;  ///< Ask without calls under way, too.
  /// A channel without calls closes its connection after this or twice this, and makes another one
  /// for its next call; at least 1000. 0: gRPC's default, 30 minutes.
  int idle_ms = 0;
  /// What one try to connect may take. Tries that are refused follow one another faster.
  int connect_ms = 0;
};

/// A connection of its own to a member of the cluster at `address` ("host:port"), never by way of
/// a proxy, made when it is first needed and again after at most a second when it broke.
/// `credentials` nullptr: in plain text. Thread: any.
std::shared_ptr<grpc::Channel> make_channel(const std::string& address,
                                            const Credentials* credentials,
                                            const ChannelOptions& options);

/// Whether a member at `address` that does not answer refuses these credentials, which gRPC does
/// not tell: kUnauthenticated when it wants a secret or certificates and these are none or others;
/// ok when that is not the reason, or is not known within `limit`. Shakes hands on a connection of
/// its own. Waits. Thread: any.
Status check_credentials(const std::string& address, const Credentials* credentials,
                         std::chrono::milliseconds limit);

}  // namespace sidereal::security
