#include "tests/sim/task_ps.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace sidereal::sim {

using tensor::DType;
using tensor::Tensor;

TaskPs::TaskPs(const Context& context, sys::sim::Host* host, int index, uint64_t life,
               Finder* finder, const StatePrograms& state, PushTable* pushes)
    : TaskLife(context, host,
               {.name = task_of_ps(index),
                .incarnation = life,
                .lanes = context.scenario->lanes,
                .inbox_slots = 1024,
                .has_aside = true},
               finder),
      index_(index),
      state_(state),
      pushes_(pushes) {
  begin();
  SR_CHECK(task()->open_session(static_cast<uint64_t>(lanes())).ok());
  std::vector<Tensor> values;
  for (int lane = 0; lane < lanes(); ++lane) {
    values.push_back(Tensor::zeros(DType::kFloat32, {PushTable::kRows, scenario().width}));
    values.push_back(Tensor::empty(DType::kFloat32, {weights(scenario())}));
    std::ranges::fill(values.back().data<float>(), kWeight);
    values.push_back(Tensor::zeros(DType::kFloat32, {1}));
  }
  run_aside(state_.begin, std::move(values));
}

TaskPs::~TaskPs() { end(); }

std::vector<Tensor> TaskPs::run_aside(const std::string& program, std::vector<Tensor> feeds) {
  const int aside = lanes();
  const auto session = static_cast<uint64_t>(aside);
  const uint64_t number =
      task()->register_program(session, {.bytes = program, .lane = aside}).value();
  std::optional<task::ProgramResult> result;
  task::ProgramCall call = {.session = session,
                            .program = number,
                            .step = ++steps_,
                            .feeds = std::move(feeds),
                            .whole = true,
                            .lane = aside};
  task()->run(&call, [&](task::ProgramResult& ended) { result = std::move(ended); });
  step_aside();
  SR_CHECK(result && result->status.ok(), "a ps cannot read or write its variables: {}",
           result ? base::message_of(result->status) : "no end");
  return std::move(result->fetches);
}

void TaskPs::read_variables() {
  if (std::exchange(was_read_, true)) return;
  const std::vector<Tensor> rows = run_aside(state_.end, {});
  for (size_t lane = 0; lane < rows.size(); ++lane) {
    pushes_->read(static_cast<size_t>(index_ * lanes()) + lane, life(), rows[lane]);
  }
}

void TaskPs::check_memory() {
  // Connections of workers that are gone are noticed late.
  check_task_memory(2 * scenario().workers * lanes() + 8);
}

void TaskPs::check_idle() {
  const std::string goes_on = activity();
  if (!goes_on.empty()) ledger()->complain("though nobody calls{}", goes_on);
}

}  // namespace sidereal::sim
