#pragma once

#include <cstddef>
#include <cstdint>

#include "sidereal/base/status.h"
#include "sidereal/program/program.h"

namespace sidereal::program {

/// What a control instruction says, taken from its op and attributes.
struct ControlSpec {
  enum class Kind : uint8_t { kFunctionCall, kIf, kWhile, kScan };
  Kind kind = Kind::kFunctionCall;
  size_t variables = 0;             ///< While, Scan: loop variables, the first inputs.
  size_t sequences = 0;             ///< Scan: inputs given row by row, behind the variables.
  int64_t maximum_iterations = -1;  ///< While: -1 for no bound.
  int64_t length = -1;              ///< Scan: number of rows; -1: that of the sequences.
  bool reverse = false;             ///< Scan: from the last row to the first.
};

/// Reads the attributes of a control instruction. kInvalidArgument when one is missing, negative,
/// or more than the instruction has inputs.
Result<ControlSpec> control_spec(const Instruction& instruction);

/// Ok when the bodies that `instruction` of `part` runs take and return what it gives and takes, in
/// number and dtype. All slot and body indices must be in range.
Status check_control(const Program& whole, const Program& part, const Instruction& instruction);

}  // namespace sidereal::program
