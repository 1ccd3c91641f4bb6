#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/resources/replica.h"
#include "sidereal/task/task.h"

namespace sidereal::task {

/// Variables of a group of sessions that come to a task from others, and what becomes of them
/// there: nothing of them stays that was not committed; but of a task that was started again, until
/// others of their names come. It waits for nothing.
/// Lifecycle: begin(); add() for each task that they come from; adopt() once; commit() or not; when
///            adopt() has said how it went, end().
/// Thread: one at a time.
class VariableIntake {
 public:
  /// `task` is borrowed.
  VariableIntake(Task* task, std::string state_group)
      : task_(task), state_group_(std::move(state_group)) {}

  /// The group is there from here on. Errors: those of Task::keep_group(); end() is not called.
  Status begin() { return task_->keep_group(state_group_); }
  /// Whether a copy of which this is the status is still coming: else its task is gone, and so is
  /// what is left of the variables there. Until a copy is here, it is to be asked.
  static bool is_coming(const Status& of_copy) {
    // One comes back by itself from what is missing in a log.
    return of_copy.ok() || of_copy.code() == StatusCode::kOutOfRange;
  }
  /// What `from` has of `names`, and nothing changes there any more. kNotFound when not all of them
  /// are among `values`.
  Status add(const std::string& from, resources::WantedNames names,
             std::vector<resources::Replica::Taken> values);
  /// Makes variables of all that was added, on the lanes that steps are planned for where the job
  /// of the task has `tasks`. `then` is told, by any thread: errors of Task::adopt().
  void adopt(int tasks, const std::function<void(const Status&)>& then);
  /// They stay.
  void commit();
  void end();

 private:
  Task* const task_;
  const std::string state_group_;
  std::vector<resources::Replica::Taken> values_;  // That are not the task's yet.
  Adopted adopted_;
  bool is_committed_ = false;
};

}  // namespace sidereal::task
