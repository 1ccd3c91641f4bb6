#include "tests/step_path/watch.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* memory, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);
}

namespace sidereal::step_path {
namespace {

constexpr size_t kStacks = 4096;
constexpr int kFrames = 12;

struct Stack {
  const char* what = nullptr;
  int frames = 0;
  std::array<void*, kFrames> at;
};

std::atomic<pid_t> watched = 0;
// Written by the watched thread, read when it is watched no more.
std::atomic<uint64_t> allocations = 0;
std::atomic<uint64_t> locks = 0;
std::atomic<uint64_t> changes = 0;
std::array<Stack, kStacks> stacks;
std::atomic<size_t> stacks_taken = 0;
bool traps = false;

// Of a thread; initial-exec, as this is part of a program: no memory is taken for them.
thread_local pid_t own = 0;
thread_local bool inside = false;

void note(std::atomic<uint64_t>* count, const char* what) {
  const pid_t wanted = watched.load(std::memory_order_acquire);
  if (wanted == 0 || inside) return;
  if (own == 0) own = gettid();
  if (own != wanted) return;
  inside = true;
  count->store(count->load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  const size_t at = stacks_taken.load(std::memory_order_relaxed);
  if (at < kStacks) {
    Stack& stack = stacks[at];
    stack.what = what;
    stack.frames = backtrace(stack.at.data(), kFrames);
    stacks_taken.store(at + 1, std::memory_order_release);
    if (traps) {
      std::fprintf(stderr, "%s on the step path:\n", what);
      backtrace_symbols_fd(stack.at.data(), stack.frames, STDERR_FILENO);
      std::abort();
    }
  }
  inside = false;
}

std::string name_of(void* address) {
  Dl_info info;
  if (dladdr(address, &info) == 0 || info.dli_sname == nullptr) return "?";
  int failed = 0;
  const std::unique_ptr<char, decltype(&std::free)> shown(
      abi::__cxa_demangle(info.dli_sname, nullptr, nullptr, &failed), &std::free);
  std::string name = failed == 0 ? shown.get() : info.dli_sname;
  for (size_t at = name.find("sidereal::"); at != std::string::npos; at = name.find("sidereal::")) {
    name.erase(at, sizeof("sidereal::") - 1);
  }
  return name.substr(0, std::min(name.find('('), size_t{70}));
}

/// Functions between the hook and what is ours say nothing.
bool is_plumbing(const std::string& name) {
  for (const char* const part : {"std::", "operator", "absl::", "__gnu_cxx", "step_path", "malloc",
                                 "pthread", "calloc", "realloc", "__tsan", "?"}) {
    if (name.find(part) != std::string::npos && name.find("std::") < name.find('<')) return true;
    if (name.starts_with(part)) return true;
  }
  return false;
}

}  // namespace

bool counts_changes() {
#ifdef SIDEREAL_TRAP
  return true;
#else
  return false;
#endif
}

/// Called by atomic_calls.cc.
void note_change();
void note_change() { note(&changes, "change"); }

pid_t find_thread(std::string_view name) {
  pid_t found = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task", error)) {
    const pid_t thread = std::atoi(entry.path().filename().c_str());
    std::ifstream file(entry.path() / "comm");
    std::string shown;
    std::getline(file, shown);
    if (!shown.starts_with(name)) continue;
    if (found == 0 || thread < found) found = thread;
  }
  return found;
}

void watch(pid_t thread, bool must_ask_nothing) {
  // Its first call takes memory.
  std::array<void*, 1> one;
  backtrace(one.data(), 1);
  traps = must_ask_nothing && std::getenv("SIDEREAL_TRAP") != nullptr;
  allocations = 0;
  locks = 0;
  changes = 0;
  stacks_taken = 0;
  watched.store(thread, std::memory_order_release);
}

Counts stop() {
  watched.store(0, std::memory_order_release);
  return {.allocations = allocations, .locks = locks, .changes = changes};
}

std::string who_asked(size_t lines) {
  std::map<std::string, size_t> counts;
  std::map<void*, std::string> names;
  const size_t taken = stacks_taken.load(std::memory_order_acquire);
  for (size_t i = 0; i < taken; ++i) {
    const Stack& stack = stacks[i];
    std::string text = std::string(stack.what) + ":";
    int shown = 0;
    for (int f = 1; f < stack.frames && shown < 4; ++f) {
      std::string& name = names[stack.at[static_cast<size_t>(f)]];
      if (name.empty()) name = name_of(stack.at[static_cast<size_t>(f)]);
      if (is_plumbing(name)) continue;
      text += (shown++ == 0 ? " " : " < ") + name;
    }
    ++counts[text];
  }
  std::vector<std::pair<size_t, std::string>> sorted;
  for (auto& [text, count] : counts) sorted.emplace_back(count, text);
  std::sort(sorted.rbegin(), sorted.rend());
  std::string out;
  for (size_t i = 0; i < std::min(lines, sorted.size()); ++i) {
    out += std::to_string(sorted[i].first) + " " + sorted[i].second + "\n";
  }
  return out;
}

namespace {

/// The function of the C library that is behind the one of this name here.
template <class F>
F* next(const char* name) {
  return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}

}  // namespace
}  // namespace sidereal::step_path

using sidereal::step_path::allocations;
using sidereal::step_path::locks;
using sidereal::step_path::next;
using sidereal::step_path::note;

extern "C" {

void* malloc(size_t bytes) {
  note(&allocations, "malloc");
  return __libc_malloc(bytes);
}

void* calloc(size_t items, size_t bytes) {
  note(&allocations, "calloc");
  return __libc_calloc(items, bytes);
}

void* realloc(void* memory, size_t bytes) {
  note(&allocations, "realloc");
  return __libc_realloc(memory, bytes);
}

void* aligned_alloc(size_t alignment, size_t bytes) {
  note(&allocations, "aligned_alloc");
  return __libc_memalign(alignment, bytes);
}

void* memalign(size_t alignment, size_t bytes) {
  note(&allocations, "memalign");
  return __libc_memalign(alignment, bytes);
}

int posix_memalign(void** out, size_t alignment, size_t bytes) {
  note(&allocations, "posix_memalign");
  void* const memory = __libc_memalign(alignment, bytes);
  if (memory == nullptr) return ENOMEM;
  *out = memory;
  return 0;
}

int pthread_mutex_lock(pthread_mutex_t* mutex) {
  static int (*const behind)(pthread_mutex_t*) = next<int(pthread_mutex_t*)>("pthread_mutex_lock");
  note(&locks, "mutex");
  return behind(mutex);
}

int pthread_mutex_trylock(pthread_mutex_t* mutex) {
  static int (*const behind)(pthread_mutex_t*) =
      next<int(pthread_mutex_t*)>("pthread_mutex_trylock");
  note(&locks, "mutex");
  return behind(mutex);
}

int pthread_rwlock_rdlock(pthread_rwlock_t* lock) {
  static int (*const behind)(pthread_rwlock_t*) =
      next<int(pthread_rwlock_t*)>("pthread_rwlock_rdlock");
  note(&locks, "rwlock");
  return behind(lock);
}

int pthread_rwlock_wrlock(pthread_rwlock_t* lock) {
  static int (*const behind)(pthread_rwlock_t*) =
      next<int(pthread_rwlock_t*)>("pthread_rwlock_wrlock");
  note(&locks, "rwlock");
  return behind(lock);
}

}  // extern "C"
