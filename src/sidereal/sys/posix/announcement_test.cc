#include "sidereal/sys/posix/announcement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>

namespace sidereal::sys::posix {
namespace {

using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

const std::string kKind = "sidereal-test-" + std::to_string(::getpid());

TEST(Announcement, IsFoundAsLongAsItIsThere) {
  EXPECT_THAT(announced(kKind), IsEmpty());
  {
    const auto one = Announcement::create(kKind, "one\nand more");
    const auto two = Announcement::create(kKind, "two");
    ASSERT_NE(one, nullptr);
    EXPECT_THAT(announced(kKind), UnorderedElementsAre("one\nand more", "two"));
    EXPECT_THAT(announced(kKind + "x"), IsEmpty());
  }
  EXPECT_THAT(announced(kKind), IsEmpty());
}

TEST(Announcement, GoesWithAProcessThatIsKilled) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto text = Announcement::create(kKind, "of a child");
    const bool told = text != nullptr && ::write(ready[1], "x", 1) == 1;
    while (told) ::pause();
    ::_exit(1);
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_THAT(announced(kKind), UnorderedElementsAre("of a child"));
  ::kill(child, SIGKILL);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_THAT(announced(kKind), IsEmpty());
  ::close(ready[0]);
  ::close(ready[1]);
}

}  // namespace
}  // namespace sidereal::sys::posix
