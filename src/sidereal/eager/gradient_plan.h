#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/eager/call_key.h"
#include "sidereal/ir/schema.h"

namespace sidereal::eager {

/// What an op's gradient rule makes of one use of the op, as a list of ops over numbered values:
/// first the op's inputs, then its outputs, then the gradients of its outputs, then what the list
/// itself makes. Value type; immutable once made.
struct GradientPlan {
  struct Op {
    const ir::OpSchema* schema = nullptr;
    ir::AttrMap attrs;
    std::vector<int32_t> inputs;
    int32_t first_output = 0;
    int32_t num_outputs = 0;
  };
  struct Constant {
    int32_t value = 0;
    ir::Tensor tensor;
  };
  /// The gradient of an input of which a few rows were read: `values` holds one row per element of
  /// `indices`. `to_dense` (values, indices, input) makes the whole gradient of it.
  struct Sparse {
    int32_t values = -1;
    int32_t indices = -1;
    const ir::OpSchema* to_dense = nullptr;
    ir::AttrMap attrs;
  };

  CallKey key;
  std::vector<Constant> constants;
  std::vector<Op> ops;
  std::vector<int32_t> grads;  ///< By input: the value that is its gradient, -1: none flows.
  std::vector<Sparse> sparse;  ///< By input; used where `values` is not -1.
  int32_t num_values = 0;
  bool reusable = true;  ///< False: shapes of the outputs depend on more than the key says.
};

/// Runs the gradient rule of `key.schema`. `outputs` are the specs of its outputs, `reached` says
/// into which of them a gradient flowed, `wanted` which inputs' gradients are asked for. `named` is
/// how messages call the op.
/// kUnimplemented when the op has no gradient.
Result<std::unique_ptr<GradientPlan>> make_gradient_plan(
    const ir::OpRegistry& registry, CallKey key, const std::vector<ir::TensorSpec>& outputs,
    const std::vector<bool>& reached, const std::vector<bool>& wanted, std::string_view named);

}  // namespace sidereal::eager
