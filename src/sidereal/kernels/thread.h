#pragma once

#include <cstdint>

namespace sidereal::kernels {

/// Prepares the calling thread for arithmetic: denormal numbers are flushed to zero (FTZ and DAZ),
/// because they cost a hundred cycles each. Call it once at the start of every thread that runs
/// kernels; it stays until the thread ends. Results of the kernels are the same with or without it
/// except where a denormal would have appeared.
void prepare_thread();

/// As prepare_thread(), while it lives: for threads that belong to others, such as the caller's of
/// a local session, whose steps then give what they give on the lanes of servers. Source:
/// TensorFlow's port::ScopedFlushDenormal, which its executors hold. Thread: made and destroyed on
/// one thread.
class ScopedFlushToZero {
 public:
  ScopedFlushToZero();
  ~ScopedFlushToZero();
  ScopedFlushToZero(const ScopedFlushToZero&) = delete;
  ScopedFlushToZero& operator=(const ScopedFlushToZero&) = delete;

 private:
  uint32_t before_ = 0;
};

}  // namespace sidereal::kernels
