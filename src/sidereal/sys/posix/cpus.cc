#include "sidereal/sys/posix/cpus.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <sstream>
#include <thread>

#include "sidereal/base/strings.h"
#include "sidereal/sys/posix/control_groups.h"

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

/// The quota that the files in a folder state; 0: none.
double quota_in(const GroupFolder& folder) {
  std::string quota, period;
  if (folder.unified) {
    std::istringstream(group_file(folder, "cpu.max")) >> quota >> period;
  } else {
    quota = group_file(folder, "cpu.cfs_quota_us");
    period = group_file(folder, "cpu.cfs_period_us");
  }
  const Result<int64_t> of = base::parse_int(base::trim(quota));  // "max" and -1: no limit.
  const Result<int64_t> in = base::parse_int(base::trim(period));
  if (!of.ok() || !in.ok() || *of <= 0 || *in <= 0) return 0;
  return static_cast<double>(*of) / static_cast<double>(*in);
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
  for (const GroupFolder& folder : control_group_folders("cpu", root)) {
    const double found = quota_in(folder);
    if (found > 0 && (smallest == 0 || found < smallest)) smallest = found;
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
