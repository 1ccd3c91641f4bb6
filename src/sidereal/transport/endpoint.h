#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "sidereal/config/options.h"
#include "sidereal/lane/lane.h"
#include "sidereal/metrics/lane_metrics.h"
#include "sidereal/sys/network.h"
#include "sidereal/wire/frame.h"

namespace sidereal::transport {

/// Who this lane is to its peers.
struct Identity {
  uint64_t cluster_id = 0;   ///< the same for all tasks of one cluster
  std::string task;          ///< such as "/job:ps/task:0"
  uint64_t incarnation = 0;  ///< random per start of the task
  uint32_t lane_count = 1;   ///< lanes of this task
};

/// What the connections of one lane share: identity, options and the buffer they read into.
///
/// Lifecycle: one per lane, which outlives it; outlives its Acceptors and Channels.
/// Thread: core-local (create() may be called before the lane starts).
class Endpoint {
 public:
  /// `lane` is borrowed. kInvalidArgument for options out of range.
  static Result<std::unique_ptr<Endpoint>> create(lane::Lane* lane, Identity identity,
                                                  const config::Options& options);

  [[nodiscard]] lane::Lane* lane() const { return lane_; }
  [[nodiscard]] const Identity& identity() const { return identity_; }
  [[nodiscard]] const config::Options& options() const { return options_; }
  [[nodiscard]] const wire::Limits& limits() const { return limits_; }
  [[nodiscard]] metrics::LaneMetrics& metrics() const { return lane_->metrics(); }
  /// The staging buffer: input is read here first. Valid within one I/O callback.
  [[nodiscard]] sys::IoSlice staging() const { return {staging_.get(), kStagingBytes}; }

  static constexpr size_t kStagingBytes = size_t{512} << 10;

 private:
  Endpoint(lane::Lane* lane, Identity identity, const config::Options& options);

  lane::Lane* lane_;
  Identity identity_;
  config::Options options_;
  wire::Limits limits_;
  std::unique_ptr<std::byte[]> staging_;
};

}  // namespace sidereal::transport
