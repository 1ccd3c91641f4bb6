#include <map>
#include <mutex>
#include <utility>

#include "sidereal/task/origin.h"
#include "sidereal/task/task_programs.h"

/// Variables of other tasks, or of another start of this one, that a task is given.
namespace sidereal::task {

Result<Adopted> TaskPrograms::make(Container* container,
                                   std::vector<resources::Replica::Taken> values) const {
  resources::Manager& manager = container->manager;
  Adopted made;
  const auto add = [&](resources::Replica::Taken& one) -> Status {
    std::shared_ptr<resources::Resource> mine;
    std::shared_ptr<resources::Resource> there;
    if (one.table != nullptr) {
      mine = one.table;
      mine->comes();
      SR_ASSIGN_OR_RETURN(
          there, manager.find_or_create<resources::Table>(one.name, [&] { return one.table; }));
      if (there == mine) made.emplace_back(one.name, mine);
    } else {
      resources::VariableDef def = {
          .name = one.name, .dtype = one.value.dtype(), .shape = one.value.shape()};
      auto owner = std::make_shared<resources::Owner>(lanes_, one.lane);
      SR_ASSIGN_OR_RETURN(auto variable,
                          resources::Variable::make(std::move(def), std::move(owner)));
      mine = variable;
      mine->comes();
      SR_ASSIGN_OR_RETURN(
          there, manager.find_or_create<resources::Variable>(one.name, [&] { return variable; }));
      if (there == mine) {
        made.emplace_back(one.name, mine);
        // Its log, if there is one, hears of the value with what belongs to it.
        *variable->changes_made() = std::move(one.made);
        SR_RETURN_IF_ERROR(variable->take(std::move(one.value), one.stride));
      }
    }
    if (there == mine) return {};
    return base::make_status(
        StatusCode::kAlreadyExists,
        fmt::format("{} has another variable or table '{}'", options_.name, one.name));
  };
  for (resources::Replica::Taken& one : values) {
    Status status = add(one);
    if (status.ok()) continue;
    forget(container, made);
    return status;
  }
  return made;
}

Status TaskPrograms::fill(const std::string& state_group,
                          std::vector<resources::Replica::Taken> values) {
  std::shared_ptr<Container> container = shared_;
  if (!state_group.empty()) {
    SR_RETURN_IF_ERROR(session_state(/*isolated=*/false, state_group).status());
    const std::lock_guard lock(mutex_);
    Group& group = groups_[state_group];
    if (group.container == nullptr) group.container = make_container(state_group);
    group.is_kept = true;
    container = group.container;
  }
  // Where each was, which is where its slots are.
  for (resources::Replica::Taken& one : values) one.lane %= options_.lanes;
  SR_ASSIGN_OR_RETURN(const Adopted made, make(container.get(), std::move(values)));
  stay(made);
  return {};
}

void TaskPrograms::stay(const Adopted& adopted) {
  for (const auto& [name, resource] : adopted) {
    const std::shared_ptr<resources::Resource> there = resource.lock();
    if (there != nullptr) there->stays();
  }
}

/// Variables that lanes make, each its own: all, or none.
class TaskPrograms::Adoption {
 public:
  Adoption(std::shared_ptr<Container> container, std::string task,
           std::function<void(Result<Adopted>)> then)
      : container_(std::move(container)), task_(std::move(task)), then_(std::move(then)) {}
  /// When the last lane has done its own, or lets go of it as it is stopping.
  ~Adoption() {
    if (status_.ok() && lanes_ > 0) status_ = is_stopping(task_);
    if (status_.ok()) {
      then_(std::move(made_));
    } else {
      forget(container_.get(), made_);
      then_(status_);
    }
  }
  Adoption(const Adoption&) = delete;
  Adoption& operator=(const Adoption&) = delete;

  [[nodiscard]] Container* container() const { return container_.get(); }
  /// One more lane makes some. Before any does.
  void add_lane() { ++lanes_; }
  void made(Result<Adopted> some) {
    const std::lock_guard lock(mutex_);
    --lanes_;
    if (some.ok()) {
      made_.insert(made_.end(), some->begin(), some->end());
    } else if (status_.ok()) {
      status_ = some.status();
    }
  }

 private:
  const std::shared_ptr<Container> container_;
  const std::string task_;
  const std::function<void(Result<Adopted>)> then_;
  std::mutex mutex_;
  int lanes_ = 0;  // That have not done it yet.
  Adopted made_;
  Status status_;
};

void TaskPrograms::adopt(const std::string& state_group,
                         std::vector<resources::Replica::Taken> values,
                         std::function<void(Result<Adopted>)> then, const WhenKept& when_kept) {
  auto found = container(state_group);
  if (!found.ok()) return then(found.status());
  const auto adoption =
      std::make_shared<Adoption>(*std::move(found), options_.name, std::move(then));
  std::map<int, std::vector<resources::Replica::Taken>> of_lanes;
  for (resources::Replica::Taken& one : values) {
    one.lane %= options_.lanes;
    of_lanes[one.lane].push_back(std::move(one));
  }
  for (size_t i = 0; i < of_lanes.size(); ++i) adoption->add_lane();
  for (auto& [lane, its] : of_lanes) {
    // What a lane does not run as it is stopping goes with it.
    static_cast<void>(lanes_->post(
        lane, [this, lane = lane, adoption, when_kept,
               given = std::make_shared<std::vector<resources::Replica::Taken>>(std::move(its))] {
          // They are used where they come from: what no step has used here was left.
          for (const resources::Replica::Taken& one : *given) {
            adoption->container()->manager.erase_unused(one.name);
          }
          adoption->made(make(adoption->container(), std::move(*given)));
          // Where they were is not asked any more: with the task they would be lost.
          when_kept(lane, *adoption->container(), [adoption] {});
        }));
  }
}

void TaskPrograms::forget(const std::string& state_group, const Adopted& adopted) {
  const auto found = container(state_group);
  if (found.ok()) forget(found->get(), adopted);
}

void TaskPrograms::forget(Container* container, const Adopted& adopted) {
  for (const auto& [name, resource] : adopted) {
    // One that has gone may have left its name, and its place in memory, to another one.
    const std::shared_ptr<resources::Resource> there = resource.lock();
    if (there != nullptr) container->manager.erase(name, there.get());
  }
}

}  // namespace sidereal::task
