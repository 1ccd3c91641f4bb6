#pragma once

#include <cstdint>

#include "sidereal/base/status.h"
#include "sidereal/program/program.h"

namespace sidereal::program {

/// What a program holds at most.
inline constexpr uint32_t kMaxSlots = 1U << 20;
inline constexpr uint32_t kMaxInstructions = 1U << 20;
inline constexpr uint32_t kMaxCalls = 1U << 16;

/// Checks that a program makes sense, whoever wrote it: slot, buffer and call indices in range;
/// every slot written once, read only after it was written and not after it was released; every
/// call started once and then waited for once, with its feeds kept until then. kInvalidArgument
/// names the instruction. Says nothing of ops, attributes and shapes: kernels check those.
Status validate(const Program& program);

}  // namespace sidereal::program
