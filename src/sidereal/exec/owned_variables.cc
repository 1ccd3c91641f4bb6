#include "sidereal/exec/owned_variables.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sidereal/exec/executor.h"
#include "sidereal/exec/kernel_util.h"
#include "sidereal/exec/resource_util.h"

namespace sidereal::exec {

namespace {

using program::Instruction;
using program::Program;
using resources::Owner;
using resources::Variable;
using tensor::Tensor;

/// The inputs of an op that are handles of variables. Updates by optimizers have those of slots
/// too, and no other strings.
std::vector<int> handles_of(const Program& program, const Instruction& instruction) {
  std::vector<int> out;
  if (!instruction.op.starts_with("Variable")) return out;
  const bool has_slots = instruction.op.starts_with("VariableUpdate");
  for (size_t i = 0; i < instruction.inputs.size(); ++i) {
    const bool is_string = program.slots[instruction.inputs[i]].dtype == tensor::DType::kString;
    if (is_string && (i == 0 || has_slots)) out.push_back(static_cast<int>(i));
  }
  return out;
}

/// An instruction alone, fed with its inputs: what `outputs` names is fetched.
Program alone(const Program& program, const Instruction& instruction,
              const std::vector<int>& outputs) {
  Program out;
  Instruction copy;
  copy.op = instruction.op;
  copy.name = instruction.name;
  copy.attrs = instruction.attrs;
  const auto slot_as = [&](int32_t slot) {
    out.slots.push_back({program.slots[slot].dtype, tensor::Shape::unknown_rank(), -1});
    return static_cast<int32_t>(out.slots.size() - 1);
  };
  for (const int32_t input : instruction.inputs) {
    out.feeds.push_back(slot_as(input));
    out.feed_names.emplace_back();
  }
  copy.inputs = out.feeds;
  for (const int32_t output : instruction.outputs) copy.outputs.push_back(slot_as(output));
  for (const int output : outputs) {
    out.fetches.push_back(copy.outputs[static_cast<size_t>(output)]);
    out.fetch_names.emplace_back();
  }
  out.instructions.push_back(std::move(copy));
  return out;
}

/// The variables of an op, in the order of its handles.
class KnownVariables {
 public:
  explicit KnownVariables(size_t count) : known_(count), found_(count) {}

  /// `name(i)` is that of the handle `i`. Errors: those of Manager::find().
  template <class Name>
  Status find(const resources::Manager& manager, const Name& name) {
    for (size_t i = 0; i < known_.size(); ++i) {
      SR_ASSIGN_OR_RETURN(const std::string_view is, name(i));
      SR_ASSIGN_OR_RETURN(found_[i], known_[i].named(is, manager));
    }
    return {};
  }
  /// The lane of the first one.
  [[nodiscard]] int lane() const { return found_[0]->owner()->lane(); }
  /// The owner of one that is not on `lane`; nullptr: all are there.
  [[nodiscard]] Owner* elsewhere(int lane) const {
    for (const Variable* const one : found_) {
      if (one->owner()->lane() != lane) return one->owner().get();
    }
    return nullptr;
  }
  /// They belong to one lane, the calling one, from now on.
  void join() const {
    for (size_t i = 1; i < found_.size(); ++i) found_[0]->owner()->join(found_[i]->owner().get());
  }

 private:
  std::vector<KnownVariable> known_;
  std::vector<Variable*> found_;
};

/// An op as other lanes run it for the one that has its program.
class HandedOver : public std::enable_shared_from_this<HandedOver> {
 public:
  /// One run of it. Thread: the lane that it was last posted to, but for `lane`, which does not
  /// change, and is_done, which is that of the lane whose step waits.
  struct Run {
    uint64_t step = 0;
    resources::ClosureKey closure;
    int pushed_by = 0;
    uint64_t number = 0;  ///< Of the step, on its lane.
    int lane = 0;         ///< That it was first handed to.
    std::vector<Tensor> inputs;
    Status status;
    std::vector<Tensor> outputs;  ///< Those that are read.
    bool is_done = false;
  };

  HandedOver(const BindContext& bind, std::vector<int> handles, const KernelTable* table)
      : handles_(std::move(handles)), outputs_(outputs_of(bind)), table_(*table) {
    program_ = alone(bind.program, bind.instruction, outputs_);
    environment_ = bind.environment;
    home_ = std::exchange(environment_.lane, 0);
    lanes_ = std::exchange(environment_.lanes, nullptr);
    bound_.resize(static_cast<size_t>(lanes_->count()));
  }

  [[nodiscard]] const std::vector<int>& handles() const { return handles_; }
  /// Those that are read.
  [[nodiscard]] const std::vector<int>& outputs() const { return outputs_; }

  /// Has lane `lane` do it. False: that is stopping.
  bool post(int lane, const std::shared_ptr<Run>& run) {
    return lanes_->post(lane, [self = shared_from_this(), lane, run] { self->arrive(lane, run); });
  }

 private:
  /// The op on one lane.
  struct OnLane {
    explicit OnLane(size_t handles) : variables(handles) {}
    std::unique_ptr<BoundProgram> bound;
    std::unique_ptr<Step> step;
    KnownVariables variables;
  };

  static std::vector<int> outputs_of(const BindContext& bind) {
    std::vector<int> out;
    for (size_t i = 0; i < bind.instruction.outputs.size(); ++i) {
      if (is_read(bind, static_cast<int>(i))) out.push_back(static_cast<int>(i));
    }
    return out;
  }

