#include "sidereal/sys/posix/process.h"

#include <dirent.h>
#include <malloc.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace sidereal::sys::posix {

int64_t machine_memory() {
  return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE);
}

ProcessFigures process_figures() {
  ProcessFigures out;
  out.pid = getpid();
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word == "VmRSS:") {
      status >> out.memory_used;
      out.memory_used *= 1024;
    } else if (word == "Threads:") {
      status >> out.threads;
    }
  }
  // One name after the other: a server of thousands has thousands.
  if (DIR* const files = opendir("/proc/self/fd"); files != nullptr) {
    while (readdir(files) != nullptr) ++out.open_files;
    closedir(files);
    out.open_files -= 3;  // ".", "..", and the folder itself.
  }
  out.memory_limit = machine_memory();
  return out;
}

void keep_freed_memory() {
#ifdef __GLIBC__
  mallopt(M_TRIM_THRESHOLD, 64 << 20);
  mallopt(M_MMAP_THRESHOLD, 8 << 20);
#endif
}

void release_free_memory() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

}  // namespace sidereal::sys::posix
