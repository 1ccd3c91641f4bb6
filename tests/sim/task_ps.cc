#include "tests/sim/task_ps.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace sidereal::sim {

using tensor::DType;
using tensor::Tensor;

TaskPs::TaskPs(const Context& context, sys::sim::Host* host, int index, uint64_t life,
               Finder* finder, const std::vector<StatePrograms>& state, PushTable* pushes)
    : TaskLife(context, host,
               {.name = task_of_ps(index),
                .incarnation = life,
                .lanes = context.scenario->lanes,
                .inbox_slots = 1024,
                .has_session = true},
               finder),
      index_(index),
      state_(state),
      pushes_(pushes) {
  begin();
  SR_CHECK(task()->open_session(static_cast<uint64_t>(lanes())).ok());
  for (int lane = 0; lane < lanes(); ++lane) {
    const Tensor all = Tensor::empty(DType::kFloat32, {weights(scenario())});
    std::ranges::fill(all.data<float>(), kWeight);
    run(lane, state_[static_cast<size_t>(lane)].begin,
        {Tensor::zeros(DType::kFloat32, {PushTable::kRows, scenario().width}), all,
         Tensor::zeros(DType::kFloat32, {1})});
  }
}

TaskPs::~TaskPs() { end(); }

std::vector<Tensor> TaskPs::run(int lane, const std::string& program, std::vector<Tensor> feeds) {
  const auto session = static_cast<uint64_t>(lanes());
  const uint64_t number =
      task()->register_program(session, {.bytes = program, .lane = lane}).value();
  std::optional<task::ProgramResult> result;
  task::ProgramCall call = {.session = session,
                            .program = number,
                            .step = ++steps_,
                            .feeds = std::move(feeds),
                            .whole = true,
                            .goes_on = true,
                            .lane = lane};
  task()->run(&call, [&](task::ProgramResult& ended) { result = std::move(ended); });
  step(lane);
  SR_CHECK(result && result->status.ok(), "a ps cannot read or write its variables: {}",
           result ? base::message_of(result->status) : "no end");
  return std::move(result->fetches);
}

void TaskPs::read_variables() {
  if (std::exchange(was_read_, true)) return;
  for (int lane = 0; lane < lanes(); ++lane) {
    const std::vector<Tensor> rows = run(lane, state_[static_cast<size_t>(lane)].end, {});
    pushes_->read(
        static_cast<size_t>(index_) * static_cast<size_t>(lanes()) + static_cast<size_t>(lane),
        life(), rows[0]);
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
