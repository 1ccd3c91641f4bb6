#pragma once

#include "sidereal/exec/kernel.h"

/// Changes of variables by closures that may be run again. Internal to exec.
namespace sidereal::exec {

/// Kernels of an op that changes the variable of input 0 and gives out its value, or nothing. What
/// a closure has changed (KernelContext::closure()) it does not change when it is run again: the
/// kernel gives the value out as it is then. A change that fails counts as none.
KernelFactory made_once(KernelFactory change);

}  // namespace sidereal::exec
