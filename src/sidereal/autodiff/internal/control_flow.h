#pragma once

#include <string_view>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/ir/builder.h"

namespace sidereal::autodiff {

/// True for the ops whose gradients add_control_gradient() makes.
bool is_control_flow(std::string_view op);

/// Builds the gradients of a FunctionCall, If, While or Scan node. `wanted` says by input which
/// ones to make. Where the reverse needs values from inside, the node is given functions that
/// return them and outputs behind those it has; what it had stays as it was.
Status add_control_gradient(ir::GradContext& c, const std::vector<bool>& wanted);

}  // namespace sidereal::autodiff
