#pragma once

#include <algorithm>
#include <string>

#include "sidereal/base/printable.h"
#include "sidereal/base/status.h"
#include "sidereal/base/strings.h"
#include "sidereal/service/job_commands.h"
#include "sidereal/service/session.pb.h"
#include "sidereal/task/failure.h"

/// Commands of jobs in messages. For the .cc files of service.
namespace sidereal::service {

/// Of the sentence at the end of a command.
inline constexpr size_t kCommandTextBytes = 4096;

inline void to_proto(const JobCommand& command, session::v1::JobCommand* out) {
  out->set_kind(static_cast<int32_t>(command.kind) + 1);
  out->set_ps(command.ps);
}
/// kInvalidArgument for what is no command.
inline Result<JobCommand> from_proto(const session::v1::JobCommand& said) {
  if (said.kind() < 1 || said.kind() > 1 + static_cast<int32_t>(JobCommand::Kind::kRebalance)) {
    return base::invalid_argument("no command has the number {}", said.kind());
  }
  const JobCommand out = {.kind = static_cast<JobCommand::Kind>(said.kind() - 1), .ps = said.ps()};
  SR_RETURN_IF_ERROR(check(out));
  return out;
}

inline void to_proto(const JobCommandProgress& progress, session::v1::JobCommandProgress* out) {
  out->set_bytes(progress.bytes);
  out->set_bytes_all(progress.bytes_all);
}
inline JobCommandProgress from_proto(const session::v1::JobCommandProgress& said) {
  return {.bytes = std::max<int64_t>(said.bytes(), 0),
          .bytes_all = std::max<int64_t>(said.bytes_all(), 0)};
}

inline void to_proto(const Status& status, const std::string& text,
                     session::v1::JobCommandEnd* out) {
  if (!status.ok()) return task::to_proto(status, false, out->mutable_failure());
  out->set_text(base::message_text(text, kCommandTextBytes));
}
inline Status status_of(const session::v1::JobCommandEnd& said) {
  return said.has_failure() ? task::from_proto(said.failure()) : Status();
}
inline std::string text_of(const session::v1::JobCommandEnd& said) {
  return base::message_text(base::printable(said.text()), kCommandTextBytes);
}

}  // namespace sidereal::service
