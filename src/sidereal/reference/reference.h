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
  Values* variables = nullptr;      ///< By name of the variable. Updates write here.
  int64_t step = 0;                 ///< Chooses dropout masks.
};

/// Runs what `request` needs of `graph`, in node order, and returns the fetches in their dtypes.
/// Values between nodes are doubles whatever their dtype, so results are rounded once, at the end.
///
/// Handles of variables come from Variable nodes of the same graph. Updates (VariableUpdateDense,
/// VariableUpdateRows, EmbeddingUpdate) know the rule 'sgd' only: w -= learning_rate * g, with
/// gradients of equal ids summed first. Dropout drops other elements than the real kernel does. Ret
/// and Call are kUnimplemented.
Result<std::vector<ir::Tensor>> evaluate(const ir::Graph& graph, const Request& request);

/// True for an op that evaluate() has a function for. The others are compared with NumPy and
/// PyTorch by the Python tests.
bool knows(std::string_view op);

}  // namespace sidereal::reference
