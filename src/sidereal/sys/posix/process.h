#pragma once

#include <cstdint>
#include <string>

namespace sidereal::sys::posix {

/// What the operating system says of this process.
struct ProcessFigures {
  int64_t pid = 0;
  int64_t memory_used = 0;   ///< Resident bytes.
  int64_t memory_limit = 0;  ///< Bytes the machine has.
  int64_t threads = 0;
  int64_t open_files = 0;
};

/// Bytes of memory that the machine has. Thread: any.
int64_t machine_memory();

/// Reads them; 0 where they cannot be read. Thread: any.
ProcessFigures process_figures();

/// Lets the C library keep up to 64 MiB that were freed, and blocks of up to 8 MiB among them, for
/// what is allocated next. Else what a large message is read into has fresh pages each time, which
/// cost more than the bytes that are copied there. Thread: any.
void keep_freed_memory();

/// Gives back what was freed: the C library keeps most of it, which after a peak is much. Takes
/// milliseconds, in which other threads may wait for memory. Thread: any.
void release_free_memory();

/// What tells a process from all others, also from those that had or get its pid. Value type.
struct ProcessMark {
  std::string machine;  ///< Those with the same one see each other; "": unknown.
  int64_t pid = 0;
  uint64_t started = 0;  ///< In ticks since the machine's start.
};
/// Of this process. Thread: any.
ProcessMark own_mark();
/// Whether a process has ended; false where that cannot be told, as of another machine. Thread:
/// any.
bool has_ended(const ProcessMark& process);

}  // namespace sidereal::sys::posix
