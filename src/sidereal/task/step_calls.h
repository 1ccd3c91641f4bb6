#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "sidereal/lane/lane.h"
#include "sidereal/ports/ports.h"
#include "sidereal/program/program.h"
#include "sidereal/task/async_pushes.h"
#include "sidereal/task/prefetched_pulls.h"
#include "sidereal/task/task.h"

namespace sidereal::task {

/// Carries the calls of one exec::Step to other tasks, and lets the lane serve others between its
/// instructions. An asynchronous push is done for the step when it was sent, and one that was sent
/// ahead is not sent again; not in a step that is traced. Internal to task.
/// Lifecycle: outlives the calls it has started.
/// Thread:    the task's lane.
class StepCalls final : public ports::Exchange {
 public:
  /// All are borrowed, and so are the calls of `program`. `serve` takes what other threads have for
  /// the lane that does not wait for the end of a step.
  StepCalls(Peers* peers, lane::Lane* lane, AsyncPushes* async_push, PrefetchedPulls* ahead,
            const program::Program& program, std::function<void()> serve);
  ~StepCalls() override;

  /// A step of `session` begins. `on_answer` is called after each answer that it got. Asynchronous
  /// pushes are waited for as well, unless `leaves_pushes`. `closure`: see ProgramCall.
  void begin(uint64_t session, int32_t trace, std::function<void()> on_answer,
             bool leaves_pushes = true, const ClosureKey& closure = {});
  /// Whether calls wait for their answers.
  [[nodiscard]] bool any_open() const { return open_ > 0; }
  /// What the first call that failed failed with. Nothing can come of the step then, whatever it
  /// waits for.
  [[nodiscard]] const Status& failure() const { return failure_; }
  /// "an answer of /job:ps/replica:0/task:0": whom calls wait for, or what the first one that
  /// failed waited for there; "" when none does.
  [[nodiscard]] std::string waits_for() const;
  /// Asks the tasks that are called to end what they run: answers come soon, which say what they
  /// waited for.
  void cancel();
  /// Ends the calls that are open at once: their answers do not matter any more.
  void drop();
  /// What the called tasks traced, as elements of Chrome's format.
  [[nodiscard]] std::string take_trace() { return std::move(trace_text_); }

  Status start(int call, uint64_t step, std::span<const tensor::Tensor> feeds,
               ports::CallCompletion* completion) override;
  void yield() override;

 private:
  /// One of the program's calls, of which one is open at a time.
  class Call;

  Peers* const peers_;
  lane::Lane* const lane_;
  AsyncPushes* const async_pushes_;
  PrefetchedPulls* const ahead_;
  const std::function<void()> serve_;
  std::vector<std::unique_ptr<Call>> calls_;
  uint64_t session_ = 0;
  int32_t trace_ = 0;
  ClosureKey closure_;
  bool leaves_pushes_ = true;
  std::function<void()> on_answer_;
  std::string trace_text_;
  Status failure_;
  std::string waited_for_;
  int open_ = 0;
};

}  // namespace sidereal::task
