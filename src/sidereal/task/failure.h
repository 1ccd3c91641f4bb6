#pragma once

#include <optional>
#include <string>
#include <utility>

#include "sidereal/base/status.h"
#include "sidereal/base/strings.h"
#include "sidereal/task/failure.pb.h"
#include "sidereal/task/origin.h"
#include "sidereal/task/task.h"

/// Statuses in messages: codes are those of gRPC, which are ours by number. For .cc files.
namespace sidereal::task {

/// Bytes of the text of an error in a message, over every protocol.
inline constexpr size_t kFailureBytes = 1280 << 10;
/// Of the name of a task.
inline constexpr size_t kOriginBytes = 1 << 10;
/// Of what a part waited for.
inline constexpr size_t kWaitsForBytes = 64 << 10;

inline void to_proto(const Origin& origin, session::v1::Failure* failure) {
  failure->set_origin(base::message_text(origin.task, kOriginBytes));
  failure->set_is_restarted(origin.is_restarted);
}

/// `status` with the origin that `failure` says, if any.
inline Status with_origin(Status status, const session::v1::Failure& failure) {
  if (failure.origin().empty()) return status;
  return with_origin(std::move(status),
                     Origin{.task = failure.origin(), .is_restarted = failure.is_restarted()});
}

inline void to_proto(const Status& status, bool derived, session::v1::Failure* failure) {
  failure->set_code(static_cast<int32_t>(status.code()));
  failure->set_message(base::message_text(base::message_of(status), kFailureBytes));
  failure->set_derived(derived);
  const std::optional<Origin> origin = origin_of(status);
  if (origin) to_proto(*origin, failure);
}

inline Status from_proto(const session::v1::Failure& failure) {
  if (failure.code() == 0) return {};
  const bool known = failure.code() > 0 && failure.code() <= 16;
  return with_origin(
      base::make_status(known ? static_cast<StatusCode>(failure.code()) : StatusCode::kUnknown,
                        failure.message()),
      failure);
}

inline void to_proto(const resources::PushedSoFar& pushed, session::v1::PushedSoFar* out) {
  out->set_life(pushed.life);
  out->set_lane(pushed.lane);
  out->set_number(pushed.number);
  out->set_pushes(pushed.pushes);
  out->set_rows(pushed.rows);
}

inline resources::PushedSoFar from_proto(const session::v1::PushedSoFar& said) {
  return {.life = said.life(),
          .lane = said.lane(),
          .number = said.number(),
          .pushes = said.pushes(),
          .rows = said.rows()};
}

/// How a part of a step ended, but for its fetches.
inline void to_proto(ProgramResult* result, session::v1::ProgramTail* tail) {
  to_proto(result->status, result->derived, tail->mutable_failure());
  tail->set_waits_for(base::message_text(result->waits_for, kWaitsForBytes));
  tail->set_trace(std::move(result->trace));
  for (const resources::PushedSoFar& one : result->pushed) to_proto(one, tail->add_pushed());
}

inline void from_proto(session::v1::ProgramTail* tail, ProgramResult* result) {
  result->status = from_proto(tail->failure());
  result->derived = tail->failure().derived();
  result->waits_for = std::move(*tail->mutable_waits_for());
  result->trace = std::move(*tail->mutable_trace());
  for (const session::v1::PushedSoFar& one : tail->pushed()) {
    result->pushed.push_back(from_proto(one));
  }
}

/// That `task` was restarted, as messages call it `shown`: `meant` is not its incarnation.
inline Status wrong_incarnation(const std::string& task, const std::string& shown,
                                uint64_t incarnation, uint64_t meant) {
  return with_origin(
      base::aborted(
          "{} expects a different device incarnation ({:016x}, but {:016x} was meant): it was "
          "restarted; make a new session",
          shown, incarnation, meant),
      Origin{.task = task, .is_restarted = true});
}

}  // namespace sidereal::task
