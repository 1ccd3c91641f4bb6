#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

/// Errors that can happen are values: `Status`, or `Result<T>` where there is also a value.
/// Codes are Abseil's (the same as gRPC's and TensorFlow's), so each has one Python exception.
namespace sidereal::base {

using Status = absl::Status;
using StatusCode = absl::StatusCode;
template <class T>
using Result = absl::StatusOr<T>;

/// Builds a status of `code` with an already formatted message.
Status make_status(StatusCode code, const std::string& message);

/// The message of `status` as a std::string ("" when ok).
std::string message_of(const Status& status);

/// The canonical name of a code, such as "INVALID_ARGUMENT".
const char* code_name(StatusCode code);

/// `status` with another message. Code and payloads are kept.
Status with_message(const Status& status, const std::string& message);

/// `status` with "`context`: " put before its message; ok stays ok. Code and payloads are kept.
Status with_context(const Status& status, const std::string& context);

/// One constructor per code: `invalid_argument("batch_size is {}; it must be positive", n)`.
#define SR_DEFINE_ERROR(name, code)                                                    \
  template <class... Args>                                                             \
  [[nodiscard]] Status name(fmt::format_string<Args...> f, Args&&... args) {           \
    return make_status(StatusCode::code, fmt::format(f, std::forward<Args>(args)...)); \
  }

SR_DEFINE_ERROR(invalid_argument, kInvalidArgument)
SR_DEFINE_ERROR(not_found, kNotFound)
SR_DEFINE_ERROR(already_exists, kAlreadyExists)
SR_DEFINE_ERROR(failed_precondition, kFailedPrecondition)
SR_DEFINE_ERROR(out_of_range, kOutOfRange)
SR_DEFINE_ERROR(resource_exhausted, kResourceExhausted)
SR_DEFINE_ERROR(unavailable, kUnavailable)
SR_DEFINE_ERROR(deadline_exceeded, kDeadlineExceeded)
SR_DEFINE_ERROR(cancelled, kCancelled)
SR_DEFINE_ERROR(aborted, kAborted)
SR_DEFINE_ERROR(unimplemented, kUnimplemented)
SR_DEFINE_ERROR(unauthenticated, kUnauthenticated)
SR_DEFINE_ERROR(permission_denied, kPermissionDenied)
SR_DEFINE_ERROR(data_loss, kDataLoss)
SR_DEFINE_ERROR(internal, kInternal)
#undef SR_DEFINE_ERROR

}  // namespace sidereal::base

namespace sidereal {
using base::Result;
using base::Status;
using base::StatusCode;
}  // namespace sidereal

#define SR_CONCAT_INNER(a, b) a##b
#define SR_CONCAT(a, b) SR_CONCAT_INNER(a, b)

/// Returns from the enclosing function when `expr` (a Status) is not ok.
#define SR_RETURN_IF_ERROR(expr)            \
  do {                                      \
    ::sidereal::Status sr_status_ = (expr); \
    if (!sr_status_.ok()) [[unlikely]]      \
      return sr_status_;                    \
  } while (false)

/// Evaluates `expr` (a Result<T>); returns its status on error, else assigns the value to `lhs`.
#define SR_ASSIGN_OR_RETURN(lhs, expr) SR_ASSIGN_IMPL(SR_CONCAT(sr_result_, __LINE__), lhs, expr)
#define SR_ASSIGN_IMPL(tmp, lhs, expr) \
  auto tmp = (expr);                   \
  if (!tmp.ok()) [[unlikely]]          \
    return std::move(tmp).status();    \
  lhs = std::move(tmp).value()
