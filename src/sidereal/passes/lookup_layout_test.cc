#include "sidereal/passes/lookup_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sidereal/ir/text.h"
#include "sidereal/ir/verify.h"
#include "sidereal/ops/ops.h"
#include "sidereal/passes/prune.h"

// Goldens of what becomes of lookups. That results stay the same is tested where programs run, in
// exec.
namespace sidereal::passes {
namespace {

using ir::DType;
using ir::Output;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class LookupLayoutTest : public testing::Test {
 protected:
  LookupLayoutTest() { ops::register_all(&registry_); }

  Output input(const char* name, const ir::Shape& shape, DType dtype = DType::kFloat32) {
    return ops::placeholder(b_, name, dtype, shape);
  }
  Output ids(const char* name, const ir::Shape& shape) { return input(name, shape, DType::kInt64); }
  Output gather(Output table, Output indices, const char* name, int64_t axis = 0) {
    return b_.add("Gather", {table, indices}, {{"axis", axis}}, name);
  }
  Output stack(const std::vector<Output>& parts, int64_t axis, const char* name) {
    return b_.add("Stack", parts, {{"axis", axis}}, name);
  }
  Output update(Output table, Output indices, Output values, const char* name) {
    const Output step = input(fmt::format("{}_step", name).c_str(), {}, DType::kFloat64);
    const Output rate = input(fmt::format("{}_rate", name).c_str(), {}, DType::kFloat64);
    return b_.add("UpdateRows", {table, indices, values, step, rate},
                  {{"kind", std::string("sgd")}}, name);
  }

  static std::string text_of(const std::vector<int64_t>& ints) {
    return fmt::format("[{}]", fmt::join(ints, ","));
  }

  /// The nodes behind the placeholders, as "name = Op(inputs) attributes of the layout".
  std::vector<std::string> nodes_of(const std::vector<Output>& fetches) {
    const Result<StepGraph> step =
        lay_out_lookups(*prune(StepGraph{graph_, fetches, {}}), registry_);
    EXPECT_TRUE(step.ok()) << step.status();
    std::vector<std::string> out;
    if (!step.ok()) return out;
    const Status status = ir::verify(step->graph, registry_);
    EXPECT_TRUE(status.ok()) << base::message_of(status);
    for (const ir::Node& node : step->graph.nodes()) {
      if (node.op == "Placeholder" || node.op == "Const") continue;
      std::string line = fmt::format("{} = {}", node.name, node.op);
      for (const Output& in : node.inputs) line += " " + step->graph.output_name(in);
      for (const char* name : {"counts", "shape", "columns", "widths"}) {
        const auto* ints = ir::find_attr<std::vector<int64_t>>(node.attrs, name);
        if (ints != nullptr) line += fmt::format(" {}={}", name, text_of(*ints));
      }
      for (const char* name : {"column", "width"}) {
        const auto* value = ir::find_attr<int64_t>(node.attrs, name);
        if (value != nullptr) line += fmt::format(" {}={}", name, *value);
      }
      out.push_back(line);
    }
    return out;
  }

  ir::OpRegistry registry_;
  ir::Graph graph_;
  ir::Builder b_{&graph_, &registry_};
};

TEST_F(LookupLayoutTest, rows_of_many_tables_go_straight_into_the_stack_they_are_read_from) {
  const Output dense = input("dense", {-1, 4});
  const Output t = input("t", {10, 4});
  const Output u = input("u", {20, 4});
  const Output i = ids("i", {-1});
  const Output j = ids("j", {-1});
  const Output all = stack({dense, gather(t, i, "gt"), gather(u, j, "gu")}, 1, "all");
  const Output z = ops::tanh(b_, all, "z");
  EXPECT_THAT(nodes_of({z}), ElementsAre("all = GatherConcat dense t i u j counts=[0,1,1] "
                                         "shape=[3,4]",
                                         "z = Tanh all"));
  EXPECT_EQ(graph_.spec(all).shape.to_string(), "[?,3,4]");
}

TEST_F(LookupLayoutTest, several_rows_of_a_table_may_follow_one_another) {
  const Output t = input("t", {10, 4});
  const Output u = input("u", {20, 2});
  const Output one = ids("one", {-1, 3});
  const Output two = ids("two", {-1, 1});
  const Output along = ops::concat(b_, {gather(t, one, "a"), gather(t, two, "c")}, 1, "along");
  const Output across = ops::concat(b_, {gather(t, two, "d"), gather(u, two, "e")}, -1, "across");
  EXPECT_THAT(nodes_of({ops::neg(b_, along, "x"), ops::neg(b_, across, "y")}),
              ElementsAre("along = GatherConcat t one t two counts=[3,1] shape=[4,4]",
                          "across = GatherConcat t two u two counts=[1,1] shape=[6]",
                          "x = Neg along", "y = Neg across"));
}

TEST_F(LookupLayoutTest, rows_that_are_flattened_first_are_put_in_place_as_well) {
  const Output t = input("t", {10, 4});
  const Output i = ids("i", {-1, 3});
  const Output j = ids("j", {-1});
  const Output flat = ops::reshape(b_, gather(t, i, "g"), {-1, 12}, "flat");
  const Output all = ops::concat(b_, {flat, gather(t, j, "h")}, 1, "all");
  EXPECT_THAT(nodes_of({ops::neg(b_, all, "z")}),
              ElementsAre("all = GatherConcat t i t j counts=[3,1] shape=[16]", "z = Neg all"));
  const Output other = ops::reshape(b_, gather(t, i, "k"), {-1, 6}, "other");
  EXPECT_THAT(nodes_of({ops::concat(b_, {other, other}, 1, "wide")}),
              Contains("wide = Concat other other"));
}

TEST_F(LookupLayoutTest, gathers_that_are_read_elsewhere_or_join_other_axes_stay) {
  const Output t = input("t", {10, 4});
  const Output i = ids("i", {-1});
  const Output a = gather(t, i, "a");
  const Output c = gather(t, i, "c");
  const Output front = ops::concat(b_, {a, c}, 0, "front");
  EXPECT_THAT(nodes_of({front}), Contains("front = Concat a c"));
  const Output side = ops::concat(b_, {a, c}, 1, "side");
  EXPECT_THAT(nodes_of({side, a}), Contains("side = GatherConcat a t i counts=[0,1] shape=[8]"));
  EXPECT_THAT(nodes_of({side, a, c}), Contains("side = Concat a c"));
  const Output columns = ops::concat(b_, {gather(t, i, "g", 1), t}, 1, "columns");
  EXPECT_THAT(nodes_of({columns}), Contains("columns = Concat g t"));
}

TEST_F(LookupLayoutTest, a_table_is_not_read_after_its_update_where_it_was_read_before) {
  const Output t = input("t", {10, 4});
  const Output i = ids("i", {-1});
  const Output a = gather(t, i, "a");
  const Output updated = update(t, i, input("g", {-1, 4}), "updated");
  const Output side = ops::concat(b_, {a, gather(updated, i, "c")}, 1, "side");
  EXPECT_THAT(nodes_of({updated, side}),
              Contains("side = GatherConcat a updated i counts=[0,1] shape=[8]"));
}

TEST_F(LookupLayoutTest, updates_read_their_columns_of_the_whole_gradient) {
  const Output dy = input("dy", {-1, 3, 4});
  const ir::NodeId parts =
      b_.add_node("Unstack", {dy}, {{"axis", int64_t{1}}, {"num", int64_t{3}}}, {}, "parts");
  const Output t = input("t", {10, 4});
  const Output u = input("u", {20, 4});
  const Output i = ids("i", {-1});
  const Output first = ops::neg(b_, {parts, 0}, "first");
  const Output x = update(t, i, {parts, 1}, "x");
  const Output y = update(u, i, {parts, 2}, "y");
  EXPECT_THAT(nodes_of({first, x, y}),
              ElementsAre("parts/0 = SliceAxis dy", "parts/0/value = Squeeze parts/0",
                          "first = Neg parts/0/value",
                          "x = UpdateJoinedRows t i dy x_step x_rate columns=[4] widths=[12]",
                          "y = UpdateJoinedRows u i dy y_step y_rate columns=[8] widths=[12]"));
  // Where most outputs are needed as they are, all are.
  const Output z = ops::add_n(b_, {{parts, 0}, {parts, 2}}, "z");
  EXPECT_THAT(nodes_of({z, x}),
              ElementsAre("parts = Unstack dy", "x = UpdateRows t i parts:1 x_step x_rate",
                          "z = AddN parts parts:2"));
}

TEST_F(LookupLayoutTest, gradients_of_two_lookups_in_one_table_are_not_joined_first) {
  const Output wide = input("wide", {-1, 5, 6});
  const Output t = input("t", {10, 2});
  const Output cut = ops::slice_axis(b_, wide, 2, 4, 2, "cut");
  const Output rows = ops::reshape(b_, cut, {-1, 2}, "rows");
  const Output more = input("more", {-1, 2});
  const Output many = ops::reshape(b_, ids("many", {-1, 5}), {-1}, "flat");
  const Output i = ops::concat(b_, {many, ids("few", {-1})}, 0, "i");
  const Output g = ops::concat(b_, {rows, more}, 0, "g");
  EXPECT_THAT(nodes_of({update(t, i, g, "x")}),
              ElementsAre("flat = Reshape many shape=[-1]",
                          "x = UpdateJoinedRows t flat few wide more x_step x_rate columns=[4,0] "
                          "widths=[6,2]"));
  // A gradient that is fetched is made.
  EXPECT_THAT(nodes_of({update(t, i, g, "y"), g}),
              Contains(HasSubstr("y = UpdateJoinedRows t flat few g")));
}

TEST_F(LookupLayoutTest, slices_that_are_no_rows_of_the_table_stay) {
  const Output wide = input("wide", {-1, 6});
  const Output t = input("t", {10, 2});
  const Output i = ids("i", {-1});
  const Output cut = ops::slice_axis(b_, wide, 1, 0, 4, "cut");
  const Output x = update(t, i, ops::reshape(b_, cut, {-1, 2}, "rows"), "x");
  EXPECT_THAT(nodes_of({x}), Contains(HasSubstr("x = UpdateRows")));
  const Output unknown = ops::slice_axis(b_, input("loose", {-1, -1}), 1, 0, 2, "part");
  EXPECT_THAT(nodes_of({update(t, i, unknown, "y")}), Not(Contains(HasSubstr("UpdateJoinedRows"))));
}

TEST_F(LookupLayoutTest, rows_that_a_ps_sent_are_joined_and_their_gradients_summed_in_place) {
  std::vector<Output> rows;
  std::vector<Output> sums;
  const Output dy = input("dy", {-1, 5});
  for (const char* name : {"x", "y"}) {
    const auto called = [&](const char* what) { return fmt::format("{}_{}", name, what); };
    const int64_t dim = rows.empty() ? 3 : 2;
    const Output i = ids(called("ids").c_str(), {-1});
    const Output position = ids(called("position").c_str(), {-1});
    const Output inverse = input(called("inverse").c_str(), {-1}, DType::kInt32);
    const Output part = input(called("part").c_str(), {-1, dim});
    rows.push_back(b_.add("GatherParts", {i, position, inverse, part}, {{"dim", dim}}, name));
    const Output cut = ops::slice_axis(b_, dy, 1, sums.empty() ? 0 : 3, dim, called("cut"));
    sums.push_back(b_.add("SumParts", {cut, position, inverse, i}, {{"dim", dim}}, called("sum")));
  }
  const Output z = ops::neg(b_, ops::concat(b_, rows, -1, "all"), "z");
  EXPECT_THAT(
      nodes_of({z, sums[0], sums[1]}),
      ElementsAre("x_sum = SumParts dy x_position x_inverse x_ids column=0 width=5",
                  "y_sum = SumParts dy y_position y_inverse y_ids column=3 width=5",
                  "all = GatherPartsConcat x_ids x_position x_inverse x_part y_ids y_position "
                  "y_inverse y_part counts=[1,1] shape=[5]",
                  "z = Neg all"));
}

TEST_F(LookupLayoutTest, rows_that_a_ps_sent_for_ids_of_int32_go_there_too) {
  const Output i = input("ids", {-1, 2}, DType::kInt32);
  const Output part = input("part", {-1, 3});
  const Output rows =
      b_.add("GatherParts", {i, ids("position", {-1}), input("inverse", {-1}, DType::kInt32), part},
             {{"dim", int64_t{3}}}, "rows");
  const Output flat = ops::reshape(b_, rows, {-1, 6}, "flat");
  const Output all = ops::concat(b_, {flat, input("x", {-1, 1})}, -1, "all");
  EXPECT_THAT(nodes_of({ops::neg(b_, all, "z")}),
              ElementsAre("all = GatherPartsConcat ids position inverse part x counts=[2,0] "
                          "shape=[7]",
                          "z = Neg all"));
}

}  // namespace
}  // namespace sidereal::passes
