#include "sidereal/cluster/task_name.h"

#include <gtest/gtest.h>

namespace sidereal::cluster {
namespace {

TEST(TaskName, is_that_of_TensorFlow_and_is_read_back) {
  EXPECT_EQ(task_name("ps", 12), "/job:ps/replica:0/task:12");
  const auto read = parse_task_name(task_name("ps", 12));
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->job, "ps");
  EXPECT_EQ(read->index, 12);
}

TEST(TaskName, is_not_read_from_what_is_none) {
  for (const char* text : {"", "ps", "/job:ps", "/job:/replica:0/task:1", "/job:ps/replica:0/task:",
                           "/job:ps/replica:0/task:x", "/job:ps/replica:0/task:-1",
                           "/job:ps/replica:0/task:1/device:CPU:0", "/job:ps/replica:1/task:1"}) {
    EXPECT_FALSE(parse_task_name(text).has_value()) << text;
  }
}

TEST(TaskName, is_what_a_device_name_begins_with) {
  EXPECT_EQ(task_of("/job:ps/replica:0/task:1/device:CPU:0"), "/job:ps/replica:0/task:1");
  EXPECT_EQ(task_of("/job:ps/replica:0/task:1"), "/job:ps/replica:0/task:1");
}

}  // namespace
}  // namespace sidereal::cluster
