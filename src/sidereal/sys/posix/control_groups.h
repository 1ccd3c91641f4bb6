#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sidereal::sys::posix {

/// A folder of one of this process's control groups. Value type.
struct GroupFolder {
  std::string path;
  bool unified = true;  ///< Version 2 of control groups; else version 1.
};

/// The folders that have the files of `controller` ("cpu", "memory"): those of this process's group
/// and of the groups around it, in both versions. `root` stands for "/". Thread: any.
/// Source: cgroups(7).
std::vector<GroupFolder> control_group_folders(std::string_view controller,
                                               const std::string& root = "");

/// The text of a file in such a folder, its first line; "" where there is none.
std::string group_file(const GroupFolder& folder, const std::string& name);

/// How much memory the control groups of this process allow it, in bytes; 0: no limit. `root` as
/// above. Thread: any.
int64_t memory_limit(const std::string& root = "");

/// How much memory this process could have: the machine's, or less by its control groups. In bytes.
/// Thread: any.
int64_t usable_memory();

/// How many processes of these groups the kernel has killed because their memory was used up.
/// Thread: any. Source: memory.events of version 2, memory.oom_control of version 1.
int64_t memory_kills(const std::string& root = "");

}  // namespace sidereal::sys::posix
