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
}

void PushTable::read(size_t place, uint64_t life, const tensor::Tensor& variable) {
  read_.insert(life);
  const auto width = static_cast<size_t>(variable.num_elements() / kRows);
  const std::span<const float> values = variable.data<const float>();
  const auto said = [&](int64_t row) { return values[static_cast<size_t>(row) * width]; };
  for (size_t number = 0; number < pushes_.size(); ++number) {
    Push& push = pushes_[number];
    if (push.place != place) continue;
    const float applied = said(push.first_row);
    const auto from = values.begin() + push.first_row * static_cast<int64_t>(width);
    const bool is_whole = std::all_of(from, from + push.rows * static_cast<int64_t>(width),
                                      [applied](float value) { return value == applied; });
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

}  // namespace sidereal::sim
