#include "sidereal/train/models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <sstream>

#include "sidereal/ir/text.h"
#include "sidereal/ir/verify.h"
#include "sidereal/ops/ops.h"

namespace sidereal::train {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

data::Schema criteo() {
  data::Schema schema;
  schema.dense_width = 13;
  schema.fields = 26;
  schema.rows = 26 * 1000;
  return schema;
}

data::Schema csv() {
  data::Schema schema;
  schema.fields = 10;
  schema.rows = 5382;
  return schema;
}

data::Schema libsvm() {
  data::Schema schema;
  schema.rows = 124;
  schema.weighted = true;
  return schema;
}

data::Schema numbers_only() {
  data::Schema schema;
  schema.dense_width = 4;
  return schema;
}

std::vector<std::string> variable_names(const CompiledModel& model) {
  std::vector<std::string> names;
  for (const ModelVariable& v : model.variables) names.push_back(v.name);
  return names;
}

TEST(Models, EveryModelCompilesForEverySchema) {
  ir::OpRegistry registry;
  ops::register_all(&registry);
  for (const std::string& kind : model_names()) {
    for (const data::Schema& schema : {criteo(), csv(), libsvm(), numbers_only()}) {
      if (kind == "fm" && schema.rows == 0) continue;
      ModelOptions options;
      options.kind = kind;
      options.schema = schema;
      options.hidden = {8, 4};
      options.dropout = 0.1;
      const auto model = build_model(options);
      ASSERT_TRUE(model.ok()) << kind << ": " << model.status();
      EXPECT_TRUE(ir::verify(model->graph, registry).ok()) << kind;
      EXPECT_EQ(model->graph.spec(*model->graph.find_output(model->prediction)).shape,
                ir::Shape({-1, 1}));
      // And the count of steps, which adam uses.
      EXPECT_EQ(model->targets.size(), model->variables.size() + 1) << kind;
      for (const ModelVariable& v : model->variables) {
        EXPECT_EQ(v.optimizer.kind, "adam") << kind << " " << v.name;
      }
    }
  }
}

TEST(Models, InputsFollowTheSchema) {
  ModelOptions options;
  options.kind = "lr";
  options.schema = criteo();
  EXPECT_THAT(build_model(options)->inputs, ElementsAre("ids", "dense", "label"));
  options.schema = libsvm();
  EXPECT_THAT(build_model(options)->inputs, ElementsAre("ids", "weights", "label"));
  options.schema = numbers_only();
  EXPECT_THAT(build_model(options)->inputs, ElementsAre("dense", "label"));
}

TEST(Models, VariablesAreCalledAfterTheirPart) {
  ModelOptions options;
  options.schema = criteo();
  options.hidden = {8};
  EXPECT_THAT(variable_names(*build_model(options)),
              ElementsAre("linear/ids/table", "linear/dense/kernel", "linear/out/bias",
                          "embedding/table", "mlp/0/kernel", "mlp/0/bias", "head/kernel"));
  options.kind = "dcn";
  EXPECT_THAT(variable_names(*build_model(options)),
              ::testing::AllOf(Contains("cross/2/kernel"), Contains("head/bias")));
}

TEST(Models, PenaltiesGoToTheirKindOfVariable) {
  ModelOptions options;
  options.schema = criteo();
  options.hidden = {8};
  options.l2_embedding = 1;
  options.l2_linear = 2;
  options.l2_dense = 3;
  const auto model = build_model(options);
  const auto penalty = [&model](const char* name) {
    const auto& parameters = model->find_variable(name)->optimizer.parameters;
    const auto it = parameters.find("l2_penalty");
    return it == parameters.end() ? 0 : it->second;
  };
  EXPECT_EQ(penalty("embedding/table"), 1);
  EXPECT_EQ(penalty("linear/ids/table"), 2);
  EXPECT_EQ(penalty("linear/dense/kernel"), 2);
  EXPECT_EQ(penalty("mlp/0/kernel"), 3);
  EXPECT_EQ(penalty("head/kernel"), 3);
  EXPECT_EQ(penalty("mlp/0/bias"), 0);
}

TEST(Models, OneSeedGivesOneGraphAndAnotherSeedAnother) {
  ModelOptions options;
  options.schema = csv();
  options.hidden = {8};
  options.seed = 3;
  const CompiledModel once = *build_model(options);
  const auto seed = [](const CompiledModel& model) {
    return model.find_variable("embedding/table")->options.initializer.seed;
  };
  EXPECT_EQ(ir::to_text(once.graph), ir::to_text(build_model(options)->graph));
  EXPECT_EQ(seed(once), seed(*build_model(options)));
  options.seed = 4;
  EXPECT_NE(seed(once), seed(*build_model(options)));
}

TEST(Models, WhatCannotBeBuiltIsRefusedByName) {
  const auto message = [](const std::function<void(ModelOptions*)>& change) {
    ModelOptions options;
    options.schema = csv();
    change(&options);
    const auto model = build_model(options);
    EXPECT_EQ(model.status().code(), StatusCode::kInvalidArgument);
    return base::message_of(model.status());
  };
  EXPECT_THAT(message([](ModelOptions* o) { o->kind = "transformer"; }),
              HasSubstr("lr, fm, wdl, deepfm, dcn"));
  EXPECT_THAT(message([](ModelOptions* o) { o->hidden = {8, 0}; }), HasSubstr("hidden"));
  EXPECT_THAT(message([](ModelOptions* o) { o->embedding_dim = 0; }), HasSubstr("embedding_dim"));
  EXPECT_THAT(message([](ModelOptions* o) { o->optimizer.kind = "tiger"; }), HasSubstr("tiger"));
  EXPECT_THAT(message([](ModelOptions* o) { o->schema = {}; }), HasSubstr("neither"));
  EXPECT_THAT(message([](ModelOptions* o) {
                o->kind = "fm";
                o->schema = numbers_only();
              }),
              HasSubstr("fm needs categorical"));
  EXPECT_THAT(message([](ModelOptions* o) { o->dropout = 1.5; }), HasSubstr("rate"));
}

// SIDEREAL_BLESS=1 in the environment rewrites the file instead of comparing.
TEST(Models, TheGraphOfATinyFmIsTheGoldenOne) {
  const char* path = "tests/golden/train_fm.graph.txt";
  ModelOptions options;
  options.kind = "fm";
  options.schema.fields = 2;
  options.schema.rows = 10;
  options.embedding_dim = 4;
  options.optimizer = optimizer_of("sgd", 0.5);
  const std::string text = ir::to_text(build_model(options)->graph);
  if (std::getenv("SIDEREAL_BLESS") != nullptr) std::ofstream(path) << text;
  std::stringstream golden;
  golden << std::ifstream(path).rdbuf();
  EXPECT_EQ(text, golden.str());
}

}  // namespace
}  // namespace sidereal::train
