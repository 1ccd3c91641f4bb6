#pragma once

#include <cstdint>
#include <string>

#include "sidereal/base/status.h"
#include "sidereal/service/worker_service.h"

/// What every server asks of the first words of a call. For the .cc files of service.
namespace sidereal::service {

/// kFailedPrecondition for a caller whose messages are of another release than those of `task`.
inline Status check_version(int32_t version, const std::string& task) {
  if (version == kSessionVersion) return {};
  return base::failed_precondition(
      "{} speaks session version {}, the caller {}; use one release for the whole cluster", task,
      kSessionVersion, version);
}

/// kFailedPrecondition when a call that means the task `wanted` has come to `task`.
inline Status check_meant(const std::string& wanted, const std::string& task) {
  if (wanted == task) return {};
  return base::failed_precondition("{} was expected here, but this is {}; check the cluster",
                                   wanted, task);
}

}  // namespace sidereal::service
