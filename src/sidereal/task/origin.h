#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "sidereal/base/status.h"

/// Which task a failure comes from, beside its code and its text.
namespace sidereal::task {

/// Value type.
struct Origin {
  std::string task;           ///< Its full name.
  bool is_restarted = false;  ///< It runs again, and knows nothing of what it was sent.
};

/// `status` as one that comes from `origin`, unless it says already where it comes from; ok stays
/// ok.
Status with_origin(Status status, const Origin& origin);
/// Whether it says what became of a task or of a connection, and not of what was asked for.
bool is_of_network(const Status& status);
/// `status` of a call to `task`: such a failure comes from there, unless it says otherwise.
Status from_call(Status status, const std::string& task);
/// Where it comes from, if that is known.
std::optional<Origin> origin_of(const Status& status);
/// Calls that a task that stops refuses.
Status is_stopping(const std::string& task);

}  // namespace sidereal::task
