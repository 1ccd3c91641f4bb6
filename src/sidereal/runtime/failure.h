#pragma once

#include <grpcpp/support/status.h>

#include <string>

#include "sidereal/base/status.h"
#include "sidereal/runtime/session.pb.h"

/// Statuses in messages, and of calls. gRPC's codes are ours by number. For the .cc files of
/// runtime.
namespace sidereal::runtime {

/// Text of an error that goes with the end of a call, which has no room for more.
inline constexpr size_t kStatusBytes = 6000;

inline grpc::Status to_grpc(const Status& status) {
  if (status.ok()) return grpc::Status::OK;
  std::string text = base::message_of(status);
  if (text.size() > kStatusBytes) {
    text.resize(kStatusBytes);
    text += " ...";
  }
  return {static_cast<grpc::StatusCode>(status.code()), text};
}

/// The status of a call to `peer`, which its text begins with.
inline Status from_grpc(const grpc::Status& status, const std::string& peer) {
  if (status.ok()) return {};
  return base::make_status(static_cast<StatusCode>(status.error_code()),
                           peer + ": " + status.error_message());
}

inline void to_proto(const Status& status, bool derived, session::v1::Failure* failure) {
  failure->set_code(static_cast<int32_t>(status.code()));
  failure->set_message(base::message_of(status));
  failure->set_derived(derived);
}

inline Status from_proto(const session::v1::Failure& failure) {
  if (failure.code() == 0) return {};
  const bool known = failure.code() > 0 && failure.code() <= 16;
  return base::make_status(known ? static_cast<StatusCode>(failure.code()) : StatusCode::kUnknown,
                           failure.message());
}

}  // namespace sidereal::runtime
