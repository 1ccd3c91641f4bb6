#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/ir/graph.h"

/// A plain interpreter of graphs: loops over double-precision numbers, nothing clever. Tests check
/// gradients and the real kernels against it; production never links it.
namespace sidereal::reference {

using Values = std::map<std::string, ir::Tensor, std::less<>>;

/// One step to run. Value type; borrows `variables`.
struct Request {
  Values feeds;                     ///< By name of Placeholder or Arg.
  std::vector<ir::Output> fetches;  ///< What to return.
  std::vector<ir::NodeId> targets;  ///< What else to run, such as updates.
  Values* variables = nullptr;      ///< By variable name; whole tables. Updates write here.
  int64_t step = 0;                 ///< Chooses dropout masks.
};

/// Runs what `request` needs of `graph`, in node order, and returns the fetches in their dtypes.
/// Values between nodes are doubles whatever their dtype, so results are rounded once, at the end.
///
/// Updates (ApplyDense, ApplySparse, ShardApply) know plain SGD only: w -= learning_rate * g, with
/// gradients of equal ids summed first. Dropout drops other elements than the real kernel does. Of
/// the expanded ops, ShardGather and ShardApply find the layout of their table at the Route node
/// their rows come from. Ret and Call are kUnimplemented.
Result<std::vector<ir::Tensor>> evaluate(const ir::Graph& graph, const Request& request);

/// True for an op that evaluate() has a function for. The others are compared with NumPy and
/// PyTorch by the Python tests.
bool knows(std::string_view op);

}  // namespace sidereal::reference
