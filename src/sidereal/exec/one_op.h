#pragma once

#include <vector>

#include "sidereal/exec/kernel.h"
#include "sidereal/ir/graph.h"
#include "sidereal/program/program.h"

namespace sidereal::exec {

/// A program of one instruction, fed with the inputs of `node`. Its slots have no planned buffers:
/// outputs are the caller's.
program::Program one_op_program(const ir::Node& node, const std::vector<ir::TensorSpec>& inputs);

/// Runs `node` by itself on `inputs`, for passes that fold constants. kUnimplemented for an op
/// without a kernel, and whatever the kernel has to say.
Result<std::vector<tensor::Tensor>> run_one_op(const ir::Node& node,
                                               const std::vector<tensor::Tensor>& inputs,
                                               const KernelTable& kernels);

}  // namespace sidereal::exec
