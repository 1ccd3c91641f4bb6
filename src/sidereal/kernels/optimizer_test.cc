#include "sidereal/kernels/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>
#include <vector>

namespace sidereal::kernels {
namespace {

std::vector<float> random_values(int64_t n, uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::uniform_real_distribution<float> draw(-1, 1);
  std::vector<float> v(n);
  for (float& x : v) x = draw(rng);
  return v;
}

std::vector<RuleStep> all_rules() {
  std::vector<RuleStep> rules;
  for (const RuleKind kind : {RuleKind::kSgd, RuleKind::kMomentum, RuleKind::kAdagrad,
                              RuleKind::kAdam, RuleKind::kFtrl}) {
    for (const float decay : {0.0F, 0.01F}) {
      RuleStep r;
      r.kind = kind;
      r.learning_rate = 0.05F;
      r.weight_decay = decay;
      r.momentum = 0.9F;
      r.beta1 = 0.9F;
      r.beta2 = 0.99F;
      r.epsilon = 1e-6F;
      r.l1 = 0.3F;
      r.l2 = 0.1F;
      rules.push_back(r);
      r.nesterov = true;
      if (kind == RuleKind::kMomentum) rules.push_back(r);
      r.lr_power = -0.7F;
      if (kind == RuleKind::kFtrl) rules.push_back(r);
    }
  }
  return rules;
}

struct Weight {
  double w = 0;
  double s1 = 0;
  double s2 = 0;
};

// The formulas of RuleKind in double, one weight at a time.
void naive_update(const RuleStep& r, double g, Weight& x) {
  g += r.weight_decay * x.w;
  const double lr = r.learning_rate;
  switch (r.kind) {
    case RuleKind::kSgd:
      x.w -= lr * g;
      break;
    case RuleKind::kMomentum:
      x.s1 = r.momentum * x.s1 + g;
      x.w -= lr * (r.nesterov ? g + r.momentum * x.s1 : x.s1);
      break;
    case RuleKind::kAdagrad:
      x.s1 += g * g;
      x.w -= lr * g / (std::sqrt(x.s1) + r.epsilon);
      break;
    case RuleKind::kAdam:
      x.s1 = r.beta1 * x.s1 + (1 - r.beta1) * g;
      x.s2 = r.beta2 * x.s2 + (1 - r.beta2) * g * g;
      x.w -= lr * r.correction1 * x.s1 / (std::sqrt(x.s2) * r.correction2 + r.epsilon);
      break;
    case RuleKind::kFtrl: {
      const double grown = x.s1 + g * g;
      const double p = -r.lr_power;
      x.s2 += g - (std::pow(grown, p) - std::pow(x.s1, p)) / lr * x.w;
      x.s1 = grown;
      const double quadratic = std::pow(grown, p) / lr + 2 * r.l2;
      x.w = std::fabs(x.s2) > r.l1 ? (std::copysign(r.l1, x.s2) - x.s2) / quadratic : 0;
      break;
    }
  }
}

TEST(Optimizer, RowsFollowTheirFormulasOverManySteps) {
  for (const RuleStep& rule : all_rules()) {
    for (const int64_t dim : {1, 3, 8, 16, 32, 64, 70}) {
      const int slots = num_slots(rule.kind);
      const int64_t stride = dim * (1 + slots) + 5;
      const int64_t table_rows = 60;
      std::vector<float> table = random_values(table_rows * stride, 1);
      for (int64_t r = 0; r < table_rows; ++r) {
        for (int64_t j = dim; j < stride; ++j) table[r * stride + j] = 0.1F;
      }
      std::vector<Weight> want(table_rows * dim);
      for (int64_t i = 0; i < table_rows * dim; ++i) {
        want[i] = {table[i / dim * stride + i % dim], 0.1, 0.1};
      }
      std::vector<int64_t> rows(table_rows);
      std::iota(rows.begin(), rows.end(), 0);
      std::mt19937_64 rng(4);
      RuleStep step = rule;
      for (int t = 1; t <= 5; ++t) {
        step.correction1 = static_cast<float>(1 / (1 - std::pow(rule.beta1, t)));
        step.correction2 = static_cast<float>(1 / std::sqrt(1 - std::pow(rule.beta2, t)));
        std::shuffle(rows.begin(), rows.end(), rng);
        const std::span<const int64_t> some(rows.data(), static_cast<size_t>(t * 10));
        const std::vector<float> grads = random_values(static_cast<int64_t>(some.size()) * dim, t);
        apply_rows(step, table.data(), stride, some, grads.data(), dim);
        for (size_t i = 0; i < some.size(); ++i) {
          for (int64_t j = 0; j < dim; ++j) {
            naive_update(step, grads[i * dim + j], want[some[i] * dim + j]);
          }
        }
      }
      for (int64_t i = 0; i < table_rows * dim; ++i) {
        EXPECT_NEAR(table[i / dim * stride + i % dim], want[i].w, 3e-5)
            << "rule " << static_cast<int>(rule.kind) << " dim " << dim;
      }
      // The padding is never written.
      for (int64_t r = 0; r < table_rows; ++r) {
        EXPECT_EQ(table[r * stride + stride - 1], 0.1F);
      }
    }
  }
}

TEST(Optimizer, DenseUpdatesMatchRowsAndMayWriteElsewhere) {
  for (const RuleStep& rule : all_rules()) {
    for (const int64_t n : {0, 1, 15, 16, 100}) {
      const std::vector<float> w = random_values(n, 1);
      const std::vector<float> grad = random_values(n, 2);
      std::vector<float> s1(n, 0.1F);
      std::vector<float> s2(n, 0.1F);
      std::vector<float> other(n);
      apply_dense(rule, {w.data(), other.data(), s1.data(), s2.data(), grad.data(), n});
      std::vector<float> in_place = w;
      std::vector<float> t1(n, 0.1F);
      std::vector<float> t2(n, 0.1F);
      apply_dense(rule, {in_place.data(), in_place.data(), t1.data(), t2.data(), grad.data(), n});
      EXPECT_EQ(other, in_place);
      EXPECT_EQ(s1, t1);
      EXPECT_EQ(s2, t2);
      for (int64_t i = 0; i < n; ++i) {
        Weight want{w[i], 0.1, 0.1};
        naive_update(rule, grad[i], want);
        EXPECT_NEAR(other[i], want.w, 1e-5);
        float row[3] = {w[i], 0.1F, 0.1F};
        const int64_t zero = 0;
        apply_rows(rule, row, 3, {&zero, 1}, &grad[i], 1);
        EXPECT_EQ(row[0], other[i]);
      }
    }
  }
}

}  // namespace
}  // namespace sidereal::kernels