  /// On `lane`: runs it where that has all variables; else goes on to a lane that has one.
  void arrive(int lane, const std::shared_ptr<Run>& run) {
    const Result<OnLane*> here = on_lane(lane);
    if (!here.ok()) return answer(run, here.status());
    KnownVariables& variables = (*here)->variables;
    const auto name_of = [&](size_t i) -> Result<std::string_view> {
      return run->inputs[static_cast<size_t>(handles_[i])].data<const std::string_view>()[0];
    };
    const Status found = variables.find(*environment_.resources, name_of);
    if (!found.ok()) return answer(run, found);
    // A lane that is stopping ends all that waits for it.
    if (variables.lane() != lane) return static_cast<void>(post(variables.lane(), run));
    if (Owner* const other = variables.elsewhere(lane)) return fetch(other, lane, run);
    variables.join();
    answer(run, compute((*here)->step.get(), run.get()));
  }

  /// Has the group of `owner` given to `lane`, where the op goes on.
  void fetch(Owner* owner, int lane, const std::shared_ptr<Run>& run) {
    const int from = owner->lane();
    static_cast<void>(lanes_->post(
        from, [self = shared_from_this(), owner = owner->shared_from_this(), from, lane, run] {
          if (owner->lane() == from) owner->give_to(lane);
          static_cast<void>(self->post(lane, run));
        }));
  }

  Result<OnLane*> on_lane(int lane) {
    std::unique_ptr<OnLane>& here = bound_[static_cast<size_t>(lane)];
    if (here != nullptr) return here.get();
    auto made = std::make_unique<OnLane>(handles_.size());
    SR_ASSIGN_OR_RETURN(made->bound, BoundProgram::bind(program_, table_, environment_));
    made->step = std::make_unique<Step>(made->bound.get(), lanes_->pool(lane), nullptr);
    made->step->set_workers(lanes_->workers(lane));
    here = std::move(made);
    return here.get();
  }

  Status compute(Step* step, Run* run) const {
    step->set_pusher(run->pushed_by);
    step->begin(run->step, run->closure);
    Status status;
    for (size_t i = 0; status.ok() && i < run->inputs.size(); ++i) {
      status = step->feed(static_cast<int>(i), std::move(run->inputs[i]));
    }
    if (status.ok()) status = step->run_only();
    for (size_t i = 0; status.ok() && i < outputs_.size(); ++i) {
      run->outputs.push_back(step->fetch(static_cast<int>(i)));
    }
    step->end();
    return status;
  }

  void answer(const std::shared_ptr<Run>& run, Status status) {
    run->status = std::move(status);
    run->inputs.clear();
    static_cast<void>(lanes_->answer(home_, run->number, [run] { run->is_done = true; }));
  }

  const std::vector<int> handles_;
  const std::vector<int> outputs_;
  const KernelTable& table_;
  Program program_;
  Environment environment_;  // Without lanes: what comes here stays here.
  VariableLanes* lanes_ = nullptr;
  int home_ = 0;                                // The lane that has the program.
  std::vector<std::unique_ptr<OnLane>> bound_;  // By lane, each its own.
};

class OwnedKernel final : public Kernel {
 public:
  OwnedKernel(const BindContext& bind, std::vector<int> handles, std::unique_ptr<Kernel> kernel,
              const KernelTable* table)
      : manager_(*bind.environment.resources),
        lane_(bind.environment.lane),
        kernel_(std::move(kernel)),
        variables_(handles.size()),
        elsewhere_(std::make_shared<HandedOver>(bind, std::move(handles), table)) {}

  Status run(KernelContext& c) override {
    if (auto* const run = static_cast<HandedOver::Run*>(c.kept_while_waiting())) {
      return run->is_done ? take(c, run) : wait(c, *run);
    }
    SR_RETURN_IF_ERROR(variables_.find(
        manager_, [&](size_t i) { return handle_of(c, elsewhere_->handles()[i]); }));
    if (variables_.elsewhere(lane_) != nullptr) return hand_over(c);
    variables_.join();
    return kernel_->run(c);
  }

 private:
  Status hand_over(KernelContext& c) {
    auto run = std::make_shared<HandedOver::Run>();
    run->step = c.step_id();
    run->closure = c.closure();
    run->pushed_by = c.pusher();
    run->number = c.number_on_lane();
    run->lane = variables_.lane();
    for (int i = 0; i < c.num_inputs(); ++i) run->inputs.push_back(c.input(i));
    c.waiting_state() = run;
    if (elsewhere_->post(run->lane, run)) return wait(c, *run);
    return base::unavailable("lane {}, which has the variable, is stopping", run->lane);
  }

  static Status wait(KernelContext& c, const HandedOver::Run& run) {
    return c.wait_for("lane {}, which has the variable", run.lane);
  }

  Status take(KernelContext& c, HandedOver::Run* run) const {
    Status status = std::move(run->status);
    for (size_t i = 0; status.ok() && i < run->outputs.size(); ++i) {
      c.set_output(elsewhere_->outputs()[i], std::move(run->outputs[i]));
    }
    c.waiting_state() = nullptr;
    return status;
  }

  const resources::Manager& manager_;
  const int lane_;
  const std::unique_ptr<Kernel> kernel_;
  KnownVariables variables_;
  const std::shared_ptr<HandedOver> elsewhere_;
};

}  // namespace

std::unique_ptr<Kernel> where_owned(const BindContext& bind, std::unique_ptr<Kernel> kernel,
                                    const KernelTable* table) {
  const Environment& place = bind.environment;
  if (place.lanes == nullptr || place.lanes->count() == 1) return kernel;
  std::vector<int> handles = handles_of(bind.program, bind.instruction);
  if (handles.empty()) return kernel;
  return std::make_unique<OwnedKernel>(bind, std::move(handles), std::move(kernel), table);
}

}  // namespace sidereal::exec
