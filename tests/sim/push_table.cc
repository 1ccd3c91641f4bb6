#include "tests/sim/push_table.h"

#include <algorithm>

namespace sidereal::sim {

size_t PushTable::begin(size_t place, int64_t rows, uint64_t life) {
  pushes_.push_back({.place = place, .first_row = next_row_[place], .rows = rows, .life = life});
  next_row_[place] += rows;
  return pushes_.size() - 1;
}

void PushTable::acknowledge(size_t number) {
  Push& push = pushes_[number];
  push.acknowledged = true;
  ++acknowledged_;
  if (read_.contains(push.life) && push.applied_by != push.life) {
    ledger_->complain("push {} was acknowledged by life {:x}, which never applied it", number,
                      push.life);
  }
  if (push.is_missed) {
    ledger_->complain("push {} was acknowledged by life {:x}, whose standby does not have it",
                      number, push.life);
  }
}

PushTable::Applied PushTable::applied(const Push& push, const tensor::Tensor& variable) {
  const int64_t width = variable.num_elements() / kRows;
  const auto rows = variable.data<const float>().subspan(
      static_cast<size_t>(push.first_row * width), static_cast<size_t>(push.rows * width));
  const float times = rows.front();
  return {.times = times,
          .is_whole = std::ranges::all_of(rows, [&](float value) { return value == times; })};
}

void PushTable::read(size_t place, uint64_t life, const tensor::Tensor& variable) {
  read_.insert(life);
  const auto width = static_cast<size_t>(variable.num_elements() / kRows);
  const std::span<const float> values = variable.data<const float>();
  for (size_t number = 0; number < pushes_.size(); ++number) {
    Push& push = pushes_[number];
    if (push.place != place) continue;
    const auto [applied, is_whole] = PushTable::applied(push, variable);
    if (!is_whole) ledger_->complain("push {} was applied in part by life {:x}", number, life);
    if (applied != 0 && applied != 1) {
      ledger_->complain("push {} was applied {} times by life {:x}", number, applied, life);
    }
    if (applied != 0 && push.life != life) {
      ledger_->complain("push {} to life {:x} was applied by life {:x}", number, push.life, life);
    }
    if (applied == 0 && push.life == life && push.acknowledged) {
      ledger_->complain("push {} was acknowledged by life {:x}, and lost", number, life);
    }
    if (applied == 0) continue;
    push.applied_by = life;
    ++applied_;
  }
  const auto end = values.begin() + next_row_[place] * static_cast<int64_t>(width);
  const bool is_clean = std::all_of(end, values.end(), [](float value) { return value == 0; }) &&
                        std::all_of(values.begin(), values.begin() + static_cast<int64_t>(width),
                                    [](float value) { return value == 0; });
  if (!is_clean) ledger_->complain("life {:x} has rows that nobody has pushed", life);
}

void PushTable::read_copy(size_t place, uint64_t life, const tensor::Tensor& copy, CopyIs is) {
  for (size_t number = 0; number < pushes_.size(); ++number) {
    Push& push = pushes_[number];
    if (push.place != place) continue;
    const auto [times, is_whole] = applied(push, copy);
    if (!is_whole)
      ledger_->complain("the standby of life {:x} has a part of push {}", life, number);
    const bool has_it = times != 0;
    const bool was_applied = push.applied_by == life;
    if (has_it && (times != 1 || !was_applied)) {
      ledger_->complain("the standby of life {:x} has push {} {} times, and the life {}", life,
                        number, times, was_applied ? "once" : "never");
    }
    if (push.life != life || is == CopyIs::kACut) continue;
    if (has_it) {
      kept_ += push.acknowledged ? 1 : 0;
      continue;
    }
    push.is_missed = true;
    if (push.acknowledged || (is == CopyIs::kCurrent && was_applied)) {
      ledger_->complain("push {} was {} by life {:x}, whose standby does not have it", number,
                        push.acknowledged ? "acknowledged" : "applied", life);
    }
  }
}

}  // namespace sidereal::sim
