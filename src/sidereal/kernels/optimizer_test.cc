#include "sidereal/kernels/optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

namespace sidereal::kernels {
namespace {

using ::testing::HasSubstr;

std::vector<double> random_values(int64_t n, uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::uniform_real_distribution<double> draw(-1, 1);
  std::vector<double> v(n);
  for (double& x : v) x = draw(rng);
  return v;
}

template <class T>
std::vector<T> as(const std::vector<double>& v) {
  return std::vector<T>(v.begin(), v.end());
}

/// Every row of the table as it stands, with decays, and with each of its flags and momenta.
std::vector<UpdateRule> some_of_each() {
  std::vector<UpdateRule> rules;
  for (const Rule* rule : all_rules()) {
    UpdateRule::Parameters given;
    for (const RuleParameter& p : rule->parameters) {
      if (p.name == "learning_rate") given["learning_rate"] = 0.05;
      if (p.name.starts_with("initial_")) given[std::string(p.name)] = 0.1;
      if (p.name == "accumulator_decay_step") given[std::string(p.name)] = 2;
    }
    rules.push_back(UpdateRule::of(rule->name, given));
    for (const RuleParameter& p : rule->parameters) {
      const bool is_more = p.range == Range::kFlag || p.standard == 0;
      if (!is_more) continue;
      UpdateRule::Parameters more = given;
      more[std::string(p.name)] = p.range == Range::kFlag ? 1 : 0.3;
      rules.push_back(UpdateRule::of(rule->name, more));
    }
  }
  rules.push_back(UpdateRule::of("ftrl", {{"learning_rate_power", -0.7}}));
  rules.push_back(UpdateRule::of("sgd", {{"momentum", 0.9}, {"nesterov", 1}}));
  rules.push_back(UpdateRule::of("rmsprop", {{"momentum", 0.9}, {"centered", 1}}));
  return rules;
}

RuleStep step_of(const UpdateRule& rule, double t) {
  return {.rule = &rule, .step = t, .learning_rate = rule.learning_rate()};
}

/// A table with the slots in its rows, which are further apart than they need to be.
template <class T>
struct Packed {
  Packed(const UpdateRule& rule, const std::vector<double>& weights, int64_t dim)
      : dim(dim), stride(rule.row_floats(dim) + 5), rows(weights.size() / dim) {
    table.assign(rows * stride, T(77));
    for (int64_t r = 0; r < rows; ++r) {
      T* to = table.data() + r * stride;
      for (int64_t j = 0; j < dim; ++j) *to++ = static_cast<T>(weights[r * dim + j]);
      for (int i = 0; i < rule.num_slots(); ++i) {
        const int64_t width = rule.slot(i).width == SlotWidth::kRow ? 1 : dim;
        to = std::fill_n(to, width, static_cast<T>(rule.initial_slot(i)));
      }
    }
  }
  std::vector<T> row(int64_t r) const {
    const T* at = table.data() + r * stride;
    return {at, at + stride};
  }
  int64_t dim, stride, rows;
  std::vector<T> table;
};

/// The same with arrays of their own.
template <class T>
struct Split {
  Split(const UpdateRule& rule, const std::vector<double>& weights, int64_t dim)
      : weights(as<T>(weights)) {
    arrays.weights = {this->weights.data(), dim};
    slots.resize(rule.num_slots());
    for (int i = 0; i < rule.num_slots(); ++i) {
      const int64_t width = rule.slot(i).width == SlotWidth::kRow ? 1 : dim;
      slots[i].assign(weights.size() / dim * width, static_cast<T>(rule.initial_slot(i)));
      arrays.slots[i] = {slots[i].data(), width};
    }
  }
  DenseUpdate<T> dense(const std::vector<T>& grad, int64_t dim) {
    DenseUpdate<T> update;
    update.w_in = weights.data();
    update.w_out = weights.data();
    for (size_t i = 0; i < slots.size(); ++i) update.slots[i] = slots[i].data();
    update.grad = grad.data();
    update.n = static_cast<int64_t>(grad.size());
    update.row = dim;
    return update;
  }
  std::vector<T> weights;
  std::vector<std::vector<T>> slots;
  RuleArrays<T> arrays;
};

TEST(OptimizerRules, SlotsInRowsAndInArraysGiveTheSameBitsAndPaddingIsNeverWritten) {
  constexpr int64_t kRows = 60;
  for (const UpdateRule& rule : some_of_each()) {
    for (const int64_t dim : {1, 3, 8, 16, 70}) {
      const std::vector<double> weights = random_values(kRows * dim, 1);
      Packed<float> packed(rule, weights, dim);
      Split<float> split(rule, weights, dim);
      std::vector<int64_t> rows(kRows);
      std::iota(rows.begin(), rows.end(), 0);
      std::mt19937_64 rng(4);
      for (int t = 1; t <= 5; ++t) {
        std::shuffle(rows.begin(), rows.end(), rng);
        const std::span<const int64_t> some(rows.data(), static_cast<size_t>(t * 10));
        const auto grads = as<float>(random_values(static_cast<int64_t>(some.size()) * dim, t));
        std::vector<const float*> places;
        for (size_t i = 0; i < some.size(); ++i) places.push_back(grads.data() + i * dim);
        apply_rows<float>(step_of(rule, t),
                          arrays_of_rows(rule, packed.table.data(), packed.stride, dim), some,
                          {.data = grads.data()}, dim);
        apply_rows<float>(step_of(rule, t), split.arrays, some, {.rows = places.data()}, dim);
      }
      for (int64_t r = 0; r < kRows; ++r) {
        std::vector<float> want(split.weights.begin() + r * dim,
                                split.weights.begin() + (r + 1) * dim);
        for (size_t i = 0; i < split.slots.size(); ++i) {
          const int64_t width = split.arrays.slots[i].stride;
          const auto from = split.slots[i].begin() + r * width;
          want.insert(want.end(), from, from + width);
        }
        want.resize(packed.stride, 77.0F);
        ASSERT_EQ(packed.row(r), want) << rule.to_string() << " dim " << dim << " row " << r;
      }
    }
  }
}

TEST(OptimizerRules, DenseUpdatesAreThoseOfOneRowAndMayWriteElsewhere) {
  for (const UpdateRule& rule : some_of_each()) {
    // The one that differs is said to.
    const bool differs = rule.rule().name == "adam_async" && rule["apply_sparse_rmsprop"] != 0;
    for (const int64_t n : {1, 15, 16, 100}) {
      const std::vector<double> weights = random_values(n, 1);
      Split<double> rows(rule, weights, n);
      Split<double> dense(rule, weights, n);
      Split<float> narrow(rule, weights, n);
      for (int t = 1; t <= 5; ++t) {
        const std::vector<double> grad = random_values(n, 10 + t);
        const int64_t zero = 0;
        apply_rows<double>(step_of(rule, t), rows.arrays, {&zero, 1}, {.data = grad.data()}, n);
        std::vector<double> other(n);
        DenseUpdate<double> update = dense.dense(grad, n);
        update.w_out = other.data();
        apply_dense(step_of(rule, t), update);
        dense.weights = other;
        const auto grad32 = as<float>(grad);
        apply_dense(step_of(rule, t), narrow.dense(grad32, n));
      }
      for (int64_t j = 0; j < n; ++j) {
        if (!differs) {
          EXPECT_NEAR(dense.weights[j], rows.weights[j], 1e-12) << rule.to_string();
        }
        EXPECT_NEAR(narrow.weights[j], dense.weights[j], 3e-5) << rule.to_string();
        EXPECT_NE(dense.weights[j], weights[j]) << rule.to_string();
      }
    }
  }
}

TEST(OptimizerRules, NormsOfAVariableAreTheSameInOnePartAndInMany) {
  const int64_t n = 3 * kNormPart + 5;
  for (const char* name : {"lamb", "lars"}) {
    const UpdateRule rule = UpdateRule::of(name, {{"weight_decay", 0.1}});
    const std::vector<double> weights = random_values(n, 1);
    const auto grad = as<float>(random_values(n, 2));
    Split<float> whole(rule, weights, n);
    Split<float> parts(rule, weights, n);
    apply_dense(step_of(rule, 1), whole.dense(grad, n));
    const DenseUpdate<float> update = parts.dense(grad, n);
    RuleNorms norms;
    for (int64_t begin = 0; begin < n; begin += kNormPart) {
      norms +=
          measure_dense(step_of(rule, 1), update.part(rule, begin, std::min(kNormPart, n - begin)));
    }
    for (int64_t begin = 0; begin < n; begin += 1000) {
      apply_dense(step_of(rule, 1), update.part(rule, begin, std::min<int64_t>(1000, n - begin)),
                  norms);
    }
    EXPECT_EQ(parts.weights, whole.weights) << name;
  }
}

TEST(OptimizerRules, AdamCorrectsTheBiasOfTheFirstSteps) {
  const UpdateRule rule = UpdateRule::of("adam", {{"learning_rate", 0.1}, {"epsilon", 0}});
  for (const double t : {1.0, 7.0, 1e6}) {
    Split<double> one(rule, {1.0}, 1);
    one.slots[0][0] = (1 - std::pow(0.9, t - 1)) * 0.5;
    one.slots[1][0] = (1 - std::pow(0.999, t - 1)) * 0.25;
    apply_dense(step_of(rule, t), one.dense({0.5}, 1));
    EXPECT_NEAR(one.weights[0], 0.9, 1e-9) << t;
  }
}

TEST(OptimizerRules, StandardValuesAreInRangeAndValuesOutsideAreRefusedByName) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const Rule* rule : all_rules()) {
    EXPECT_EQ(*find_rule(rule->name), rule);
    EXPECT_FALSE(rule->class_name.empty() || rule->doc.empty() || rule->formula.empty());
    UpdateRule::Parameters standard;
    for (const RuleParameter& p : rule->parameters) standard[std::string(p.name)] = p.standard;
    const auto made = UpdateRule::make(rule->name, standard);
    ASSERT_TRUE(made.ok()) << made.status();
    EXPECT_EQ(*made, UpdateRule::of(rule->name));
    EXPECT_THAT(made->to_string(), HasSubstr(std::string(rule->name) + "(learning_rate="));
    for (const RuleParameter& p : rule->parameters) {
      EXPECT_FALSE(p.doc.empty()) << p.name;
      const double outside = p.range == Range::kAtMostZero ? 1 : -1;
      for (const double bad : {outside, nan, std::numeric_limits<double>::infinity()}) {
        UpdateRule::Parameters wrong = {{std::string(p.name), bad}};
        const Status refused = UpdateRule::make(rule->name, wrong).status();
        ASSERT_EQ(refused.code(), StatusCode::kInvalidArgument) << rule->name << " " << p.name;
        EXPECT_THAT(base::message_of(refused), HasSubstr(std::string(p.name)));
        EXPECT_THAT(base::message_of(refused), HasSubstr(std::string(to_string(p.range))));
      }
    }
  }
}

