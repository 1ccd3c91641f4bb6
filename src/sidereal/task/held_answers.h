#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <utility>

#include "absl/functional/function_ref.h"
#include "sidereal/base/status.h"
#include "sidereal/task/task.h"

/// Internal to task.
namespace sidereal::task {

/// Answers of steps that are known and do not leave yet: until standbys have what they say, and for
/// as long as this start of the task does not count. Thread: one lane.
class HeldAnswers {
 public:
  struct Answer {
    uint64_t session = 0;
    uint64_t step = 0;
    ProgramResult result;
    Task::Done done;
    bool is_acknowledged = false;  ///< Standbys that it waits for have what it says.
    bool has_left = false;
  };

  /// `may_leave`: whether the task counts now.
  explicit HeldAnswers(std::function<bool()> may_leave) : may_leave_(std::move(may_leave)) {}

  std::shared_ptr<Answer> hold(Answer answer) {
    return all_.emplace_back(std::make_shared<Answer>(std::move(answer)));
  }
  void acknowledged(const std::shared_ptr<Answer>& answer) {
    answer->is_acknowledged = true;
    if (may_leave_()) leave(answer.get());
  }
  /// The task may count again.
  void look_again();
  /// Ends those with an error: whether a standby has what they say is not known.
  void refuse(const Status& why, absl::FunctionRef<bool(const Answer&)> which);
  void refuse_all(const Status& why) {
    refuse(why, [](const Answer&) { return true; });
  }

 private:
  void leave(Answer* answer);

  const std::function<bool()> may_leave_;
  std::deque<std::shared_ptr<Answer>> all_;  // Some of which may have left.
};

}  // namespace sidereal::task
