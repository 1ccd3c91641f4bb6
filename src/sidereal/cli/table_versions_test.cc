#include "sidereal/cli/table_versions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace sidereal::cli {
namespace {

namespace fs = std::filesystem;
using tensor::Shape;
using tensor::Tensor;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TableVersionsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(folder_);
    fs::create_directory(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  /// With a table whose elements are `value`.
  Result<WrittenVersion> write(float value, int keep = 3) {
    return write_version(folder_, {{"t", Tensor::of<float>(Shape{1, 1}, {value})}}, keep);
  }
  /// The element that is in tables.safetensors, which is its end.
  [[nodiscard]] float current() const {
    std::ifstream file(table_file(folder_), std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    float out = -1;
    if (bytes.size() < sizeof(out)) return out;
    std::memcpy(&out, bytes.data() + bytes.size() - sizeof(out), sizeof(out));
    return out;
  }

  const std::string folder_ = (fs::path(::testing::TempDir()) /
                               ::testing::UnitTest::GetInstance()->current_test_info()->name())
                                  .string();
};

TEST_F(TableVersionsTest, TheLastOnesAreKept) {
  for (int i = 1; i <= 5; ++i) {
    const Result<WrittenVersion> written = write(static_cast<float>(i));
    ASSERT_TRUE(written.ok()) << written.status();
    EXPECT_EQ(written->number, i);
    EXPECT_EQ(written->current, i);
    EXPECT_EQ(current(), static_cast<float>(i));
  }
  EXPECT_THAT(*versions_in(folder_), ElementsAre(3, 4, 5));
}

TEST_F(TableVersionsTest, AFolderIsRolledBackAndStaysSo) {
  for (int i = 1; i <= 4; ++i) ASSERT_TRUE(write(static_cast<float>(i), 4).ok());
  EXPECT_EQ(*roll_back(folder_, {}), 3);
  EXPECT_EQ(*roll_back(folder_, {}), 2);
  EXPECT_EQ(current(), 2);
  for (int i = 5; i <= 8; ++i) {
    const Result<WrittenVersion> written = write(static_cast<float>(i), 2);
    ASSERT_TRUE(written.ok()) << written.status();
    EXPECT_EQ(written->current, 2);
  }
  EXPECT_EQ(current(), 2);
  EXPECT_THAT(*versions_in(folder_), ElementsAre(2, 7, 8));
  // The latest one ends that.
  EXPECT_EQ(*roll_back(folder_, 8), 8);
  EXPECT_EQ(write(9)->current, 9);
  EXPECT_EQ(current(), 9);
}

TEST_F(TableVersionsTest, WhatThereIsNotIsNamed) {
  EXPECT_THAT(base::message_of(roll_back(folder_, {}).status()), HasSubstr("--keep N"));
  ASSERT_TRUE(write(1).ok());
  ASSERT_TRUE(write(2).ok());
  EXPECT_THAT(base::message_of(roll_back(folder_, 7).status()),
              HasSubstr("no version 7; there are: 1, 2"));
  EXPECT_EQ(*roll_back(folder_, {}), 1);
  EXPECT_EQ(roll_back(folder_, {}).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(current(), 1);
}

TEST_F(TableVersionsTest, AFileWithoutVersionsBecomesALink) {
  std::ofstream(table_file(folder_)) << "what was there";
  ASSERT_TRUE(write(1).ok());
  EXPECT_EQ(current(), 1);
  EXPECT_TRUE(fs::is_symlink(table_file(folder_)));
}

}  // namespace
}  // namespace sidereal::cli
