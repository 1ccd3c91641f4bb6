// Counts what a process takes from the heap, and who takes it. Loaded before the C library and the
// C++ library (LD_PRELOAD).

#include <dlfcn.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* memory, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);
}

namespace {

constexpr size_t kCallers = size_t{1} << 16U;
// Relaxed: a count, read when nothing runs.
std::atomic<uint64_t> count{0};
std::array<std::atomic<void*>, kCallers> callers{};

/// `caller`: where the function that was called returns to.
void note(void* caller) {
  const uint64_t at = count.fetch_add(1, std::memory_order_relaxed);
  callers[at % kCallers].store(caller, std::memory_order_relaxed);
}

void* take(size_t bytes, void* caller) {
  note(caller);
  void* const memory = __libc_malloc(bytes);
  if (memory == nullptr) std::abort();
  return memory;
}

void* take_aligned(size_t bytes, std::align_val_t alignment, void* caller) {
  note(caller);
  void* const memory = __libc_memalign(static_cast<size_t>(alignment), bytes);
  if (memory == nullptr) std::abort();
  return memory;
}

}  // namespace

#define SR_CALLER __builtin_return_address(0)

extern "C" {

/// Calls of malloc() and its like so far.
uint64_t allocations_so_far() { return count.load(std::memory_order_relaxed); }

/// How many of the calls since `first`, at most the last 65536, came from a shared object whose
/// path contains `object`.
uint64_t allocations_from(const char* object, uint64_t first) {
  const uint64_t last = allocations_so_far();
  if (last > kCallers && first < last - kCallers) first = last - kCallers;
  uint64_t found = 0;
  for (uint64_t i = first; i < last; ++i) {
    Dl_info info;
    void* const caller = callers[i % kCallers].load(std::memory_order_relaxed);
    if (dladdr(caller, &info) != 0 && std::strstr(info.dli_fname, object) != nullptr) ++found;
  }
  return found;
}

void* malloc(size_t bytes) {
  note(SR_CALLER);
  return __libc_malloc(bytes);
}

void* calloc(size_t items, size_t bytes) {
  note(SR_CALLER);
  return __libc_calloc(items, bytes);
}

void* realloc(void* memory, size_t bytes) {
  note(SR_CALLER);
  return __libc_realloc(memory, bytes);
}

void* aligned_alloc(size_t alignment, size_t bytes) {
  note(SR_CALLER);
  return __libc_memalign(alignment, bytes);
}

void* memalign(size_t alignment, size_t bytes) {
  note(SR_CALLER);
  return __libc_memalign(alignment, bytes);
}

int posix_memalign(void** out, size_t alignment, size_t bytes) {
  note(SR_CALLER);
  void* const memory = __libc_memalign(alignment, bytes);
  if (memory == nullptr) return ENOMEM;
  *out = memory;
  return 0;
}

}  // extern "C"

// The C++ library's own would come from that library, whoever called them.
void* operator new(size_t bytes) { return take(bytes, SR_CALLER); }
void* operator new[](size_t bytes) { return take(bytes, SR_CALLER); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return take_aligned(bytes, alignment, SR_CALLER);
}
void* operator new[](size_t bytes, std::align_val_t alignment) {
  return take_aligned(bytes, alignment, SR_CALLER);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
