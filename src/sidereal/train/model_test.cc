#include "sidereal/train/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sidereal/ir/verify.h"
#include "sidereal/ops/ops.h"
#include "sidereal/train/layers.h"
#include "sidereal/train/optimizers.h"

namespace sidereal::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Model, CompilesOneDenseLayerIntoLossProbabilityAndUpdates) {
  Model model(7);
  const Output x = model.input("dense", ir::DType::kFloat32, {3});
  const auto compiled = model.compile(Dense{.units = 1}(model, x), optimizer_of("sgd", 0.5));
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  EXPECT_EQ(compiled->loss, "loss");
  EXPECT_EQ(compiled->prediction, "probability");
  EXPECT_THAT(compiled->inputs, ElementsAre("dense", "label"));
  EXPECT_EQ(compiled->targets.size(), 2);
  const ir::Graph& graph = compiled->graph;
  EXPECT_EQ(graph.spec(*graph.find_output("loss")).shape, ir::Shape({}));
  EXPECT_EQ(graph.spec(*graph.find_output("probability")).shape, ir::Shape({-1, 1}));
  EXPECT_EQ(compiled->find_variable("dense/kernel")->optimizer, optimizer_of("sgd", 0.5));
  ir::OpRegistry registry;
  ops::register_all(&registry);
  EXPECT_TRUE(ir::verify(graph, registry).ok());
}

TEST(Model, APenaltyOfALayerGoesOnTopOfTheModelsOptimizer) {
  Model model;
  const Output x = model.input("dense", ir::DType::kFloat32, {3});
  const Output logit = Dense{.units = 1, .name = "d", .l2 = 0.25}(model, x);
  const auto compiled = model.compile(logit, optimizer_of("adam", 0.1));
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  OptimizerDef expected = optimizer_of("adam", 0.1);
  EXPECT_EQ(compiled->find_variable("d/bias")->optimizer, expected);
  expected.parameters["l2_penalty"] = 0.25;
  EXPECT_EQ(compiled->find_variable("d/kernel")->optimizer, expected);
}

TEST(Model, SeedsDifferFromEachOtherAndAreTheSameInEveryRun) {
  Model a(1);
  Model b(1);
  Model c(2);
  const uint64_t first = a.next_seed();
  EXPECT_EQ(first, b.next_seed());
  EXPECT_NE(first, c.next_seed());
  EXPECT_NE(first, a.next_seed());
}

TEST(Model, AVariableStartsAsAValueOfItsOwnDtypeAndShape) {
  const auto start = [](ir::DType dtype, const ir::Shape& shape) {
    Model model;
    const VariableOptions options{
        .value = std::make_shared<const ir::Tensor>(ir::Tensor::zeros(dtype, shape))};
    model.variable("w", {2, 3}, options);
    return std::string(base::message_of(model.builder().status()));
  };
  EXPECT_EQ(start(ir::DType::kFloat32, {2, 3}), "");
  EXPECT_THAT(start(ir::DType::kFloat32, {3}), HasSubstr("float32[2,3] and would start as"));
  EXPECT_THAT(start(ir::DType::kFloat64, {2, 3}), HasSubstr("would start as float64[2,3]"));
}

TEST(Model, ALogitOfAnotherShapeIsRefused) {
  Model model;
  const Output x = model.input("dense", ir::DType::kFloat32, {3});
  const auto compiled = model.compile(x, optimizer_of("sgd"));
  ASSERT_EQ(compiled.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(base::message_of(compiled.status()), HasSubstr("float32[?,3]"));
}

TEST(Model, TheFirstErrorOfALayerComesOutOfCompile) {
  Model model;
  const Output x = model.input("dense", ir::DType::kFloat32, {3});
  const Output y = Dense{.units = 4, .activation = "swosh"}(model, x);
  const auto compiled = model.compile(Dense{.units = 1}(model, y), optimizer_of("sgd"));
  ASSERT_EQ(compiled.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(base::message_of(compiled.status()), HasSubstr("no activation 'swosh'"));
}

TEST(Model, CompilesOnceOnly) {
  Model model;
  const Output x = model.input("dense", ir::DType::kFloat32, {3});
  const Output logit = Dense{.units = 1}(model, x);
  ASSERT_TRUE(model.compile(logit, optimizer_of("sgd")).ok());
  EXPECT_EQ(model.compile(logit, optimizer_of("sgd")).status().code(),
            StatusCode::kFailedPrecondition);
}

TEST(Model, ALossOfItsOwnMustBeAScalarThatDependsOnAVariable) {
  const auto compile = [](bool is_scalar, bool is_trained) {
    Model model;
    const Output x = model.input("dense", ir::DType::kFloat32, {3});
    const Output y = is_trained ? Dense{.units = 1}(model, x) : x;
    const Output squares = ops::square(model.builder(), y);
    const Output loss = is_scalar ? ops::reduce_mean(model.builder(), squares, {}, false) : squares;
    return model.compile(y, loss, optimizer_of("sgd"));
  };
  const auto compiled = compile(true, true);
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  EXPECT_FALSE(compiled->is_binary);
  EXPECT_THAT(compiled->inputs, ElementsAre("dense"));
  EXPECT_THAT(base::message_of(compile(false, true).status()), HasSubstr("a float32 scalar"));
  EXPECT_THAT(base::message_of(compile(true, false).status()), HasSubstr("nothing to minimize"));
}

TEST(Model, SlotsAreCalledAfterTheirVariables) {
  Model model;
  const Output x = model.input("dense", ir::DType::kFloat32, {3});
  const auto compiled = model.compile(Dense{.units = 1}(model, x), optimizer_of("adam"));
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  const ModelVariable& kernel = *compiled->find_variable("dense/kernel");
  ASSERT_EQ(kernel.slots.size(), 2U);
  EXPECT_EQ(kernel.slots[0].name, "dense/kernel/m");
  EXPECT_EQ(kernel.slots[1].shape, kernel.shape);
  EXPECT_EQ(compiled->graph.find("dense/kernel/m")->op, "Variable");
}

TEST(Model, TwoInputsOfOneNameAreRefused) {
  Model model;
  model.input("x", ir::DType::kFloat32, {3});
  const Output x = model.input("x", ir::DType::kFloat32, {3});
  EXPECT_FALSE(x.valid());
  EXPECT_EQ(model.builder().status().code(), StatusCode::kAlreadyExists);
}

}  // namespace
}  // namespace sidereal::train
