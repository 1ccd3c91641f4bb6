#include "sidereal/sys/posix/process.h"

#include <dirent.h>
#include <malloc.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

namespace sidereal::sys::posix {

namespace {

/// State and start of a process; state ' ': they cannot be read.
struct Stat {
  char state = ' ';
  uint64_t started = 0;
};
Stat stat_of(int64_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  // The name before it may have blanks and parentheses.
  const size_t after_name = text.rfind(')');
  if (after_name == std::string::npos) return {};
  std::istringstream fields(text.substr(after_name + 1));
  Stat out;
  fields >> out.state;
  constexpr int kBetween = 18;  // proc(5): state is the 3rd field, starttime the 22nd.
  std::string field;
  for (int i = 0; i < kBetween; ++i) fields >> field;
  fields >> out.started;
  return fields ? out : Stat{};
}

/// Of the start of the machine, and of those whose pids this process sees.
std::string machine_mark() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  file >> boot;
  std::array<char, 64> space{};
  const ssize_t length = ::readlink("/proc/self/ns/pid", space.data(), space.size());
  if (boot.empty() || length <= 0) return "";
  return boot + " " + std::string(space.data(), static_cast<size_t>(length));
}

}  // namespace

ProcessMark own_mark() {
  const int64_t pid = ::getpid();
  return {.machine = machine_mark(), .pid = pid, .started = stat_of(pid).started};
}

bool has_ended(const ProcessMark& process) {
  if (process.pid <= 0 || process.machine.empty() || process.machine != machine_mark()) {
    return false;
  }
  if (::kill(static_cast<pid_t>(process.pid), 0) != 0 && errno == ESRCH) return true;
  const Stat now = stat_of(process.pid);
  if (now.state == ' ') return false;  // It is there, and another user's.
  return now.started != process.started || now.state == 'Z' || now.state == 'X';
}

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
