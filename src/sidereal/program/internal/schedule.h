#pragma once

#include <vector>

#include "sidereal/ir/graph.h"
#include "sidereal/program/program.h"

namespace sidereal::program {

/// One entry of a schedule: a node and, for `Call` nodes, which half of the call.
struct Scheduled {
  InstructionKind kind = InstructionKind::kCompute;
  ir::NodeId node;
};

/// An order in which to run `graph`; see compile(). Every `Call` node stands in it twice, every
/// other node once. `rounds` holds the round of each call, by the "call" attribute.
std::vector<Scheduled> schedule(const ir::Graph& graph, const std::vector<int32_t>& rounds);

}  // namespace sidereal::program
