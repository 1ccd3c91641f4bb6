#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sidereal/base/status.h"

/// The little language of FusedElementwise: a list of element-wise ops over numbered values. Value
/// 0 to n - 1 are the inputs; step i makes value n + i; the last one is the output. A step is text
/// such as "Mul %0 %3".
namespace sidereal::ir {

/// Limits a list keeps.
inline constexpr size_t kFusedStepsMax = 1024;
inline constexpr size_t kFusedInputsMax = 64;

/// One element-wise op of a list, or AddSame: a term of an AddN, whose values have one shape. Value
/// type.
struct FusedStep {
  std::string op;
  int32_t args[2] = {-1, -1};  ///< Values read; the second is -1 for ops of one input.
};

/// Inputs that the step `op` takes: 1 or 2; 0 when there is no such step.
int fusable_arity(std::string_view op);

/// "Mul %0 %3".
std::string to_text(const FusedStep& step);

/// Reads a list over `num_inputs` inputs. kInvalidArgument names the step that is no step: an op
/// that cannot be one, a value that does not exist yet, too many steps or inputs.
Result<std::vector<FusedStep>> parse_fused_code(const std::vector<std::string>& code,
                                                size_t num_inputs);

}  // namespace sidereal::ir
