#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sidereal/ir/graph.h"

namespace sidereal::passes {

/// Where a variable of a session sits.
struct PlacedVariable {
  std::string name;  ///< The name it is shared by.
  std::string device;
  ir::TensorSpec spec;
  int64_t bytes = 0;  ///< 0 where an extent is not known.
};

/// What one task has to hold and to run.
struct TaskLoad {
  std::string task;  ///< "/job:ps/replica:0/task:0".
  int64_t variables = 0;
  int64_t bytes = 0;  ///< Of its variables.
  int64_t nodes = 0;  ///< In the graph and in bodies, each body once per outcome of placing.
};

/// What placing decided, for people. Value type.
struct PlacementReport {
  std::vector<PlacedVariable> variables;  ///< In the order of the graph; each once.
  std::vector<TaskLoad> tasks;            ///< By name, numbers in order.
  /// Most bytes of a task over the mean, of the tasks of jobs that hold variables; 0 without any.
  double imbalance = 0;
};

/// What place_devices() decided about `graph`. Nodes whose device is no full name are left out.
PlacementReport placement_report(const ir::Graph& graph);

/// A table of the tasks, the imbalance, and a table of the variables.
std::string to_text(const PlacementReport& report);

}  // namespace sidereal::passes
