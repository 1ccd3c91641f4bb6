#include "sidereal/train/fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "sidereal/app/cluster.h"

namespace sidereal::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class AFit : public ::testing::Test {
 protected:
  AFit() {
    options_.restores = true;
    options_.checkpoints.directory = "somewhere";
    options_.losses_max = 2;
    options_.on_message = [this](base::LogLevel, const std::string& text) {
      told_.push_back(text);
    };
  }

  const data::DataSpec data_;
  FitOptions options_;
  std::vector<std::string> told_;
  Fit fit_{nullptr, data_, options_, nullptr};
  const Status lost_ = base::unavailable("/job:ps/task:1 is gone");
};

TEST_F(AFit, ends_when_tasks_are_lost_again_and_again_without_a_checkpoint) {
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(fit_.count_loss(lost_).ok()) << i;
  ++fit_.result.checkpoints.saved;
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(fit_.count_loss(lost_).ok()) << i;
  const Status enough = fit_.count_loss(lost_);
  EXPECT_EQ(enough.code(), StatusCode::kUnavailable);
  EXPECT_THAT(base::message_of(enough), HasSubstr("lost 3 times"));
  EXPECT_THAT(base::message_of(enough), HasSubstr("/job:ps/task:1"));
  ASSERT_EQ(told_.size(), 4U);
  EXPECT_THAT(told_[0], HasSubstr("/job:ps/task:1 is gone"));
}

TEST_F(AFit, goes_back_with_all_that_it_counts) {
  TrainingState state;
  state.steps = 40;
  state.rows = 400;
  fit_.stands_at(state);
  fit_.result.losses = {3, 2};
  fit_.result.updates = 40;
  fit_.mark();
  // What came after is not counted, and neither is what nobody has marked.
  fit_.result.losses = {3, 2, 1};
  fit_.result.updates = 50;
  fit_.go_back(state, "somewhere/model.ckpt-40", {"/job:ps/replica:0/task:1"});
  EXPECT_THAT(fit_.result.losses, ElementsAre(3, 2));
  EXPECT_EQ(fit_.result.updates, 40);
  state.steps = 30;
  state.rows = 300;
  fit_.go_back(state, "", {});
  EXPECT_THAT(fit_.result.losses, ElementsAre());
  EXPECT_EQ(fit_.result.checkpoints.recoveries, 2);
  EXPECT_EQ(fit_.result.checkpoints.rows_again, 100);
  ASSERT_EQ(told_.size(), 2U);
  EXPECT_THAT(told_[0], HasSubstr("/job:ps/replica:0/task:1 was lost and started again: all "
                                  "variables are as in somewhere/model.ckpt-40 after"));
  EXPECT_THAT(told_[1], HasSubstr("100 rows in 10 steps since then are trained again, 0 rows are "
                                  "lost"));
}

TEST_F(AFit, that_recovers_needs_checkpoints_and_a_cluster_that_starts_tasks_again) {
  cluster::ClusterSpec spec;
  ASSERT_TRUE(spec.add_job("ps", std::vector<std::string>{"a:1"}).ok());
  ASSERT_TRUE(spec.add_job("worker", std::vector<std::string>{"b:1"}).ok());
  const auto cluster = app::remote_cluster(spec, {});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_TRUE(check_recovery(options_, **cluster).ok());
  FitOptions without = options_;
  without.checkpoints.directory = "";
  EXPECT_THAT(base::message_of(check_recovery(without, **cluster)), HasSubstr("directory"));
  without.restores = false;
  EXPECT_TRUE(check_recovery(without, **cluster).ok());
  for (const double wrong : {0.0, -1.0, std::nan("")}) {
    FitOptions other = options_;
    other.restart_timeout_s = wrong;
    EXPECT_EQ(check_recovery(other, **cluster).code(), StatusCode::kInvalidArgument) << wrong;
  }
  FitOptions never = options_;
  never.losses_max = 0;
  EXPECT_EQ(check_recovery(never, **cluster).code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace sidereal::train
