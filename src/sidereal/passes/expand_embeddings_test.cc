#include "sidereal/passes/expand_embeddings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sidereal/ops/ops.h"
#include "sidereal/passes/testing/on_devices.h"

// The shape of what look-ups and updates of tables in parts become. What they compute is tested
// where programs run: exec/conformance_test.cc and train/cluster_test.cc.
namespace sidereal::passes {
namespace {

using ir::DType;
using ir::Output;
using ir::Shape;
using testing::ElementsAre;

class ExpandEmbeddings : public OnDevices {
 protected:
  ExpandEmbeddings() : OnDevices(&expand_embeddings) {}

  std::vector<Output> parts(const std::string& name, int count) {
    std::vector<Output> out;
    for (int i = 0; i < count; ++i) {
      const std::string part = fmt::format("{}/part_{}", name, i);
      out.push_back(on(fmt::format("/ps:{}", i),
                       ops::variable(b_, part, DType::kFloat32, {(10 - i + 1) / count, 4})));
    }
    return out;
  }
  Output lookup(Output at, const std::vector<Output>& handles, const char* name) {
    return on("/w", ops::embedding_lookup(b_, at, handles, 10, 4, name));
  }
  ir::NodeId update(Output at, Output gradients, const std::vector<Output>& handles) {
    const Output step = on("/w", ops::scalar(b_, DType::kFloat64, 1, "step"));
    const Output rate = on("/w", ops::scalar(b_, DType::kFloat64, 0.5, "rate"));
    std::vector<Output> inputs = {at, gradients, step, rate};
    inputs.insert(inputs.end(), handles.begin(), handles.end());
    const ir::NodeId made = b_.add_node("EmbeddingUpdate", inputs,
                                        {{"rows", int64_t{10}},
                                         {"dim", int64_t{4}},
                                         {"parts", static_cast<int64_t>(handles.size())},
                                         {"kind", "sgd"}},
                                        {}, "update");
    graph_.mutable_node(made).device = "/w";
    return made;
  }
};

TEST_F(ExpandEmbeddings, a_look_up_gathers_distinct_rows_at_each_part) {
  const Output rows = lookup(ids("ids"), parts("t", 2), "rows");
  EXPECT_THAT(
      lines({rows}),
      ElementsAre("t/part_0 = Variable", "t/part_1 = Variable", "ids/unique = Unique ids",
                  "ids/route_10 = Route ids/unique", "rows/read_0 = VariableRead t/part_0",
                  "rows/rows_0 = Gather rows/read_0 ids/route_10",
                  "rows/read_1 = VariableRead t/part_1",
                  "rows/rows_1 = Gather rows/read_1 ids/route_10:1",
                  "rows = GatherParts ids ids/route_10:2 ids/unique:1 rows/rows_0 rows/rows_1"));
  EXPECT_EQ(device_of("ids/route_10"), "/w");
  EXPECT_EQ(device_of("rows/read_1"), "/ps:1");
  EXPECT_EQ(device_of("rows/rows_1"), "/ps:1");
  EXPECT_EQ(device_of("rows"), "/w");
}

TEST_F(ExpandEmbeddings, an_update_shares_the_route_of_its_look_up) {
  const Output at = ids("ids");
  const std::vector<Output> table = parts("t", 2);
  const Output rows = lookup(at, table, "rows");
  const ir::NodeId updated = update(at, on("/w", ops::square(b_, rows, "grads")), table);
  const std::vector<std::string> got = lines({}, {updated});
  const auto count = [&](const char* what) {
    return std::count_if(got.begin(), got.end(), [&](const std::string& line) {
      return line.find(what) != std::string::npos;
    });
  };
  EXPECT_EQ(count("= Unique "), 1);
  EXPECT_EQ(count("= Route "), 1);
  EXPECT_THAT(got, testing::Contains("update/sum = SumParts grads ids/route_10:2 ids/unique:1 "
                                     "ids/route_10 ids/route_10:1"));
  EXPECT_THAT(got, testing::Contains("update/part_1 = VariableUpdateRows t/part_1 ids/route_10:1 "
                                     "update/sum:1 step rate"));
  EXPECT_EQ(device_of("update/part_0"), "/ps:0");
  EXPECT_EQ(device_of("update"), "/w");
}

TEST_F(ExpandEmbeddings, gradients_go_to_the_accumulator_of_each_part) {
  const Output at = ids("ids");
  const Output rows = lookup(at, parts("t", 2), "rows");
  std::vector<Output> inputs = {at, on("/w", ops::square(b_, rows, "grads")),
                                on("/w", ops::scalar(b_, DType::kInt64, 1, "step"))};
  for (int i = 0; i < 2; ++i) {
    inputs.push_back(
        on(fmt::format("/ps:{}", i), b_.add("Accumulator", {},
                                            {{"shared_name", fmt::format("a{}", i)},
                                             {"dtypes", std::vector<std::string>{"float32"}},
                                             {"sparse", true}},
                                            fmt::format("a{}", i))));
  }
  const ir::NodeId added = b_.add_node("EmbeddingAccumulate", inputs,
                                       {{"rows", int64_t{10}}, {"dim", int64_t{4}}}, {}, "add");
  graph_.mutable_node(added).device = "/w";
  const std::vector<std::string> got = lines({}, {added});
  EXPECT_THAT(got,
              testing::Contains("add/part_1 = AccumulatorApply a1 step ids/route_10:1 add/sum:1"));
  EXPECT_EQ(device_of("add/part_1"), "/ps:1");
  EXPECT_EQ(device_of("add/sum"), "/w");
}

TEST_F(ExpandEmbeddings, what_does_not_fit_is_refused_when_it_is_made) {
  const std::vector<Output> table = parts("t", 2);
  const Output at = ids("ids");
  ops::embedding_lookup(b_, at, table, 1, 4, "too_few_rows");
  EXPECT_EQ(b_.status().code(), StatusCode::kInvalidArgument);
  b_.clear_status();
  ops::embedding_lookup(b_, at, {at}, 10, 4, "no_handle");
  EXPECT_EQ(b_.status().code(), StatusCode::kInvalidArgument);
  b_.clear_status();
  ops::embedding_lookup(b_, at, table, int64_t{1} << 40, int64_t{1} << 40, "too_large");
  EXPECT_EQ(b_.status().code(), StatusCode::kInvalidArgument);
  b_.clear_status();
}

}  // namespace
}  // namespace sidereal::passes
