#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "sidereal/base/ring_queue.h"
#include "sidereal/exec/executor.h"
#include "sidereal/exec/workers.h"
#include "sidereal/lane/lane.h"
#include "sidereal/metrics/counter.h"
#include "sidereal/metrics/figures.h"
#include "sidereal/task/change_logs.h"
#include "sidereal/task/held_answers.h"
#include "sidereal/task/idle_list.h"
#include "sidereal/task/recent_ids.h"
#include "sidereal/task/step_state.h"
#include "sidereal/task/task.h"
#include "sidereal/task/task_programs.h"
#include "sidereal/task/waiting_calls.h"

/// One lane of a task. Internal to task.
namespace sidereal::task {

/// Runs the steps that are its own, each until it must wait. Nothing they use is locked by another
/// lane, but what several lanes share by name.
/// Thread: any, except what says otherwise. What its own thread says goes through no lock.
class TaskLane final : public Peers::Requester, private lane::Driver, private lane::StopHook {
 public:
  using Done = Task::Done;

  /// `options` and `programs` are borrowed. `on_change` is called on the lane after a step changed
  /// what others may wait for.
  TaskLane(const TaskOptions* options, int index, TaskPrograms* programs,
           std::function<void()> on_change);

  Status create(const LaneSystem& on);
  /// Begins to run what is asked for. Once.
  void start(Peers* peers);
  /// Takes nothing any more.
  void refuse();
  /// Ends every step with `why`, also those that begin later: what is here counts no more.
  void depose(const Status& why);
  /// Answers that were held back may leave. Thread: any.
  void answer_held();
  /// Ends every step, and the lane.
  void stop();
  [[nodiscard]] int index() const { return index_; }
  [[nodiscard]] lane::Lane* lane() const { return lane_.get(); }

  /// Those of Task.
  bool post(std::function<void()> fn);
  bool post_urgent(std::function<void()> fn);
  /// As post(), for what a step has handed over: then that looks again. `changed`: the lane on
  /// which variables that are followed have changed for it, or kNoLane.
  static constexpr int kNoLane = -1;
  bool answer(uint64_t step, int changed, std::function<void()> fn);
  /// What ops on its variables use. Thread: the lane.
  [[nodiscard]] exec::BufferPool* pool() { return &pool_; }
  [[nodiscard]] exec::Workers* workers() { return workers_.get(); }
  /// The readers of its change logs. Thread: the lane.
  [[nodiscard]] LaneChanges* changes() { return &changes_; }
  void run(ProgramCall* call, Done done);
  void cancel(uint64_t step);
  void end_step(uint64_t step);
  void ask(uint64_t step, std::span<const ports::RendezvousKey> keys,
           const base::RefPtr<Task::Receiver>& receiver);
  void withdraw(uint64_t step, const base::RefPtr<Task::Receiver>& receiver);

  Result<tensor::Tensor> allocate(tensor::DType dtype, const tensor::Shape& shape) override;
  void arrived(uint64_t step, const ports::RendezvousKey& key,
               std::span<tensor::Tensor> values) override;
  void ended(uint64_t step, const Peers::ReceiveRequest* receive_request,
             const Status& status) override;

  /// Ends the steps of a session and lets go of its programs.
  void close_session(uint64_t id, std::vector<std::shared_ptr<LoadedProgram>> programs,
                     std::shared_ptr<Container> ended);
  /// Those of AsyncPushes; when the lane is stopping, `done` is called by the caller's thread.
  void when_async_pushes_done(uint64_t session, const std::function<void(const Status&)>& done);
  void lose_async_pushes(uint64_t session, const std::string& task, const Status& why);
  /// Has steps that wait for what steps share look again. False once the lane is stopping.
  bool look_again();
  /// The same, after what lasts was forgotten.
  bool reset();
  [[nodiscard]] bool any_blocked() const { return blocked_ > 0; }
  /// Adds its figures, with those of its loop and its connections.
  void read_figures(metrics::Readings* into) const;

 private:
  [[nodiscard]] Status stopping() const;
  [[nodiscard]] static Status is_here(uint64_t step);
  Result<base::RefPtr<SessionProgram>> known(uint64_t session, uint64_t program);
  static void fail(const Done& done, const Status& status, bool derived = false);
  void run_from_elsewhere(ProgramCall* call, const Done& done);
  void raise(uint64_t step);
  void forget_signal(uint64_t step);
  void forget_if_idle(uint64_t step);
  base::RefPtr<StepState> state_of(uint64_t step);
  void forget(uint64_t step);
  [[nodiscard]] std::vector<base::RefPtr<StepState>> steps_in_order() const;
  void reuse_retired();
  void answer(uint64_t step, std::span<const ports::RendezvousKey> keys,
              const base::RefPtr<Task::Receiver>& receiver);
  template <class Tell>
  void tell_step(uint64_t number, Tell tell);

