#pragma once

#include <string>

#include "sidereal/base/status.h"

namespace CLI {
class App;
}  // namespace CLI

namespace sidereal::cli {

/// Where the nodes of a graph would run. Value type.
struct PlacementArguments {
  std::string file = {};     ///< A graph as text (docs/formats/graph_text.md).
  std::string cluster = {};  ///< See read_cluster().
  std::string master = {};   ///< "/job:worker/task:0"; "": the cluster's first task.
  bool soft_placement = false;
  bool nodes = false;
};

/// The report of `sidereal graph placement`.
Result<std::string> placement_text(const PlacementArguments& arguments);

}  // namespace sidereal::cli
