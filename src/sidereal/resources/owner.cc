#include "sidereal/resources/owner.h"

#include <vector>

#include "sidereal/resources/change_log.h"
#include "sidereal/resources/variable.h"

namespace sidereal::resources {

Lanes::~Lanes() = default;

std::span<ChangeLog* const> Lanes::logs(int /*lane*/) const { return {}; }

namespace {

/// Has the logs of the lane that `variables`, of one group, belong to note what changes of them.
void adopt(Lanes* lanes, int lane, std::vector<std::weak_ptr<Variable>> variables) {
  // A lane that is stopping has nothing to note.
  static_cast<void>(lanes->post(lane, [lanes, lane, variables = std::move(variables)] {
    for (const std::weak_ptr<Variable>& weak : variables) {
      const std::shared_ptr<Variable> variable = weak.lock();
      if (variable == nullptr) continue;
      // The group may have gone on meanwhile, and then no log knows it.
      const int now = variable->owner()->lane();
      if (now != lane) return adopt(lanes, now, variables);
      for (ChangeLog* const log : lanes->logs(lane)) log->watch(variable, /*is_new=*/true);
    }
  }));
}

}  // namespace

void Owner::give_to(int lane) {
  std::vector<std::weak_ptr<Variable>> gone;
  for (ChangeLog* const log : lanes_->logs(this->lane())) {
    for (std::weak_ptr<Variable>& variable : log->let_go(*this)) {
      gone.push_back(std::move(variable));
    }
  }
  group()->lane_.store(lane, std::memory_order_release);
  if (!gone.empty()) adopt(lanes_, lane, std::move(gone));
}

void Owner::join(Owner* other) {
  Owner* const one = group();
  Owner* const joining = other->group();
  if (one == joining) return;
  joining->kept_ = one->shared_from_this();
  joining->joined_.store(one, std::memory_order_release);
}

}  // namespace sidereal::resources
