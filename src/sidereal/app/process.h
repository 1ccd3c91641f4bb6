#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sidereal/base/status.h"

namespace sidereal::app {

/// A child process of this one that serves one task. It holds a lifeline: when this process dies,
/// the other end of a pipe closes and the child ends by itself.
/// Thread: one at a time.
class TaskProcess {
 public:
  /// Starts `program` with `arguments` plus "--report-fd 3 --lifeline-fd 4 --secret-fd 4": the
  /// first line in the lifeline is `secret`, so that neither its arguments nor its environment show
  /// it. Its standard input is empty; output and errors are ours. `task` is for messages.
  static Result<std::unique_ptr<TaskProcess>> spawn(const std::string& task,
                                                    const std::string& program,
                                                    const std::vector<std::string>& arguments,
                                                    const std::string& secret);
  /// Kills the child if it still runs, and reaps it.
  ~TaskProcess();
  TaskProcess(const TaskProcess&) = delete;
  TaskProcess& operator=(const TaskProcess&) = delete;

  /// The line the child reports when it is up. kUnavailable when it ended first,
  /// kDeadlineExceeded after `deadline_s`.
  Result<std::string> read_report(double deadline_s);
  /// Ok while it runs; else kUnavailable saying how it ended. Never waits.
  Status check_alive();
  /// A descriptor that can be read once it has ended, for poll(); the caller's to close. -1: the
  /// system gives none.
  [[nodiscard]] int open_handle() const;
  /// Waits until it has ended by itself, at most `deadline_s`; true if it has.
  bool wait(double deadline_s);
  /// Asks it to end (SIGTERM).
  void terminate();
  /// Ends it at once.
  void kill();

  [[nodiscard]] pid_t pid() const { return pid_; }
  /// The one that has ended it; 0: none, as far as is known.
  [[nodiscard]] int signal() const;
  [[nodiscard]] const std::string& task() const { return task_; }

 private:
  explicit TaskProcess(std::string task) : task_(std::move(task)) {}
  bool reap(bool block);

  std::string task_;
  pid_t pid_ = -1;
  bool ended_ = false;
  int wait_status_ = 0;
  int64_t memory_kills_before_ = 0;  ///< See sys::posix::memory_kills().
  int report_fd_ = -1;
  int lifeline_fd_ = -1;
};

}  // namespace sidereal::app
