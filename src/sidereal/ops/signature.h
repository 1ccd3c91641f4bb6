#pragma once

#include <string>
#include <vector>

#include "sidereal/ir/schema.h"

namespace sidereal::ops {

/// What an op takes and gives, as far as dtypes go.
struct OpSignature {
  /// One input, or, with the number of inputs open, each of them.
  struct Input {
    std::vector<ir::DType> dtypes;  ///< What it may be, in the order of their numbers.
    int same_as = -1;               ///< Its dtype is that of this input, which comes before it.
  };
  struct Output {
    ir::DType dtype = ir::DType::kInvalid;  ///< Of an output that is always the same.
    int same_as = -1;                       ///< The output has the dtype of this input.
    std::string attr = {};                  ///< An attribute that can say what dtype it has.
  };
  /// False for ops whose inputs and outputs are those of the functions or programs they run.
  bool known = false;
  std::vector<Input> inputs;
  std::vector<Output> outputs;
};

/// Asks the op's inference what it takes: with inputs of unknown shapes, of every dtype, and
/// attributes as they are when absent (required ones: something plausible). So it says what the
/// engine does, and cannot become out of date.
OpSignature signature_of(const ir::OpSchema& schema);

/// "float32, float64", or a name for a usual set: "any number", "float", "int32 or int64".
std::string describe_dtypes(const std::vector<ir::DType>& dtypes);

/// One op as text: what it does, inputs, outputs, attributes, gradient.
std::string describe_op(const ir::OpSchema& schema);

/// All ops of `registry` as a page of Markdown: docs/ops.md.
std::string ops_page(const ir::OpRegistry& registry);

}  // namespace sidereal::ops
