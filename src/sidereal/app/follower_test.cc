#include "sidereal/service/follower.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sidereal/app/testing/model.h"
#include "sidereal/app/testing/processes.h"
#include "sidereal/resources/replica.h"

namespace sidereal::app {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

/// Of a cluster that has no tables.
std::unique_ptr<service::Follower> follower_of(const TestCluster& cluster) {
  service::FollowOptions options;
  options.cut = milliseconds(1);
  options.tables = {"table"};
  const std::string target = cluster.target();
  auto follower = service::Follower::create(
      {{.task = "/job:w/replica:0/task:0", .address = target.substr(target.find("//") + 2)}},
      cluster.options().security, options);
  EXPECT_TRUE(follower.ok()) << follower.status();
  return follower.ok() ? *std::move(follower) : nullptr;
}

TEST(Followers, wait_for_a_table_without_asking_for_it_all_the_time) {
  const TestCluster cluster(1);
  const auto follower = follower_of(cluster);
  ASSERT_NE(follower, nullptr);
  ASSERT_EQ(
      follower
          ->wait_until_current(milliseconds(20'000), [&] { return follower->tasks()[0].is_whole; })
          .code(),
      StatusCode::kCancelled);
  int asked = 0;
  const Status status = follower->wait_until_current(milliseconds(1000), [&] {
    ++asked;
    return false;
  });
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(base::message_of(status), HasSubstr("'table'"));
  EXPECT_LE(asked, 30) << "ten times a second are enough";
}

TEST(Followers, hold_a_copy_for_another_start_and_follow_the_first_no_more) {
  const TestCluster cluster(1);
  const std::string target = cluster.target();
  auto made = service::Follower::create(
      {{.task = "/job:w/replica:0/task:0", .address = target.substr(target.find("//") + 2)}},
      cluster.options().security, {.cut = milliseconds(1), .is_synchronous = true});
  ASSERT_TRUE(made.ok()) << made.status();
  service::Follower& follower = **made;
  ASSERT_TRUE(follower.wait_until_current(milliseconds(60'000)).ok());
  EXPECT_TRUE(follower.tasks()[0].is_in_sync);
  {
    const auto held = follower.hold(/*life=*/1);
    EXPECT_TRUE(held->is_whole());
    resources::Replica copy(1 << 20);
    while (const std::optional<std::string> piece = held->next(1 << 10)) {
      EXPECT_TRUE(copy.apply(*piece).ok());
    }
    EXPECT_TRUE(copy.position(0).has_value());
    EXPECT_FALSE(follower.tasks()[0].is_in_sync);
  }
  // It asks again, and finds the same start.
  EXPECT_TRUE(
      eventually([&] { return follower.tasks()[0].status.code() == StatusCode::kAborted; }, 60));
  EXPECT_FALSE(follower.tasks()[0].is_in_sync);
}

TEST(Followers, know_which_start_deposed_which_also_of_those_that_were_never_followed) {
  const TestCluster cluster(1);
  const auto follower = follower_of(cluster);
  ASSERT_NE(follower, nullptr);
  static_cast<void>(follower->hold(/*life=*/11));
  EXPECT_EQ(follower->deposed_by(11), 0U);
  static_cast<void>(follower->hold(/*life=*/12));
  EXPECT_EQ(follower->deposed_by(11), 12U);
  EXPECT_EQ(follower->deposed_by(12), 0U);
  // The last one that asks has it.
  static_cast<void>(follower->hold(/*life=*/11));
  EXPECT_EQ(follower->deposed_by(12), 11U);
  EXPECT_EQ(follower->deposed_by(11), 0U);
}

}  // namespace
}  // namespace sidereal::app
