#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>

/// What one thread of this process asks the machine for: memory, locks, and, in programs that the
/// preset "trap" has built, atomic changes. Programs that are linked with watch.cc call it in the
/// place of the C library.
namespace sidereal::step_path {

struct Counts {
  uint64_t allocations = 0;  ///< Calls of malloc() and its like; `new` is one of them.
  uint64_t locks = 0;        ///< Of mutexes and read-write locks, taken or tried, and waits.
  uint64_t changes = 0;      ///< Atomic read-modify-writes; 0 where the build does not count them.
};

/// Whether this build counts atomic changes.
bool counts_changes();

/// The thread of this process whose name begins with `name`, as the kernel knows it (15 bytes); 0
/// when there is none. Of several the first.
pid_t find_thread(std::string_view name);

/// Begins to count what `thread` does, from 0. One thread at a time. `must_ask_nothing`: with the
/// variable SIDEREAL_TRAP in the environment its first allocation, lock or atomic change ends the
/// process, after it has printed where that was.
void watch(pid_t thread, bool must_ask_nothing = false);
/// Ends that.
Counts stop();
/// Who asked, since watch(): the calls of each function that asked and of those that called it, the
/// most frequent first, a line each.
std::string who_asked(size_t lines = 20);

}  // namespace sidereal::step_path
