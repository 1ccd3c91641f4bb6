#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "sidereal/base/ref_counted.h"
#include "sidereal/exec/executor.h"
#include "sidereal/exec/stop_signal.h"
#include "sidereal/exec/trace.h"
#include "sidereal/resources/pushers.h"
#include "sidereal/task/step_calls.h"
#include "sidereal/task/task.h"
#include "sidereal/task/tensor_groups.h"

/// One step on one task. Internal to task.
namespace sidereal::task {

struct LoadedProgram;

/// A step, and what carries its calls.
struct CallingStep {
  CallingStep(const exec::BoundProgram* bound, exec::BufferPool* pool, Peers* peers,
              lane::Lane* lane, AsyncPushes* async_push, PrefetchedPulls* ahead,
              std::function<void()> serve)
      : calls(peers, lane, async_push, ahead, bound->program(), std::move(serve)),
        step(bound, pool, &calls) {}
  StepCalls calls;
  exec::Step step;
};

/// The devices that Recvs of a program name by number, as one session has registered it.
using PeerList = std::shared_ptr<const std::vector<ports::TensorSource>>;

/// A program of a session, and what ends the steps of that session.
struct SessionProgram final : base::RefCounted {
  std::shared_ptr<LoadedProgram> loaded;
  PeerList peers;
  std::shared_ptr<const exec::StopSignal> stop;
  std::shared_ptr<const resources::Pushers::Pusher> pusher;  ///< Whose steps they are.
};

/// What a program receives in every step from one of its peers.
struct Receives {
  struct TensorGroup {
    int64_t edge = 0;
    size_t count = 1;  ///< Tensors that come.
  };
  size_t peer = 0;
  std::vector<TensorGroup> tensor_groups;
};

/// What a task knows of one step: the part that runs here, the tensors it leaves for others and
/// those that came. Begins with the first word of the step, which may be a peer's receive request.
/// Thread: the task's lane.
class StepState final : public ports::Rendezvous, public base::RefCounted {
 public:
  /// `peers` and `requester`, which tells the step what comes, are borrowed.
  StepState(uint64_t number, Peers* peers, Peers::Requester* requester)
      : number_(number), peers_(peers), requester_(requester) {}
  ~StepState() override;

  /// Forgets everything; then renew() makes another step of it.
  void clear();
  void renew(uint64_t number) { number_ = number; }

  [[nodiscard]] uint64_t number() const { return number_; }

  // Its own part.
  /// What it is going to run, and what ends it: `posted`, or, where that is nullptr, a signal of
  /// its own, which is raised with `wider`, or else with that of its session.
  void set_program(base::RefPtr<SessionProgram> program, std::shared_ptr<exec::StopSignal> posted,
                   const exec::StopSignal* wider);
  void start(std::unique_ptr<CallingStep> step, Task::Done done);
  struct Finished {
    base::RefPtr<SessionProgram> program;
    std::unique_ptr<CallingStep> step;
    Task::Done done;
  };
  /// Ends it. Receive requests that are open get what is there, or `status`.
  Finished finish(const Status& status);
  [[nodiscard]] bool begun() const { return begun_; }
  [[nodiscard]] bool running() const { return finished_.step != nullptr; }
  [[nodiscard]] bool is_blocked() const { return running() && blocked; }
  /// Receive requests of others are open.
  [[nodiscard]] bool is_asked() const { return wanted_ > 0; }
  /// Nothing runs and nobody asks.
  [[nodiscard]] bool is_idle() const { return !begun_ && !is_asked(); }
  [[nodiscard]] exec::Step* step() const { return &finished_.step->step; }
  [[nodiscard]] StepCalls* calls() const { return &finished_.step->calls; }
  [[nodiscard]] const base::RefPtr<SessionProgram>& program() const { return finished_.program; }

  // Tensors for others.
  Status send(const ports::RendezvousKey& key, std::span<const tensor::Tensor> values) override;
  void answer(std::span<const ports::RendezvousKey> keys,
              const base::RefPtr<Task::Receiver>& receiver);
  void withdraw(const base::RefPtr<Task::Receiver>& receiver);
  /// Ends all receive requests, and those that come.
  void refuse_receive_requests(const Status& status);

  // Tensors from others.
  Result<std::span<tensor::Tensor>> receive(const ports::RendezvousKey& key,
                                            const ports::TensorSource& source,
                                            size_t count) override;
  /// Asks now for what the program, begun as step `step_id`, is going to receive.
  void ask_ahead(const std::vector<Receives>& receives, uint64_t step_id);
  /// Those of Peers::Requester.
  void arrived(const ports::RendezvousKey& key, std::span<tensor::Tensor> values);
  void ended(const Peers::ReceiveRequest* receive_request, const Status& status);
  /// What the first receive request that failed failed with: nothing can come of the step then.
  [[nodiscard]] const Status& failure() const { return failure_; }

  [[nodiscard]] exec::StopSignal* stop() {
    return posted_stop_ != nullptr ? posted_stop_.get() : &*own_stop_;
  }
  /// Other threads know its signal.
  [[nodiscard]] bool from_elsewhere() const { return posted_stop_ != nullptr; }

  uint64_t session = 0;
  bool whole = false;            ///< Nothing of it stays once it has run.
  int64_t pull_prefetch_ms = 0;  ///< See ProgramCall.
  base::RefPtr<StepTurns> turns;
  bool blocked = false;
  bool failed_within =
      false;  ///< Its signal was raised because its own receive request or call failed.
  int64_t pushes_before = 0;     ///< To variables of its lane, when it began.
  bool was_handed_over = false;  ///< Other lanes did something for it.
  /// Lanes on which it changed variables that are followed, each once.
  std::vector<int> changed_on;
  void note_changed(int lane) {
    if (std::find(changed_on.begin(), changed_on.end(), lane) != changed_on.end()) return;
    changed_on.push_back(lane);
  }
  std::unique_ptr<exec::Trace> trace;
  int32_t trace_process = 0;

 private:
  /// A tensor group that was sent or, when there is a receiver, is to be given to him.
  struct Outgoing {
    base::RefPtr<Task::Receiver> receiver;
    size_t index = 0;
  };
  /// A tensor group that was asked for.
  struct Incoming {
    bool is_here = false;
  };

  void ask(const ports::TensorSource& source, std::span<const Peers::Wanted> wanted);
  static void count_down(Task::Receiver* receiver);
  void cancel_receive_requests();

  uint64_t number_;
  Peers* const peers_;
  Peers::Requester* const requester_;
  std::shared_ptr<exec::StopSignal> posted_stop_;
  std::optional<exec::StopSignal> own_stop_;
  bool begun_ = false;
  Finished finished_;

  TensorGroups<Outgoing> outgoing_;
  size_t wanted_ = 0;  // Of outgoing_, those that are to be given.
  Status refusal_;

  TensorGroups<Incoming> incoming_;
  ports::TensorGroup received_;        // Last.
  std::vector<Peers::Wanted> asking_;  // Memory for what is asked for together.
  std::vector<base::RefPtr<Peers::ReceiveRequest>> receive_requests_;
  Status failure_;
};

}  // namespace sidereal::task
