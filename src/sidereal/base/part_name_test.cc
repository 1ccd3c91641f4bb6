#include "sidereal/base/part_name.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace sidereal::base {
namespace {

using Split = std::pair<std::string_view, int>;

TEST(PartNames, say_the_table_and_the_part) {
  EXPECT_EQ(split_part("w/part_3"), Split("w", 3));
  EXPECT_EQ(split_part(part_name("w", 3)), Split("w", 3));
  EXPECT_EQ(split_part("w/part_3/Adagrad"), Split("w", 3));
  EXPECT_EQ(split_part("a/part_1/w/part_12"), Split("a/part_1/w", 12));
  for (const char* const none : {"w", "", "w/part_", "w/part_x", "w/part_-1", "w/part_3x",
                                 "w/part_99999999999999", "/part_3", "w/part_3_1"}) {
    EXPECT_EQ(split_part(none), Split(none, 0));
  }
}

TEST(PartNames, say_what_is_behind_the_part) {
  const auto told = [](std::string_view name) -> std::string {
    const std::optional<Part> part = find_part(name);
    if (!part.has_value()) return "none";
    return fmt::format("{} {}{} {}", part->table, part->number, part->is_again ? " again" : "",
                       part->slot);
  };
  EXPECT_EQ(told("w/part_3"), "w 3 ");
  EXPECT_EQ(told("w/part_03"), "w 3 ");
  EXPECT_EQ(told("w/part_3_1"), "w 3 again ");
  EXPECT_EQ(told("w/part_3/Adagrad"), "w 3 /Adagrad");
  EXPECT_EQ(told("w/part_3_1/Adagrad"), "w 3 again /Adagrad");
  EXPECT_EQ(told("a/part_1/w/part_2147483647"), "a/part_1/w 2147483647 ");
  for (const char* const none :
       {"w/part_2147483648", "w/part_3_99999999999999", "w/part_3_", "w/part__1", "w/part_3_x",
        "w/part_3_1x", "w/part_3_-1", "w/part_-3", "w/part_+3", "/part_3", "part_3", ""}) {
    EXPECT_EQ(told(none), "none") << none;
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
