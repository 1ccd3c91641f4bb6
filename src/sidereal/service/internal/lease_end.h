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

/// The parts of a task that a lease has sessions in, to end them.
struct LeaseEnd {
  task::Task* task = nullptr;
  MasterSessions* sessions = nullptr;
  LeasedSessions* leased = nullptr;

  /// Ends the sessions of this master, whose calls get `why`, and lets no other begin. Waits for
  /// their last pushes, but not long.
  void end_sessions(uint64_t lease, const Status& why) const;
  /// Ends those that are attached: nothing of them changes anything here any more, whoever their
  /// masters are, and whether these were told. Waits for lanes, but not long.
  void end_attached(uint64_t lease) const;
};

/// Ends on all tasks of a cluster, of which `own` is one, what belongs to a lease: first sessions,
/// so that their calls say why, then what is attached. A task that does not answer is told of in
/// the log: what is there changes nothing on those that did.
/// Thread: any but those of lanes and callbacks.
void end_lease(const LeaseEnd& own, Channels* channels, uint64_t lease, const Status& why);

}  // namespace sidereal::service
