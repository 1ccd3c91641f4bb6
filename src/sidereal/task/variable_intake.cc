#include "sidereal/task/variable_intake.h"

#include <set>
#include <string_view>

#include "sidereal/base/part_name.h"

namespace sidereal::task {

using resources::Replica;

namespace {

/// The variable that a slot is of, "w" of "w/Adagrad", where it is one of `names`: steps are
/// planned for the lane of that.
std::string_view leader_of(std::string_view name, const std::set<std::string_view>& names) {
  for (size_t at = name.find('/'); at != std::string_view::npos; at = name.find('/', at + 1)) {
    if (names.contains(name.substr(0, at))) return name.substr(0, at);
  }
  return name;
}

}  // namespace

Status VariableIntake::add(const std::string& from, resources::WantedNames names,
                           std::vector<Replica::Taken> values) {
  for (Replica::Taken& one : values) {
    names.erase(one.name);
    values_.push_back(std::move(one));
  }
  if (names.empty()) return {};
  return base::not_found("{} has no variable '{}' with a value in the sessions of '{}'", from,
                         *names.begin(), state_group_);
}

void VariableIntake::adopt(int tasks, const std::function<void(const Status&)>& then) {
  std::vector<std::string> names;
  for (const Replica::Taken& one : values_) names.push_back(one.name);
  const std::set<std::string_view> all(names.begin(), names.end());
  for (Replica::Taken& one : values_) {
    one.lane = base::lane_of_name(leader_of(one.name, all), task_->lanes(), tasks);
  }
  task_->adopt(state_group_, std::exchange(values_, {}), [this, then](Result<Adopted> adopted) {
    const Status status = adopted.status();
    if (status.ok()) adopted_ = *std::move(adopted);
    then(status);
  });
}

void VariableIntake::commit() {
  is_committed_ = true;
  Task::stay(adopted_);
}

void VariableIntake::end() {
  if (!is_committed_) task_->forget(state_group_, adopted_);
  task_->let_go_of_group(state_group_);
}

}  // namespace sidereal::task
