#pragma once

#include <cstdint>

#include "sidereal/base/status.h"
#include "sidereal/program/program.h"

namespace sidereal::program {

/// What a program holds at most.
inline constexpr uint32_t kMaxSlots = 1U << 20;
inline constexpr uint32_t kMaxInstructions = 1U << 20;
inline constexpr uint32_t kMaxCalls = 1U << 16;
inline constexpr uint32_t kMaxBodies = 1U << 16;
/// Every control instruction has its own copy of its bodies' slots while it runs; so many slots at
/// most come together in this way, and control instructions nest so deep.
inline constexpr int64_t kMaxUnfoldedSlots = int64_t{1} << 22;
inline constexpr int kMaxControlDepth = 32;

/// Checks that a program makes sense, whoever wrote it: slot, buffer and call indices in range;
/// every slot written once, read only after it was written and not after it was released; every
/// call started once and then waited for once, with its feeds kept until then; the same for every
/// body; control instructions name bodies that take what they give, in dtype and number, and no
/// body reaches itself. kInvalidArgument names the instruction. Says nothing of other ops,
/// attributes and shapes: kernels check those.
Status validate(const Program& program);

}  // namespace sidereal::program
