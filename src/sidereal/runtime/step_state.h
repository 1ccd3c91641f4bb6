#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "sidereal/base/counted.h"
#include "sidereal/exec/executor.h"
#include "sidereal/exec/stop_signal.h"
#include "sidereal/exec/trace.h"
#include "sidereal/runtime/step_calls.h"
#include "sidereal/runtime/task.h"

/// One step on one task. Internal to runtime.
namespace sidereal::runtime {

struct LoadedProgram;

/// A step, and what carries its calls.
struct CallingStep {
  CallingStep(const exec::BoundProgram* bound, exec::BufferPool* pool, Peers* peers,
              lane::Lane* lane, OneWayCalls* one_way, PullsAhead* ahead)
      : calls(peers, lane, one_way, ahead, bound->program()), step(bound, pool, &calls) {}
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
  /// Tells the step something; an error ends it.
  using News = std::function<Status(StepState*)>;
  /// Brings news of a step to the task's lane. Any thread.
  using Post = std::function<void(uint64_t step, News news)>;

  /// `peers` and `post` are borrowed.
  StepState(uint64_t number, Peers* peers, const Post* post)
      : number_(number), peers_(peers), post_(post) {}
  ~StepState() override;

  /// Forgets everything; then renew() makes another step of it.
  void clear();
  void renew(uint64_t number) { number_ = number; }

  [[nodiscard]] uint64_t number() const { return number_; }

  // Its own part.
  /// What it is going to run, and what ends it: `posted`, or, where that is nullptr, a signal of
  /// its own, which is raised with that of its session.
  void set_program(base::CountedPtr<SessionProgram> program,
                   std::shared_ptr<exec::StopSignal> posted);
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
  /// Nothing runs and nobody asks.
  [[nodiscard]] bool is_idle() const { return !begun_ && wanted_.empty(); }
  [[nodiscard]] exec::Step* step() const { return &finished_.step->step; }
  [[nodiscard]] StepCalls* calls() const { return &finished_.step->calls; }
  [[nodiscard]] const base::CountedPtr<SessionProgram>& program() const {
    return finished_.program;
  }

  // Tensors for others.
  Status send(const ports::RendezvousKey& key, ports::Parcel values) override;
  void answer(const std::vector<ports::RendezvousKey>& keys,
              const std::shared_ptr<Task::Taker>& taker);
  void withdraw(const std::shared_ptr<Task::Taker>& taker);
  /// Ends all questions, and those that come.
  void refuse_questions(const Status& status);

  // Tensors from others.
  Result<std::optional<ports::Parcel>> receive(const ports::RendezvousKey& key,
                                               const ports::TensorSource& source,
                                               size_t count) override;
  /// Asks now for what the program, begun as step `step_id`, is going to receive.
  void ask_ahead(const std::vector<Receives>& receives, uint64_t step_id);

  [[nodiscard]] exec::StopSignal* stop() {
    return posted_stop_ != nullptr ? posted_stop_.get() : &*own_stop_;
  }
  /// Other threads know its signal.
  [[nodiscard]] bool from_elsewhere() const { return posted_stop_ != nullptr; }

  uint64_t session = 0;
  bool whole = false;         ///< Nothing of it stays once it has run.
  int64_t pull_ahead_ms = 0;  ///< See ProgramCall.
  bool blocked = false;
  bool waits_for_tensor = false;
  std::unique_ptr<exec::Trace> trace;
  int32_t trace_process = 0;

 private:
  struct Asked {
    std::shared_ptr<Task::Taker> taker;
    size_t index = 0;
  };

  void ask(const ports::TensorSource& source, const std::vector<Peers::Wanted>& wanted);
  void count_down(const std::shared_ptr<Task::Taker>& taker);

  uint64_t number_;
  Peers* const peers_;
  const Post* const post_;
  std::shared_ptr<exec::StopSignal> posted_stop_;
  std::optional<exec::StopSignal> own_stop_;
  bool begun_ = false;
  Finished finished_;

  absl::flat_hash_map<ports::RendezvousKey, ports::Parcel> sent_;
  absl::flat_hash_map<ports::RendezvousKey, Asked> wanted_;
  absl::flat_hash_map<std::shared_ptr<Task::Taker>, size_t> open_;  // Parcels still to be given.
  Status refusal_;

  absl::flat_hash_map<ports::RendezvousKey, ports::Parcel> arrived_;
  absl::flat_hash_set<ports::RendezvousKey> asked_;
  uint64_t next_question_ = 0;
  absl::flat_hash_map<uint64_t, std::shared_ptr<Peers::Question>> questions_;
};

}  // namespace sidereal::runtime
