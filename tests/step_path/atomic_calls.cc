// What atomic operations are in programs of the preset "trap": the compiler calls these functions,
// as it does for the thread sanitizer, whose library is not there. Read-modify-writes are counted.

#include <atomic>
#include <cstdint>

namespace sidereal::step_path {

/// Called for each read-modify-write; see watch.cc. Programs without that have this one.
__attribute__((weak)) void note_change() {}

}  // namespace sidereal::step_path

namespace {

/// As strong as any order that is asked for.
constexpr int kOrder = __ATOMIC_SEQ_CST;

template <class T>
bool exchange_if(volatile T* at, T* expected, T wanted) {
  sidereal::step_path::note_change();
  return __atomic_compare_exchange_n(at, expected, wanted, false, kOrder, kOrder);
}

}  // namespace

#define SR_CHANGE(bits, name, builtin)                                                           \
  uint##bits##_t __tsan_atomic##bits##_##name(volatile uint##bits##_t* at, uint##bits##_t value, \
                                              int) {                                             \
    sidereal::step_path::note_change();                                                          \
    return builtin(at, value, kOrder);                                                           \
  }

#define SR_ATOMICS(bits)                                                                           \
  uint##bits##_t __tsan_atomic##bits##_load(const volatile uint##bits##_t* at, int) {              \
    return __atomic_load_n(at, __ATOMIC_ACQUIRE);                                                  \
  }                                                                                                \
  void __tsan_atomic##bits##_store(volatile uint##bits##_t* at, uint##bits##_t value, int order) { \
    if (order == __ATOMIC_SEQ_CST) return __atomic_store_n(at, value, kOrder);                     \
    __atomic_store_n(at, value, __ATOMIC_RELEASE);                                                 \
  }                                                                                                \
  SR_CHANGE(bits, exchange, __atomic_exchange_n)                                                   \
  SR_CHANGE(bits, fetch_add, __atomic_fetch_add)                                                   \
  SR_CHANGE(bits, fetch_sub, __atomic_fetch_sub)                                                   \
  SR_CHANGE(bits, fetch_and, __atomic_fetch_and)                                                   \
  SR_CHANGE(bits, fetch_or, __atomic_fetch_or)                                                     \
  SR_CHANGE(bits, fetch_xor, __atomic_fetch_xor)                                                   \
  int __tsan_atomic##bits##_compare_exchange_strong(                                               \
      volatile uint##bits##_t* at, uint##bits##_t* expected, uint##bits##_t wanted, int, int) {    \
    return exchange_if(at, expected, wanted) ? 1 : 0;                                              \
  }                                                                                                \
  int __tsan_atomic##bits##_compare_exchange_weak(                                                 \
      volatile uint##bits##_t* at, uint##bits##_t* expected, uint##bits##_t wanted, int, int) {    \
    return exchange_if(at, expected, wanted) ? 1 : 0;                                              \
  }                                                                                                \
  uint##bits##_t __tsan_atomic##bits##_compare_exchange_val(                                       \
      volatile uint##bits##_t* at, uint##bits##_t expected, uint##bits##_t wanted, int, int) {     \
    exchange_if(at, &expected, wanted);                                                            \
    return expected;                                                                               \
  }

extern "C" {

SR_ATOMICS(8)
SR_ATOMICS(16)
SR_ATOMICS(32)
SR_ATOMICS(64)
void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(kOrder); }
void __tsan_atomic_signal_fence(int) { __atomic_signal_fence(kOrder); }
void __tsan_init() {}
// What headers of Abseil tell the sanitizer of a mutex.
void __tsan_mutex_create(void*, unsigned) {}

}  // extern "C"
