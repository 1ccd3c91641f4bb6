#pragma once

#include <functional>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/ir/schema.h"
#include "sidereal/passes/step_graph.h"

namespace sidereal::passes {

/// Calculates the outputs of one node from constant inputs. Whoever runs the passes brings it: the
/// plan has no kernels.
using Evaluate = std::function<Result<std::vector<ir::Tensor>>(
    const ir::Node& node, const std::vector<ir::Tensor>& inputs)>;

/// Results up to this many bytes are kept as constants.
inline constexpr size_t kFoldedBytesMax = 64 << 10;

/// Makes constants of nodes that depend on constants only. Ops with state, ops of parameter
/// servers, and nodes that control edges order are left alone. A node that `evaluate` cannot run
/// stays: it fails when the step runs, with its own message.
Result<StepGraph> fold_constants(const StepGraph& step, const ir::OpRegistry& registry,
                                 const Evaluate& evaluate);

}  // namespace sidereal::passes
