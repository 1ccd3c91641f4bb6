#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/cluster/cluster_spec.h"
#include "sidereal/security/credentials.h"
#include "sidereal/service/status_client.h"

namespace sidereal::service {

/// A task that does not answer any more. Value type.
struct SilentTask {
  std::string task;     ///< "/job:ps/replica:0/task:0".
  int64_t pid = 0;      ///< Of the process that answered last, on its host.
  double silent_s = 0;  ///< Since then.
};

/// Finds tasks that hang: they have answered, and answer nothing any more, though perhaps their
/// processes and connections are still there (SIGSTOP, a host that is cut off). Who has not yet
/// answered is starting and is not meant.
/// Thread: any; look() one at a time.
class SilenceWatch {
 public:
  /// Errors: those of StatusClient::create().
  static Result<std::unique_ptr<SilenceWatch>> create(const cluster::ClusterSpec& cluster,
                                                      const security::SecurityOptions& security,
                                                      std::chrono::milliseconds silence);

  /// A task is known to be there, by that process, as if it had answered now.
  void heard(const std::string& task, int64_t pid);

  /// Asks all tasks; waits for their answers for a part of the silence that is allowed. Gives those
  /// that have said nothing for so long, and to this question and the one before, each once: it has
  /// to answer before it is watched again.
  std::vector<SilentTask> look();

 private:
  using Clock = std::chrono::steady_clock;
  struct Heard {
    int64_t pid = 0;  ///< 0: it is not watched.
    Clock::time_point at;
    int unanswered = 0;  ///< Questions since.
  };

  SilenceWatch(std::unique_ptr<StatusClient> client, std::chrono::milliseconds silence)
      : client_(std::move(client)), silence_(silence) {}

  const std::unique_ptr<StatusClient> client_;
  const std::chrono::milliseconds silence_;
  std::mutex mutex_;                    // Guards heard_.
  std::map<std::string, Heard> heard_;  // By task.
};

}  // namespace sidereal::service
