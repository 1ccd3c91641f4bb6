#include "sidereal/store/dense_variable.h"

#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <limits>
#include <set>
#include <vector>

namespace sidereal::store {
namespace {

using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

std::unique_ptr<DenseVariable> make(const UpdateRule& rule, const Shape& shape = {2, 3}) {
  DenseOptions options;
  options.name = "kernel";
  options.shape = shape;
  options.rule = rule;
  options.initializer = {Initializer::Kind::kConstant, 1.0F, 0.0F, 0, 0};
  auto variable = DenseVariable::create(std::move(options));
  EXPECT_TRUE(variable.ok()) << variable.status();
  return std::move(variable).value();
}

Tensor filled(const Shape& shape, float value) {
  return Tensor::of<float>(shape, std::vector<float>(shape.num_elements(), value));
}

std::vector<float> values_of(const Tensor& t) {
  const auto data = t.data<float>();
  return {data.begin(), data.end()};
}

TEST(DenseVariable, WithoutReadersAppliesInPlace) {
  const auto variable = make(UpdateRule::of("sgd", {{"learning_rate", 0.5}}));
  const void* place = variable->read().raw();
  for (int i = 1; i <= 3; ++i) {
    ASSERT_TRUE(variable->apply(filled({2, 3}, 1.0F)).ok());
    EXPECT_EQ(variable->read().raw(), place);
    EXPECT_EQ(values_of(variable->read()), std::vector<float>(6, 1.0F - 0.5F * i));
    EXPECT_EQ(variable->applies(), i);
  }
  EXPECT_EQ(variable->versions_made(), 0);
}

TEST(DenseVariable, AScaledLearningRateHoldsForLaterApplies) {
  const auto variable = make(UpdateRule::of("sgd", {{"learning_rate", 0.5}}));
  variable->scale_learning_rate(0.5);
  ASSERT_TRUE(variable->apply(filled({2, 3}, 1.0F)).ok());
  EXPECT_EQ(values_of(variable->read()), std::vector<float>(6, 0.75F));
  variable->scale_learning_rate(1);
  ASSERT_TRUE(variable->apply(filled({2, 3}, 1.0F)).ok());
  EXPECT_EQ(values_of(variable->read()), std::vector<float>(6, 0.25F));
}

TEST(DenseVariable, AHeldVersionNeverChanges) {
  for (const kernels::Rule* row : kernels::all_rules()) {
    const UpdateRule rule = UpdateRule::of(row->name);
    const auto variable = make(rule);
    const auto alone = make(rule);
    std::deque<std::pair<Tensor, std::vector<float>>> held;
    for (int i = 0; i < 20; ++i) {
      held.emplace_back(variable->read(), values_of(variable->read()));
      if (held.size() > static_cast<size_t>(1 + i % 7)) held.pop_front();
      const Tensor grad = filled({2, 3}, std::sin(static_cast<float>(i)));
      ASSERT_TRUE(variable->apply(grad).ok());
      ASSERT_TRUE(alone->apply(grad).ok());
      for (const auto& [tensor, values] : held) EXPECT_EQ(values_of(tensor), values);
      // Readers do not change what is computed.
      EXPECT_EQ(values_of(variable->read()), values_of(alone->read()));
    }
    EXPECT_GT(variable->versions_made(), 0);
  }
}

TEST(DenseVariable, ReleasedVersionsAreUsedAgain) {
  const auto variable = make(UpdateRule::of("sgd", {{"learning_rate", 0.1}}));
  std::set<const void*> places;
  for (int i = 0; i < 100; ++i) {
    const Tensor held = variable->read();
    places.insert(held.raw());
    ASSERT_TRUE(variable->apply(filled({2, 3}, 0.0F)).ok());
  }
  EXPECT_EQ(places.size(), 2U);
}

TEST(DenseVariable, AssignReplacesTheWeightsAndLeavesHeldVersions) {
  const auto variable = make(UpdateRule::of("adagrad", {{"learning_rate", 0.1}}));
  const Tensor before = variable->read();
  ASSERT_TRUE(variable->assign(filled({2, 3}, 5.0F)).ok());
  EXPECT_EQ(values_of(before)[0], 1.0F);
  EXPECT_EQ(values_of(variable->read())[5], 5.0F);
  ASSERT_TRUE(variable->assign(variable->read()).ok());
  EXPECT_EQ(values_of(variable->read())[5], 5.0F);
  EXPECT_EQ(values_of(variable->read_slot(0))[0], 0.1F);
  ASSERT_TRUE(variable->assign_slot(0, filled({2, 3}, 3.0F)).ok());
  EXPECT_EQ(values_of(variable->read_slot(0))[0], 3.0F);
  EXPECT_EQ(variable->assign_slot(1, before).code(), StatusCode::kInvalidArgument);
}

TEST(DenseVariable, RefusesWhatDoesNotFit) {
  const auto variable = make(UpdateRule::of("sgd", {{"learning_rate", 0.1}}));
  EXPECT_EQ(variable->apply(filled({3, 2}, 1.0F)).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(variable->apply(Tensor()).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(variable->apply(Tensor::zeros(DType::kFloat64, {2, 3})).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(variable->assign(filled({6}, 1.0F)).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(variable->applies(), 0);
}

TEST(DenseVariable, CreationIsBounded) {
  DenseOptions options;
  options.name = "big";
  options.shape = {int64_t{1} << 40, int64_t{1} << 40};
  EXPECT_EQ(DenseVariable::create(options).status().code(), StatusCode::kResourceExhausted);
  options.shape = {1000, 1000};
  options.bytes_max = 5'000'000;
  EXPECT_TRUE(DenseVariable::create(options).ok());
  options.rule = UpdateRule::of("adagrad", {{"learning_rate", 0.1}});
  const Status status = DenseVariable::create(options).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(base::message_of(status).find("big"), std::string::npos);
  options.shape = {-1, 4};
  EXPECT_EQ(DenseVariable::create(options).status().code(), StatusCode::kInvalidArgument);
}

TEST(DenseVariable, ScalarsAndEmptyShapesWork) {
  const auto scalar = make(UpdateRule::of("adam", {{"learning_rate", 0.1}}), {});
  ASSERT_TRUE(scalar->apply(filled({}, 2.0F)).ok());
  EXPECT_NEAR(values_of(scalar->read())[0], 0.9F, 1e-5F);  // Adam's first step is the rate.
  const auto empty = make(UpdateRule::of("adam", {{"learning_rate", 0.1}}), {0, 4});
  ASSERT_TRUE(empty->apply(filled({0, 4}, 0.0F)).ok());
  EXPECT_EQ(empty->bytes(), 0U);
}

}  // namespace
}  // namespace sidereal::store
