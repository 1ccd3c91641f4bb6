// Counts what a process takes from the heap. Loaded before the C library (LD_PRELOAD).

#include <dlfcn.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>

extern "C" {

void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* memory, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);

namespace {
// Relaxed: a count, read when nothing runs.
std::atomic<uint64_t> count{0};
void note() { count.fetch_add(1, std::memory_order_relaxed); }
}  // namespace

/// Calls of malloc() and its like so far.
uint64_t allocations_so_far() { return count.load(std::memory_order_relaxed); }

void* malloc(size_t bytes) {
  note();
  return __libc_malloc(bytes);
}

void* calloc(size_t items, size_t bytes) {
  note();
  return __libc_calloc(items, bytes);
}

void* realloc(void* memory, size_t bytes) {
  note();
  return __libc_realloc(memory, bytes);
}

void* aligned_alloc(size_t alignment, size_t bytes) {
  note();
  return __libc_memalign(alignment, bytes);
}

void* memalign(size_t alignment, size_t bytes) {
  note();
  return __libc_memalign(alignment, bytes);
}

int posix_memalign(void** out, size_t alignment, size_t bytes) {
  note();
  void* const memory = __libc_memalign(alignment, bytes);
  if (memory == nullptr) return ENOMEM;
  *out = memory;
  return 0;
}

}  // extern "C"
