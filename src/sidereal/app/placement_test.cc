#include "sidereal/master/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sidereal/app/testing/model.h"
#include "sidereal/passes/placement_report.h"

namespace sidereal::app {
namespace {

using ::testing::HasSubstr;

cluster::ClusterSpec two_jobs() {
  cluster::ClusterSpec cluster;
  EXPECT_TRUE(cluster.add_job("ps", std::vector<std::string>{"p0:1", "p1:1"}).ok());
  EXPECT_TRUE(cluster.add_job("worker", std::vector<std::string>{"w0:1"}).ok());
  return cluster;
}

TEST(Placement, is_that_of_a_session_without_asking_anybody) {
  ir::OpRegistry registry;
  ops::register_all(&registry);
  Model model;
  model.constant({1}, "there", "/job:ps/task:1");
  model.constant({1}, "open");
  auto placed = master::place_on_cluster(model.graph(), two_jobs(), {}, registry);
  ASSERT_TRUE(placed.ok()) << placed.status();
  EXPECT_EQ(master::placement_lines(*placed),
            "there: (Const): /job:ps/replica:0/task:1/device:CPU:0\n"
            "open: (Const): /job:ps/replica:0/task:0/device:CPU:0\n");
  placed = master::place_on_cluster(model.graph(), two_jobs(), {.master = "/job:worker/task:0"},
                                    registry);
  ASSERT_TRUE(placed.ok()) << placed.status();
  EXPECT_EQ(master::placement_lines(*placed, 1),
            "open: (Const): /job:worker/replica:0/task:0/device:CPU:0\n");
  EXPECT_EQ(passes::placement_report(*placed).tasks.size(), 2);
}

TEST(Placement, says_what_cannot_be_placed) {
  ir::OpRegistry registry;
  ops::register_all(&registry);
  Model model;
  model.constant({1}, "there", "/job:ps/task:7");
  const auto message = [&](const cluster::ClusterSpec& cluster,
                           const master::PlacementOptions& options) {
    return base::message_of(
        master::place_on_cluster(model.graph(), cluster, options, registry).status());
  };
  EXPECT_THAT(message(two_jobs(), {}), HasSubstr("available devices are"));
  EXPECT_THAT(message(two_jobs(), {.master = "/job:chief"}), HasSubstr("/job:chief"));
  EXPECT_THAT(message({}, {}), HasSubstr("no tasks"));
}

}  // namespace
}  // namespace sidereal::app
