#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "sidereal/exec/executor.h"
#include "sidereal/exec/stop_signal.h"
#include "sidereal/metrics/figures.h"
#include "sidereal/resources/manager.h"
#include "sidereal/resources/push_counts.h"
#include "sidereal/resources/pushers.h"
#include "sidereal/resources/replica.h"
#include "sidereal/resources/variable.h"
#include "sidereal/task/hot_variables.h"
#include "sidereal/task/idle_list.h"
#include "sidereal/task/step_state.h"
#include "sidereal/task/task.h"

/// The sessions of a task and the programs they have registered. Internal to task.
namespace sidereal::task {

/// What the programs of sessions with one state use by name.
struct Container {
  std::string group;    ///< Of sessions that have it together; "": others do.
  uint64_t number = 0;  ///< No other of the task has it.
  resources::Manager manager;
  exec::Environment environment;
  std::atomic<bool> ended = false;  ///< No session has it any more.
  bool is_own = false;              ///< Of one session: it has no followers.
};

/// A program as one lane runs it: kernels keep scratch. Once bound, the lane's.
struct LoadedProgram {
  int lane = 0;
  uint64_t hash = 0;  ///< Of its content.
  size_t peers = 0;   ///< That it names; what each of them is, sessions say.
  std::shared_ptr<Container> container;
  std::unique_ptr<exec::BoundProgram> bound;
  IdleList<CallingStep> idle;
  uint64_t trimmed = 0;            ///< When the lane last trimmed it.
  std::vector<Receives> receives;  ///< Whatever its branches and loops do.
  std::shared_ptr<const PrefetchedCalls>
      ahead;  ///< What may be sent before a step; nullptr: nothing.
};

/// kInvalidArgument for another number of feeds than the program takes.
Status check_feeds(const LoadedProgram& program, int64_t feeds);

/// Thread: any; lanes keep what they have found, so that steps do not come here.
class TaskPrograms {
 public:
  /// Both are borrowed.
  TaskPrograms(const TaskOptions& options, exec::VariableLanes* lanes, std::function<void()> wake,
               std::shared_ptr<resources::PushCounts> push_counts);
  /// Whether programs may call other tasks. Before any is added.
  void let_call(bool can_call) { can_call_ = can_call; }

  /// Those of Task.
  Status open_session(uint64_t id, const SessionState& state, const std::string& worker);
  [[nodiscard]] uint64_t state_of(uint64_t session) const;
  Result<uint64_t> add(uint64_t session, NewProgram program, int lane);
  [[nodiscard]] Status check(uint64_t session, uint64_t program, int64_t feeds) const;

  /// What is left of a session for each lane to let go of, on that lane.
  struct Closed {
    /// Programs by lane; empty: the session was not open.
    std::vector<std::vector<std::shared_ptr<LoadedProgram>>> programs;
    std::shared_ptr<Container> container;  ///< That ends with it; nullptr: others use it yet.
  };
  /// Tells the session's steps to stop.
  Closed close_session(uint64_t id);
  /// Forgets programs that no session has any more.
  void forget_unused();
  /// Tells the steps of all sessions to stop.
  void stop_all();

  /// The program for `lane`. kAborted when the session is unknown here, kNotFound when the program
  /// is, or was registered for another lane.
  Result<base::RefPtr<SessionProgram>> find(uint64_t session, uint64_t program, int lane) const;

  /// That of the sessions that share their state, or of a group: see ChangesWanted. kNotFound, and
  /// kFailedPrecondition where there are several.
  [[nodiscard]] Result<std::shared_ptr<Container>> container(const std::string& state_group) const;
  /// Sessions are not opened, and no container is found, but kUnavailable for `why`; ok: they are.
  void hold_off(Status why);
  /// See Task. Whether a lane has held answers back since it was last called.
  bool answer_until(int64_t ns) {
    answer_until_ = ns;
    return holds_answers_.exchange(false);
  }
  /// Whether answers may leave at `now`; no: they are to be kept till TaskLane::answer_held().
  [[nodiscard]] bool may_answer(int64_t now) {
    if (now < answer_until_) return true;
    holds_answers_ = true;
    // It may have been set in between, by one who saw nothing held back.
    return now < answer_until_;
  }
  /// Whether answers may ever have to wait.
  [[nodiscard]] bool may_have_to_wait() const {
    return answer_until_.load(std::memory_order_relaxed) != INT64_MAX;
  }
  /// Of groups that have sessions, or wait for them.
  [[nodiscard]] std::vector<std::string> groups() const;
  /// Those of Task.
  Status fill(const std::string& state_group, std::vector<resources::Replica::Taken> values);
  void stop_keeping_groups();
  /// Calls a function when all standbys have what a lane has of a container. Thread: that lane.
  using WhenKept = std::function<void(int lane, const Container&, std::function<void()>)>;
  Status keep_group(const std::string& state_group);
  void let_go_of_group(const std::string& state_group);
  void adopt(const std::string& state_group, std::vector<resources::Replica::Taken> values,
             std::function<void(Result<Adopted>)> then, const WhenKept& when_kept);
  void forget(const std::string& state_group, const Adopted& adopted);
  static void stay(const Adopted& adopted);
  /// Forgets what is in these containers of the state that sessions share, of groups too.
  void reset(const std::vector<std::string>& containers);
  /// What all sessions have by name.
  struct Resources {
    int64_t count = 0;
    int64_t bytes = 0;
  };
  [[nodiscard]] Resources resources() const;
  /// What counts the pushes to variables of the task.
  [[nodiscard]] resources::PushCounts* push_counts() const { return push_counts_.get(); }
  /// How old what steps compute with is, and what no checkpoint has: of each table, and of all
  /// other variables.
  void read_staleness(metrics::Readings* into);
  /// Those whose rows steps have used, and all parts of tables.
  [[nodiscard]] std::vector<HotVariable> hot_variables() const;
  [[nodiscard]] int64_t sessions() const;
  [[nodiscard]] int64_t programs() const;

