#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/exec/stop_signal.h"
#include "sidereal/lane/lane.h"
#include "sidereal/metrics/figures.h"
#include "sidereal/ports/ports.h"
#include "sidereal/resources/changes_made.h"
#include "sidereal/resources/replica.h"
#include "sidereal/sys/disk.h"
#include "sidereal/task/answered_pushes.h"
#include "sidereal/task/hot_variables.h"
#include "sidereal/task/session_state.h"
#include "sidereal/task/step_turns.h"
#include "sidereal/tensor/tensor.h"

namespace sidereal::task {

using resources::ClosureKey;

/// How a part of a step ended. Value type.
struct ProgramResult {
  Status status = {};
  bool derived = false;                      ///< The error follows from one elsewhere.
  std::vector<tensor::Tensor> fetches = {};  ///< When status is ok.
  std::string waits_for = {};                ///< Cancelled: what it was waiting for, if anything.
  std::string trace = {};                    ///< Elements of Chrome's trace format.
  Pushed pushed = {};                        ///< Where it has pushed to, also when it failed.
};

/// What a task runs in a step.
struct ProgramCall {
  uint64_t session = 0;
  uint64_t program = 0;  ///< As register_program() said.
  uint64_t step = 0;     ///< Different for all steps of all masters.
  std::vector<tensor::Tensor> feeds;
  int32_t trace = 0;   ///< Number of the task in a trace of the step; 0: no trace.
  bool whole = false;  ///< The step is this alone: it has ended when this has run.
  /// It ends what a step has begun, and goes before calls that begin one.
  bool goes_on = false;
  /// Asynchronous pushes are waited for, whatever `pull_prefetch_ms` is.
  bool waits_for_pushes = false;
  /// What random ops take for the number of the step; 0: `step`. For a call: that of who calls.
  uint64_t number = 0;
  /// Of a step that may be run again; with `number`, the same each time.
  ClosureKey closure = {};
  int lane = 0;  ///< Where `whole` runs, modulo the task's lanes. See lane_hint().
  /// Of what it pulls from other tasks, what may have been asked for so long before it began; 0:
  /// nothing, and asynchronous pushes are waited for. The same for all steps of a session.
  int64_t pull_prefetch_ms = 0;
  /// Of a step of a loop, which its lane begins: when it may compute. nullptr: at any time.
  base::RefPtr<StepTurns> turns = nullptr;
  /// With `turns`: ends it as well once raised. Borrowed.
  const exec::StopSignal* stop = nullptr;
};

class ChangesReader;
class ChangesSink;
struct ChangesWanted;

/// Where a session's steps run, and what tasks leave for each other in them: the lane of this
/// number, modulo how many lanes a task has. Part of the numbers of sessions and of their steps, so
/// that all tasks say the same.
constexpr int lane_hint(uint64_t number) { return static_cast<int>(number & 0xff); }
/// A number for a step of `session`, of a random one.
constexpr uint64_t step_number(uint64_t session, uint64_t random) {
  return (random & ~uint64_t{0xff}) | (session & 0xff);
}

/// What SessionOptions::pull_prefetch_ms is where nobody says anything.
inline constexpr int64_t kPullPrefetchMs = 200;

/// Milliseconds after which a channel without calls closes its connection, until its next call, or
/// twice as many: a server has one to each worker, for which gRPC keeps what it has read into, 64
/// KiB mostly.
inline constexpr int kChannelIdleMs = 5000;

/// Keys of one receive request at most.
inline constexpr int64_t kReceiveRequestKeysMax = 16'384;

/// Asks other tasks for tensors.
class Peers {
 public:
  /// A receive request that is under way.
  class ReceiveRequest : public base::RefCounted {
   public:
    /// Nothing is heard of it any more, soon. Idempotent.
    virtual void cancel() = 0;
  };
  virtual ~Peers() = default;
  /// A tensor group that is asked for.
  struct Wanted {
    ports::RendezvousKey key;
    size_t count = 1;  ///< Tensors it must have.
  };
  /// Gets the answers to the receive requests of steps: a lane. Thread: any, except what says
  /// otherwise.
  class Requester : public std::enable_shared_from_this<Requester> {
   public:
    virtual ~Requester() = default;
    /// Where to put a tensor that comes, or why it cannot be taken. Thread: the lane.
    virtual Result<tensor::Tensor> allocate(tensor::DType dtype, const tensor::Shape& shape) = 0;
    /// A tensor group of step `step` is there, with as many values as were wanted; they may be
    /// moved from.
    virtual void arrived(uint64_t step, const ports::RendezvousKey& key,
                         std::span<tensor::Tensor> values) = 0;
    /// The receive request has ended. Once, after its tensor groups.
    virtual void ended(uint64_t step, const ReceiveRequest* receive_request,
                       const Status& status) = 0;
  };
  /// Asks for tensor groups of step `step` on the task of `source`. `requester`, which lasts until
  /// then, is told of each when it is there, and then of the end, unless the receive request is
  /// cancelled before; maybe before this returns. The result is nullptr when the receive request
  /// ended at once. Thread: the lane.
  virtual base::RefPtr<ReceiveRequest> ask(const ports::TensorSource& source, uint64_t step,
                                           std::span<const Wanted> wanted,
                                           Requester* requester) = 0;

