#include "sidereal/store/update_rule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "sidereal/store/initializer.h"

namespace sidereal::store {
namespace {

std::vector<UpdateRule> all_rules() {
  return {UpdateRule::sgd(0.1F), UpdateRule::heavy_ball(0.1F), UpdateRule::adagrad(0.1F),
          UpdateRule::adam(0.1F), UpdateRule::ftrl(0.1F, 0.01F, 0.02F)};
}

TEST(UpdateRule, DefaultsAreValidAndSurviveEncoding) {
  for (UpdateRule rule : all_rules()) {
    rule.weight_decay = 0.25F;
    EXPECT_TRUE(rule.validate().ok()) << rule.validate();
    base::ByteWriter writer;
    encode(rule, &writer);
    base::ByteReader reader(writer.bytes());
    UpdateRule read;
    ASSERT_TRUE(decode(&reader, &read).ok());
    EXPECT_EQ(read, rule);
    EXPECT_EQ(reader.remaining(), 0U);
    EXPECT_EQ(*rule_kind_from_name(name_of(rule.kind)), rule.kind);
    EXPECT_NE(rule.to_string().find(name_of(rule.kind)), std::string::npos);
  }
  EXPECT_EQ(rule_kind_from_name("rmsprop").status().code(), StatusCode::kInvalidArgument);
}

TEST(UpdateRule, DocumentedDefaultsHold) {
  const UpdateRule adagrad = UpdateRule::adagrad(0.1F);
  EXPECT_EQ(adagrad.initial_slot(0), 0.1F);
  EXPECT_EQ(adagrad.epsilon, 1e-7F);
  const UpdateRule adam = UpdateRule::adam(0.1F);
  EXPECT_EQ(adam.epsilon, 1e-8F);
  EXPECT_EQ(adam.num_slots(), 2);
  EXPECT_EQ(adam.initial_slot(0), 0.0F);
  const UpdateRule ftrl = UpdateRule::ftrl(0.1F);
  EXPECT_EQ(ftrl.initial_slot(0), 0.1F);
  EXPECT_EQ(ftrl.initial_slot(1), 0.0F);
  EXPECT_EQ(ftrl.lr_power, -0.5F);
}

TEST(UpdateRule, EveryBadParameterIsNamed) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto refused = [](UpdateRule rule, float UpdateRule::*field, float value) {
    rule.*field = value;
    return rule.validate().code() == StatusCode::kInvalidArgument;
  };
  for (const UpdateRule& rule : all_rules()) {
    EXPECT_TRUE(refused(rule, &UpdateRule::learning_rate, -1.0F));
    EXPECT_TRUE(refused(rule, &UpdateRule::learning_rate, nan));
    EXPECT_TRUE(refused(rule, &UpdateRule::weight_decay, -1.0F));
  }
  EXPECT_TRUE(refused(UpdateRule::heavy_ball(0.1F), &UpdateRule::momentum, 1.0F));
  EXPECT_TRUE(refused(UpdateRule::adagrad(0.1F), &UpdateRule::initial_accumulator, -0.1F));
  EXPECT_TRUE(refused(UpdateRule::adagrad(0.1F, 0.0F), &UpdateRule::epsilon, 0.0F));
  EXPECT_TRUE(refused(UpdateRule::adam(0.1F), &UpdateRule::beta1, 1.0F));
  EXPECT_TRUE(refused(UpdateRule::adam(0.1F), &UpdateRule::beta2, nan));
  EXPECT_TRUE(refused(UpdateRule::ftrl(0.1F), &UpdateRule::learning_rate, 0.0F));
  EXPECT_TRUE(refused(UpdateRule::ftrl(0.1F), &UpdateRule::lr_power, 0.5F));
  UpdateRule unknown;
  unknown.kind = static_cast<RuleKind>(99);
  EXPECT_EQ(unknown.validate().code(), StatusCode::kInvalidArgument);
}

TEST(UpdateRule, DecodingRefusesShortAndWrongBytes) {
  base::ByteWriter writer;
  encode(UpdateRule::adam(0.1F), &writer);
  const std::string bytes = writer.bytes();
  UpdateRule rule;
  for (size_t n = 0; n < bytes.size(); ++n) {
    base::ByteReader reader(std::string_view(bytes).substr(0, n));
    EXPECT_EQ(decode(&reader, &rule).code(), StatusCode::kDataLoss);
  }
  std::string other = bytes;
  other[0] = 9;
  base::ByteReader version(other);
  EXPECT_EQ(decode(&version, &rule).code(), StatusCode::kDataLoss);
  other = bytes;
  other[1] = 77;
  base::ByteReader kind(other);
  EXPECT_EQ(decode(&kind, &rule).code(), StatusCode::kInvalidArgument);
}

TEST(UpdateRule, AdamCorrectsTheBiasOfTheFirstSteps) {
  const kernels::RuleStep first = UpdateRule::adam(0.1F).step(1);
  EXPECT_NEAR(first.correction1, 10.0F, 1e-4F);
  EXPECT_NEAR(first.correction2, std::sqrt(1000.0F), 1e-2F);
  const kernels::RuleStep late = UpdateRule::adam(0.1F).step(1'000'000);
  EXPECT_EQ(late.correction1, 1.0F);
  EXPECT_EQ(late.correction2, 1.0F);
}

std::vector<Initializer> all_initializers() {
  std::vector<Initializer> all;
  for (int i = 0; i <= static_cast<int>(Initializer::Kind::kGlorotUniform); ++i) {
    all.push_back({static_cast<Initializer::Kind>(i), 0.5F, 1.5F, 7, 3});
  }
  return all;
}

TEST(Initializer, KindsAreValidNamedAndSurviveEncoding) {
  for (const Initializer& initializer : all_initializers()) {
    EXPECT_TRUE(initializer.validate().ok());
    EXPECT_EQ(*initializer_kind_from_name(name_of(initializer.kind)), initializer.kind);
    base::ByteWriter writer;
    encode(initializer, &writer);
    base::ByteReader reader(writer.bytes());
    Initializer read;
    ASSERT_TRUE(decode(&reader, &read).ok());
    EXPECT_EQ(read, initializer);
    base::ByteReader cut(std::string_view(writer.bytes()).substr(0, 10));
    EXPECT_EQ(decode(&cut, &read).code(), StatusCode::kDataLoss);
  }
  EXPECT_FALSE(initializer_kind_from_name("he").ok());
}

TEST(Initializer, BadParametersAreRefused) {
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_FALSE((Initializer{Initializer::Kind::kUniform, 2.0F, 1.0F, 0, 0}.validate().ok()));
  EXPECT_FALSE((Initializer{Initializer::Kind::kUniform, -3e38F, 3e38F, 0, 0}.validate().ok()));
  EXPECT_FALSE((Initializer{Initializer::Kind::kNormal, 0.0F, -1.0F, 0, 0}.validate().ok()));
  EXPECT_FALSE((Initializer{Initializer::Kind::kConstant, inf, 0.0F, 0, 0}.validate().ok()));
  EXPECT_FALSE((Initializer{static_cast<Initializer::Kind>(50), 0.0F, 0.0F, 0, 0}.validate().ok()));
}

TEST(Initializer, GlorotBoundsFollowTheShape) {
  const Initializer glorot{Initializer::Kind::kGlorotUniform, 0.0F, 0.0F, 1, 1};
  std::vector<float> v(416 * 400);
  glorot.fill({416, 400}, 0, v.data(), static_cast<int64_t>(v.size()));
  const float limit = std::sqrt(6.0F / 816.0F);
  float top = 0;
  for (const float x : v) top = std::max(top, std::fabs(x));
  EXPECT_LE(top, limit);
  EXPECT_GT(top, limit * 0.99F);
}

TEST(Initializer, APieceEqualsThatPieceOfTheWhole) {
  for (const Initializer& initializer : all_initializers()) {
    std::vector<float> whole(1000);
    std::vector<float> piece(100);
    initializer.fill({10, 100}, 0, whole.data(), 1000);
    initializer.fill({10, 100}, 333, piece.data(), 100);
    EXPECT_EQ(piece, std::vector<float>(whole.begin() + 333, whole.begin() + 433));
  }
}

}  // namespace
}  // namespace sidereal::store