 private:
  /// What is registered: the same program may be there with other peers.
  struct Registered {
    std::shared_ptr<LoadedProgram> program;
    PeerList peers;
  };
  using Key = std::pair<uint64_t, int>;  // A program, or what is registered; a lane.
  struct Session {
    SessionState state;
    std::shared_ptr<const resources::Pushers::Pusher> pusher = nullptr;
    std::shared_ptr<Container> container = nullptr;
    std::map<Key, Registered> programs = {};
    size_t program_bytes = 0;
    std::shared_ptr<exec::StopSignal> stop = std::make_shared<exec::StopSignal>();
  };

  /// What sessions of one name have together.
  struct Group {
    std::shared_ptr<Container> container;
    int64_t sessions = 0;
    bool is_kept = false;  ///< Without sessions too,
    int keepers = 0;       ///< as it is while these want it.
  };

  [[nodiscard]] std::shared_ptr<Container> make_container(std::string group = {}) const;
  [[nodiscard]] Status unknown_session() const;
  [[nodiscard]] Status unknown_program(uint64_t program) const;
  // With mutex_.
  [[nodiscard]] std::shared_ptr<Container> enter(const SessionState& state);
  [[nodiscard]] bool leave(const SessionState& state);
  [[nodiscard]] std::set<std::shared_ptr<Container>> containers() const;
  [[nodiscard]] Status check_room(const Session& session, const Key& key, size_t bytes) const;
  Status keep(Session* session, const Key& key, Registered registered, size_t bytes);
  [[nodiscard]] const Registered* of_any_lane(const Session& session, uint64_t program) const;

  /// With its name in its container.
  void for_each_variable(const std::function<void(const Container& of, const std::string& name,
                                                  resources::Variable* variable)>& call) const;
  class Adoption;
  /// Makes variables and tables, whose lane each says; all, or none. kAlreadyExists.
  Result<Adopted> make(Container* container, std::vector<resources::Replica::Taken> values) const;
  static void forget(Container* container, const Adopted& adopted);
  /// Ends a group that has no sessions and no keepers. With mutex_.
  [[nodiscard]] std::shared_ptr<Container> end_unused(const std::string& state_group);
  static void end(Container* container);
  /// Looks which checkpoints that were written here are in place by now.
  void look_for_checkpoints();
  /// What workers that have gone are counted by becomes others'. With counting_mutex_.
  void put_aside_gone();

  [[nodiscard]] Result<std::shared_ptr<LoadedProgram>> load(program::Program program, uint64_t hash,
                                                            std::shared_ptr<Container> container,
                                                            int lane) const;

  const TaskOptions& options_;
  exec::VariableLanes* const lanes_;
  const std::function<void()> wake_;
  const std::shared_ptr<resources::PushCounts> push_counts_;
  bool can_call_ = false;
  exec::KernelTable kernels_;
  const std::shared_ptr<Container> shared_;

  mutable std::mutex mutex_;
  std::map<uint64_t, Session> sessions_;
  std::map<std::string, Group> groups_;
  mutable std::atomic<uint64_t> containers_made_ = 0;
  Status held_off_;
  std::atomic<int64_t> answer_until_ = INT64_MAX;
  std::atomic<bool> holds_answers_ = false;
  std::map<std::pair<Container*, Key>, std::weak_ptr<LoadedProgram>> programs_;  // By content hash.

  std::mutex counting_mutex_;  // So long no number of `pushers_` becomes another worker's.
  resources::Pushers pushers_;
};

}  // namespace sidereal::task
