#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "sidereal/base/event_log.h"
#include "sidereal/base/status.h"

namespace sidereal::master {

/// What all sessions of a master have seen of other tasks, so that a loss is told once, and so is
/// that the task is there again.
/// Thread: any.
class LostTasks {
 public:
  explicit LostTasks(base::EventSource source) : source_(std::move(source)) {}

  /// A session has lost a start of a task.
  void note_lost(const std::string& task, uint64_t incarnation, uint64_t session,
                 const Status& why);
  /// A session is attached to a start of a task.
  void note_attached(const std::string& task, uint64_t incarnation);

 private:
  struct Seen {
    uint64_t incarnation = 0;
    bool is_lost = false;
    std::chrono::steady_clock::time_point since = {};
  };

  const base::EventSource source_;
  std::mutex mutex_;
  std::map<std::string, Seen> seen_;
};

}  // namespace sidereal::master
