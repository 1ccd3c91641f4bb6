#include "sidereal/base/part_name.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace sidereal::base {
namespace {

using Part = std::pair<std::string_view, int>;

TEST(PartNames, say_the_table_and_the_part) {
  EXPECT_EQ(split_part("w/part_3"), Part("w", 3));
  EXPECT_EQ(split_part(part_name("w", 3)), Part("w", 3));
  EXPECT_EQ(split_part("w/part_3/Adagrad"), Part("w", 3));
  EXPECT_EQ(split_part("a/part_1/w/part_12"), Part("a/part_1/w", 12));
  for (const char* const none :
       {"w", "", "w/part_", "w/part_x", "w/part_-1", "w/part_3x", "w/part_99999999999999"}) {
    EXPECT_EQ(split_part(none), Part(none, 0));
  }
}

TEST(PartNames, share_the_lanes_of_a_task_evenly) {
  for (const int tasks : {1, 2, 3}) {
    std::vector<int> of_lane(4);
    for (int k = 0; k < 12; ++k) {
      // Those of the first task, when they go round robin.
      const std::string name = "w/part_" + std::to_string(k * tasks);
      ++of_lane[static_cast<size_t>(lane_of_name(name, 4, tasks))];
      EXPECT_EQ(lane_of_name(name, 4, tasks), lane_of_name(name + "/Adam", 4, tasks));
    }
    EXPECT_EQ(of_lane, std::vector<int>(4, 3));
  }
}

}  // namespace
}  // namespace sidereal::base
