#include <algorithm>
#include <utility>

#include "sidereal/master/loop_run.h"
#include "sidereal/master/master_session.h"

// Loops of a session: planned as its steps are, then run on the lanes of the master's task.

namespace sidereal::master {

namespace {

/// Loops of a session at once, each with threads that read.
constexpr size_t kLoopsMax = 16;

}  // namespace

Result<std::shared_ptr<LoopRun>> MasterSession::run_loop(task::LoopOptions options,
                                                         std::shared_ptr<LoopSink> sink) {
  SR_RETURN_IF_ERROR(check_loop(options));
  if (options.step_timeout.count() == 0) options.step_timeout = config_.operation_timeout;
  auto loop =
      std::make_shared<LoopRun>(context_, id_, std::move(options), std::move(sink), shelf_,
                                [self = shared_from_this()](const std::shared_ptr<LoopRun>& ended) {
                                  self->forget_loop(ended);
                                });
  {
    const std::lock_guard lock(mutex_);
    SR_RETURN_IF_ERROR(closed_);
    if (loops_.size() >= kLoopsMax) {
      return base::resource_exhausted("the session runs {} loops, as many as it takes",
                                      loops_.size());
    }
    loops_.insert(loop);
  }
  context_->threads->run([self = shared_from_this(), loop] {
    const Status begun = self->begin_loop(loop);
    if (!begun.ok()) loop->refuse(self->unless_closed(begun));
  });
  return loop;
}

/// Lane `index` of a loop, as steps have it in their numbers: first that of the session's steps.
int MasterSession::lane_of_loop(size_t index) const {
  const auto lanes = static_cast<size_t>(context_->task->lanes());
  const auto home = static_cast<size_t>(task::lane_hint(id_));
  return static_cast<int>(index == 0 ? home : (home + index) % lanes);
}

Status MasterSession::begin_loop(const std::shared_ptr<LoopRun>& loop) {
  const task::LoopOptions& options = loop->options();
  StepCall call;
  for (const auto& [feed, column] : options.columns) call.feeds.push_back(feed);
  for (const auto& [feed, value] : options.constants) call.feeds.push_back(feed);
  if (!options.replica.empty()) call.feeds.push_back(options.replica);
  for (const task::LoopFetch& fetch : options.fetches) call.fetches.push_back(fetch.name);
  call.targets = options.targets;
  const auto all = static_cast<size_t>(context_->task->lanes());
  const size_t count = options.lanes == 0 ? all : std::min(all, static_cast<size_t>(options.lanes));
  std::vector<LoopLane> lanes;
  for (size_t i = 0; i < count; ++i) {
    SR_RETURN_IF_ERROR(loop->cancelled());
    call.lane = i == 0 ? -1 : lane_of_loop(i);
    SR_ASSIGN_OR_RETURN(const std::shared_ptr<const Plan> plan, find_plan(call));
    lanes.push_back({.lane = lane_of_loop(i),
                     .parts = plan->parts,
                     .called = plan->called,
                     .calls_wait = plan->calls_wait});
  }
  uint64_t first = options.first_step;
  bool is_alone = false;
  {
    const std::lock_guard lock(mutex_);
    SR_RETURN_IF_ERROR(closed_);
    is_alone = loops_.size() == 1;
    for (const auto& [task, one] : attached_) {
      if (!one.lost.ok() && lanes.front().called.contains(task)) return one.lost;
    }
    if (first == 0) first = steps_begun_ + 1;
    loop->takes_numbers_from(first);
    loop->calls(lanes.front().called);
  }
  if (!is_alone) return loop->start(std::move(lanes));
  // Lanes of the loop have connections of their own, on which they may overtake what steps before
  // it have pushed and not waited for.
  const auto held = std::make_shared<std::vector<LoopLane>>(std::move(lanes));
  context_->task->when_async_pushes_done(
      id_, [self = shared_from_this(), loop, held](const Status& lost) {
        self->context_->threads->run([self, loop, held, lost] {
          const Status begun = lost.ok() ? loop->start(std::move(*held)) : lost;
          if (!begun.ok()) loop->refuse(self->unless_closed(begun));
        });
      });
  return {};
}

void MasterSession::forget_loop(const std::shared_ptr<LoopRun>& loop) {
  const std::lock_guard lock(mutex_);
  loops_.erase(loop);
  steps_begun_ = std::max(steps_begun_, loop->last_number());
}

}  // namespace sidereal::master
