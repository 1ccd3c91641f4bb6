#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "sidereal/task/variable_intake.h"
#include "tests/sim/late_copy.h"
#include "tests/sim/move_cluster.h"

namespace sidereal::sim {

/// What a task says of a move to it. Value type.
struct MoveSays {
  bool is_current = false;
  bool is_taken = false;
  bool is_committed = false;
  Status failure = {};  ///< The last that it says.
};

/// A move of variables to a task, as the task has it: in the place of service::MoveStream, with the
/// real task::VariableIntake.
/// Thread: the world's.
class MoveIn final : public std::enable_shared_from_this<MoveIn> {
 public:
  /// What comes from which server.
  using Sources = std::map<int, resources::WantedNames>;
  using Say = std::function<void(const MoveSays&)>;
  MoveIn(const MoveContext& context, MoveCluster* cluster, int to, Sources sources, Say say);

  void begin();
  void take(int64_t limit_ns);
  void commit();
  /// Who asked for it has gone, or wants it no more.
  void hung_up();
  /// Nothing of it goes on at the task.
  [[nodiscard]] bool has_ended() const { return has_ended_; }

 private:
  /// Calls `fn` while the task lives and this goes on.
  void later(int64_t ns, std::function<void()> fn);
  void look();
  void look_whether_here(uint64_t mark, int64_t deadline);
  void adopt();
  [[nodiscard]] std::vector<int> variables() const;
  void end(Status why);
  /// Complains, in a moment, of what stays of it.
  void check_nothing_stays();
  [[nodiscard]] bool is_there() const { return *is_task_there_ && !has_ended_; }

  const MoveContext& context_;
  MoveCluster* const cluster_;
  MovePs* const ps_;
  const std::shared_ptr<bool> is_task_there_;
  const Sources sources_;
  const Say say_;
  task::VariableIntake intake_;
  std::vector<std::unique_ptr<LateCopy>> copies_;
  MoveSays said_;
  uint64_t number_ = 0;  // Of MovePs::given(), once it gives the task variables.
  bool is_taking_ = false;
  bool has_gone_ = false;
  bool commits_ = false;
  bool is_adopting_ = false;
  bool has_ended_ = false;
};

}  // namespace sidereal::sim
