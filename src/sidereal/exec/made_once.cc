#include "sidereal/exec/made_once.h"

#include <array>
#include <memory>
#include <optional>
#include <utility>

#include "sidereal/base/hash.h"
#include "sidereal/exec/resource_util.h"
#include "sidereal/resources/push_counts.h"

namespace sidereal::exec {

namespace {

using resources::Variable;

class MadeOnce final : public Kernel {
 public:
  MadeOnce(const BindContext& bind, const resources::Manager* manager,
           std::unique_ptr<Kernel> change)
      : manager_(*manager), name_(base::hash64(bind.instruction.name)), change_(std::move(change)) {
    if (!bind.instruction.outputs.empty()) give_.emplace(bind);
  }

  Status run(KernelContext& c) override {
    const resources::ClosureKey& closure = c.closure();
    if (closure.client == 0) [[likely]]
      return change_->run(c);
    SR_ASSIGN_OR_RETURN(Variable* const found, known_.of_input(c, 0, manager_));
    // Iterations of a loop are steps of their own. The same number in every process: another one
    // may have what this one has noted, from a checkpoint or a standby.
    const std::array<uint64_t, 2> what = {c.step_id(), name_};
    const uint64_t change = base::hash64(what.data(), sizeof(what));
    SR_ASSIGN_OR_RETURN(const bool is_due, found->changes_made()->is_due(closure, change));
    if (!is_due) {
      resources::PushCounts::add_repeated_here();
      // Standbys may not have the change that was made, whose answer waits for them: so must this.
      found->note_made(closure, change);
      return give_now(c, *found);
    }
    SR_RETURN_IF_ERROR(change_->run(c));
    found->note_made(closure, change);
    return {};
  }

 private:
  Status give_now(KernelContext& c, const Variable& variable) const {
    if (!give_) return {};
    return variable.look([&](const Variable::Value& value) { return (*give_)(c, value); });
  }

  const resources::Manager& manager_;
  const uint64_t name_;
  const std::unique_ptr<Kernel> change_;
  std::optional<GivenOut> give_;  // Of one with an output.
  KnownVariable known_;
};

}  // namespace

KernelFactory made_once(KernelFactory change) {
  return [change = std::move(change)](const BindContext& bind) -> Result<std::unique_ptr<Kernel>> {
    SR_ASSIGN_OR_RETURN(std::unique_ptr<Kernel> kernel, change(bind));
    SR_ASSIGN_OR_RETURN(resources::Manager* const manager, manager_of(bind));
    return std::unique_ptr<Kernel>(std::make_unique<MadeOnce>(bind, manager, std::move(kernel)));
  };
}

}  // namespace sidereal::exec
