#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "sidereal/data/auc.h"
#include "sidereal/data/prefetch.h"
#include "sidereal/lane/lane.h"
#include "sidereal/task/loop.h"
#include "sidereal/task/step_turns.h"
#include "sidereal/task/task.h"

/// A lane's share of a loop of a session. Internal to task.
namespace sidereal::task {

/// Begins and ends the steps of a TaskLoop, however many tasks they take.
/// Thread: the lane.
class LoopSteps {
 public:
  virtual ~LoopSteps() = default;
  /// What a step is given. Value type.
  struct Begin {
    size_t flight = 0;  ///< Names it until it has ended.
    uint64_t number = 0;
    int32_t trace = 0;  ///< 0: none.
    base::RefPtr<StepTurns> turns;
    std::vector<tensor::Tensor>* feeds = nullptr;  ///< In the order of the loop; stay as they are.
  };
  /// Begins a step, whose end goes to TaskLoop::ended(), maybe before this returns.
  virtual void start(const Begin& step) = 0;
  /// Ends one soon, with what it waited for.
  virtual void cancel(size_t flight, const Status& why) = 0;
  /// Ends one that was cancelled a while ago at once.
  virtual void drop(size_t flight) = 0;
  /// The lane is stopping: no end of a step that it does not run itself comes any more. The number
  /// of steps for which that is so.
  virtual size_t abandon(const Status& why) = 0;
};

/// Gets what a lane's share of a loop tells. Called on the lane; does not block.
class LoopListener {
 public:
  virtual ~LoopListener() = default;
  /// Whether more values can be taken. When not, no step begins until TaskLoop::go_on().
  [[nodiscard]] virtual bool has_room() = 0;
  /// Totals so far, and the numbers of series since this was last called; false: not taken, there
  /// is no room. Always taken when `is_last`.
  virtual bool take_progress(int lane, const LoopProgress& progress,
                             const std::vector<std::vector<double>>& series, bool is_last) = 0;
  virtual void take_values(LoopValues values) = 0;
  virtual void take_trace(int lane, std::string trace) = 0;
  /// Nothing more comes of this lane, and it holds nothing there. Once.
  virtual void lane_ended(int lane, const Status& status) = 0;
};

/// What a lane's share is. Value type.
struct TaskLoopOptions {
  int index = 0;  ///< Among the lanes of the loop.
  std::vector<LoopFetch> fetches;
  std::vector<std::string> columns;  ///< Fed in this order, then `constants`.
  std::vector<tensor::Tensor> constants;
  std::vector<std::string> kept_columns;
  int64_t ahead_max = 0;  ///< Steps that may begin beyond those heard(); 0: any.
  int64_t steps_in_flight = 1;
  bool in_order = false;   ///< Whether steps take turns, and go on when calls are under way.
  int64_t steps_max = -1;  ///< -1: until the data ends.
  uint64_t first_number = 1;
  uint64_t number_stride = 1;
  uint64_t trace_first = 0;
  uint64_t trace_end = 0;
  int32_t trace_process = 1;
  int64_t auc_fetch = -1;
  std::string auc_labels;
  int64_t auc_window_rows = 0;
  std::chrono::milliseconds step_timeout{0};  ///< 0: none, or `steps` looks after it.
  std::chrono::milliseconds data_timeout{0};
};

/// Runs steps one after another on one lane of a task, up to k at once: takes batches, feeds their
/// columns, keeps what is asked for of fetches. Never waits: it goes on when a step has ended or
/// has sent its calls, when data has come, when there is room for results.
/// Lifecycle: created anywhere; start() and all else on the lane. After lane_ended() any thread
/// that
///            may wait calls close_reader(); then it may be destroyed when `owner` is let go of.
/// Thread:    the lane.
class TaskLoop final : private lane::StopHook {
 public:
  /// All but `reader`, which may be nullptr, are borrowed.
  TaskLoop(Task* task, int lane, TaskLoopOptions options,
           std::unique_ptr<data::PrefetchingReader> reader, LoopListener* listener);
  ~TaskLoop() override;

  /// Begins; `steps` is borrowed. `owner` is held until the lane has left.
  void start(LoopSteps* steps, std::shared_ptr<const void> owner);
  /// Waits for the end of the reading thread.
  void close_reader() { reader_ = nullptr; }
  /// Once it has ended well: what reads, in the middle of its data; nullptr: that is read.
  std::unique_ptr<data::PrefetchingReader> take_reader() {
    return data_ended_ ? nullptr : std::move(reader_);
  }
  /// Ends it with `why`, unless it has ended.
  void cancel(const Status& why) {
    if (!told_end_) end(why);
  }
  /// The client has heard of so many steps.
  void heard(int64_t steps) {
    heard_ = std::max(heard_, steps);
    go_on();
  }
  /// No step begins any more.
  void drain() {
    if (told_end_) return;
    input_ended_ = true;
    schedule();
  }
  /// There is room again.
  void go_on() {
    if (!told_end_) schedule();
  }
  /// Of LoopSteps. `fetches`, which may be moved from, are as many as the loop's when ok.
  /// `waits_for`: what it waited for when it was ended.
  void ended(size_t flight, const Status& status, std::span<tensor::Tensor> fetches,
             const std::string& waits_for, std::string trace);
  /// Steps that may be in flight: flights have lower numbers.
  [[nodiscard]] size_t flights() const { return flights_.size(); }

