#include "sidereal/sys/sim/disk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>

namespace sidereal::sys::sim {
namespace {

using ::testing::ElementsAre;

std::span<const std::byte> bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

TEST(SimDiskTest, LosesWhatWasNotSynced) {
  std::set<std::string> found;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SimDisk disk(seed);
    const auto file = *disk.create("d/f");
    ASSERT_TRUE(file->write(0, bytes("one")).ok());
    ASSERT_TRUE(file->sync().ok());
    ASSERT_TRUE(disk.sync_directory("d").ok());
    ASSERT_TRUE(file->write(0, bytes("two")).ok());
    found.insert(*disk.restart()->contents("d/f"));
  }
  EXPECT_THAT(found, ElementsAre("one", "two"));
}

TEST(SimDiskTest, ARenameIsThereOrIsNot) {
  std::set<std::string> found;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SimDisk disk(seed);
    ASSERT_TRUE(write_file_at_once(&disk, "d/f", "old", 1).ok());
    const uint64_t before = disk.operations();
    disk.stop_after(before + seed % 8);
    const bool is_done = write_file_at_once(&disk, "d/f", "new", 2).ok();
    const std::string after = *disk.restart()->contents("d/f");
    if (is_done) {
      EXPECT_EQ(after, "new");
    }
    found.insert(after);
  }
  EXPECT_THAT(found, ElementsAre("new", "old"));
}

TEST(SimDiskTest, StopsAndIsFullAndFailsAsItIsTold) {
  SimDisk disk(1);
  const auto file = *disk.create("d/f");
  disk.set_capacity(4);
  EXPECT_EQ(file->write(0, bytes("12345")).code(), StatusCode::kResourceExhausted);
  ASSERT_TRUE(file->write(0, bytes("1234")).ok());
  EXPECT_TRUE(disk.damage("d/f", 1, 0x01));
  EXPECT_EQ(*disk.contents("d/f"), "1334");
  EXPECT_FALSE(disk.damage("d/f", 4, 0x01));
  disk.set_fault([](std::string_view operation, const std::string& path) {
    return operation == "sync" ? base::unavailable("cannot sync {}", path) : Status();
  });
  EXPECT_EQ(file->sync().code(), StatusCode::kUnavailable);
  disk.stop_after(disk.operations());
  EXPECT_EQ(file->write(0, bytes("1")).code(), StatusCode::kUnavailable);
  EXPECT_EQ(disk.open("d/f").status().code(), StatusCode::kUnavailable);
}

}  // namespace
}  // namespace sidereal::sys::sim
