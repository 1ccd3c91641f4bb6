#pragma once

#include <map>
#include <vector>

#include "sidereal/ir/graph.h"
#include "sidereal/ir/schema.h"

namespace sidereal::ir {

/// The order of a program among the nodes of a function that read or change what lies outside of
/// it, which are added to its body one after the other. Nodes that use variables come in the order
/// of the program where they use the same one, and one of them changes it: so what has nothing in
/// common goes to parameter servers together. All others with effects are in order with each other
/// and with these.
/// Thread: one at a time.
/// Source: TensorFlow's automatic control dependencies.
class EffectOrder {
 public:
  /// Puts a node that was just added behind those that it comes after.
  void add(Graph* graph, NodeId id, const OpRegistry& registry);

 private:
  /// Of one variable, since the last node that comes after all.
  struct Users {
    NodeId writer;
    std::vector<NodeId> readers;  ///< Since then.
  };

  NodeId last_of_all_;
  std::map<Output, Users> variables_;
  std::vector<NodeId> since_;  ///< All that are in order and came after `last_of_all_`.
};

}  // namespace sidereal::ir
