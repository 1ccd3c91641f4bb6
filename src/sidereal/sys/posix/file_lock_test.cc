#include "sidereal/sys/posix/file_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace sidereal::sys::posix {
namespace {

using ::testing::HasSubstr;

class AFileLock : public ::testing::Test {
 protected:
  AFileLock() : path_(::testing::TempDir() + fmt::format("/file_lock_{}", ::getpid())) {
    std::filesystem::remove(path_);
  }
  ~AFileLock() override { std::filesystem::remove(path_); }

  const std::string path_;
};

TEST_F(AFileLock, is_had_by_one_at_a_time) {
  auto first = FileLock::take(path_);
  ASSERT_TRUE(first.ok()) << first.status();
  const Status refused = FileLock::take(path_).status();
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(base::message_of(refused), HasSubstr(fmt::format("process {} on ", ::getpid())));
  EXPECT_THAT(base::message_of(refused), HasSubstr("another directory"));
  first->reset();
  const auto second = FileLock::take(path_);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ((*second)->left_note(), "");
}

TEST_F(AFileLock, of_a_process_that_was_killed_is_free_and_has_its_note) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto lock = FileLock::take(path_);
    const bool noted = lock.ok() && (*lock)->note("saving model.ckpt-7").ok();
    ::_exit(noted ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  const auto lock = FileLock::take(path_);
  ASSERT_TRUE(lock.ok()) << lock.status();
  EXPECT_EQ((*lock)->left_note(), "saving model.ckpt-7");
}

TEST_F(AFileLock, of_another_host_is_not_taken) {
  std::ofstream(path_) << "process 12 on elsewhere\n";
  const Status refused = FileLock::take(path_).status();
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(base::message_of(refused), HasSubstr("process 12 on elsewhere"));
  EXPECT_THAT(base::message_of(refused), HasSubstr("remove the file"));
}

}  // namespace
}  // namespace sidereal::sys::posix
