#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "sidereal/base/status.h"
#include "sidereal/service/channels.h"
#include "sidereal/task/data_channels.h"
#include "sidereal/task/task.h"

namespace sidereal::service {

/// Finds the data ports of tasks by asking their control services.
/// Lifecycle: must end before the task does; ending it ends what is asked.
class DataFinder {
 public:
  /// `channels` and `task` are borrowed. `timeout`: of each question.
  DataFinder(Channels* channels, task::Task* task, int own_lane, std::chrono::milliseconds timeout);
  ~DataFinder();

  /// Where a task, by its full name, has the data port of a lane now: its host in the cluster, and
  /// the port it says; `lane` is modulo the lanes it has. `done` comes on the own lane, never when
  /// that stops. Errors: kUnavailable when it is not reached, kFailedPrecondition when it has none.
  /// Thread: any.
  void find(const std::string& task, int lane, uint64_t incarnation,
            std::function<void(Result<task::LaneAddress>)> done);

 private:
  struct Shared;
  Channels* const channels_;
  task::Task* const task_;
  const int own_lane_;
  const std::chrono::milliseconds timeout_;
  const std::shared_ptr<Shared> shared_;
};

}  // namespace sidereal::service
