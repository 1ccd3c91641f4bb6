#include "sidereal/sys/posix/control_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "sidereal/base/strings.h"
#include "sidereal/sys/posix/process.h"

namespace sidereal::sys::posix {

namespace {

/// Where a hierarchy of control groups is mounted, and which of them is seen there.
struct Mount {
  std::string point;
  std::string group;
};

bool has_word(std::string_view list, std::string_view word) {
  const std::vector<std::string> words = base::split(list, ',');
  return std::find(words.begin(), words.end(), word) != words.end();
}

/// The mounts of "cgroup2", or of "cgroup" with the controller.
std::vector<Mount> mounts_of(const std::string& root, bool unified, std::string_view controller) {
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
    if (found != (unified ? "cgroup2" : "cgroup")) continue;
    if (!unified && !has_word(options, controller)) continue;
    out.push_back({.point = std::move(point), .group = std::move(group)});
  }
  return out;
}

/// The group of this process in the unified hierarchy, or in that of the controller.
std::string group_of(const std::string& root, bool unified, std::string_view controller) {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    // NUMBER:CONTROLLERS:GROUP
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string_view controllers =
        std::string_view(line).substr(first + 1, second - first - 1);
    const bool wanted = unified ? controllers.empty() : has_word(controllers, controller);
    if (wanted) return line.substr(second + 1);
  }
  return "/";
}

}  // namespace

std::vector<GroupFolder> control_group_folders(std::string_view controller,
                                               const std::string& root) {
  std::vector<GroupFolder> out;
  for (const bool unified : {true, false}) {
    for (const Mount& mount : mounts_of(root, unified, controller)) {
      std::string group = group_of(root, unified, controller);
      // A container may see its own group as the mount's root, though its name is the host's.
      if (mount.group != "/" && group.starts_with(mount.group)) group.erase(0, mount.group.size());
      while (true) {
        out.push_back(
            {.path = fmt::format("{}{}{}", root, mount.point, group), .unified = unified});
        const size_t slash = group.rfind('/');
        if (slash == std::string::npos) break;
        group.resize(slash);
      }
    }
  }
  return out;
}

std::string group_file(const GroupFolder& folder, const std::string& name) {
  std::string text;
  std::ifstream file(folder.path + "/" + name);
  std::getline(file, text);
  return text;
}

int64_t memory_limit(const std::string& root) {
  // Version 1 has a number for "no limit": the largest that is a multiple of a page.
  constexpr int64_t kNoLimit = int64_t{1} << 60;
  int64_t smallest = 0;
  for (const GroupFolder& folder : control_group_folders("memory", root)) {
    const std::string text =
        group_file(folder, folder.unified ? "memory.max" : "memory.limit_in_bytes");
    const Result<int64_t> limit = base::parse_int(base::trim(text));
    if (!limit.ok() || *limit <= 0 || *limit >= kNoLimit) continue;
    if (smallest == 0 || *limit < smallest) smallest = *limit;
  }
  return smallest;
}

int64_t usable_memory() {
  const int64_t limit = memory_limit();
  return limit == 0 ? machine_memory() : std::min(limit, machine_memory());
}

int64_t memory_kills(const std::string& root) {
  int64_t most = 0;
  for (const GroupFolder& folder : control_group_folders("memory", root)) {
    std::ifstream file(folder.path + (folder.unified ? "/memory.events" : "/memory.oom_control"));
    std::string name;
    int64_t count = 0;
    while (file >> name >> count) {
      // Groups around count those within, too.
      if (name == "oom_kill") most = std::max(most, count);
    }
  }
  return most;
}

}  // namespace sidereal::sys::posix
