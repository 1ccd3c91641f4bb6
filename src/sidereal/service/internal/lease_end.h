#pragma once

#include <cstdint>
#include <string>

#include "sidereal/base/status.h"

namespace sidereal::task {
class Task;
}

namespace sidereal::service {

class Channels;
class LeasedSessions;
class MasterSessions;

/// Ends on this task what belongs to a lease: when this returns nothing of it changes anything here
/// any more, and later calls of it get `why`. Waits for lanes and pushes, but not long.
/// Thread: any but those of lanes and callbacks.
void end_lease_here(task::Task* task, MasterSessions* sessions, LeasedSessions* leased,
                    uint64_t lease, const Status& why);

/// Asks all tasks but `own` to do the same, at once. One that does not answer is told of in the
/// log: what is there changes nothing on those that did.
void end_lease_elsewhere(Channels* channels, const std::string& own, uint64_t lease,
                         const Status& why);

}  // namespace sidereal::service
