#include "sidereal/task/recent_ids.h"

#include <gtest/gtest.h>

namespace sidereal::task {
namespace {

TEST(RecentIds, zero_is_always_accepted) {
  RecentIds ids(1);
  EXPECT_TRUE(ids.add(0));
  EXPECT_TRUE(ids.add(0));
}

TEST(RecentIds, a_repeated_number_is_rejected) {
  RecentIds ids(3);
  EXPECT_TRUE(ids.add(7));
  EXPECT_FALSE(ids.add(7));
  EXPECT_TRUE(ids.add(8));
  EXPECT_FALSE(ids.add(7));
}

TEST(RecentIds, with_room_for_six_the_seventh_evicts_the_first) {
  RecentIds ids(6);
  for (uint64_t id = 1; id <= 6; ++id) EXPECT_TRUE(ids.add(id));
  for (uint64_t id = 1; id <= 6; ++id) EXPECT_FALSE(ids.add(id));
  EXPECT_TRUE(ids.add(7));
  EXPECT_TRUE(ids.add(1));
  EXPECT_FALSE(ids.add(7));
}

}  // namespace
}  // namespace sidereal::task
