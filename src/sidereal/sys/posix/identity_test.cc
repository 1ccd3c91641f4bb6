#include "sidereal/sys/posix/identity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

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

}  // namespace
}  // namespace sidereal::sys::posix
