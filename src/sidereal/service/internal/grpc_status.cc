#include "sidereal/service/internal/grpc_status.h"

#include <fmt/format.h>

#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "sidereal/base/strings.h"
#include "sidereal/task/failure.h"

namespace sidereal::service {
namespace {

/// Bytes of the text of an error that goes with the end of a call of gRPC, which has no room for
/// more. Messages have it: kFailureBytes.
constexpr size_t kStatusBytes = 6000;

/// How gRPC's messages about a connection begin, and what they say of the peer.
struct Said {
  std::string_view begin;
  std::string_view of_peer;
  std::string_view why;
};

constexpr std::string_view kUnreached = "it does not run yet, has ended, or is cut off";
constexpr std::string_view kEnded = "it has ended, was killed, or is cut off";
constexpr std::array kSaid = {
    Said{"keepalive", "gives no sign of life", "it stands still, or is cut off"},
    Said{"failed to connect", "cannot be reached", kUnreached},
    Said{"connections to all backends failing", "cannot be reached", kUnreached},
    Said{"DNS resolution failed", "cannot be reached", "its name has no address"},
    Said{"Socket closed", "closed the connection", kEnded},
    Said{"Connection reset", "closed the connection", kEnded},
    Said{"Broken pipe", "closed the connection", kEnded},
    Said{"recvmsg:", "closed the connection", kEnded},
    Said{"sendmsg:", "closed the connection", kEnded},
};

}  // namespace

grpc::Status to_grpc(const Status& status) {
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

std::string connection_text(const std::string& peer, const std::string& message) {
  for (const Said& one : kSaid) {
    if (message.starts_with(one.begin))
      return fmt::format("{} {} ({}): {}", peer, one.of_peer, message, one.why);
  }
  return peer + ": " + message;
}

Status from_grpc(const grpc::Status& status, const std::string& peer) {
  if (status.ok()) return {};
  const bool is_away = status.error_code() == grpc::StatusCode::UNAVAILABLE;
  Status out = base::make_status(static_cast<StatusCode>(status.error_code()),
                                 is_away ? connection_text(peer, status.error_message())
                                         : peer + ": " + status.error_message());
  session::v1::Failure failure;
  if (status.error_details().empty() || !failure.ParseFromString(status.error_details()))
    return out;
  return task::with_origin(std::move(out), failure);
}

}  // namespace sidereal::service