  bool poll() override;
  bool poll_idle() override;
  void on_lane_stop() override;
  bool put(std::vector<std::function<void()>>* posted, std::atomic<bool>* has_posted,
           std::function<void()> fn);
  bool run_posted();
  void run_urgent_posted();
  static void stop_if_failed(StepState* state);
  void run_ready();
  void take(ProgramCall* call, const base::RefPtr<SessionProgram>& program,
            const std::shared_ptr<exec::StopSignal>& stop, Done* done);
  void begin_waiting();
  void begin(ProgramCall* call, const base::RefPtr<SessionProgram>& program,
             const std::shared_ptr<exec::StopSignal>& stop, Done* done);
  void refuse(uint64_t step, const std::shared_ptr<exec::StopSignal>& stop, const Done& done,
              const Status& why, bool derived);
  void cancel_waiting(uint64_t step);
  Status try_begin(ProgramCall* call, const base::RefPtr<SessionProgram>& program,
                   const std::shared_ptr<exec::StopSignal>& stop, Done* done);
  Status feed(ProgramCall* call, StepState* state, std::unique_ptr<CallingStep>* out);
  void wake(const base::RefPtr<StepState>& step);
  void wake_all();
  void tell_drivers(uint64_t session);
  void advance(const base::RefPtr<StepState>& state);
  void pass_turn(StepState* state);
  void note_wait(StepTurns* turns, uint64_t step);
  void give_back_later();
  void give_back_unused();
  void finish(const base::RefPtr<StepState>& state, const Status& status, bool derived);
  [[nodiscard]] bool may_answer();
  void say_pushed(const StepState& state, Pushed* pushed) const;
  void release_ended();

  const TaskOptions& options_;
  const int index_;
  TaskPrograms* const programs_;
  const std::function<void()> on_change_;
  std::unique_ptr<lane::Lane> lane_;

  std::mutex posted_mutex_;
  std::vector<std::function<void()>> posted_;
  /// What does not wait for a step that computes: it ends and begins none.
  std::vector<std::function<void()>> urgent_posted_;
  std::atomic<bool> has_posted_ = false;
  std::atomic<bool> has_urgent_posted_ = false;
  std::atomic<bool> stopping_ = false;  // Changed with mail_mutex_.

  // Of steps that other threads began, and may end.
  std::mutex signals_mutex_;
  std::map<uint64_t, std::shared_ptr<exec::StopSignal>> signals_;
  std::atomic<bool> any_signals_ = false;  // Changed with signals_mutex_.

  // Written by the lane only.
  metrics::Figures figures_;
  metrics::Counter steps_begun_{&figures_,
                                metrics::counter("sidereal_task_steps_total", metrics::Unit::kCount,
                                                 "Parts of sessions' steps that the task began.")};
  metrics::Counter steps_failed_{
      &figures_, metrics::counter("sidereal_task_steps_failed_total", metrics::Unit::kCount,
                                  "Parts of steps that failed or were cancelled.")};
  metrics::Counter running_{&figures_,
                            metrics::gauge("sidereal_task_steps_running", metrics::Unit::kCount,
                                           "Parts of steps that have begun and not ended.")};
  metrics::Counter handed_over_{
      &figures_, metrics::counter("sidereal_task_handed_over_total", metrics::Unit::kCount,
                                  "Instructions that another lane ran, which has the variable.")};
  metrics::Counter busy_ns_{
      &figures_, metrics::counter("sidereal_task_busy_seconds_total", metrics::Unit::kSeconds,
                                  "Time that lanes spent on steps.")};
  std::atomic<int64_t> blocked_ = 0;  // Other lanes decide by it whether to wake this one.

  // The lane's own.
  Peers* peers_ = nullptr;
  base::RingQueue<std::function<void()>> own_posted_;
  base::RingQueue<std::function<void()>> own_urgent_posted_;
  exec::BufferPool pool_;
  std::unique_ptr<AsyncPushes> async_pushes_;
  std::unique_ptr<PrefetchedPulls> ahead_;
  std::unique_ptr<exec::Workers> workers_;
  absl::flat_hash_map<std::pair<uint64_t, uint64_t>, base::RefPtr<SessionProgram>> known_;
  absl::flat_hash_map<uint64_t, base::RefPtr<StepState>> steps_;
  std::vector<base::RefPtr<StepState>> retired_;        // Have gone in this turn.
  IdleList<StepState, base::RefPtr<StepState>> spare_;  // Empty.
  RecentIds recent_steps_;
  base::RingQueue<base::RefPtr<StepState>> ready_;
  WaitingCalls waiting_;
  std::vector<tensor::Tensor> spare_fetches_;  // Memory for the next result's.
  LaneChanges changes_{this, options_.standby_timeout_ns, options_.min_insync_replicas};
  HeldAnswers held_{[this] { return may_answer(); }};
  Status deposed_;  // Of depose(); ok: it was not.
  // What steps use is given back when none has used it for a while.
  bool is_going_to_give_back_ = false;
  uint64_t trims_ = 0;                   // So far.
  size_t bytes_given_back_ = 0;          // Since the system got them.
  int64_t begun_at_last_give_back_ = 0;  // Steps.
  /// Steps that have ended before the answers of their calls have come.
  std::vector<std::pair<base::RefPtr<SessionProgram>, std::unique_ptr<CallingStep>>> ending_;
};

}  // namespace sidereal::task
