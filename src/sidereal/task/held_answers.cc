#include "sidereal/task/held_answers.h"

#include <utility>

namespace sidereal::task {

void HeldAnswers::leave(Answer* answer) {
  if (std::exchange(answer->has_left, true)) return;
  while (!all_.empty() && all_.front()->has_left) all_.pop_front();
  answer->done(answer->result);
}

// What hears of an answer may hold others, or refuse some: so these go through copies.

void HeldAnswers::look_again() {
  for (const std::shared_ptr<Answer>& held : std::deque(all_)) {
    if (held->is_acknowledged && may_leave_()) leave(held.get());
  }
}

void HeldAnswers::refuse(const Status& why, absl::FunctionRef<bool(const Answer&)> which) {
  for (const std::shared_ptr<Answer>& held : std::deque(all_)) {
    if (held->has_left || !which(*held)) continue;
    held->result.fetches.clear();
    held->result.status = why;
    leave(held.get());
  }
}

}  // namespace sidereal::task
