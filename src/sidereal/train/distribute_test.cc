#include "sidereal/train/distribute.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sidereal/ir/verify.h"
#include "sidereal/ops/ops.h"
#include "sidereal/train/models.h"

namespace sidereal::train {
namespace {

using ::testing::ElementsAre;

class Distribute : public testing::Test {
 protected:
  Distribute() { ops::register_all(&registry_); }

  DistributedModel spread(const Topology& topology, double dropout = 0) {
    ModelOptions options;
    options.kind = "wdl";
    options.schema.fields = 3;
    options.schema.rows = 7;
    options.embedding_dim = 4;
    options.hidden = {8};
    options.dropout = dropout;
    options.optimizer = optimizer_of("adam");
    model_ = build_model(options).value();
    const auto placement = first_placement(model_, topology, {.parts_per_lane = 1});
    auto made = distribute(model_, placement.value(), registry_);
    EXPECT_TRUE(made.ok()) << made.status();
    EXPECT_TRUE(ir::verify(made->graph, registry_).ok());
    return *std::move(made);
  }
  static const ir::Node& node(const DistributedModel& made, const std::string& name) {
    const ir::Node* const found = made.graph.find(name);
    EXPECT_NE(found, nullptr) << name;
    return *found;
  }

  ir::OpRegistry registry_;
  CompiledModel model_;
};

TEST_F(Distribute, tables_lie_in_parts_round_robin_over_tasks_and_their_slots_with_them) {
  const DistributedModel made = spread({.ps = 2, .lanes = 2});
  EXPECT_EQ(made.variables.at("embedding/table").reads.size(), 4U);
  for (int part = 0; part < 4; ++part) {
    const std::string name = fmt::format("embedding/table/part_{}", part);
    for (const std::string& one : {name, name + "/m", name + "/v"}) {
      const ir::Node& handle = node(made, one);
      EXPECT_EQ(handle.device, fmt::format("/job:ps/task:{}", part % 2));
      EXPECT_EQ(std::get<std::string>(handle.attrs.at("shared_name")), one);
      EXPECT_EQ(std::get<ir::Shape>(handle.attrs.at("shape")), (ir::Shape{part < 3 ? 2 : 1, 4}));
    }
  }
}

TEST_F(Distribute, a_table_has_no_more_parts_than_rows_and_one_part_keeps_its_name) {
  EXPECT_EQ(spread({.ps = 2, .lanes = 8}).variables.at("embedding/table").reads.size(), 7U);
  const DistributedModel made = spread({.ps = 1});
  EXPECT_THAT(made.variables.at("embedding/table").reads,
              ElementsAre("read/embedding/table/part_0"));
}

TEST_F(Distribute, a_table_may_start_as_a_value_of_which_parts_have_their_rows) {
  Model model;
  const ir::Output ids = model.input("ids", ir::DType::kInt64, {2});
  const auto value = ir::Tensor::of<float>({5, 1}, std::vector<float>{0, 1, 2, 3, 4});
  const ir::Output table = model.variable(
      "table", {5, 1}, {.value = std::make_shared<const ir::Tensor>(value), .is_table = true});
  const ir::Output rows = ops::embedding_lookup(model.builder(), ids, {table}, 5, 1);
  const ir::Output logit = ops::reduce_sum(model.builder(), rows, {1}, false);
  const CompiledModel compiled = model.compile(logit, optimizer_of("sgd")).value();
  const DistributedModel made =
      distribute(compiled, first_placement(compiled, {.ps = 2}, {.parts_per_lane = 1}).value(),
                 registry_)
          .value();
  const std::vector<std::vector<float>> want = {{0, 2, 4}, {1, 3}};
  for (size_t part = 0; part < 2; ++part) {
    const ir::Node& assign = node(made, fmt::format("initialize/assign_table/part_{}", part));
    const ir::Node& first = made.graph.node(assign.inputs[1].node);
    EXPECT_EQ(first.device, fmt::format("/job:ps/task:{}", part));
    const auto got = std::get<ir::Tensor>(first.attrs.at("value")).data<const float>();
    EXPECT_EQ(std::vector<float>(got.begin(), got.end()), want[part]);
  }
}

TEST_F(Distribute, whole_variables_go_where_least_is) {
  const DistributedModel made = spread({.ps = 2});
  EXPECT_EQ(node(made, "mlp/0/kernel").device, "/job:ps/task:0");
  EXPECT_EQ(node(made, "mlp/0/bias").device, "/job:ps/task:1");
  EXPECT_EQ(node(made, "head/kernel").device, "/job:ps/task:1");
  EXPECT_EQ(node(made, "head/kernel/m").device, "/job:ps/task:1");
}

TEST_F(Distribute, predictions_know_no_dropout_and_share_all_before_it) {
  const DistributedModel plain = spread({.ps = 1});
  EXPECT_EQ(plain.prediction, model_.prediction);
  const DistributedModel made = spread({.ps = 1}, 0.5);
  EXPECT_EQ(made.prediction, "inference/" + model_.prediction);
  EXPECT_NE(made.loss, model_.loss);
  EXPECT_EQ(made.graph.find("inference/mlp/0/mat_mul"), nullptr);
  EXPECT_FALSE(std::get<bool>(node(made, "inference/mlp/dropout").attrs.at("training")));
}

TEST_F(Distribute, a_worker_has_what_is_on_no_ps) {
  const ir::Graph graph = on_worker(spread({.ps = 2}).graph, 3, registry_);
  EXPECT_EQ(graph.find("mlp/0/mat_mul")->device, "/job:worker/task:3");
  EXPECT_EQ(graph.find("embedding/lookup")->device, "/job:worker/task:3");
  EXPECT_EQ(graph.find("mlp/0/kernel")->device, "/job:ps/task:0");
  // Updates follow what they update.
  EXPECT_EQ(graph.find("apply/mlp/0/kernel")->device, "");
}

}  // namespace
}  // namespace sidereal::train
