#include "sidereal/train/autoscale.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sidereal::train {
namespace {

using ::testing::HasSubstr;

TEST(Autoscales, add_one_when_one_was_busy_for_long) {
  Autoscale rules({.ps_min = 1, .ps_max = 3});
  EXPECT_EQ(rules.look(0, {0.9, 0.1}), std::nullopt);
  EXPECT_EQ(rules.look(29, {0.1, 0.9}), std::nullopt);
  EXPECT_EQ(rules.look(30, {0.9, 0.1}), 3);
  rules.moved(31);
  EXPECT_EQ(rules.look(60, {0.95, 0.95}), std::nullopt) << "it settles first";
  EXPECT_EQ(rules.look(91, {0.95, 0.95}), std::nullopt) << "and counts anew";
  EXPECT_EQ(rules.look(121, {0.95, 0.95}), 3);
  EXPECT_EQ(rules.look(122, {0.95, 0.95, 0.95}), std::nullopt) << "there are no more";
}

TEST(Autoscales, begin_to_count_anew_when_none_was_busy) {
  Autoscale rules({.ps_min = 1, .ps_max = 3});
  EXPECT_EQ(rules.look(0, {0.9}), std::nullopt);
  EXPECT_EQ(rules.look(20, {0.7}), std::nullopt);
  EXPECT_EQ(rules.look(40, {0.9}), std::nullopt);
  EXPECT_EQ(rules.look(69, {0.9}), std::nullopt);
  EXPECT_EQ(rules.look(70, {0.9}), 2);
}

TEST(Autoscales, take_one_away_when_the_others_would_do) {
  Autoscale rules({.ps_min = 2, .ps_max = 4});
  EXPECT_EQ(rules.look(0, {0.25, 0.25, 0.25}), std::nullopt);
  EXPECT_EQ(rules.look(300, {0.25, 0.25, 0.25}), 2);
  rules.moved(300);
  EXPECT_EQ(rules.look(400, {0.01, 0.01}), std::nullopt);
  EXPECT_EQ(rules.look(800, {0.01, 0.01}), std::nullopt) << "two are the least";
  // Two would have to do .45 each.
  Autoscale other({.ps_min = 1, .ps_max = 4});
  EXPECT_EQ(other.look(0, {0.3, 0.3, 0.3}), std::nullopt);
  EXPECT_EQ(other.look(301, {0.3, 0.3, 0.3}), std::nullopt);
}

TEST(Autoscales, bring_a_model_to_as_many_as_are_allowed) {
  Autoscale rules({.ps_min = 2, .ps_max = 3});
  EXPECT_EQ(rules.look(0, {0.5}), 2);
  EXPECT_EQ(rules.look(0, {0.5, 0.5, 0.5, 0.5}), 3);
  EXPECT_EQ(rules.look(0, {}), std::nullopt);
  EXPECT_EQ(Autoscale({}).look(0, {1, 1, 1}), std::nullopt) << "it is off";
}

TEST(Autoscales, are_said_as_a_range) {
  ASSERT_TRUE(parse_autoscale("2-8").ok());
  EXPECT_EQ(parse_autoscale("2-8")->ps_min, 2);
  EXPECT_EQ(parse_autoscale("2-8")->ps_max, 8);
  EXPECT_FALSE(parse_autoscale("off")->is_on());
  for (const char* const bad : {"", "2", "2-", "-8", "0-3", "3-2", "2-8x", "a-b", "2 - 8", "on"}) {
    const auto parsed = parse_autoscale(bad);
    ASSERT_EQ(parsed.status().code(), StatusCode::kInvalidArgument) << bad;
    EXPECT_THAT(base::message_of(parsed.status()), HasSubstr("2-8, or off"));
  }
}

}  // namespace
}  // namespace sidereal::train
