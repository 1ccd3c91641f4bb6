#include "sidereal/passes/expand_lookups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sidereal/ir/verify.h"
#include "sidereal/ops/ops.h"
#include "sidereal/passes/testing/on_devices.h"
#include "sidereal/passes/unite_routes.h"

// The shape of what look-ups and updates become. That results stay the same to the last bit is
// tested where programs run: exec/expanded_lookups_test.cc, and the differential tests of sessions.
namespace sidereal::passes {
namespace {

using ir::DType;
using ir::Output;
using ir::Shape;
using testing::ElementsAre;

class ExpandLookups : public OnDevices {
 protected:
  ExpandLookups() : OnDevices(&expand_lookups) {}

  Output handle(const char* name, DType dtype = DType::kFloat32, const Shape& shape = {100, 8}) {
    return on("/ps", b_.add("Variable", {},
                            {{"shared_name", name}, {"dtype", dtype}, {"shape", shape}}, name));
  }
  Output read(Output variable) {
    const ir::AttrMap& attrs = graph_.node(variable.node).attrs;
    return on("/ps", b_.add("VariableRead", {variable},
                            {{"dtype", attrs.at("dtype")}, {"shape", attrs.at("shape")}}, "read"));
  }
  Output gather(Output table, Output at) {
    return on("/ps", b_.add("Gather", {table, at}, {{"axis", int64_t{0}}}, "gather"));
  }
  /// Reads a value on the worker.
  Output used(Output value, const char* device = "/w") {
    return on(device, b_.add("Square", {value}, {}, "used"));
  }
  /// An update by plain gradient descent; returns the node.
  ir::NodeId update(Output variable, Output at, Output values) {
    const Output step =
        on("/ps", b_.add("Const", {}, {{"value", tensor::Tensor::scalar(1.0)}}, "step"));
    const Output rate =
        on("/ps", b_.add("Const", {}, {{"value", tensor::Tensor::scalar(0.1F)}}, "rate"));
    const ir::NodeId made = b_.add_node("VariableUpdateRows", {variable, at, values, step, rate},
                                        {{"kind", "sgd"}}, {}, "update");
    graph_.mutable_node(made).device = "/ps";
    return made;
  }
};

TEST_F(ExpandLookups, a_look_up_asks_for_distinct_rows_and_puts_them_in_their_places) {
  const Output rows = gather(read(handle("v")), ids("ids"));
  EXPECT_THAT(
      lines({used(rows)}),
      ElementsAre("v = Variable", "read = VariableRead v", "ids/unique = Unique ids",
                  "ids/route_100 = Route ids/unique", "gather/rows = Gather read ids/route_100",
                  "gather = GatherParts ids ids/route_100:1 ids/unique:1 gather/rows",
                  "used = Square gather"));
  EXPECT_EQ(device_of("ids/unique"), "/w");
  EXPECT_EQ(device_of("ids/route_100"), "/w");
  EXPECT_EQ(device_of("gather/rows"), "/ps");
  EXPECT_EQ(device_of("gather"), "/w");
}

TEST_F(ExpandLookups, tables_of_one_size_share_what_ids_they_are_read_by) {
  const Output at = ids("ids");
  const Output a = used(gather(read(handle("a")), at));
  const Output b = used(gather(read(handle("b", DType::kFloat32, {100, 2})), at));
  const Output c = used(gather(read(handle("c", DType::kFloat32, {50, 2})), at));
  const auto count = [&](const std::vector<std::string>& all, const char* what) {
    return std::count_if(all.begin(), all.end(), [&](const std::string& line) {
      return line.find(what) != std::string::npos;
    });
  };
  const std::vector<std::string> got = lines({a, b, c});
  EXPECT_EQ(count(got, "= Unique "), 1);
  EXPECT_EQ(count(got, "= Route "), 2);
  const std::vector<std::string> united = lines_of(unite_routes(*expanded_, registry_), registry_);
  EXPECT_EQ(count(united, "= UniqueRoute "), 1);
  EXPECT_EQ(count(united, "= Unique "), 0);
}

TEST_F(ExpandLookups, an_update_by_the_same_ids_sums_what_equal_ones_have) {
  const Output at = ids("ids");
  const Output v = handle("v");
  const Output rows = used(gather(read(v), at));
  const Output flat = on("/w", ops::reshape(b_, at, {-1}));
  const Output grads = on("/w", ops::reshape(b_, rows, {-1, 8}));
  const std::vector<std::string> got = lines({}, {update(v, flat, grads)});
  EXPECT_THAT(got, testing::Contains(testing::HasSubstr(
                       "update/sum = SumParts Reshape_1 ids/route_100:1 ids/unique:1 "
                       "ids/route_100")));
  EXPECT_THAT(got, testing::Contains(testing::HasSubstr(
                       "update = VariableUpdateRows v ids/route_100 update/sum step rate")));
  EXPECT_EQ(device_of("update/sum"), "/w");
  EXPECT_EQ(device_of("update"), "/ps");
}

TEST_F(ExpandLookups, what_gains_nothing_or_is_not_known_stays) {
  const auto stays = [&](Output rows) {
    const std::vector<std::string> got = lines({rows});
    EXPECT_THAT(got, testing::Not(testing::Contains(testing::HasSubstr("Unique"))));
  };
  stays(used(gather(read(handle("here")), ids("local", "/ps"))));     // One device.
  stays(used(gather(read(handle("read_there")), ids("a")), "/ps"));   // Read at the table.
  stays(used(gather(read(handle("elsewhere")), ids("b")), "/w2"));    // Read on a third one.
  stays(used(gather(read(handle("d", DType::kFloat64)), ids("c"))));  // Not float32.
  stays(used(gather(read(handle("u", DType::kFloat32, {-1, 8})), ids("d"))));  // Not known.
  stays(used(gather(read(handle("l", DType::kFloat32, {9})), ids("e"))));      // No rows.
  const Output few = on("/w", ops::placeholder(b_, "few", DType::kInt64, {128}));
  stays(used(gather(read(handle("f")), few)));
}

TEST_F(ExpandLookups, ids_of_32_bits_are_widened_once) {
  const Output at = ids("ids", "/w", DType::kInt32);
  EXPECT_THAT(lines({used(gather(read(handle("v")), at))}),
              ElementsAre("v = Variable", "read = VariableRead v", "ids/int64 = Cast ids",
                          "ids/unique = Unique ids/int64", "ids/route_100 = Route ids/unique",
                          "gather/rows = Gather read ids/route_100",
                          "gather = GatherParts ids ids/route_100:1 ids/unique:1 gather/rows",
                          "used = Square gather"));
}

TEST_F(ExpandLookups, names_that_are_made_never_take_a_users_name) {
  const Output rows = gather(read(handle("table")), ids("ids"));
  (void)lines({on("/w", ops::neg(b_, rows, "ids/unique"))});
  ASSERT_TRUE(expanded_.ok()) << expanded_.status();
  EXPECT_EQ(expanded_->graph.find("ids/unique")->op, "Neg");
  EXPECT_EQ(expanded_->graph.find("ids/unique_1")->op, "Unique");
}

}  // namespace
}  // namespace sidereal::passes
