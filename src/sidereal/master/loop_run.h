#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "sidereal/data/reader_shelf.h"
#include "sidereal/exec/stop_signal.h"
#include "sidereal/master/step_run.h"
#include "sidereal/task/loop.h"
#include "sidereal/task/task_loop.h"

/// A loop of a session, as its master has it. Internal to master.
namespace sidereal::master {

struct MasterContext;

/// kInvalidArgument for what a loop cannot be told: every field may come from anyone.
Status check_loop(const task::LoopOptions& options);

/// Gets what a loop tells. Called from any thread, lanes too; does not block.
class LoopSink {
 public:
  virtual ~LoopSink() = default;
  /// Those of LoopListener; when there is room again, LoopRun::go_on() is to be called.
  [[nodiscard]] virtual bool has_room() = 0;
  virtual bool take_progress(int lane, const task::LoopProgress& progress,
                             const std::vector<std::vector<double>>& series, bool is_last) = 0;
  virtual void take_values(task::LoopValues values) = 0;
  virtual void take_trace(std::string trace) = 0;
  /// Nothing more comes. Once.
  virtual void ended(const Status& status) = 0;
};

/// One lane of a loop: where it runs, and how. Value type.
struct LoopLane {
  int lane = 0;  ///< Of the master's task, modulo its lanes; in the lowest byte of its steps.
  std::vector<PartPlan> parts;
  std::set<std::string> called = {};  ///< Tasks that the only part calls.
  bool calls_wait = false;            ///< What it calls may wait for what steps share.
};

/// Runs a loop on lanes of the master's task, each with a reader and a TaskLoop of its own. When
/// one fails, the others end. At the end it waits for the pushes that no step has waited for.
/// Lifecycle: start() or refuse(); keeps itself until its end was told.
/// Thread:    any.
class LoopRun final : public task::LoopListener, public std::enable_shared_from_this<LoopRun> {
 public:
  /// `context` is borrowed. `on_end` is called before the sink hears of the end.
  using OnEnd = std::function<void(const std::shared_ptr<LoopRun>&)>;
  LoopRun(MasterContext* context, uint64_t session, task::LoopOptions options,
          std::shared_ptr<LoopSink> sink, std::shared_ptr<data::ReaderShelf> shelf, OnEnd on_end);
  ~LoopRun() override;

  [[nodiscard]] const task::LoopOptions& options() const { return options_; }
  /// Opens the data for each lane, and begins. An error: nothing was begun. May wait for files.
  Status start(std::vector<LoopLane> lanes);
  /// It does not begin.
  void refuse(const Status& why);
  /// Ends it soon, unless it has ended.
  void cancel(const Status& why);
  /// The client has heard of so many steps, by lane. kInvalidArgument for lanes that are not there.
  Status heard(const std::vector<int64_t>& steps);
  /// No step begins any more: it ends well when those have ended that have begun.
  void drain();
  /// What it was cancelled with.
  [[nodiscard]] Status cancelled();
  /// There is room again.
  void go_on();

  /// The tasks that its steps call; under the session's lock, as calls_to().
  void calls(std::set<std::string> tasks) { called_ = std::move(tasks); }
  [[nodiscard]] bool calls_to(const std::string& task) const { return called_.contains(task); }
  /// The number of its first step. Before start().
  void takes_numbers_from(uint64_t first) { first_number_ = first; }
  /// The largest number that a step had.
  [[nodiscard]] uint64_t last_number();

  bool has_room() override { return sink_->has_room(); }
  bool take_progress(int lane, const task::LoopProgress& progress,
                     const std::vector<std::vector<double>>& series, bool is_last) override;
  void take_values(task::LoopValues values) override { sink_->take_values(std::move(values)); }
  void take_trace(int /*lane*/, std::string trace) override { sink_->take_trace(std::move(trace)); }
  void lane_ended(int lane, const Status& status) override;

 private:
  struct Lane;

  Result<std::unique_ptr<Lane>> open_lane(size_t index, size_t count, LoopLane plan);
  Result<std::shared_ptr<std::atomic<bool>>> begin_opening();
  [[nodiscard]] task::TaskLoopOptions options_of(size_t index, size_t count, bool in_order) const;
  void tell(size_t lane, const std::function<void(task::TaskLoop*)>& what);
  void tell_all(const std::function<void(task::TaskLoop*)>& what);
  void finish();
  void give_end(const Status& status);

  MasterContext* const context_;
  const uint64_t session_;
  const task::LoopOptions options_;
  const std::shared_ptr<LoopSink> sink_;
  const std::shared_ptr<data::ReaderShelf> shelf_;
  OnEnd on_end_;
  exec::StopSignal stop_;
  std::set<std::string> called_;
  uint64_t first_number_ = 1;

  std::mutex mutex_;
  Status cancelled_;
  Status status_;
  bool started_ = false;
  bool drains_ = false;
  std::shared_ptr<std::atomic<bool>> opening_;  // Ends the opening of data.
  size_t missing_ = 0;
  int64_t steps_max_ = 0;                     // Of a lane.
  std::vector<std::unique_ptr<Lane>> lanes_;  // Written by start() only.
};

}  // namespace sidereal::master
