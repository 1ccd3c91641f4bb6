#include "sidereal/resources/step_barrier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "sidereal/base/strings.h"

namespace sidereal::resources {
namespace {

using ::testing::HasSubstr;

/// A barrier of replicas w0, w1, ... with numbers from `first` on.
std::shared_ptr<StepBarrier> barrier(int64_t bound, int replicas, int64_t first = 0) {
  auto made = StepBarrier::make("b");
  std::vector<std::string> names;
  for (int i = 0; i < replicas; ++i) names.push_back(fmt::format("w{}", i));
  EXPECT_TRUE(made->restart(first, bound, std::move(names)).ok());
  return made;
}

/// A replica that is asked to begin its next step.
std::unique_ptr<Ticket> await(StepBarrier& at, int64_t replica) {
  auto made = at.await(replica);
  EXPECT_TRUE(made.ok()) << made.status();
  return *std::move(made);
}

bool may_begin(StepBarrier& at, int64_t replica) { return await(at, replica)->poll(); }

TEST(StepBarrier, lets_a_replica_be_a_bound_of_ended_steps_ahead) {
  for (const int64_t bound : {0, 1, 3}) {
    const auto b = barrier(bound, 2);
    for (int64_t step = 0; step <= bound; ++step) {
      ASSERT_TRUE(may_begin(*b, 0)) << step;
      ASSERT_TRUE(b->advance(0).ok());
    }
    const auto waiting = await(*b, 0);
    EXPECT_FALSE(waiting->poll());
    EXPECT_TRUE(may_begin(*b, 1));
    ASSERT_TRUE(b->advance(1).ok());
    ASSERT_TRUE(waiting->poll());
    EXPECT_EQ(waiting->result()[0].data<const int64_t>()[0], bound + 1);
  }
}

TEST(StepBarrier, says_which_replica_is_waited_for_and_by_which) {
  const auto b = barrier(1, 3, 70);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(b->advance(70).ok());
  ASSERT_TRUE(b->advance(72).ok());
  EXPECT_EQ(b->describe(70), "barrier 'b', where w1 has ended 0 steps, for step 2 of w0");
  ASSERT_TRUE(b->advance(70).ok());
  EXPECT_THAT(b->describe(70), HasSubstr("w1 has ended 0 steps and 1 more are behind"));
}

TEST(StepBarrier, waits_for_the_last_step_of_a_replica_that_leaves_and_no_longer) {
  const auto b = barrier(0, 2);
  ASSERT_TRUE(b->advance(0).ok());
  const auto waiting = await(*b, 0);
  // Its last step has ended, says another one, before it is known here.
  ASSERT_TRUE(b->leave(1, 1).ok());
  EXPECT_FALSE(waiting->poll());
  ASSERT_TRUE(b->advance(1).ok());
  EXPECT_TRUE(waiting->poll());
  for (int i = 0; i < 9; ++i) ASSERT_TRUE(b->advance(0).ok());
  EXPECT_TRUE(may_begin(*b, 0));
}

TEST(StepBarrier, goes_on_without_a_replica_that_dies) {
  const auto b = barrier(1, 3);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(b->advance(0).ok());
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(b->advance(2).ok());
  const auto waiting = await(*b, 0);
  EXPECT_FALSE(waiting->poll());
  ASSERT_TRUE(b->leave(1, 0).ok());
  EXPECT_TRUE(waiting->poll());
  EXPECT_TRUE(b->leave(1, 0).ok());
}

TEST(StepBarrier, begun_anew_drops_what_replicas_of_before_say) {
  const auto b = barrier(0, 2);
  ASSERT_TRUE(b->advance(0).ok());
  const auto waiting = await(*b, 0);
  ASSERT_TRUE(b->restart(10, 0, {"w0", "w1"}).ok());
  ASSERT_TRUE(waiting->poll());
  EXPECT_EQ(waiting->status().code(), StatusCode::kAborted);
  EXPECT_EQ(b->await(0).status().code(), StatusCode::kAborted);
  EXPECT_TRUE(b->advance(0).ok());
  EXPECT_TRUE(b->leave(0, 0).ok());
  EXPECT_TRUE(may_begin(*b, 10));
  ASSERT_TRUE(b->advance(10).ok());
  EXPECT_FALSE(may_begin(*b, 10));
}

TEST(StepBarrier, ends_what_waits_when_it_goes_and_forgets_what_waits_no_more) {
  const auto b = barrier(0, 2);
  ASSERT_TRUE(b->advance(0).ok());
  { const auto given_up = await(*b, 0); }
  const auto waiting = await(*b, 0);
  b->cancel();
  ASSERT_TRUE(waiting->poll());
  EXPECT_EQ(waiting->status().code(), StatusCode::kCancelled);
}

TEST(StepBarrier, refuses_numbers_that_it_does_not_have) {
  const auto b = barrier(0, 2, 5);
  EXPECT_EQ(b->await(7).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(b->advance(7).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(b->advance(-1).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(b->leave(5, -1).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(b->restart(0, -1, {"w"}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(b->restart(-1, 0, {"w"}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(b->restart(0, 0, {}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(b->restart(std::numeric_limits<int64_t>::max(), 0, {"w"}).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(StepBarrier::make("none")->await(0).status().code(), StatusCode::kInvalidArgument);
}

TEST(StepBarrier, has_replicas_that_join_when_they_come) {
  const auto b = StepBarrier::make("b");
  const auto join = [&](const std::string& name, int64_t bound = 1) {
    auto number = b->join(name, bound);
    EXPECT_TRUE(number.ok()) << number.status();
    return number.value_or(-1);
  };
  const int64_t one = join("one");
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(b->advance(one).ok());
  ASSERT_TRUE(may_begin(*b, one)) << "it is alone";
  // Waited for from where the others are.
  const int64_t other = join("other");
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(b->advance(one).ok());
  const auto waiting = await(*b, one);
  EXPECT_FALSE(waiting->poll());
  EXPECT_THAT(b->describe(one), HasSubstr("other has ended 5 steps"));
  EXPECT_EQ(b->join("third", 2).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(b->join("third", -1).status().code(), StatusCode::kInvalidArgument);
  // It was killed, and is started again.
  const int64_t again = join("other");
  EXPECT_EQ(b->advance(other).code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(base::message_of(b->await(other).status()), HasSubstr("as 'other'"));
  EXPECT_TRUE(waiting->poll()) << "it begins where the slowest is, which is the one that waits";
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(b->advance(one).ok());
  EXPECT_FALSE(may_begin(*b, one));
  ASSERT_TRUE(b->advance(again).ok());
  EXPECT_TRUE(may_begin(*b, one));
  // All go, and others come with another bound.
  ASSERT_TRUE(b->leave(one, 0).ok());
  ASSERT_TRUE(b->leave(again, 0).ok());
  EXPECT_GT(join("third", 7), again);
}

TEST(StepBarrier, refuses_one_whose_name_another_has_whenever_it_joined) {
  const auto b = StepBarrier::make("b");
  const int64_t first = *b->join("first", 1);
  const int64_t second = *b->join("second", 1);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(b->advance(first).ok());
  const auto waiting = await(*b, first);
  EXPECT_FALSE(waiting->poll());
  ASSERT_TRUE(b->join("first", 1).ok());
  ASSERT_TRUE(waiting->poll());
  EXPECT_EQ(waiting->status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(b->advance(first).code(), StatusCode::kFailedPrecondition);
  ASSERT_TRUE(b->leave(second, 0).ok());
  ASSERT_TRUE(b->join("third", 1).ok());
  EXPECT_EQ(b->await(first).status().code(), StatusCode::kFailedPrecondition);
}

TEST(StepBarrier, ends_what_waits_of_one_that_has_left) {
  const auto b = StepBarrier::make("b");
  const int64_t left = *b->join("left", 0);
  const int64_t other = *b->join("other", 0);
  ASSERT_TRUE(b->advance(left).ok());
  ASSERT_TRUE(b->leave(left, 0).ok());
  const auto waiting = await(*b, left);
  EXPECT_FALSE(waiting->poll());
  ASSERT_TRUE(b->join("third", 0).ok());
  ASSERT_TRUE(waiting->poll());
  EXPECT_EQ(waiting->status().code(), StatusCode::kAborted);
  EXPECT_TRUE(may_begin(*b, other));
}

TEST(StepBarrier, goes_on_without_those_that_are_expelled_until_they_are_heard_of) {
  const auto b = barrier(1, 3);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(b->advance(0).ok());
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(b->advance(1).ok());
  const auto waiting = await(*b, 0);
  EXPECT_FALSE(waiting->poll());
  const auto expelled = b->expel(0);
  ASSERT_TRUE(expelled.ok()) << expelled.status();
  EXPECT_THAT(*expelled, ::testing::ElementsAre("w2"));
  EXPECT_TRUE(waiting->poll());
  // It was only slow: it is waited for again, from where the others are.
  ASSERT_TRUE(b->advance(2).ok());
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(b->advance(0).ok());
    ASSERT_TRUE(b->advance(1).ok());
  }
  EXPECT_FALSE(may_begin(*b, 0));
  EXPECT_THAT(b->describe(0), HasSubstr("w2 has ended 4 steps"));
  EXPECT_EQ(b->expel(9).status().code(), StatusCode::kInvalidArgument);
}

TEST(StepBarrier, keeps_its_bound_whichever_replica_is_asked_next) {
  constexpr int kReplicas = 5;
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937 random(seed);
  for (const int64_t bound : {0, 1, 4}) {
    const auto b = barrier(bound, kReplicas);
    std::vector<int64_t> ended(kReplicas);
    int64_t furthest = 0;
    for (int i = 0; i < 4000; ++i) {
      const size_t replica = random() % kReplicas;
      if (!may_begin(*b, static_cast<int64_t>(replica))) continue;
      ASSERT_TRUE(b->advance(static_cast<int64_t>(replica)).ok());
      ++ended[replica];
      const auto [least, most] = std::ranges::minmax(ended);
      ASSERT_LE(most - least, bound + 1);
      furthest = std::max(furthest, most - least);
    }
    EXPECT_EQ(furthest, bound + 1);
  }
}

}  // namespace
}  // namespace sidereal::resources
