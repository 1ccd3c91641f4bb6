#include "sidereal/sys/posix/event_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace sidereal::sys::posix {
namespace {

namespace fs = std::filesystem;

class EventFileTest : public ::testing::Test {
 protected:
  EventFileTest() {
    std::string pattern = ::testing::TempDir() + "events-XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
  }
  ~EventFileTest() override { fs::remove_all(folder_); }

  [[nodiscard]] std::string path(const std::string& name) const { return folder_ + "/" + name; }
  [[nodiscard]] std::string read(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(path(name)).rdbuf();
    return std::move(text).str();
  }

  std::string folder_;
};

TEST_F(EventFileTest, HasLinesOfAllThatWriteToIt) {
  EventFile one(path("a"));
  EventFile other(path("a"));
  EXPECT_TRUE(one.append("1\n"));
  EXPECT_TRUE(other.append("2\n"));
  EXPECT_TRUE(one.append("3\n"));
  EXPECT_EQ(read("a"), "1\n2\n3\n");
}

TEST_F(EventFileTest, IsPutAsideWhenItIsFull) {
  EventFile file(path("a"), 10);
  for (const char* line : {"one\n", "two\n", "three\n", "four\n", "five\n"}) {
    EXPECT_TRUE(file.append(line));
  }
  EXPECT_EQ(read("a"), "four\nfive\n");
  EXPECT_EQ(read("a.1"), "three\n");
  EXPECT_TRUE(file.append("a line that is longer\n"));
  EXPECT_EQ(read("a"), "a line that is longer\n");
}

TEST_F(EventFileTest, IsTriedAgainWithEachLine) {
  EventFile file(path("folder/a"));
  EXPECT_FALSE(file.append("1\n"));
  EXPECT_FALSE(file.append("2\n"));
  EXPECT_EQ(file.lost(), 2);
  fs::create_directory(path("folder"));
  EXPECT_TRUE(file.append("3\n"));
  EXPECT_EQ(read("folder/a"), "3\n");
  EXPECT_EQ(file.lost(), 2);
}

TEST_F(EventFileTest, HasNoHalfLineOfAFullDisk) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    // What a disk does that has room for five bytes.
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {.rlim_cur = 5, .rlim_max = RLIM_INFINITY};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    EventFile file(path("a"));
    const bool is_first = file.append("one\n");
    const bool is_second = file.append("two\n");
    const rlimit more = {.rlim_cur = 100, .rlim_max = RLIM_INFINITY};
    ::setrlimit(RLIMIT_FSIZE, &more);
    const bool is_third = file.append("three\n");
    ::_exit(is_first && !is_second && is_third && file.lost() == 1 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(read("a"), "one\nthree\n");
}

TEST_F(EventFileTest, HasWhatAProcessToldThatIsKilled) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto writes = write_events(path("a"));
    base::emit({.task = "x", .logs = false}, base::Event::kTaskUp, {{"target", "y"}});
    ::kill(::getpid(), SIGKILL);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_THAT(read("a"), ::testing::EndsWith("\"fields\":{\"target\":\"y\"}}\n"));
}

TEST_F(EventFileTest, IsNamedByMember) {
  EXPECT_EQ(event_file("logs", "ps-0"), "logs/ps-0.events.jsonl");
  EXPECT_EQ(write_events(""), nullptr);
}

}  // namespace
}  // namespace sidereal::sys::posix
