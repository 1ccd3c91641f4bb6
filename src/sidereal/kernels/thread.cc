#include "sidereal/kernels/thread.h"

#include <cstdint>

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

}  // namespace sidereal::kernels
