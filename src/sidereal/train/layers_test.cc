#include "sidereal/train/layers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

namespace sidereal::train {
namespace {

using ir::DType;
using ir::Shape;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> variables(Model& model) {
  std::vector<std::string> names;
  for (const ModelVariable& v : model.variables()) {
    names.push_back(v.name + v.shape.to_string());
  }
  return names;
}

Shape shape(Model& model, Output x) { return model.builder().spec(x).shape; }

TEST(Layers, AnEmbeddingGivesOneRowPerId) {
  Model model;
  const Output ids = model.input("ids", DType::kInt64, {26});
  const Output rows = Embedding{.rows = 100, .dim = 8, .name = "users"}(model, ids);
  ASSERT_TRUE(model.builder().status().ok()) << model.builder().status();
  EXPECT_EQ(shape(model, rows), Shape({-1, 26, 8}));
  EXPECT_THAT(variables(model), ElementsAre("users/table[100,8]"));
  const VariableOptions& table = model.variables()[0].options;
  EXPECT_TRUE(table.is_table);
  EXPECT_EQ(table.initializer.kind, "normal");
  EXPECT_NE(table.initializer.seed, 0U);
}

TEST(Layers, AnMlpNamesItsLayersByNumber) {
  Model model;
  const Output x = model.input("dense", DType::kFloat32, {5});
  const Output y = Mlp{.hidden = {4, 3}, .dropout = 0.5, .name = "tower"}(model, x);
  ASSERT_TRUE(model.builder().status().ok()) << model.builder().status();
  EXPECT_EQ(shape(model, y), Shape({-1, 3}));
  EXPECT_THAT(variables(model), ElementsAre("tower/0/kernel[5,4]", "tower/0/bias[4]",
                                            "tower/1/kernel[4,3]", "tower/1/bias[3]"));
}

TEST(Layers, LayersWithoutANameGetOneOfTheirOwn) {
  Model model;
  const Output x = model.input("dense", DType::kFloat32, {2});
  const Output y = Dense{.units = 2, .use_bias = false}(model, x);
  Dense{.units = 2, .use_bias = false}(model, y);
  EXPECT_THAT(variables(model), ElementsAre("dense/kernel[2,2]", "dense_1/kernel[2,2]"));
}

TEST(Layers, TwoLayersOfOneGivenNameAreRefused) {
  Model model;
  const Output x = model.input("dense", DType::kFloat32, {2});
  Dense{.units = 2, .name = "d"}(model, x);
  Dense{.units = 2, .name = "d"}(model, x);
  EXPECT_EQ(model.builder().status().code(), StatusCode::kAlreadyExists);
}

TEST(Layers, FlattenAndConcatenateKeepTheBatchUnknown) {
  Model model;
  const Output ids = model.input("ids", DType::kInt64, {3});
  const Output dense = model.input("dense", DType::kFloat32, {13});
  const Output rows = Embedding{.rows = 10, .dim = 4}(model, ids);
  const Output x = Concatenate{}(model, {Flatten{}(model, rows), dense});
  ASSERT_TRUE(model.builder().status().ok()) << model.builder().status();
  EXPECT_EQ(shape(model, x), Shape({-1, 25}));
}

TEST(Layers, FlattenRefusesExtentsThatVary) {
  Model model;
  const Output ids = model.input("ids", DType::kInt64, {-1});
  Flatten{}(model, Embedding{.rows = 10, .dim = 4}(model, ids));
  EXPECT_THAT(base::message_of(model.builder().status()), HasSubstr("[?,?,4]"));
}

TEST(Layers, BagsAndInteractionsTakeAnyNumberOfFields) {
  Model model;
  const Output ids = model.input("ids", DType::kInt64, {-1});
  const Output weights = model.input("weights", DType::kFloat32, {-1});
  const Output rows = Embedding{.rows = 10, .dim = 4}(model, ids);
  EXPECT_EQ(shape(model, WeightedSum{}(model, rows, weights)), Shape({-1, 4}));
  EXPECT_EQ(shape(model, FactorizationMachine{}(model, Weighted{}(model, rows, weights))),
            Shape({-1, 1}));
  EXPECT_TRUE(model.builder().status().ok()) << model.builder().status();
}

TEST(Layers, ACrossNetworkKeepsTheShape) {
  Model model;
  const Output x = model.input("dense", DType::kFloat32, {5});
  const Output y = CrossNetwork{.layers = 2}(model, x);
  ASSERT_TRUE(model.builder().status().ok()) << model.builder().status();
  EXPECT_EQ(shape(model, y), Shape({-1, 5}));
  EXPECT_THAT(variables(model), ElementsAre("cross/0/kernel[5,1]", "cross/0/bias[5]",
                                            "cross/1/kernel[5,1]", "cross/1/bias[5]"));
}

TEST(Layers, BadNumbersAreRefused) {
  for (const auto& build : std::vector<std::function<void(Model&, Output)>>{
           [](Model&m, Output x) { Dense{.units = 0}(m, x); },
           [](Model&m, Output x) { Dropout{.rate = 1}(m, x); },
           [](Model&m, Output x) { Embedding{.rows = 4, .dim = 0}(m, x); },
       }) {
    Model model;
    build(model, model.input("x", DType::kFloat32, {2}));
    EXPECT_EQ(model.builder().status().code(), StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace sidereal::train
