#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "sidereal/base/status.h"

/// For the .cc files of service.
namespace sidereal::service {

/// Longer than anybody waits, and short enough to be added to a time.
inline constexpr int64_t kTimeoutMsMax = int64_t{1} << 40;

/// A timeout that a message says, at most kTimeoutMsMax. kInvalidArgument for one below 0.
inline Result<std::chrono::milliseconds> timeout_of(int64_t ms) {
  if (ms < 0) return base::invalid_argument("a timeout of {} ms", ms);
  return std::chrono::milliseconds(std::min(ms, kTimeoutMsMax));
}

}  // namespace sidereal::service
