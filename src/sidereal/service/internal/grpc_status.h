#pragma once

#include <grpcpp/support/status.h>

#include <optional>
#include <string>
#include <utility>

#include "sidereal/base/status.h"
#include "sidereal/base/strings.h"
#include "sidereal/task/failure.h"

/// Statuses of calls. gRPC's codes are ours by number. For the .cc files of service.
namespace sidereal::service {

/// Bytes of the text of an error that goes with the end of a call of gRPC, which has no room for
/// more. Messages have it: kFailureBytes.
inline constexpr size_t kStatusBytes = 6000;

/// Where it comes from goes with it, as a Failure without a message.
inline grpc::Status to_grpc(const Status& status) {
  if (status.ok()) return grpc::Status::OK;
  std::string details;
  if (const std::optional<task::Origin> origin = task::origin_of(status); origin) {
    session::v1::Failure failure;
    task::to_proto(*origin, &failure);
    details = failure.SerializeAsString();
  }
  return {static_cast<grpc::StatusCode>(status.code()),
          base::message_text(base::message_of(status), kStatusBytes), details};
}

/// The status of a call to `peer`, which its text begins with.
inline Status from_grpc(const grpc::Status& status, const std::string& peer) {
  if (status.ok()) return {};
  Status out = base::make_status(static_cast<StatusCode>(status.error_code()),
                                 peer + ": " + status.error_message());
  session::v1::Failure failure;
  if (status.error_details().empty() || !failure.ParseFromString(status.error_details()))
    return out;
  return task::with_origin(std::move(out), failure);
}

}  // namespace sidereal::service