 private:
  class DataReady;
  struct Flight;

  void on_lane_stop() override;
  void schedule();
  void run();
  [[nodiscard]] bool may_launch();
  [[nodiscard]] bool is_too_far_ahead();
  [[nodiscard]] int32_t trace_process(size_t flight) const;
  Result<bool> launch();
  Result<bool> next_batch(Flight* flight);
  Status feed(const data::Batch& batch);
  void harvest_all();
  Status harvest(Flight* flight);
  /// The steps from now on are of `next`.
  void end_pass(int64_t next);
  Status keep_fetch(size_t i, const tensor::Tensor& value, LoopValues* values);
  /// For Keep::kFinite.
  [[nodiscard]] Status check_finite(size_t i, const Flight& flight) const;
  Status add_to_auc(const Flight& flight);
  void set_timer(int64_t delay_ns);
  void tick();
  Status check_times();
  bool tell(bool is_last);
  void end(const Status& status);
  void settle();
  void leave();

  Task* const task_;
  const int lane_number_;
  lane::Lane* const lane_;
  const TaskLoopOptions options_;
  std::unique_ptr<data::PrefetchingReader> reader_;
  LoopListener* const listener_;
  LoopSteps* steps_ = nullptr;
  std::shared_ptr<const void> owner_;
  base::RefPtr<StepTurns> turns_;
  std::unique_ptr<DataReady> data_ready_;
  std::vector<std::unique_ptr<Flight>> flights_;
  std::vector<size_t> idle_;
  std::deque<size_t> order_;  // In flight, oldest first; with ended ones behind others.
  size_t running_ = 0;        // Of them, that have not ended.
  std::vector<tensor::Tensor> feeds_;
  bool scheduled_ = false;
  bool is_in_run_ = false;
  bool input_ended_ = false;
  bool data_ended_ = false;
  bool ended_ = false;
  bool told_end_ = false;
  Status status_;
  std::string waits_for_;
  lane::TimerId timer_ = {};
  bool timer_fired_ = false;
  int64_t launched_ = 0;
  int64_t heard_ = 0;  // Steps that the client has said to have heard of.
  int64_t began_ns_ = 0;
  int64_t waits_for_data_since_ns_ = 0;  // 0: it does not.
  int64_t bytes_in_before_ = 0;
  int64_t bytes_out_before_ = 0;
  data::WindowAuc auc_;
  data::ReadStats read_;
  LoopProgress progress_;
  LoopPassMean pass_;  // Of the latest step.
  int64_t steps_told_ = 0;
  std::vector<std::vector<double>> latest_;  // By fetch; number n lies at n % LoopScalar::kLatest.
  std::vector<std::vector<double>> series_;
  size_t series_waiting_ = 0;
  std::vector<tensor::Tensor> last_;
};

/// Steps that are one program on the loop's own task: begun there without a word to anybody.
/// Thread: the lane.
class OwnSteps final : public LoopSteps {
 public:
  struct Options {
    uint64_t session = 0;
    uint64_t program = 0;
    int lane = 0;                 ///< In numbers of steps: lane_hint().
    uint64_t first_step = 0;      ///< Random.
    std::vector<size_t> feeds;    ///< By feed of the program: which of the loop's it is.
    std::vector<size_t> fetches;  ///< By fetch of the program: which of the loop's it is.
    int64_t pull_prefetch_ms = 0;
    const exec::StopSignal* stop = nullptr;  ///< Borrowed.
  };
  /// Both are borrowed.
  OwnSteps(Task* task, TaskLoop* loop, Options options);
  ~OwnSteps() override;

  void start(const Begin& step) override;
  void cancel(size_t flight, const Status& why) override;
  void drop(size_t flight) override;
  size_t abandon(const Status& why) override;

 private:
  void ended(size_t flight, ProgramResult* result);

  Task* const task_;
  TaskLoop* const loop_;
  const Options options_;
  uint64_t next_step_;
  std::vector<uint64_t> steps_;  // By flight; 0: none.
  ProgramCall call_;
  std::vector<tensor::Tensor> fetches_;
};

}  // namespace sidereal::task
