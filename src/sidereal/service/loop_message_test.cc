#include "sidereal/service/loop_message.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

namespace sidereal::service {
namespace {

TEST(LoopProgress, OfPassesThatALoopDoesNotHaveIsRefused) {
  task::LoopOptions options;
  options.started.resize(2);
  options.epochs = 3;
  const auto is_taken = [&](int64_t pass, int64_t ended, int64_t steps) {
    session::v1::LoopProgress progress;
    progress.set_pass(pass);
    session::v1::LoopPassMean* const mean = progress.add_passes();
    mean->set_pass(ended);
    mean->set_steps(steps);
    return check_progress(progress, options).ok();
  };
  EXPECT_TRUE(is_taken(1, 0, 1));
  EXPECT_TRUE(is_taken(5, 4, 1));
  EXPECT_FALSE(is_taken(-1, 0, 1));
  EXPECT_FALSE(is_taken(6, 0, 1));
  EXPECT_FALSE(is_taken(1, -1, 1));
  EXPECT_FALSE(is_taken(1, std::numeric_limits<int64_t>::max(), 1));
  EXPECT_FALSE(is_taken(1, 0, 0));
  // Without an end.
  options.epochs = std::numeric_limits<int64_t>::max();
  EXPECT_TRUE(is_taken(int64_t{1} << 40, 0, 1));
  EXPECT_FALSE(is_taken(std::numeric_limits<int64_t>::min(), 0, 1));
}

TEST(LoopOptions, TellWhichReplicasLanesAre) {
  task::LoopOptions options;
  options.replica = "replica";
  options.first_replica = int64_t{3} << 32;
  session::v1::LoopHead head;
  to_proto(options, &head);
  const auto read = from_proto(head);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->replica, options.replica);
  EXPECT_EQ(read->first_replica, options.first_replica);
}

TEST(LoopProgress, OfLanesThatNoTaskHasIsRefused) {
  session::v1::LoopProgress progress;
  progress.set_lane(-1);
  EXPECT_FALSE(check_progress(progress, task::LoopOptions()).ok());
  progress.set_lane(1 << 20);
  EXPECT_FALSE(check_progress(progress, task::LoopOptions()).ok());
}

}  // namespace
}  // namespace sidereal::service
