#include "sidereal/sys/posix/control_groups.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace sidereal::sys::posix {
namespace {

/// Files of a system, below a folder that stands for "/".
class ControlGroups : public ::testing::Test {
 protected:
  ControlGroups() {
    std::string name = ::testing::TempDir() + "groups_XXXXXX";
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  ~ControlGroups() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }

  std::string root_;
};

constexpr const char* kUnified =
    "31 24 0:27 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
constexpr const char* kSplit =
    "33 24 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "34 24 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n";

TEST_F(ControlGroups, LimitNothingWhereNothingIsSaid) {
  EXPECT_EQ(memory_limit(root_), 0);
  EXPECT_EQ(memory_kills(root_), 0);
  write("/proc/self/cgroup", "0::/\n");
  write("/proc/self/mountinfo", kUnified);
  write("/sys/fs/cgroup/memory.max", "max\n");
  EXPECT_EQ(memory_limit(root_), 0);
}

TEST_F(ControlGroups, TheSmallestLimitOfAllAroundCounts) {
  write("/proc/self/cgroup", "0::/a/b\n");
  write("/proc/self/mountinfo", kUnified);
  write("/sys/fs/cgroup/a/b/memory.max", "900000000\n");
  EXPECT_EQ(memory_limit(root_), 900'000'000);
  write("/sys/fs/cgroup/a/memory.max", "600000000\n");
  EXPECT_EQ(memory_limit(root_), 600'000'000);
}

TEST_F(ControlGroups, KillsAreCounted) {
  write("/proc/self/cgroup", "0::/a/b\n");
  write("/proc/self/mountinfo", kUnified);
  write("/sys/fs/cgroup/a/b/memory.events", "low 0\nhigh 7\nmax 3\noom 2\noom_kill 2\n");
  EXPECT_EQ(memory_kills(root_), 2);
  write("/sys/fs/cgroup/a/memory.events", "oom 3\noom_kill 3\n");
  EXPECT_EQ(memory_kills(root_), 3);
}

TEST_F(ControlGroups, Version1HasNamesOfItsOwn) {
  write("/proc/self/cgroup", "5:memory:/m\n3:cpu,cpuacct:/docker/x\n0::/\n");
  write("/proc/self/mountinfo", kSplit);
  write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(memory_limit(root_), 0);
  write("/sys/fs/cgroup/memory/m/memory.limit_in_bytes", "629145600\n");
  write("/sys/fs/cgroup/memory/m/memory.oom_control", "oom_kill_disable 0\noom_kill 4\n");
  EXPECT_EQ(memory_limit(root_), 629'145'600);
  EXPECT_EQ(memory_kills(root_), 4);
}

}  // namespace
}  // namespace sidereal::sys::posix
