#include "sidereal/passes/unite_routes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sidereal/ops/ops.h"
#include "sidereal/passes/expand_lookups.h"
#include "sidereal/passes/testing/lines.h"

// Goldens of united routes. That results stay the same is tested where programs run, in exec.
namespace sidereal::passes {
namespace {

using ir::DType;
using ir::Output;
using testing::ElementsAre;

class UniteRoutesTest : public testing::Test {
 protected:
  UniteRoutesTest() { ops::register_all(&registry_); }

  Output on(const char* device, Output value) {
    graph_.mutable_node(value.node).device = device;
    return value;
  }
  /// The handle of a variable on the ps.
  Output variable(const char* name, const ir::Shape& shape) {
    return on(
        "/ps",
        b_.add("Variable", {},
               {{"shared_name", std::string(name)}, {"dtype", DType::kFloat32}, {"shape", shape}},
               name));
  }
  Output table(const char* name, int64_t rows) { return variable(name, {rows, 2}); }
  Output read(Output handle) {
    const ir::AttrMap& attrs = graph_.node(handle.node).attrs;
    return on("/ps", b_.add("VariableRead", {handle},
                            {{"dtype", attrs.at("dtype")}, {"shape", attrs.at("shape")}}, "read"));
  }
  Output lookup(Output table, Output ids, std::string_view name = "rows") {
    return on("/ps", b_.add("Gather", {read(table), ids}, {}, name));
  }
  Output ids(const char* name) { return ops::placeholder(b_, name, DType::kInt64, {-1}); }

  /// The graph with its look-ups expanded. What asks for no device is the worker's.
  Result<StepGraph> expanded(const std::vector<Output>& fetches,
                             const std::vector<ir::NodeId>& targets = {}) {
    EXPECT_TRUE(b_.status().ok()) << b_.status();
    for (size_t i = 0; i < graph_.size(); ++i) {
      ir::Node& node = graph_.mutable_node(ir::NodeId(static_cast<int32_t>(i)));
      if (node.device.empty()) node.device = "/w";
    }
    return expand_lookups({graph_, fetches, targets}, registry_);
  }
  Result<StepGraph> united(const std::vector<Output>& fetches,
                           const std::vector<ir::NodeId>& targets = {}) {
    SR_ASSIGN_OR_RETURN(const StepGraph step, expanded(fetches, targets));
    return unite_routes(step, registry_);
  }

  /// Names and inputs of the nodes that find out where rows are.
  std::vector<std::string> routes_of(const Result<StepGraph>& step) {
    EXPECT_TRUE(step.ok()) << step.status();
    std::vector<std::string> out;
    if (!step.ok()) return out;
    for (const ir::Node& node : step->graph.nodes()) {
      if (node.op != "Unique" && node.op != "Route" && node.op != "UniqueRoute") continue;
      std::string line = fmt::format("{} = {}", node.name, node.op);
      for (const Output& in : node.inputs) line += " " + step->graph.output_name(in);
      out.push_back(line);
    }
    return out;
  }

  ir::OpRegistry registry_;
  ir::Graph graph_;
  ir::Builder b_{&graph_, &registry_};
};

TEST_F(UniteRoutesTest, all_tables_of_a_step_have_one) {
  const Output i = ids("i");
  const Output x = lookup(table("t", 10), i, "x");
  const Output j = ids("j");
  const Output u = table("u", 20);
  const Output y = lookup(u, j, "y");
  const Output one = on("/ps", ops::scalar(b_, DType::kFloat64, 1));
  const ir::NodeId push = b_.add_node("VariableUpdateRows", {u, j, ops::tanh(b_, y), one, one},
                                      {{"kind", std::string("sgd")}}, {}, "push");
  graph_.mutable_node(push).device = "/ps";
  EXPECT_THAT(
      lines_of(united({ops::add(b_, x, y, "z")}, {push}), registry_),
      ElementsAre("t = Variable", "read = VariableRead t", "routes = UniqueRoute i j",
                  "x/rows = Gather read routes:2", "x = GatherParts i routes:3 routes x/rows",
                  "u = Variable", "read_1 = VariableRead u", "y/rows = Gather read_1 routes:4",
                  "y = GatherParts j routes:5 routes:1 y/rows", "Tanh = Tanh y",
                  "push/sum = SumParts Tanh routes:5 routes:1 routes:4",
                  "push = VariableUpdateRows u routes:4 push/sum Const Const", "z = Add x y"));
}

TEST_F(UniteRoutesTest, one_table_needs_no_other_node) {
  const Output i = ids("i");
  const Output x = lookup(table("t", 10), i, "x");
  EXPECT_THAT(routes_of(united({ops::neg(b_, x)})),
              ElementsAre("i/unique = Unique i", "i/route_10 = Route i/unique"));
}

TEST_F(UniteRoutesTest, tables_of_other_sizes_share_the_distinct_ids) {
  const Output i = ids("i");
  const Output x = lookup(table("t", 10), i, "x");
  const Output y = lookup(table("u", 20), i, "y");
  const Result<StepGraph> step = united({ops::add(b_, x, y)});
  EXPECT_THAT(routes_of(step), ElementsAre("routes = UniqueRoute i"));
  EXPECT_EQ(step->graph.find("routes")->outputs.size(), 1U + 2 * 2U);
}

TEST_F(UniteRoutesTest, ids_that_come_from_the_ps_are_routed_when_they_are_there) {
  const Output i = ids("i");
  const Output j = ids("j");
  const Output t = table("t", 10);
  const Output u = table("u", 20);
  const Output x = lookup(t, i, "x");
  const Output y = lookup(u, j, "y");
  const Output next =
      ops::cast(b_, ops::reduce_sum(b_, ops::square(b_, x), {1}, false), DType::kInt64, "next");
  const Output after = ops::cast(b_, ops::reduce_sum(b_, y, {1}, false), DType::kInt64, "after");
  const Output first = lookup(u, next);
  const Output z = ops::add(b_, first, lookup(t, after));
  EXPECT_THAT(routes_of(united({z})),
              ElementsAre("routes = UniqueRoute i j", "routes_1 = UniqueRoute next after"));
}

TEST_F(UniteRoutesTest, ids_that_need_a_variable_do_not_keep_others_waiting) {
  const Output t = table("t", 10);
  const Output x = lookup(t, ids("i"), "x");
  const Output y = lookup(table("u", 20), ids("j"), "y");
  const Output late = ops::cast(b_, read(variable("shift", {-1})), DType::kInt64, "late");
  const Output sum = ops::reduce_sum(b_, lookup(t, late, "z"), {}, false);
  EXPECT_THAT(routes_of(united({ops::add(b_, ops::add(b_, x, y), sum)})),
              testing::UnorderedElementsAre("routes = UniqueRoute i j", "late/unique = Unique late",
                                            "late/route_10 = Route late/unique"));
}

TEST_F(UniteRoutesTest, distinct_ids_that_are_read_themselves_stay) {
  const Output x = ops::neg(b_, lookup(table("t", 10), ids("i"), "x"));
  const Output y = ops::neg(b_, lookup(table("u", 20), ids("j"), "y"));
  auto step = expanded({x, y});
  ASSERT_TRUE(step.ok()) << step.status();
  step->fetches.push_back({step->graph.find("i/unique")->id, 0});
  EXPECT_EQ(routes_of(unite_routes(*step, registry_)).size(), 4U);
}

}  // namespace
}  // namespace sidereal::passes
