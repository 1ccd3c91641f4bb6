#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/train/model.h"

/// Which parameter server has which variable of a model. Pure functions.
namespace sidereal::train {

/// How a model is spread when it is first placed. Value type.
struct PlacementOptions {
  /// Parts of a table for each lane of each parameter server of the cluster: parts are what moves
  /// from one to another. They never change after.
  int64_t parts_per_lane = 4;
  /// Parameter servers that the model begins on, the first ones; 0: all of the cluster. The others
  /// need not be there before the model is told to be on them.
  int64_t start_ps = 0;
};

/// The parameter servers of a cluster. Value type.
struct Topology {
  int ps = 0;
  int lanes = 1;  ///< Of the one that has most.
};

/// Which tasks of the job ps the variables of a model are on. Value type.
struct Placement {
  Topology topology;    ///< As the model was first placed.
  std::vector<int> ps;  ///< What it is spread over, sorted; 0, which has what it has once, is one.
  /// By name of a variable the task of each of its parts; one that is no table has one part.
  std::map<std::string, std::vector<int>> tasks;

  friend bool operator==(const Placement& a, const Placement& b) {
    return a.ps == b.ps && a.tasks == b.tasks;
  }
};

/// A variable that may go from task to task, by its parts. Value type.
struct SpreadVariable {
  std::string name;
  bool is_table = false;            ///< Each task has as many of its parts; else it has one.
  std::vector<int64_t> part_bytes;  ///< With slots; as many as a placement has tasks for it.
};

/// A part of a variable, with its slots, that is elsewhere in another placement. Value type.
struct PartMove {
  std::string variable;
  std::string name;  ///< What a cluster calls the part.
  int from = 0;
  int to = 0;
  int64_t bytes = 0;
};

/// Tables in parts, round robin, so that lanes have as many; the others whole, the largest first on
/// the task that has least. kInvalidArgument for options that cannot be; kFailedPrecondition
/// without a parameter server.
Result<Placement> first_placement(const CompiledModel& model, const Topology& topology,
                                  const PlacementOptions& options = {});

/// The variables of a model, whose parts are those of `placement`.
std::vector<SpreadVariable> to_spread(const CompiledModel& model, const Placement& placement);

/// A variable that is on one task. Value type.
struct HeldVariable {
  std::string name;
  int64_t bytes = 0;  ///< With slots.
  int task = 0;
};
/// Variables, and which tasks they are on. Value type.
struct Spread {
  std::vector<SpreadVariable> variables;
  Placement placement;
};
/// Variables of a cluster with `ps` parameter servers, of which they are spread over `used`. Those
/// that are called as all parts of a table (base::part_name) are parts of it. kInvalidArgument for
/// tasks that the cluster has not, a name that is there twice, and bytes that cannot be.
Result<Spread> spread_of(int ps, std::vector<int> used, const std::vector<HeldVariable>& variables);

/// The following move as few bytes as there must be for bytes to be as even as parts allow, each
/// table by itself. All say what to do instead of what they refuse: kInvalidArgument for a task
/// that the cluster has not, kFailedPrecondition for others. What changes nothing is as it was.

/// On the first `ps` tasks of the cluster.
Result<Placement> scaled(const std::vector<SpreadVariable>& variables, const Placement& now,
                         int64_t ps);
/// On all that it is on but for task `ps`.
Result<Placement> drained(const std::vector<SpreadVariable>& variables, const Placement& now,
                          int64_t ps);
/// On the same tasks, more evenly. `loads`: what each task of the cluster has had to do, of any
/// unit; a part is taken to have its share of its task's, by its bytes. Empty, or all 0: bytes
/// count. A difference that is small is left.
Result<Placement> rebalanced(const std::vector<SpreadVariable>& variables, const Placement& now,
                             const std::vector<double>& loads);

/// What came of a command. Value type.
struct MoveSummary {
  int64_t parts = 0;  ///< That moved.
  int64_t bytes = 0;
  size_t ps_before = 0;
  size_t ps = 0;
  double lasted_s = 0;
  double paused_s = 0;
};
/// In a sentence, for who gave the command.
std::string to_string(const MoveSummary& summary);

/// What is elsewhere in `next`.
std::vector<PartMove> moves_between(const std::vector<SpreadVariable>& variables,
                                    const Placement& now, const Placement& next);

}  // namespace sidereal::train
