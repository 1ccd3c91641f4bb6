#include "sidereal/task/session_state.h"

#include <utility>

namespace sidereal::task {

Result<SessionState> session_state(bool isolated, std::string group) {
  if (group.size() > kStateGroupBytesMax) {
    return base::invalid_argument("the name of a state group has {} bytes; {} are allowed",
                                  group.size(), kStateGroupBytesMax);
  }
  if (isolated && !group.empty()) {
    return base::invalid_argument(
        "a session has state of its own (isolate_session_state) or shares that of a group "
        "(state_group '{}'), not both",
        group);
  }
  if (isolated) return SessionState{.kind = SessionState::Kind::kOwn};
  if (group.empty()) return SessionState();
  return SessionState{.kind = SessionState::Kind::kGroup, .group = std::move(group)};
}

}  // namespace sidereal::task
