#pragma once

#include <memory>

#include "sidereal/exec/kernel.h"

/// Ops on variables each of which belongs to one lane of a task. Internal to exec.
namespace sidereal::exec {

/// `kernel`, made for `bind`, as it runs where variables belong to lanes: on this one when that has
/// all that the op uses; else their lane runs the op, with a kernel of its own, and the step waits
/// for its outputs. Variables that one op changes together belong to one lane from then on: that of
/// the first one. The same kernel, where threads share variables, where there is one lane only, and
/// for an op without variables. `table` is borrowed.
///
/// What a step hands over happens on the other lane in the order handed over, also when the step
/// ends before.
std::unique_ptr<Kernel> where_owned(const BindContext& bind, std::unique_ptr<Kernel> kernel,
                                    const KernelTable* table);

}  // namespace sidereal::exec
