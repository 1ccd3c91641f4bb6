#pragma once

#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "sidereal/base/counted.h"
#include "sidereal/exec/executor.h"
#include "sidereal/exec/stop_signal.h"
#include "sidereal/exec/trace.h"
#include "sidereal/task/parcels.h"
#include "sidereal/task/step_calls.h"
#include "sidereal/task/task.h"

/// One step on one task. Internal to task.
namespace sidereal::task {

struct LoadedProgram;

/// A step, and what carries its calls.
struct CallingStep {
  CallingStep(const exec::BoundProgram* bound, exec::BufferPool* pool, Peers* peers,
              lane::Lane* lane, OneWayCalls* one_way, PullsAhead* ahead,
              std::function<void()> serve)
      : calls(peers, lane, one_way, ahead, bound->program(), std::move(serve)),
        step(bound, pool, &calls) {}
  StepCalls calls;
  exec::Step step;
};

/// The devices that Recvs of a program name by number, as one session has registered it.
using PeerList = std::shared_ptr<const std::vector<ports::TensorSource>>;

/// A program of a session, and what ends the steps of that session.
struct SessionProgram final : base::Counted {
  std::shared_ptr<LoadedProgram> loaded;
  PeerList peers;
  std::shared_ptr<const exec::StopSignal> stop;
};

/// What a program receives in every step from one of its peers.
struct Receives {
  struct Parcel {
    int64_t edge = 0;
    size_t count = 1;  ///< Tensors that come.
  };
  size_t peer = 0;
  std::vector<Parcel> parcels;
};

/// What a task knows of one step: the part that runs here, the tensors it leaves for others and
/// those that came. Begins with the first word of the step, which may be a peer's question.
/// Thread: the task's lane.
class StepState final : public ports::Rendezvous, public base::Counted {
 public:
  /// `peers` and `asker`, which tells the step what comes, are borrowed.
  StepState(uint64_t number, Peers* peers, Peers::Asker* asker)
      : number_(number), peers_(peers), asker_(asker) {}
  ~StepState() override;

  /// Forgets everything; then renew() makes another step of it.
  void clear();
  void renew(uint64_t number) { number_ = number; }

  [[nodiscard]] uint64_t number() const { return number_; }

  // Its own part.
  /// What it is going to run, and what ends it: `posted`, or, where that is nullptr, a signal of
  /// its own, which is raised with `wider`, or else with that of its session.
  void set_program(base::CountedPtr<SessionProgram> program,
                   std::shared_ptr<exec::StopSignal> posted, const exec::StopSignal* wider);
  void start(std::unique_ptr<CallingStep> step, Task::Done done);
  struct Finished {
    base::CountedPtr<SessionProgram> program;
    std::unique_ptr<CallingStep> step;
    Task::Done done;
  };
  /// Ends it. Questions that are open get what is there, or `status`.
  Finished finish(const Status& status);
  [[nodiscard]] bool begun() const { return begun_; }
  [[nodiscard]] bool running() const { return finished_.step != nullptr; }
  [[nodiscard]] bool is_blocked() const { return running() && blocked; }
  /// Questions of others are open.
  [[nodiscard]] bool is_asked() const { return wanted_ > 0; }
  /// Nothing runs and nobody asks.
  [[nodiscard]] bool is_idle() const { return !begun_ && !is_asked(); }
  [[nodiscard]] exec::Step* step() const { return &finished_.step->step; }
  [[nodiscard]] StepCalls* calls() const { return &finished_.step->calls; }
  [[nodiscard]] const base::CountedPtr<SessionProgram>& program() const {
    return finished_.program;
  }

  // Tensors for others.
  Status send(const ports::RendezvousKey& key, std::span<const tensor::Tensor> values) override;
  void answer(std::span<const ports::RendezvousKey> keys,
              const base::CountedPtr<Task::Taker>& taker);
  void withdraw(const base::CountedPtr<Task::Taker>& taker);
  /// Ends all questions, and those that come.
  void refuse_questions(const Status& status);

  // Tensors from others.
  Result<std::span<tensor::Tensor>> receive(const ports::RendezvousKey& key,
                                            const ports::TensorSource& source,
                                            size_t count) override;
  /// Asks now for what the program, begun as step `step_id`, is going to receive.
  void ask_ahead(const std::vector<Receives>& receives, uint64_t step_id);
  /// Those of Peers::Asker.
  void arrived(const ports::RendezvousKey& key, std::span<tensor::Tensor> values);
  void ended(const Peers::Question* question, const Status& status);
  /// What the first question that failed failed with: nothing can come of the step then.
  [[nodiscard]] const Status& failure() const { return failure_; }

  [[nodiscard]] exec::StopSignal* stop() {
    return posted_stop_ != nullptr ? posted_stop_.get() : &*own_stop_;
  }
  /// Other threads know its signal.
  [[nodiscard]] bool from_elsewhere() const { return posted_stop_ != nullptr; }

  uint64_t session = 0;
  bool whole = false;         ///< Nothing of it stays once it has run.
  int64_t pull_ahead_ms = 0;  ///< See ProgramCall.
  base::CountedPtr<StepTurns> turns;
  bool blocked = false;
  bool failed_within = false;  ///< Its signal was raised because its own question or call failed.
  std::unique_ptr<exec::Trace> trace;
  int32_t trace_process = 0;

 private:
  /// A parcel that was sent or, when there is a taker, is to be given to him.
  struct Outgoing {
    base::CountedPtr<Task::Taker> taker;
    size_t index = 0;
  };
  /// A parcel that was asked for.
  struct Incoming {
    bool is_here = false;
  };

  void ask(const ports::TensorSource& source, std::span<const Peers::Wanted> wanted);
  static void count_down(Task::Taker* taker);
  void cancel_questions();

  uint64_t number_;
  Peers* const peers_;
  Peers::Asker* const asker_;
  std::shared_ptr<exec::StopSignal> posted_stop_;
  std::optional<exec::StopSignal> own_stop_;
  bool begun_ = false;
  Finished finished_;

  Parcels<Outgoing> outgoing_;
  size_t wanted_ = 0;  // Of outgoing_, those that are to be given.
  Status refusal_;

  Parcels<Incoming> incoming_;
  ports::Parcel received_;             // Last.
  std::vector<Peers::Wanted> asking_;  // Memory for what is asked for together.
  std::vector<base::CountedPtr<Peers::Question>> questions_;
  Status failure_;
};

}  // namespace sidereal::task
