#include "sidereal/passes/gather_at_variables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sidereal/ops/ops.h"
#include "sidereal/passes/testing/lines.h"

// The shape of what gathers become. What they give is tested where programs run:
// exec/row_layout_test.cc.
namespace sidereal::passes {
namespace {

using ir::DType;
using ir::NodeId;
using ir::Output;
using ir::Shape;
using testing::ElementsAre;

class GatherAtVariables : public testing::Test {
 protected:
  GatherAtVariables() { ops::register_all(&registry_); }

  Output on(const char* device, Output value) {
    graph_.mutable_node(value.node).device = device;
    return value;
  }
  Output handle(const char* name = "v") {
    return on("/ps",
              b_.add("Variable", {},
                     {{"shared_name", name}, {"dtype", DType::kFloat32}, {"shape", Shape{100, 8}}},
                     name));
  }
  Output read(Output variable, const std::vector<NodeId>& after = {}) {
    const NodeId id =
        b_.add_node("VariableRead", {variable},
                    {{"dtype", DType::kFloat32}, {"shape", Shape{100, 8}}}, after, "read");
    return on("/ps", {id, 0});
  }
  Output ids(const char* name = "ids") {
    return on("/ps", ops::placeholder(b_, name, DType::kInt64, Shape{-1, 3}));
  }
  Output gather(Output table, Output at, const char* name = "gather") {
    return on("/ps", b_.add("Gather", {table, at}, {}, name));
  }
  NodeId change(Output variable, Output by, const std::vector<NodeId>& after = {},
                const char* name = "change") {
    const NodeId id = b_.add_node("VariableAssign", {variable, by}, {}, after, name);
    graph_.mutable_node(id).device = "/ps";
    return id;
  }
  Output value(const char* name = "value") {
    return on("/ps", ops::placeholder(b_, name, DType::kFloat32, Shape{100, 8}));
  }
  std::vector<std::string> lines(const std::vector<Output>& fetches,
                                 const std::vector<NodeId>& targets = {}) {
    EXPECT_TRUE(b_.status().ok()) << base::message_of(b_.status());
    made_ = gather_at_variables({graph_, fetches, targets}, registry_);
    return lines_of(made_, registry_);
  }
  [[nodiscard]] std::vector<std::string> waits_of(const char* name) const {
    std::vector<std::string> out;
    for (const NodeId id : made_->graph.find(name)->control_inputs) {
      out.push_back(made_->graph.node(id).name);
    }
    return out;
  }

  ir::OpRegistry registry_;
  ir::Graph graph_;
  ir::Builder b_{&graph_, &registry_};
  Result<StepGraph> made_ = base::internal("nothing was made");
};

TEST_F(GatherAtVariables, take_rows_without_the_rest) {
  const Output rows = gather(read(handle()), ids());
  EXPECT_THAT(lines({rows}), ElementsAre("v = Variable", "gather = VariableGather v ids"));
  EXPECT_EQ(made_->graph.find("gather")->outputs[0].shape, (Shape{-1, 3, 8}));
  EXPECT_EQ(made_->graph.find("gather")->device, "/ps");
}

TEST_F(GatherAtVariables, segments_are_sums_of_gathered_rows) {
  const Output at = on("/ps", ops::placeholder(b_, "at", DType::kInt64, Shape{-1}));
  const Output segments = on("/ps", ops::placeholder(b_, "segments", DType::kInt64, Shape{-1}));
  const Output sums =
      on("/ps", b_.add("SparseSegmentMean", {read(handle()), at, segments}, {}, "sums"));
  EXPECT_THAT(lines({sums}), ElementsAre("v = Variable", "sums/rows = VariableGather v at",
                                         "sums = SparseSegmentMean sums/rows at segments"));
  EXPECT_TRUE(ir::attr_or(made_->graph.find("sums")->attrs, "gathered", false));
}

TEST_F(GatherAtVariables, what_others_read_whole_or_elsewhere_is_read) {
  const Output table = read(handle());
  const Output elsewhere = on("/w", b_.add("Gather", {table, ids()}, {}, "elsewhere"));
  const Output columns =
      on("/ps", b_.add("Gather", {table, ids("j")}, {{"axis", int64_t{1}}}, "columns"));
  EXPECT_THAT(lines({elsewhere, columns, gather(table, ids("k"))}),
              ElementsAre("v = Variable", "read = VariableRead v", "elsewhere = Gather read ids",
                          "columns = Gather read j", "gather = VariableGather v k"));
}

TEST_F(GatherAtVariables, run_after_what_the_read_ran_after) {
  const Output v = handle();
  const NodeId first = change(v, value(), {}, "first");
  const Output rows = gather(read(v, {first}), ids());
  EXPECT_THAT(lines({rows}), ElementsAre("v = Variable", "first = VariableAssign v value",
                                         "gather = VariableGather v ids"));
  EXPECT_THAT(waits_of("gather"), ElementsAre("first"));
}

TEST_F(GatherAtVariables, a_change_after_the_read_waits_for_the_gather) {
  const Output v = handle();
  const Output table = read(v);
  const Output rows = gather(table, ids());
  const NodeId then = change(v, value(), {table.node});
  EXPECT_THAT(lines({rows}, {then}), ElementsAre("v = Variable", "gather = VariableGather v ids",
                                                 "change = VariableAssign v value"));
  EXPECT_THAT(waits_of("change"), ElementsAre("gather"));
}

TEST_F(GatherAtVariables, a_change_comes_after_all_gathers_of_one_read) {
  const Output v = handle();
  const Output table = read(v);
  const Output one = gather(table, ids("i"), "one");
  const Output two = gather(table, ids("j"), "two");
  const NodeId then = change(v, value());
  EXPECT_THAT(lines({one, two}, {then}),
              ElementsAre("v = Variable", "one = VariableGather v i", "two = VariableGather v j",
                          "change = VariableAssign v value"));
  EXPECT_THAT(waits_of("change"), ElementsAre("one", "two"));
}

TEST_F(GatherAtVariables, the_value_before_a_change_is_read_where_the_rows_come_after_it) {
  const Output v = handle();
  const Output table = read(v);
  const NodeId change_first = change(v, value(), {table.node});
  const NodeId late = b_.add_node("Gather", {table, ids()}, {}, {change_first}, "late");
  graph_.mutable_node(late).device = "/ps";
  EXPECT_THAT(lines({{late, 0}}),
              ElementsAre("v = Variable", "read = VariableRead v",
                          "change = VariableAssign v value", "late = Gather read ids"));
}

TEST_F(GatherAtVariables, an_unordered_change_is_left_so_for_an_only_reader) {
  const Output v = handle();
  const Output rows = gather(read(v), ids());
  const NodeId other = change(v, value());
  EXPECT_THAT(lines({rows}, {other}), ElementsAre("v = Variable", "gather = VariableGather v ids",
                                                  "change = VariableAssign v value"));
  EXPECT_THAT(waits_of("change"), ElementsAre());
}

}  // namespace
}  // namespace sidereal::passes
