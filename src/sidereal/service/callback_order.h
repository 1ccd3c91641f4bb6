#pragma once

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

/// For the .cc files of service.
namespace sidereal::service {

// gRPC runs what a stream is told of its reads one after the other, and OnDone() last, on any of
// its threads. The thread sanitizer cannot see the library's locks that make it so, and would take
// what one of them wrote and the next one reads, or hands on, for a race. So it is told. Nothing
// else sees these.

/// What was done up to here is seen by the callback that is started next, of the same `order`.
inline void callback_ran([[maybe_unused]] void* order) {
#if defined(__SANITIZE_THREAD__)
  __tsan_release(order);
#endif
}

/// The beginning of such a callback.
inline void callback_runs([[maybe_unused]] void* order) {
#if defined(__SANITIZE_THREAD__)
  __tsan_acquire(order);
#endif
}

}  // namespace sidereal::service
