#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "sidereal/master/alarm.h"
#include "sidereal/master/link.h"

/// One step of a session, on all tasks that take part. Internal to master.
namespace sidereal::master {

/// A task's part in a step.
struct PartPlan {
  std::string task;
  std::shared_ptr<Link> link;
  uint64_t program = 0;
  std::vector<size_t> feeds;     ///< By feed of the program: which of the step's it is.
  std::vector<size_t> fetches;   ///< By fetch of the program: which of the step's it is.
  int64_t pull_prefetch_ms = 0;  ///< See ProgramCall.
};

/// How a step ended.
struct StepResult {
  Status status = {};
  std::vector<tensor::Tensor> fetches = {};
  std::string trace = {};  ///< Elements of Chrome's trace format, of all tasks.
};

/// A step that runs. When a part fails, the others are cancelled at once. The error of the step is
/// the first that does not follow from another one.
/// Thread: any.
class StepRun : public std::enable_shared_from_this<StepRun> {
 public:
  /// `done` is called once, from any thread.
  StepRun(std::vector<PartPlan> parts, size_t fetches, NewAlarm new_alarm,
          std::function<void(StepResult)> done);
  ~StepRun();

  /// Begins step `step`; `number` is what random ops take for it. `trace`: the number of the first
  /// part's process in a trace; 0: none. `timeout` 0: none. `turns`: of a step of a loop, begun by
  /// the lane where its part of this process runs. `closure`, `waits_for_pushes`: see ProgramCall.
  void start(uint64_t step, uint64_t number, const std::vector<tensor::Tensor>& feeds,
             int32_t trace, std::chrono::milliseconds timeout,
             const base::RefPtr<task::StepTurns>& turns = nullptr,
             const task::ClosureKey& closure = {}, bool waits_for_pushes = false);
  /// Ends the step with `why`, unless it has failed before.
  void cancel(const Status& why);

 private:
  void on_result(size_t part, task::ProgramResult result);
  void cancel_others(std::unique_lock<std::mutex> lock);
  void complete();
  [[nodiscard]] StepResult outcome();
  [[nodiscard]] Status in_words(const Status& reason) const;

  const std::vector<PartPlan> plan_;
  const size_t num_fetches_;
  const NewAlarm new_alarm_;
  std::function<void(StepResult)> done_;

  std::mutex mutex_;
  std::vector<std::shared_ptr<task::StepPart>> parts_;
  std::vector<task::ProgramResult> results_;
  std::vector<bool> has_result_;
  std::vector<size_t> failures_;  // Parts, in the order in which they failed.
  size_t missing_ = 0;
  bool started_ = false;
  bool cancelling_ = false;
  Status reason_;                    // Why it was cancelled from outside.
  std::unique_ptr<Alarm> deadline_;  // Once it was set, as the next one.
  std::unique_ptr<Alarm> grace_;
};

}  // namespace sidereal::master
