#pragma once

#include <functional>

#include "sidereal/program/program.h"

namespace sidereal::program {

/// Fills SlotInfo::buffer, Instruction::releases and Program::num_buffers of a program that is
/// otherwise complete; see compile(). What an instruction of which `sends` is true reads gets no
/// buffer: it is held until it was taken, and a buffer would be written again.
void plan_buffers(Program* program, const std::function<bool(const Instruction&)>& sends);

}  // namespace sidereal::program
