#include "sidereal/train/objective.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sidereal/train/models.h"

namespace sidereal::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

data::Schema schema_of(std::vector<std::string> targets = {}) {
  data::Schema schema;
  schema.dense_width = 2;
  schema.fields = 3;
  schema.rows = 60;
  schema.sequences = {{"history", 4}};
  schema.targets = std::move(targets);
  return schema;
}

ModelOptions options_of(const std::string& kind, Objective objective, data::Schema schema) {
  ModelOptions options;
  options.kind = kind;
  options.schema = std::move(schema);
  options.hidden = {8, 4};
  options.objective = std::move(objective);
  return options;
}

TEST(Objective, EveryLossCompilesForEveryModelThatTakesIt) {
  for (const std::string& kind : model_names()) {
    for (const std::string& loss : loss_names()) {
      const bool has_classes = loss == "sparse_categorical_crossentropy";
      if (has_classes && (kind == "fm" || kind == "deepfm")) continue;
      const auto model = build_model(
          options_of(kind, {.loss = loss, .classes = has_classes ? 3 : 0}, schema_of()));
      ASSERT_TRUE(model.ok()) << kind << ", " << loss << ": " << model.status();
      EXPECT_EQ(model->is_binary, loss == "binary_crossentropy");
      EXPECT_THAT(model->inputs, ::testing::Contains("history"));
    }
  }
}

TEST(Objective, SeveralLabelsShareExperts) {
  const auto model = build_model(options_of("mmoe", {}, schema_of({"buy", "stay"})));
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(model->inputs, ElementsAre("history", "ids", "dense", "label", "buy", "stay"));
  EXPECT_NE(model->find_variable("experts/kernel"), nullptr);
  EXPECT_EQ(model->find_variable("experts/kernel")->shape, (ir::Shape{66, 32}));
  EXPECT_NE(model->find_variable("task_2/head/kernel"), nullptr);
}

TEST(Objective, SaysWhatDoesNotGoTogether) {
  const auto message = [](const ModelOptions& options) {
    return std::string(build_model(options).status().message());
  };
  EXPECT_THAT(message(options_of("lr", {.loss = "hinge"}, schema_of())),
              HasSubstr("no loss 'hinge'"));
  EXPECT_THAT(message(options_of("lr", {.loss = "sparse_categorical_crossentropy"}, schema_of())),
              HasSubstr("2 classes or more"));
  EXPECT_THAT(message(options_of("lr", {.classes = 3}, schema_of())), HasSubstr("classes are of"));
  EXPECT_THAT(message(options_of("lr", {}, schema_of({"buy"}))), HasSubstr("mmoe learns several"));
  data::Schema grouped = schema_of();
  grouped.has_group = true;
  EXPECT_THAT(message(options_of("lr", {}, grouped)), HasSubstr("groups of rows are of the loss"));
  data::Schema negative = schema_of();
  negative.has_negatives = true;
  EXPECT_THAT(message(options_of("lr", {.loss = "sparse_categorical_crossentropy", .classes = 3},
                                 negative)),
              HasSubstr("negatives have the label 0, which is a class"));
  EXPECT_TRUE(build_model(options_of("lr", {.loss = "mse"}, negative)).ok());
  EXPECT_THAT(
      message(options_of("deepfm", {.loss = "sparse_categorical_crossentropy", .classes = 3},
                         schema_of())),
      HasSubstr("take lr, wdl, dcn or mmoe for 3 classes"));
}

}  // namespace
}  // namespace sidereal::train
