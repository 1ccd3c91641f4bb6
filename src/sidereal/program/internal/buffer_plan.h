#pragma once

#include "sidereal/program/program.h"

namespace sidereal::program {

/// Fills SlotInfo::buffer, Instruction::releases and Program::num_buffers of a program that is
/// otherwise complete; see compile().
void plan_buffers(Program* program);

}  // namespace sidereal::program
