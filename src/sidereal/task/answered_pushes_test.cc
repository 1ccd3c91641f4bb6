#include "sidereal/task/answered_pushes.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace sidereal::task {
namespace {

TEST(AnsweredPushes, what_is_latest_of_each_lane_stays) {
  AnsweredPushes of_one;
  AnsweredPushes of_other;
  const resources::PushedSoFar first = {.life = 7, .lane = 0, .number = 5, .pushes = 5, .rows = 50};
  const resources::PushedSoFar later = {.life = 7, .lane = 0, .number = 6, .pushes = 3, .rows = 30};
  const resources::PushedSoFar elsewhere = {
      .life = 7, .lane = 1, .number = 1, .pushes = 1, .rows = 0};
  of_one.note({&later, 1});
  of_one.note({&first, 1});  // It came late.
  of_other.note({&first, 1});
  of_other.note({&elsewhere, 1});
  AnsweredPushes all;
  of_one.add_to(&all);
  of_other.add_to(&all);
  int64_t pushes = 0;
  int64_t rows = 0;
  for (const resources::PushedSoFar& one : all.latest()) {
    EXPECT_EQ(one.life, 7U);
    pushes += one.pushes;
    rows += one.rows;
  }
  EXPECT_EQ(pushes, 4);
  EXPECT_EQ(rows, 30);
}

TEST(AnsweredPushes, bytes_are_read_as_they_were_written_and_no_others) {
  Pushed pushed;
  std::string bytes = "of before";
  encode_pushed(pushed, &bytes);
  EXPECT_EQ(bytes, "");
  pushed.push_back({.life = 1, .lane = 2, .number = 3, .pushes = 4, .rows = 5});
  pushed.push_back({.life = 1, .lane = 255, .number = 6, .pushes = 7, .rows = 8});
  encode_pushed(pushed, &bytes);
  const std::string with_tail = bytes + "tail";
  std::string_view left = with_tail;
  Pushed read;
  ASSERT_TRUE(take_pushed(&left, &read).ok());
  EXPECT_EQ(left, "tail");
  ASSERT_EQ(read.size(), 2U);
  EXPECT_EQ(read[1].lane, 255);
  EXPECT_EQ(read[1].rows, 8);
  left = "tail";
  ASSERT_TRUE(take_pushed(&left, &read).ok());
  EXPECT_EQ(left, "tail");
  EXPECT_TRUE(read.empty());
  for (size_t i = 1; i < bytes.size(); ++i) {
    left = std::string_view(bytes).substr(0, i);
    EXPECT_EQ(take_pushed(&left, &read).code(), StatusCode::kDataLoss) << i;
  }
  std::string wrong = bytes;
  wrong[1] = 3;
  left = wrong;
  EXPECT_EQ(take_pushed(&left, &read).code(), StatusCode::kDataLoss);
}

}  // namespace
}  // namespace sidereal::task
