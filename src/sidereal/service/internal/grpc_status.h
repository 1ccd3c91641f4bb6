#pragma once

#include <grpcpp/support/status.h>

#include <string>

#include "sidereal/base/status.h"
#include "sidereal/base/strings.h"

/// Statuses of calls. gRPC's codes are ours by number. For the .cc files of service.
namespace sidereal::service {

/// Bytes of the text of an error that goes with the end of a call of gRPC, which has no room for
/// more. Messages have it: kFailureBytes.
inline constexpr size_t kStatusBytes = 6000;

inline grpc::Status to_grpc(const Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return {static_cast<grpc::StatusCode>(status.code()),
          base::message_text(base::message_of(status), kStatusBytes)};
}

/// The status of a call to `peer`, which its text begins with.
inline Status from_grpc(const grpc::Status& status, const std::string& peer) {
  if (status.ok()) return {};
  return base::make_status(static_cast<StatusCode>(status.error_code()),
                           peer + ": " + status.error_message());
}

}  // namespace sidereal::service
