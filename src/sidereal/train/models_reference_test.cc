#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "sidereal/reference/reference.h"
#include "sidereal/train/models.h"

/// Whole models through the plain interpreter.
namespace sidereal::train {
namespace {

using tensor::Shape;
using tensor::Tensor;

// Small, different numbers for every variable of the model.
reference::Values start_values(const CompiledModel& model) {
  reference::Values values;
  for (const ModelVariable& v : model.variables) {
    std::vector<float> numbers(v.shape.num_elements());
    for (size_t i = 0; i < numbers.size(); ++i) {
      numbers[i] = 0.3F * std::sin(static_cast<float>(3 * i + values.size()));
    }
    values[v.name] = Tensor::of(v.shape, numbers);
  }
  return values;
}

struct Step {
  const CompiledModel& model;
  reference::Values feeds;
  reference::Values variables;

  float run(bool train) {
    reference::Request request{.feeds = feeds, .fetches = {}, .targets = {}};
    request.fetches = {*model.graph.find_output(model.loss)};
    if (train) {
      for (const std::string& name : model.targets) {
        request.targets.push_back(model.graph.find(name)->id);
      }
    }
    request.variables = &variables;
    request.feeds[kLearningRateScale] = Tensor::scalar(1.0);
    const auto out = reference::evaluate(model.graph, request);
    EXPECT_TRUE(out.ok()) << out.status();
    return out.ok() ? (*out)[0].data<float>()[0] : NAN;
  }
};

TEST(ModelsOnTheReference, TheLossOfAnFmIsThatOfItsFormula) {
  ModelOptions options;
  options.kind = "fm";
  options.schema.fields = 2;
  options.schema.rows = 3;
  options.embedding_dim = 2;
  const auto model = build_model(options);
  ASSERT_TRUE(model.ok()) << model.status();
  Step step{.model = *model, .feeds = {}, .variables = {}};
  step.feeds["ids"] = Tensor::of(Shape{1, 2}, std::vector<int64_t>{0, 2});
  step.feeds["label"] = Tensor::of(Shape{1}, std::vector<float>{1});
  step.variables["linear/ids/table"] = Tensor::of(Shape{3, 1}, std::vector<float>{0.5F, 9, -0.25F});
  step.variables["linear/out/bias"] = Tensor::of(Shape{1}, std::vector<float>{0.1F});
  step.variables["embedding/table"] =
      Tensor::of(Shape{3, 2}, std::vector<float>{1, 2, 9, 9, 0.5F, -1});
  // 0.5 - 0.25 + 0.1 + (1 * 0.5 + 2 * -1)
  const double logit = -1.15;
  EXPECT_NEAR(step.run(false), std::log1p(std::exp(-logit)), 1e-6);
}

TEST(ModelsOnTheReference, StepsOfEveryModelLowerItsLoss) {
  for (const std::string& kind : model_names()) {
    ModelOptions options;
    options.kind = kind;
    options.schema.fields = 2;
    options.schema.rows = 5;
    options.schema.dense_width = 2;
    options.embedding_dim = 3;
    options.hidden = {4};
    options.optimizer = optimizer_of("sgd", 0.1);
    const auto model = build_model(options);
    ASSERT_TRUE(model.ok()) << model.status();
    Step step{.model = *model, .feeds = {}, .variables = start_values(*model)};
    step.feeds["ids"] = Tensor::of(Shape{3, 2}, std::vector<int64_t>{0, 1, 2, 3, 4, 1});
    step.feeds["dense"] =
        Tensor::of(Shape{3, 2}, std::vector<float>{0.1F, 0.2F, 0.3F, -0.4F, 0.5F, 0.6F});
    step.feeds["label"] = Tensor::of(Shape{3}, std::vector<float>{1, 0, 1});
    const float before = step.run(false);
    for (int i = 0; i < 10; ++i) step.run(true);
    EXPECT_LT(step.run(false), before - 0.01F) << kind;
  }
}

TEST(ModelsOnTheReference, PaddingOfWeightedRowsChangesNothing) {
  for (const std::string& kind : model_names()) {
    ModelOptions options;
    options.kind = kind;
    options.schema.rows = 5;
    options.schema.weighted = true;
    options.embedding_dim = 3;
    options.hidden = {4};
    const auto model = build_model(options);
    ASSERT_TRUE(model.ok()) << model.status();
    Step step{.model = *model, .feeds = {}, .variables = start_values(*model)};
    step.feeds["label"] = Tensor::of(Shape{1}, std::vector<float>{1});
    step.feeds["ids"] = Tensor::of(Shape{1, 2}, std::vector<int64_t>{0, 3});
    step.feeds["weights"] = Tensor::of(Shape{1, 2}, std::vector<float>{1, 0.5F});
    const float plain = step.run(false);
    step.feeds["ids"] = Tensor::of(Shape{1, 4}, std::vector<int64_t>{0, 3, -1, -1});
    step.feeds["weights"] = Tensor::of(Shape{1, 4}, std::vector<float>{1, 0.5F, 0, 0});
    EXPECT_NEAR(step.run(false), plain, 1e-6) << kind;
  }
}

}  // namespace
}  // namespace sidereal::train
