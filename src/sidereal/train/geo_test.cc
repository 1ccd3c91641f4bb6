#include "sidereal/train/geo.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sidereal/ir/verify.h"
#include "sidereal/ops/ops.h"
#include "sidereal/train/layers.h"
#include "sidereal/train/models.h"

// The graph of replicas that train copies. What it does on clusters: synchronous_test.cc and
// python/tests/test_geo.py.
namespace sidereal::train {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class Geo : public testing::Test {
 protected:
  Geo() { ops::register_all(&registry_); }

  Result<CopiesModel> made_of(const CompiledModel& model) {
    SR_ASSIGN_OR_RETURN(const Placement placement,
                        first_placement(model, {.ps = 2}, {.parts_per_lane = 1}));
    SR_ASSIGN_OR_RETURN(const DistributedModel spread, distribute(model, placement, registry_));
    return train_on_copies(model, spread, 2, registry_);
  }

  ir::OpRegistry registry_;
};

TEST_F(Geo, a_step_works_with_copies_of_dense_variables_and_with_tables_where_they_are) {
  ModelOptions options;
  options.kind = "wdl";
  options.schema.fields = 3;
  options.schema.rows = 7;
  options.hidden = {8};
  options.optimizer = optimizer_of("adam");
  const CompiledModel model = build_model(options).value();
  const auto made = made_of(model);
  ASSERT_TRUE(made.ok()) << made.status();
  const ir::Graph& graph = made->replica.graph;
  EXPECT_TRUE(ir::verify(graph, registry_).ok()) << ir::verify(graph, registry_);
  EXPECT_THAT(made->replica.leave, SizeIs(2));
  EXPECT_THAT(made->replica.targets, Contains("geo/end"));
  const ir::Node* const begin = graph.find("geo/begin");
  const ir::Node* const end = graph.find("geo/end");
  ASSERT_TRUE(begin != nullptr && end != nullptr);
  int tables = 0;
  for (const ModelVariable& variable : model.variables) {
    const ir::Node* const update = graph.find(variable.update);
    ASSERT_NE(update, nullptr) << variable.name;
    if (variable.options.is_table) {
      ++tables;
      EXPECT_EQ(graph.node(update->inputs[4].node).device, "/job:ps/task:0");
      EXPECT_THAT(end->control_inputs, testing::Not(Contains(update->id)));
      continue;
    }
    // Handles: of the variable, and of Adam's two slots.
    for (const size_t handle : {0, 4, 5}) {
      const ir::Node& copy = graph.node(update->inputs[handle].node);
      EXPECT_TRUE(copy.name.starts_with("geo/copy/" + variable.name)) << copy.name;
      EXPECT_EQ(copy.device, "");
      EXPECT_EQ(std::get<int64_t>(copy.attrs.at("of_lane")), -1);
    }
    EXPECT_THAT(update->control_inputs, Contains(begin->id));
    EXPECT_THAT(end->control_inputs, Contains(update->id));
    EXPECT_EQ(graph.find(variable.name), nullptr);
  }
  EXPECT_EQ(tables, 2);
}

TEST_F(Geo, a_model_of_tables_alone_is_refused) {
  Model model;
  const ir::Output ids = model.input("ids", ir::DType::kInt64, {2});
  const ir::Output rows = Embedding{.rows = 5, .dim = 1}(model, ids);
  const ir::Output logit =
      ops::reduce_sum(model.builder(), ops::reshape(model.builder(), rows, {-1, 2}), {1}, false);
  const Status status = made_of(model.compile(logit, optimizer_of("sgd")).value()).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(base::message_of(status), HasSubstr("write 'async'"));
}

}  // namespace
}  // namespace sidereal::train
