#pragma once

#include <grpcpp/support/status.h>

#include <string>

#include "sidereal/base/status.h"

/// Statuses of calls. gRPC's codes are ours by number. For the .cc files of service.
namespace sidereal::service {

/// Where it comes from goes with it, as a Failure without a message.
grpc::Status to_grpc(const Status& status);

/// What gRPC says of a connection ("Socket closed", "keepalive watchdog timeout"), in words that
/// say what has become of the peer.
std::string connection_text(const std::string& peer, const std::string& message);

/// The status of a call to `peer`, which its text begins with.
Status from_grpc(const grpc::Status& status, const std::string& peer);

}  // namespace sidereal::service
