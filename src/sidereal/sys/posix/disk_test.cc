#include "sidereal/sys/disk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "sidereal/sys/posix/posix.h"

namespace sidereal::sys {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class PosixDiskTest : public ::testing::Test {
 protected:
  PosixDiskTest() {
    std::string place = ::testing::TempDir() + "disk_test.XXXXXX";
    directory_ = ::mkdtemp(place.data());
  }
  ~PosixDiskTest() override { std::filesystem::remove_all(directory_); }

  [[nodiscard]] std::string path(const std::string& name) const { return directory_ + "/" + name; }

  std::string directory_;
  std::shared_ptr<Disk> disk_ = posix::create_disk();
};

std::span<const std::byte> bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

TEST_F(PosixDiskTest, WritesWholeBlocksAndWhatIsNone) {
  auto* const blocks = static_cast<char*>(::aligned_alloc(kDiskBlock, 2 * kDiskBlock));
  std::memset(blocks, 'a', 2 * kDiskBlock);
  {
    const auto file = *disk_->create(path("f"));
    ASSERT_TRUE(file->write(0, bytes({blocks, 2 * kDiskBlock})).ok());
    ASSERT_TRUE(file->write(2 * kDiskBlock, bytes("end")).ok());
    ASSERT_TRUE(file->write(1, bytes("X")).ok());
    ASSERT_TRUE(file->sync().ok());
  }
  ::free(blocks);
  const std::string all = *read_file(disk_.get(), path("f"), 1 << 20);
  EXPECT_EQ(all.size(), 2 * kDiskBlock + 3);
  EXPECT_EQ(all.substr(0, 3), "aXa");
  EXPECT_TRUE(all.ends_with("aend"));
  EXPECT_EQ(read_file(disk_.get(), path("f"), 10).status().code(), StatusCode::kResourceExhausted);
}

TEST_F(PosixDiskTest, ReplacesAFileAtOnce) {
  ASSERT_TRUE(write_file_at_once(disk_.get(), path("f"), "one", 1).ok());
  ASSERT_TRUE(write_file_at_once(disk_.get(), path("f"), "two", 1).ok());
  EXPECT_EQ(*read_file(disk_.get(), path("f"), 10), "two");
  EXPECT_THAT(*disk_->list(directory_), ElementsAre("f"));
}

TEST_F(PosixDiskTest, ErrorsNameThePathAndWhatIsWrong) {
  const auto gone = disk_->open(path("no")).status();
  EXPECT_EQ(gone.code(), StatusCode::kNotFound);
  EXPECT_THAT(std::string(gone.message()), HasSubstr(path("no")));
  ASSERT_TRUE(disk_->create(path("f")).ok());
  EXPECT_EQ(disk_->create(path("f")).status().code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(disk_->create(path("f/g")).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(disk_->create("/proc/1/f").status().code(), StatusCode::kNotFound);
  std::array<std::byte, 4> to;
  EXPECT_EQ((*disk_->open(path("f")))->read(0, to).code(), StatusCode::kOutOfRange);
  EXPECT_EQ((*disk_->open(directory_))->size().status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(disk_->rename(path("no"), path("g")).code(), StatusCode::kNotFound);
  EXPECT_EQ(disk_->remove(path("no")).code(), StatusCode::kNotFound);
  ASSERT_TRUE(disk_->make_directories(path("a/b")).ok());
  ASSERT_TRUE(disk_->sync_directory(path("a/b")).ok());
  EXPECT_EQ(directory_of("a/b"), "a");
  EXPECT_EQ(directory_of("/b"), "/");
  EXPECT_EQ(directory_of("b"), ".");
}

}  // namespace
}  // namespace sidereal::sys
