#include "sidereal/sys/posix/cpus.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>
#include <thread>

#include "sidereal/base/strings.h"

namespace sidereal::sys::posix {
namespace {

constexpr int kCpusMax = 1 << 16;

/// By its threads' affinity, which is within its cpuset.
std::vector<int> affinity() {
  std::vector<int> out;
  for (int size = CPU_SETSIZE; size <= kCpusMax; size *= 2) {
    const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(
        CPU_ALLOC(static_cast<size_t>(size)), [](cpu_set_t* one) { CPU_FREE(one); });
    const size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(size));
    // Of the main thread: others may be pinned.
    if (sched_getaffinity(getpid(), bytes, set.get()) != 0) continue;  // More CPUs than fit.
    for (int cpu = 0; cpu < size; ++cpu) {
      if (CPU_ISSET_S(static_cast<size_t>(cpu), bytes, set.get())) out.push_back(cpu);
    }
    return out;
  }
  for (unsigned cpu = 0; cpu < std::thread::hardware_concurrency(); ++cpu) {
    out.push_back(static_cast<int>(cpu));
  }
  return out;
}

/// Where a hierarchy of control groups is mounted, and which of them is seen there.
struct Mount {
  std::string point;
  std::string group;
};

bool has_word(std::string_view list, std::string_view word) {
  const std::vector<std::string> words = base::split(list, ',');
  return std::find(words.begin(), words.end(), word) != words.end();
}

/// The mounts of `type` ("cgroup2", or "cgroup" with the controller cpu).
std::vector<Mount> mounts_of(const std::string& root, std::string_view type) {
  std::vector<Mount> out;
  std::ifstream file(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    // ID PARENT MAJOR:MINOR ROOT POINT OPTIONS [FIELD...] - TYPE SOURCE SUPER_OPTIONS
    const size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::istringstream before(line.substr(0, dash));
    std::istringstream after(line.substr(dash + 3));
    std::string skipped, group, point, found, source, options;
    before >> skipped >> skipped >> skipped >> group >> point;
    after >> found >> source >> options;
    if (found != type || (type == "cgroup" && !has_word(options, "cpu"))) continue;
    out.push_back({.point = std::move(point), .group = std::move(group)});
  }
  return out;
}

/// The group of this process in the unified hierarchy, or in that of the controller cpu.
std::string group_of(const std::string& root, bool unified) {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    // NUMBER:CONTROLLERS:GROUP
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string_view controllers =
        std::string_view(line).substr(first + 1, second - first - 1);
    const bool wanted = unified ? controllers.empty() : has_word(controllers, "cpu");
    if (wanted) return line.substr(second + 1);
  }
  return "/";
}

/// The quota that the files in a folder state; 0: none.
double quota_in(const std::string& folder, bool unified) {
  const auto read = [&](const char* name) {
    std::string text;
    std::ifstream file(folder + "/" + name);
    std::getline(file, text);
    return text;
  };
  std::string quota, period;
  if (unified) {
    std::istringstream(read("cpu.max")) >> quota >> period;
  } else {
    quota = read("cpu.cfs_quota_us");
    period = read("cpu.cfs_period_us");
  }
  const Result<int64_t> of = base::parse_int(base::trim(quota));  // "max" and -1: no limit.
  const Result<int64_t> in = base::parse_int(base::trim(period));
  if (!of.ok() || !in.ok() || *of <= 0 || *in <= 0) return 0;
  return static_cast<double>(*of) / static_cast<double>(*in);
}

/// The smallest of a group and those around it.
double quota_along(const std::string& root, const Mount& mount, std::string group, bool unified) {
  // A container may see its own group as the mount's root, though its name is the host's.
  if (mount.group != "/" && group.starts_with(mount.group)) group.erase(0, mount.group.size());
  double smallest = 0;
  while (true) {
    const double here = quota_in(fmt::format("{}{}{}", root, mount.point, group), unified);
    if (here > 0 && (smallest == 0 || here < smallest)) smallest = here;
    const size_t slash = group.rfind('/');
    if (slash == std::string::npos) return smallest;
    group.resize(slash);
  }
}

}  // namespace

int UsableCpus::count() const {
  const int most = std::max(1, static_cast<int>(cpus.size()));
  return quota > 0 ? std::clamp(static_cast<int>(quota), 1, most) : most;
}

std::string UsableCpus::to_string() const {
  const std::string limit = quota > 0 ? fmt::format(" (quota {:.2f})", quota) : "";
  return fmt::format("{} of {}{}", count(), cpu_list(cpus), limit);
}

double cpu_quota(const std::string& root) {
  double smallest = 0;
  for (const bool unified : {true, false}) {
    const std::string group = group_of(root, unified);
    for (const Mount& mount : mounts_of(root, unified ? "cgroup2" : "cgroup")) {
      const double found = quota_along(root, mount, group, unified);
      if (found > 0 && (smallest == 0 || found < smallest)) smallest = found;
    }
  }
  return smallest;
}

UsableCpus usable_cpus() { return {.cpus = affinity(), .quota = cpu_quota()}; }

std::string cpu_list(const std::vector<int>& cpus) {
  std::string out;
  for (size_t i = 0; i < cpus.size();) {
    size_t end = i + 1;
    while (end < cpus.size() && cpus[end] == cpus[end - 1] + 1) ++end;
    if (!out.empty()) out += ',';
    out += end - i > 1 ? fmt::format("{}-{}", cpus[i], cpus[end - 1]) : fmt::format("{}", cpus[i]);
    i = end;
  }
  return out;
}

std::unique_ptr<CpuClaim> CpuClaim::create(const std::vector<int>& cpus, int count) {
  std::unique_ptr<CpuClaim> out(new CpuClaim);
  for (const int cpu : cpus) {
    if (static_cast<int>(out->cpus_.size()) >= count) break;
    // A name without a file, which one socket at a time may have.
    const int socket = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (socket < 0) break;
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    const std::string name = fmt::format("sidereal-cpu-{}", cpu);
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    if (bind(socket, reinterpret_cast<const sockaddr*>(&address), length) == 0) {
      out->cpus_.push_back(cpu);
      out->sockets_.push_back(socket);
    } else {
      close(socket);
    }
  }
  return out;
}

CpuClaim::~CpuClaim() {
  for (const int socket : sockets_) close(socket);
}

}  // namespace sidereal::sys::posix