TEST(OptimizerRules, UnknownNamesAreRefusedWithThoseThereAre) {
  const Status rule = UpdateRule::make("sgdd").status();
  EXPECT_EQ(rule.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(base::message_of(rule), HasSubstr("sgd, momentum, adagrad"));
  const Status parameter = UpdateRule::make("adam", {{"beta1", 0.5}}).status();
  EXPECT_EQ(parameter.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(base::message_of(parameter), HasSubstr("'beta1'"));
  EXPECT_THAT(base::message_of(parameter), HasSubstr("beta_1, beta_2, epsilon"));
  EXPECT_FALSE(
      UpdateRule::make("adagrad", {{"initial_accumulator_value", 0}, {"epsilon", 0}}).ok());
}

TEST(OptimizerRules, SlotsHaveTheShapesThatTheirWidthsSay) {
  const UpdateRule rows = UpdateRule::of("rowwise_adagrad");
  EXPECT_EQ(rows.slot_shape(0, {7, 3, 2}), tensor::Shape({7}));
  EXPECT_EQ(rows.slot_shape(0, {}), tensor::Shape({}));
  EXPECT_EQ(rows.row_floats(16), 17);
  EXPECT_EQ(elements_of_row({7, 3, 2}), 6);
  EXPECT_EQ(elements_of_row({}), 1);
  const UpdateRule adam = UpdateRule::of("adam", {{"amsgrad", 1}});
  EXPECT_EQ(adam.num_slots(), 3);
  EXPECT_EQ(adam.slot(2).name, "vhat");
  EXPECT_EQ(adam.row_floats(16), 64);
  EXPECT_EQ(UpdateRule::of("adam").num_slots(), 2);
}

}  // namespace
}  // namespace sidereal::kernels
