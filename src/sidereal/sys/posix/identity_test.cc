#include "sidereal/sys/posix/identity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sidereal/sys/posix/process.h"

namespace sidereal::sys::posix {
namespace {

TEST(Identity, is_that_of_this_process) {
  const Identity me = identity();
  EXPECT_FALSE(me.user.empty());
  EXPECT_FALSE(me.host.empty());
  EXPECT_EQ(me.pid, ::getpid());
  EXPECT_THAT(me.program, ::testing::HasSubstr("sys_test"));
  EXPECT_EQ(me.program.find_first_of(std::string("\0\n", 2)), std::string::npos);
}

TEST(ProcessMark, tells_whether_a_process_has_ended) {
  const ProcessMark own = own_mark();
  EXPECT_FALSE(own.machine.empty());
  EXPECT_EQ(own.pid, ::getpid());
  EXPECT_GT(own.started, 0);
  EXPECT_FALSE(has_ended(own));
  ProcessMark other = own;
  ++other.started;
  EXPECT_TRUE(has_ended(other)) << "the pid is another one's by now";
  other = own;
  other.machine += "x";
  other.pid = 1 << 30;
  EXPECT_FALSE(has_ended(other)) << "who knows";
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  ProcessMark mark = own;
  mark.pid = child;
  mark.started = 1;
  EXPECT_TRUE(has_ended(mark)) << "it began later than that";
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  siginfo_t info;
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_TRUE(has_ended(mark)) << "nobody has asked how it ended yet";
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(has_ended(mark));
}

}  // namespace
}  // namespace sidereal::sys::posix
