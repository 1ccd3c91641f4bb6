#pragma once

#include "sidereal/base/status.h"
#include "sidereal/ir/schema.h"
#include "sidereal/passes/step_graph.h"

/// Products of values that stand next to one another. A matrix product of a concatenation is the
/// sum of the products of its parts, so the concatenation need not be written. Results differ by
/// rounding only. Rows of tables are left to lay_out_lookups. To be run after gradients were taken,
/// after fuse and before that pass.
namespace sidereal::passes {

/// Makes one MatMulSplit of a MatMul with a transposed right side of which only pieces of columns
/// are read (SliceAxis along the last axis, through reshapes that keep it): the gradient of what
/// was concatenated. For float32 and float64, where the pieces are wide.
Result<StepGraph> split_products(const StepGraph& step, const ir::OpRegistry& registry);

/// Makes ConcatMatMul and TransposedConcatMatMul of products (MatMul, FusedMatMul) of a Concat
/// along the last axis, through reshapes that keep it, where nothing else reads the Concat and its
/// parts are wide; Relu, Sigmoid and Tanh that alone read such a product become part of it. A part
/// that was only broadcast to the shape of the others is read as it was before. For float32 and
/// float64.
Result<StepGraph> join_products(const StepGraph& step, const ir::OpRegistry& registry);

}  // namespace sidereal::passes
