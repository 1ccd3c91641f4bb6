#include "sidereal/train/optimizers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sidereal::train {
namespace {

using ::testing::HasSubstr;

TEST(Optimizers, EveryNameMakesAnOptimizerOfThatKindThatChecks) {
  for (const std::string& name : optimizer_names()) {
    const auto made = make_optimizer(name);
    ASSERT_TRUE(made.ok()) << made.status();
    EXPECT_EQ(made->kind, name);
    EXPECT_TRUE(made->parameters.contains("learning_rate")) << name;
    EXPECT_TRUE(check_optimizer(*made).ok());
  }
}

TEST(Optimizers, LearningRatesHaveADefaultPerOptimizerAndCanBeChanged) {
  EXPECT_EQ(make_optimizer("adam")->parameters.at("learning_rate"), 0.001);
  EXPECT_EQ(make_optimizer("sgd")->parameters.at("learning_rate"), 0.01);
  EXPECT_EQ(make_optimizer("adagrad", 0.5)->parameters.at("learning_rate"), 0.5);
}

TEST(Optimizers, AnUnknownNameIsRefusedWithTheNamesThereAre) {
  const auto made = make_optimizer("adamm");
  ASSERT_EQ(made.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(base::message_of(made.status()),
              HasSubstr("sgd, momentum, adagrad, rowwise_adagrad"));
}

TEST(Optimizers, AnUnknownParameterIsRefusedWithTheNamesThereAre) {
  const auto made = make_optimizer("adam", {}, {{"beta_3", 0.5}});
  ASSERT_EQ(made.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(base::message_of(made.status()), HasSubstr("beta_3"));
  EXPECT_THAT(base::message_of(made.status()), HasSubstr("beta_1, beta_2, epsilon"));
}

TEST(Optimizers, AParameterOutOfRangeIsRefusedByName) {
  EXPECT_THAT(base::message_of(make_optimizer("sgd", -1).status()), HasSubstr("learning_rate"));
  EXPECT_THAT(base::message_of(make_optimizer("adam", {}, {{"beta_1", 1.0}}).status()),
              HasSubstr("[0, 1)"));
  EXPECT_FALSE(make_optimizer("sgd", std::numeric_limits<double>::quiet_NaN()).ok());
}

}  // namespace
}  // namespace sidereal::train
