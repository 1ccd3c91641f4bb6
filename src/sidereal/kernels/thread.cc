#include "sidereal/kernels/thread.h"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace sidereal::kernels {

void prepare_thread() {
#if defined(__SSE2__)
  constexpr uint32_t kFlushToZero = 0x8000;
  constexpr uint32_t kDenormalsAreZero = 0x0040;
  _mm_setcsr(_mm_getcsr() | kFlushToZero | kDenormalsAreZero);
#endif
}

ScopedFlushToZero::ScopedFlushToZero() {
#if defined(__SSE2__)
  before_ = _mm_getcsr();
#endif
  prepare_thread();
}

ScopedFlushToZero::~ScopedFlushToZero() {
#if defined(__SSE2__)
  _mm_setcsr(before_);
#endif
}

}  // namespace sidereal::kernels
