#pragma once

namespace sidereal::kernels {

/// Prepares the calling thread for arithmetic: denormal numbers are flushed to zero (FTZ and DAZ),
/// because they cost a hundred cycles each. Call it once at the start of every thread that runs
/// kernels; it stays until the thread ends. Results of the kernels are the same with or without it
/// except where a denormal would have appeared.
void prepare_thread();

}  // namespace sidereal::kernels
