#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "sidereal/base/status.h"
#include "sidereal/runtime/channels.h"
#include "sidereal/runtime/task.h"
#include "sidereal/sys/address.h"

namespace sidereal::runtime {

/// Finds the data ports of tasks by asking their control services. Internal to runtime.
/// Lifecycle: must end before the task does; ending it ends what is asked.
class DataFinder {
 public:
  /// `channels` and `task` are borrowed. `timeout`: of each question.
  DataFinder(Channels* channels, Task* task, std::chrono::milliseconds timeout);
  ~DataFinder();

  /// Where a task, by its full name, has its data port now: its host in the cluster, and the port
  /// it says. `done` comes on the lane of the task that asks, never when that stops. Errors:
  /// kUnavailable when it is not reached, kFailedPrecondition when it has none. Thread: any.
  void find(const std::string& task, uint64_t incarnation,
            std::function<void(Result<sys::Address>)> done);

 private:
  struct Shared;
  Channels* const channels_;
  Task* const task_;
  const std::chrono::milliseconds timeout_;
  const std::shared_ptr<Shared> shared_;
};

}  // namespace sidereal::runtime
