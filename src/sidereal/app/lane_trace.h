#pragma once

#include <chrono>
#include <memory>

#include "sidereal/exec/trace.h"
#include "sidereal/lane/lane.h"

namespace sidereal::app {

/// What a lane may write down of its steps; about 100,000 instructions.
inline constexpr size_t kLaneTraceBytes = size_t{16} << 20;

/// An empty trace with the lane's clock. Borrows the lane.
inline std::unique_ptr<exec::Trace> make_lane_trace(const lane::Lane* lane) {
  return std::make_unique<exec::Trace>(kLaneTraceBytes, [lane] { return lane->now(); });
}

/// What to add to the lane's time to get nanoseconds since 1970, so that tasks' traces agree.
inline int64_t unix_offset_ns(const lane::Lane& lane) {
  const auto unix_now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::nanoseconds(unix_now).count() - lane.now();
}

}  // namespace sidereal::app
