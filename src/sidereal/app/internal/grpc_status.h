#pragma once

#include <grpcpp/support/status.h>

#include "sidereal/base/status.h"

/// gRPC's codes are ours by number. Included by the .cc files of the control plane only.
namespace sidereal::app {

inline grpc::Status to_grpc(const Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return {static_cast<grpc::StatusCode>(status.code()), base::message_of(status)};
}

inline Status from_grpc(const grpc::Status& status) {
  if (status.ok()) return {};
  return base::make_status(static_cast<StatusCode>(status.error_code()), status.error_message());
}

}  // namespace sidereal::app
