#include "sidereal/passes/unite_routes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sidereal/ir/text.h"
#include "sidereal/ir/verify.h"
#include "sidereal/ops/ops.h"
#include "sidereal/passes/expand.h"
#include "sidereal/passes/place.h"

// Goldens of united routes. That results stay the same is tested where programs run, in exec.
namespace sidereal::passes {
namespace {

using ir::DType;
using ir::Output;
using testing::ElementsAre;

class UniteRoutesTest : public testing::Test {
 protected:
  UniteRoutesTest() { ops::register_all(&registry_); }

  std::string table(const char* name, int64_t rows, bool embedding = true) {
    ir::VariableDef def;
    def.name = name;
    def.shape = {rows, 2};
    def.embedding = embedding;
    return b_.variable(def);
  }
  Output ids(const char* name) { return ops::placeholder(b_, name, DType::kInt64, {-1}); }

  /// The united graph over one task of two lanes.
  Result<StepGraph> united(const std::vector<Output>& fetches,
                           const std::vector<ir::NodeId>& targets = {}) {
    const Topology topology{{2}};
    SR_ASSIGN_OR_RETURN(const auto placement, place_variables(graph_.variables(), topology));
    SR_RETURN_IF_ERROR(place(&graph_, placement, registry_));
    SR_ASSIGN_OR_RETURN(const StepGraph step,
                        expand({graph_, fetches, targets}, topology, placement, registry_));
    SR_ASSIGN_OR_RETURN(StepGraph out, unite_routes(step, registry_));
    SR_RETURN_IF_ERROR(ir::verify(out.graph, registry_));
    return out;
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
  const Output x = ops::lookup(b_, table("t", 10), i, "x");
  const Output j = ids("j");
  const Output y = ops::lookup(b_, table("u", 20), j, "y");
  const ir::NodeId push = ops::apply_sparse(b_, "u", j, y, "push");
  const Result<StepGraph> step = united({ops::add(b_, x, y, "z")}, {push});
  ASSERT_TRUE(step.ok()) << step.status();
  EXPECT_EQ(ir::to_text(step->graph), R"(sidereal-graph 1
var "t" float32[10,2] embedding
var "u" float32[20,2] embedding
%0 = Placeholder() name="i" {dtype=int64, shape=shape[?]} : int64[?]
%1 = Placeholder() name="j" {dtype=int64, shape=shape[?]} : int64[?]
%2 = UniqueRoute(%0, %1) name="routes" {lanes=ints[2], of=ints[0, 1], rows=ints[10, 20], )"
                                      R"(vars=strings["t", "u"]} : int32[?], int32[?], )"
                                      R"(int64[?], int64[?], int64[?], int64[?], int64[?], )"
                                      R"(int64[?]
%3 = ShardGather(%2:2) name="x/gather_0" {dim=2, shard=0, var="t"} at=0:0 : float32[?,2]
%4 = ShardGather(%2:3) name="x/gather_1" {dim=2, shard=1, var="t"} at=0:1 : float32[?,2]
%5 = GatherParts(%0, %2:4, %2, %3, %4) name="x" {dim=2} : float32[?,2]
%6 = ShardGather(%2:5) name="y/gather_0" {dim=2, shard=0, var="u"} at=0:0 : float32[?,2]
%7 = ShardGather(%2:6) name="y/gather_1" {dim=2, shard=1, var="u"} at=0:1 : float32[?,2]
%8 = GatherParts(%1, %2:7, %2:1, %6, %7) name="y" {dim=2} : float32[?,2]
%9 = SumParts(%8, %2:7, %2:1, %2:5, %2:6) name="push/sum" {dim=2} : float32[?,2], float32[?,2]
%10 = ShardApply(%2:5, %9) name="push/apply_0" {dim=2, shard=0, var="u"} at=0:0
%11 = ShardApply(%2:6, %9:1) name="push/apply_1" {dim=2, shard=1, var="u"} at=0:1
%12 = NoOp() name="push" after(%10, %11)
%13 = Add(%5, %8) name="z" : float32[?,2]
)");
}

TEST_F(UniteRoutesTest, one_table_needs_no_other_node) {
  const Output i = ids("i");
  const Output x = ops::lookup(b_, table("t", 10), i, "x");
  EXPECT_THAT(routes_of(united({x})),
              ElementsAre("i/unique = Unique i", "i/route_10 = Route i/unique"));
}

TEST_F(UniteRoutesTest, tables_of_other_sizes_share_the_distinct_ids) {
  const Output i = ids("i");
  const Output x = ops::lookup(b_, table("t", 10), i, "x");
  const Output y = ops::lookup(b_, table("u", 20), i, "y");
  const Result<StepGraph> step = united({ops::add(b_, x, y)});
  EXPECT_THAT(routes_of(step), ElementsAre("routes = UniqueRoute i"));
  EXPECT_EQ(step->graph.find("routes")->outputs.size(), 1U + 2 * 3U);
}

TEST_F(UniteRoutesTest, ids_that_come_from_the_ps_are_routed_when_they_are_there) {
  const Output i = ids("i");
  const Output j = ids("j");
  const Output x = ops::lookup(b_, table("t", 10), i, "x");
  const Output y = ops::lookup(b_, table("u", 20), j, "y");
  const Output next =
      ops::cast(b_, ops::reduce_sum(b_, ops::square(b_, x), {1}, false), DType::kInt64, "next");
  const Output after = ops::cast(b_, ops::reduce_sum(b_, y, {1}, false), DType::kInt64, "after");
  const Output first = ops::lookup(b_, "u", next);
  const Output z = ops::add(b_, first, ops::lookup(b_, "t", after));
  EXPECT_THAT(routes_of(united({z})),
              ElementsAre("routes = UniqueRoute i j", "routes_1 = UniqueRoute next after"));
}

TEST_F(UniteRoutesTest, ids_that_need_a_variable_do_not_keep_others_waiting) {
  const Output x = ops::lookup(b_, table("t", 10), ids("i"), "x");
  const Output y = ops::lookup(b_, table("u", 20), ids("j"), "y");
  const Output moved =
      ops::cast(b_, ops::read_variable(b_, table("shift", 4, false)), DType::kInt64, "moved");
  const Output z = ops::lookup(b_, "t", ops::reshape(b_, moved, {-1}, "late"), "z");
  const Output sum = ops::reduce_sum(b_, z, {}, false);
  EXPECT_THAT(routes_of(united({ops::add(b_, ops::add(b_, x, y), sum)})),
              testing::UnorderedElementsAre("routes = UniqueRoute i j", "late/unique = Unique late",
                                            "late/route_10 = Route late/unique"));
}

TEST_F(UniteRoutesTest, distinct_ids_that_are_read_themselves_stay) {
  const Output x = ops::lookup(b_, table("t", 10), ids("i"), "x");
  const Output y = ops::lookup(b_, table("u", 20), ids("j"), "y");
  const Topology topology{{2}};
  const auto placement = place_variables(graph_.variables(), topology);
  ASSERT_TRUE(placement.ok());
  auto step = expand({graph_, {x, y}, {}}, topology, *placement, registry_);
  ASSERT_TRUE(step.ok()) << step.status();
  step->fetches.push_back({step->graph.find("i/unique")->id, 0});
  EXPECT_EQ(routes_of(unite_routes(*step, registry_)).size(), 4U);
}

}  // namespace
}  // namespace sidereal::passes
