#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace sidereal::sys::posix {

/// The processors that this process may really use. Value type.
struct UsableCpus {
  std::vector<int> cpus;  ///< Those its threads may run on (affinity, cpuset); ascending.
  double quota = 0;       ///< Processors whose time its control groups allow it; 0: no limit.

  /// How many threads can work at a time, at least 1; of a quota of 2.5, 2.
  [[nodiscard]] int count() const;
  /// "2 of 0-1,4", or "1 of 0-1 (quota 1.50)".
  [[nodiscard]] std::string to_string() const;
};

/// Asks the system now; where it cannot be asked, what is known. Thread: any.
UsableCpus usable_cpus();

/// The smallest quota among a process's control groups and those around them, in processors; 0:
/// none. Version 2 and version 1 are known. `root` is a folder that stands for "/". Thread: any.
/// Source: cgroups(7), cpu.max and cpu.cfs_quota_us.
double cpu_quota(const std::string& root = "");

/// "0-3,8" of 0, 1, 2, 3, 8.
std::string cpu_list(const std::vector<int>& cpus);

/// Processors that nobody else on this machine pins threads to. Processes of other network
/// namespaces are not seen.
/// Lifecycle: they are free again when it, or its process, ends.
/// Thread:    any.
class CpuClaim {
 public:
  /// The first `count` of `cpus` that are free; fewer, when fewer are.
  static std::unique_ptr<CpuClaim> create(const std::vector<int>& cpus, int count);
  ~CpuClaim();
  CpuClaim(const CpuClaim&) = delete;
  CpuClaim& operator=(const CpuClaim&) = delete;

  [[nodiscard]] const std::vector<int>& cpus() const { return cpus_; }

 private:
  CpuClaim() = default;
  std::vector<int> cpus_;
  std::vector<int> sockets_;
};

}  // namespace sidereal::sys::posix