  /// A program that another task runs, alone.
  class Run {
   public:
    virtual ~Run() = default;
    /// Asks the task to end it: its end comes soon, and says what it waited for.
    virtual void cancel() = 0;
    /// Its end comes at once, with kCancelled.
    virtual void drop() = 0;
  };
  /// Gets the end of a run. Called on the lane.
  class RunDone {
   public:
    virtual ~RunDone() = default;
    /// Where to put fetch `position`, or why it cannot be taken.
    virtual Result<tensor::Tensor> allocate(int position, tensor::DType dtype,
                                            const tensor::Shape& shape) = 0;
    /// Once. `result` has no fetches.
    virtual void done(const ProgramResult& result, std::span<tensor::Tensor> fetches) = 0;
  };
  /// Gives back memory that was not used since this was last called; how many bytes.
  virtual size_t give_back_unused() { return 0; }

  /// Whether run() works: not over gRPC.
  [[nodiscard]] virtual bool can_run() const { return false; }
  /// See ProgramCall.
  struct Call {
    uint64_t session = 0;
    uint64_t program = 0;
    int32_t trace = 0;
    uint64_t number = 0;
    ClosureKey closure = {};
    int lane = 0;
    bool repeatable = false;  ///< It changes nothing, and may be run again.
  };
  /// Runs a program that is registered on `task`, by its full name. The memory of `feeds` must not
  /// change until `done`, which is borrowed, was told: not from within. Thread: the task's lane.
  virtual std::shared_ptr<Run> run(const std::string& task, const Call& call,
                                   std::span<const tensor::Tensor> feeds, RunDone* done);
};

/// Peers of one program at most.
inline constexpr size_t kPeersMax = 65'536;

/// A program that is to be registered. Value type.
struct NewProgram {
  std::string bytes;  ///< docs/formats/program.md
  int lane = 0;       ///< Where it runs, modulo the task's lanes.
  /// The devices that its Send and Recv instructions name by number. Not part of the program:
  /// sessions whose programs differ in them only have one.
  std::vector<ports::TensorSource> peers = {};
};

/// A part of a step that was begun on a task. Thread: any.
class StepPart {
 public:
  virtual ~StepPart() = default;
  /// Ends it soon: its result comes, and says what it waited for.
  virtual void cancel() = 0;
  /// The whole step has ended. If the result has not come it comes now, as kCancelled. Once.
  virtual void end() = 0;
};

/// Variables and tables that a task was given, by name.
using Adopted = std::vector<std::pair<std::string, std::weak_ptr<resources::Resource>>>;

/// The network and the clock of a lane, borrowed for the life of its task. Value type.
struct LaneSystem {
  sys::Network* network = nullptr;
  sys::Clock* clock = nullptr;
};

struct TaskOptions {
  std::string name;                            ///< "/job:ps/replica:0/task:0"
  uint64_t incarnation = 0;                    ///< Random, of this start.
  int lanes = 1;                               ///< Threads that run steps, each its own.
  int intra_op_threads = 1;                    ///< Threads that work on one op of a lane.
  int64_t spin_us = 0;                         ///< LaneOptions::spin_us
  std::vector<int> cpus = {};                  ///< Processors of lanes, in turn; empty: any.
  int64_t inbox_slots = 4096;                  ///< LaneOptions::inbox_slots
  size_t pool_bytes = size_t{1} << 30;         ///< What freed buffers may hold.
  size_t sessions_max = 16'384;                ///< Sessions that are open at once.
  size_t programs_max = 16'384;                ///< Programs of one session.
  size_t program_bytes_max = size_t{1} << 30;  ///< Encoded bytes of them.
  /// A synchronous standby that does not acknowledge what a push waits for is let go after that.
  int64_t standby_timeout_ns = 1'000'000'000;
  /// What must have a push before it is answered, with the task itself: while there are fewer
  /// standbys in sync pushes wait, as long as their sessions do.
  int min_insync_replicas = 1;
  std::shared_ptr<ports::HostFunctions> host_functions = nullptr;  ///< For HostFunction; or none.
  std::shared_ptr<ports::Datasets> datasets = nullptr;  ///< For DatasetIterator; or none.
  std::shared_ptr<sys::Disk> disk = nullptr;            ///< For checkpoints; or none.
  /// One for each lane where somebody drives them by lane::Lane::step(), as a simulation does;
  /// empty: each is a thread, and network and clock are the machine's.
  std::vector<LaneSystem> stepped = {};
};

/// The device CPU:0 of a server: programs, their steps, the tensors that pass between steps of one
/// number on several tasks, and what steps share by name. Each step runs on one of the task's
/// lanes, and goes on until it must wait.
///
/// Lifecycle: create(), start(), stop(). After stop() every call fails, and every callback was
///            called.
/// Thread:    any; callbacks come from a lane of the task or, where a call fails at once, from the
///            caller's thread, and must not block. What the thread of the right lane asks for takes
///            no lock.
class Task {
 public:
  static constexpr int kLanesMax = 256;
  /// kInvalidArgument for a number of lanes, stepped ones too, or threads out of range.
  static Result<std::unique_ptr<Task>> create(TaskOptions options);
  ~Task();
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;

