#include "sidereal/train/synchronize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sidereal/ir/verify.h"
#include "sidereal/ops/ops.h"
#include "sidereal/train/layers.h"
#include "sidereal/train/models.h"

// The graph of replicas that wait for each other. What it does on clusters: synchronous_test.cc.
namespace sidereal::train {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Hybrid : public testing::Test {
 protected:
  Hybrid() { ops::register_all(&registry_); }

  Result<ReplicaModel> made_of(const CompiledModel& model) {
    SR_ASSIGN_OR_RETURN(const Placement placement,
                        first_placement(model, {.ps = 2}, {.parts_per_lane = 1}));
    SR_ASSIGN_OR_RETURN(const DistributedModel spread, distribute(model, placement, registry_));
    SR_ASSIGN_OR_RETURN(const config::Consistency hybrid, config::parse_consistency("hybrid"));
    return synchronize(model, spread, hybrid, registry_);
  }
  /// Names of what must have run before that node.
  static std::vector<std::string> before(const ReplicaModel& made, const std::string& name) {
    std::vector<std::string> out;
    const ir::Node* const found = made.graph.find(name);
    EXPECT_NE(found, nullptr) << name;
    if (found == nullptr) return out;
    for (const ir::NodeId id : found->control_inputs) out.push_back(made.graph.node(id).name);
    return out;
  }

  ir::OpRegistry registry_;
};

TEST_F(Hybrid, a_step_ends_behind_own_updates_of_tables_and_means_are_of_the_others) {
  ModelOptions options;
  options.kind = "wdl";
  options.schema.fields = 3;
  options.schema.rows = 7;
  options.hidden = {8};
  options.optimizer = optimizer_of("adam");
  const CompiledModel model = build_model(options).value();
  const auto made = made_of(model);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_TRUE(ir::verify(made->graph, registry_).ok());
  ASSERT_THAT(made->targets, ElementsAre("synchronous/await"));
  const std::vector<std::string> ended = before(*made, "synchronous/await");
  int tables = 0;
  for (const ModelVariable& variable : model.variables) {
    if (variable.options.is_table) {
      ++tables;
      EXPECT_THAT(ended, Contains(variable.update));
      EXPECT_EQ(made->graph.find(variable.name + "/part_0/gradient"), nullptr);
    } else {
      EXPECT_THAT(ended, Contains("contribute/" + variable.name));
      EXPECT_NE(made->graph.find(variable.name + "/gradient"), nullptr) << variable.name;
    }
  }
  EXPECT_EQ(tables, 2);
  // Gradients that may end a step are given with its number, so that counts are those of the step.
  EXPECT_THAT(before(*made, "synchronous/local_step"), ElementsAre("steps_done"));
}

TEST_F(Hybrid, a_model_of_tables_alone_is_refused) {
  Model model;
  const ir::Output ids = model.input("ids", ir::DType::kInt64, {2});
  const ir::Output rows = Embedding{.rows = 5, .dim = 1}(model, ids);
  const ir::Output logit =
      ops::reduce_sum(model.builder(), ops::reshape(model.builder(), rows, {-1, 2}), {1}, false);
  const Status status = made_of(model.compile(logit, optimizer_of("sgd")).value()).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(base::message_of(status), HasSubstr("write 'bounded(1)'"));
}

}  // namespace
}  // namespace sidereal::train
