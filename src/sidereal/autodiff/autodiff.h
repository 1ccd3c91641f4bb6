#pragma once

#include <string>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/ir/builder.h"

/// Reverse-mode differentiation of a graph while it is built: gradients are more nodes of the same
/// graph, made by the rules of the op schemas.
namespace sidereal::autodiff {

/// d(sum of loss)/d(wrt[i]) for each i, of the shape of wrt[i]; an invalid Output where no gradient
/// flows (no path, integers, StopGradient). Contributions are summed with AddN, those of later
/// nodes first, so equal graphs get equal gradients to the last bit.
/// Errors: kInvalidArgument when loss is not a float; kUnimplemented naming the node
/// when an op without gradient lies on a path.
///
/// Goes through functions, branches and loops. Nodes of those ops between wrt and loss may be given
/// further outputs, behind those they have: values that the reverse reads.
Result<std::vector<ir::Output>> gradients(ir::Builder& b, ir::Output loss,
                                          const std::vector<ir::Output>& wrt);

/// As above for the sum of several `ys`, each weighted by its `grad_ys` (of its shape; an invalid
/// Output stands for ones). There are as many of both.
Result<std::vector<ir::Output>> gradients(ir::Builder& b, const std::vector<ir::Output>& ys,
                                          const std::vector<ir::Output>& grad_ys,
                                          const std::vector<ir::Output>& wrt);

/// The gradient of one variable.
struct VariableGradient {
  ir::Output handle;
  bool sparse = false;  ///< True for tables, read by EmbeddingLookup.
  ir::Output grad;      ///< Dense: of the variable's shape. Sparse: ids.shape + [dim].
  ir::Output ids;       ///< Sparse: the rows, int64; may repeat. Negative ids take no gradient.
};

/// Gradients of those variables of `handles` that `loss` depends on, in the order they are first
/// read. Several reads of a variable are summed; several look-ups in a table become one list of ids
/// and one of rows. Errors: as gradients(); kUnimplemented when a function takes one of the
/// handles.
Result<std::vector<VariableGradient>> variable_gradients(ir::Builder& b, ir::Output loss,
                                                         const std::vector<ir::Output>& handles);

}  // namespace sidereal::autodiff