  /// Begins to run what is asked for; `peers` answers for other tasks, to each lane its own, or one
  /// to all. Once.
  void start(const std::vector<Peers*>& peers);
  /// Runs `fn` on a lane soon, in the order in which a thread says it. False once the task is
  /// stopping; then `fn` never runs.
  bool post(int lane, std::function<void()> fn);
  /// As post(), for what begins and ends no step: it does not wait for one that computes there.
  bool post_urgent(int lane, std::function<void()> fn);
  [[nodiscard]] int lanes() const;
  /// What runs steps; before start(), whoever created the task may put things on it.
  [[nodiscard]] lane::Lane* lane(int index) const;
  [[nodiscard]] const std::string& name() const;
  [[nodiscard]] uint64_t incarnation() const;

  /// Lets session `session` register programs, which find their variables, queues and tables where
  /// `state` says. `worker`: the task whose steps they are, for figures; "": it is not known.
  /// kAlreadyExists when it is open, kResourceExhausted when too many are.
  Status open_session(uint64_t session, const SessionState& state = {},
                      const std::string& worker = {});
  /// A number of what holds its variables, which are gone when it has another one: those of a group
  /// go with its last session. 0: the session is not open.
  [[nodiscard]] uint64_t state_of(uint64_t session) const;
  /// Ends its steps and forgets what it registered.
  void close_session(uint64_t session);
  /// Calls `done`, on any thread, when none of the asynchronous pushes of the session's steps here,
  /// on any lane, is under way any more, with the first failure that no step has ended with.
  void when_async_pushes_done(uint64_t session, const std::function<void(const Status&)>& done);
  /// Ends those to `task`, which is not reached any more, with `why`; what was prefetched from
  /// there is forgotten.
  void lose_async_pushes(uint64_t session, const std::string& task, const Status& why);
  /// Makes a program known; by what number the session runs it: its content hash, if it has no
  /// peers. kResourceExhausted when the session has too many, or too large ones; kInvalidArgument
  /// when there are fewer peers than it names.
  Result<uint64_t> register_program(uint64_t session, NewProgram program);

  /// Whether `call` may run: kAborted when the session is unknown here, kNotFound when the program
  /// is, kInvalidArgument for another number of feeds than the program takes.
  [[nodiscard]] Status check(uint64_t session, uint64_t program, int64_t feeds) const;
  /// Gets the result of a program, and may move from it; memory that it leaves is used again.
  using Done = std::function<void(ProgramResult&)>;
  /// Runs a program. Errors: those of check(); kNotFound on another lane than the program was
  /// registered for; kAlreadyExists for a step that is here. Moves from `call`; a caller on the
  /// thread of the right lane keeps the memory of its list of feeds.
  void run(ProgramCall* call, Done done);
  /// Ends this task's part of the step soon, also when it has not begun yet; its result says what
  /// it was waiting for. `lane`: that of a whole one.
  void cancel(uint64_t step);
  void cancel(uint64_t step, int lane);
  /// The whole step has ended: what it left here is forgotten.
  void end_step(uint64_t step);

