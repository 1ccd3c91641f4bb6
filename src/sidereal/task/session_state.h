#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "sidereal/base/status.h"

namespace sidereal::task {

/// Bytes that the name of a group may have.
inline constexpr size_t kStateGroupBytesMax = 256;

/// Where a session's variables, queues and tables are on each task that it uses. Value type.
struct SessionState {
  enum class Kind : uint8_t {
    kShared = 0,  ///< With those of all sessions that say nothing else, until they are reset.
    kOwn = 1,     ///< The session's own: they go with it.
    kGroup = 2,   ///< A group's: they go with the last of its sessions, whoever their masters are.
  };
  Kind kind = Kind::kShared;
  std::string group = {};  ///< Of kGroup: its name, which no other kind has.
};

/// What a session says by two options. kInvalidArgument for both of them, and for a name that is
/// too long.
Result<SessionState> session_state(bool isolated, std::string group);

}  // namespace sidereal::task
