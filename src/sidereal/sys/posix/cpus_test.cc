#include "sidereal/sys/posix/cpus.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace sidereal::sys::posix {
namespace {

/// Files of a system, below a folder that stands for "/".
class CpuQuota : public ::testing::Test {
 protected:
  CpuQuota() {
    std::string name = ::testing::TempDir() + "cpus_XXXXXX";
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  ~CpuQuota() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }

  std::string root_;
};

constexpr const char* kUnified =
    "24 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
    "31 24 0:27 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
constexpr const char* kSplit =
    "33 24 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "34 24 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n";

TEST_F(CpuQuota, is_none_where_nothing_is_said) {
  EXPECT_EQ(cpu_quota(root_), 0);
  write("/proc/self/cgroup", "0::/\n");
  write("/proc/self/mountinfo", kUnified);
  EXPECT_EQ(cpu_quota(root_), 0);
  write("/sys/fs/cgroup/cpu.max", "max 100000\n");
  EXPECT_EQ(cpu_quota(root_), 0);
}

TEST_F(CpuQuota, of_version_2_is_the_smallest_of_all_groups_around) {
  write("/proc/self/cgroup", "0::/a/b\n");
  write("/proc/self/mountinfo", kUnified);
  write("/sys/fs/cgroup/a/b/cpu.max", "400000 100000\n");
  EXPECT_EQ(cpu_quota(root_), 4);
  write("/sys/fs/cgroup/a/cpu.max", "150000 100000\n");
  EXPECT_EQ(cpu_quota(root_), 1.5);
}

TEST_F(CpuQuota, of_a_container_that_sees_its_group_as_the_root) {
  write("/proc/self/cgroup", "0::/pods/x\n");
  write("/proc/self/mountinfo", "31 24 0:27 /pods/x /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  write("/sys/fs/cgroup/cpu.max", "200000 100000\n");
  EXPECT_EQ(cpu_quota(root_), 2);
  // Or under a name that is not there at all.
  write("/proc/self/cgroup", "0::/../elsewhere\n");
  EXPECT_EQ(cpu_quota(root_), 2);
}

TEST_F(CpuQuota, of_version_1) {
  write("/proc/self/cgroup", "5:memory:/m\n3:cpu,cpuacct:/docker/x\n0::/\n");
  write("/proc/self/mountinfo", kSplit);
  write("/sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_quota_us", "50000\n");
  write("/sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cpu_quota(root_), 0.5);
  write("/sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(cpu_quota(root_), 0);
}

TEST_F(CpuQuota, is_none_where_nonsense_is_said) {
  write("/proc/self/cgroup", "\n:\n0::\nx:y\n");
  write("/proc/self/mountinfo", "- - -\n" + std::string(kUnified) + kSplit);
  write("/sys/fs/cgroup/cpu.max", "many 0\n");
  write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "100000000000000000000\n");
  EXPECT_EQ(cpu_quota(root_), 0);
}

TEST(UsableCpus, are_counted_whole_and_at_least_one) {
  EXPECT_EQ((UsableCpus{.cpus = {0, 1, 2, 3}}).count(), 4);
  EXPECT_EQ((UsableCpus{.cpus = {0, 1, 2, 3}, .quota = 2.9}).count(), 2);
  EXPECT_EQ((UsableCpus{.cpus = {0, 1}, .quota = 8}).count(), 2);
  EXPECT_EQ((UsableCpus{.cpus = {0, 1}, .quota = 0.2}).count(), 1);
  EXPECT_EQ(UsableCpus{}.count(), 1);
  EXPECT_EQ((UsableCpus{.cpus = {0, 1, 2, 5, 7, 8}, .quota = 1.5}).to_string(),
            "1 of 0-2,5,7-8 (quota 1.50)");
}

TEST(UsableCpus, of_this_process_are_those_it_runs_on) {
  const UsableCpus cpus = usable_cpus();
  ASSERT_FALSE(cpus.cpus.empty());
  EXPECT_GE(cpus.count(), 1);
  EXPECT_LE(cpus.count(), static_cast<int>(cpus.cpus.size()));
}

TEST(CpuClaim, leaves_to_others_what_is_not_claimed) {
  // Processors that no machine has, and no test beside this one.
  const int base = 100'000 + 10 * getpid();
  const std::vector<int> cpus = {base, base + 1, base + 2};
  auto first = CpuClaim::create(cpus, 2);
  EXPECT_EQ(first->cpus(), (std::vector<int>{base, base + 1}));
  const auto second = CpuClaim::create(cpus, 2);
  EXPECT_EQ(second->cpus(), (std::vector<int>{base + 2}));
  first = nullptr;
  EXPECT_EQ(CpuClaim::create(cpus, 3)->cpus(), (std::vector<int>{base, base + 1}));
}

}  // namespace
}  // namespace sidereal::sys::posix