  /// Where tensor groups that a peer asked for are put, one receive request at a time. Called on
  /// the task's lane, maybe from within ask().
  class Receiver : public base::RefCounted {
   public:
    virtual void give(size_t index, std::span<const tensor::Tensor> values) = 0;
    /// Nothing will come any more; ok when all was given.
    virtual void end(Status status) = 0;

   private:
    friend class StepState;
    size_t missing_ = 0;  // Tensor groups, and one for the receive request itself.
  };
  /// Answers the receive request of a peer: gives each tensor group when it was sent, in this step
  /// or before the step has begun here.
  void ask(uint64_t step, std::span<const ports::RendezvousKey> keys,
           const base::RefPtr<Receiver>& receiver);
  /// The peer does not want it any more.
  void withdraw(uint64_t step, const base::RefPtr<Receiver>& receiver);

  /// Has `sink` told of what changes on a lane, until the reader that is returned cancels it or
  /// `sink` hears of the end. kNotFound and kFailedPrecondition for a group that is not there, or
  /// not the only one; kInvalidArgument for a lane that is not.
  Result<std::shared_ptr<ChangesReader>> read_changes(const ChangesWanted& wanted,
                                                      std::shared_ptr<ChangesSink> sink);

  /// Refuses sessions and readers of changes with `why`, kUnavailable, until let_in().
  void hold_off(Status why);
  void let_in();
  /// Answers of steps leave up to this instant of the monotonic clock; those that would leave later
  /// wait until it is a later one. INT64_MAX, which it is at first: always.
  void answer_until(int64_t ns);
  /// Another start of the task has its place: from here on sessions and readers of changes are
  /// refused with `why`, and steps end with it, also those whose changes standbys were to have
  /// first.
  void depose(const Status& why);
  /// Gives sessions that share their state, or those of a group when they come, what another start
  /// of the task had. While it holds off; before, nothing was there. kInvalidArgument for what no
  /// variable can be.
  Status fill(const std::string& state_group, std::vector<resources::Replica::Taken> values);
  /// Groups that sessions have, or that are kept since fill().
  [[nodiscard]] std::vector<std::string> groups() const;
  /// From here on groups that fill() has made end with their last session, as others do.
  void stop_keeping_groups();
  /// A group is there, also without sessions, until let_go_of_group(); what all sessions share ("")
  /// always is. kInvalidArgument for a name that cannot be; kUnavailable while the task holds off.
  Status keep_group(const std::string& state_group);
  void let_go_of_group(const std::string& state_group);
  /// Gives a group that is there variables and tables of another task, each on the lane, modulo the
  /// task's, that it says; while steps run. All, or none: then `then` is told, by any thread, once
  /// standbys that are in sync have them too.
  /// What came to the task under such a name and was not used by a step since goes: it was left of
  /// a move that was given up. kAlreadyExists for another one that is there; kUnavailable when the
  /// task is stopping.
  void adopt(const std::string& state_group, std::vector<resources::Replica::Taken> values,
             std::function<void(Result<Adopted>)> then);
  /// Those that were adopted stay, until another one that is adopted finds them unused.
  static void stay(const Adopted& adopted);
  /// Forgets these of a group, and ends what waits for them. What has such a name by now, and is
  /// another one, stays.
  void forget(const std::string& state_group, const Adopted& adopted);

  /// Forgets what lies in these containers ("": the default one) and ends what waits for it.
  Status reset(const std::vector<std::string>& containers);
  /// Hears what answers to its steps have said was pushed to other tasks: of calls of the lane
  /// `lane`, modulo its lanes.
  AnsweredPushes& answered_pushes(int lane);
  /// What the answers to all its lanes have said.
  [[nodiscard]] std::vector<resources::PushedSoFar> answered_pushes() const;
  /// Its own and those of its lanes.
  [[nodiscard]] metrics::Readings figures() const;
  /// Of all lanes, standbys that pushes wait for which are not in sync (min_insync_replicas).
  [[nodiscard]] int64_t missing_standbys() const;
  /// Tables and parts of tables, and which of their rows are used most.
  [[nodiscard]] std::vector<HotVariable> hot_variables() const;

  /// Ends every step with kCancelled and the lanes with them.
  void stop();

 private:
  class Impl;
  explicit Task(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sidereal::task
