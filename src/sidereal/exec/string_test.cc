#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sidereal/exec/one_op.h"
#include "sidereal/exec/testing/one_program.h"
#include "sidereal/ops/ops.h"
#include "sidereal/passes/pipeline.h"
#include "sidereal/tensor/strings.h"

namespace sidereal::exec {
namespace {

using ir::DType;
using ir::Output;
using ir::Shape;
using ir::Tensor;
using testing::ElementsAre;

Tensor strings(const std::vector<std::string>& values) {
  tensor::StringsBuilder builder;
  for (const std::string& value : values) builder.add(value);
  return std::move(builder).finish(Shape{builder.size()});
}

std::vector<std::string> words(const Tensor& t) {
  const auto data = t.data<const std::string_view>();
  return {data.begin(), data.end()};
}

ir::Node node(const std::string& op, const ir::AttrMap& attrs, std::vector<ir::TensorSpec> out) {
  ir::Node made;
  made.op = op;
  made.name = "x";
  made.attrs = attrs;
  made.outputs = std::move(out);
  return made;
}

Result<std::vector<Tensor>> run(const ir::Node& made, const std::vector<Tensor>& inputs) {
  return run_one_op(made, inputs, all_kernels());
}

TEST(Strings, expressions_of_constants_are_folded) {
  ir::Graph graph;
  ir::Builder b(&graph, &test_registry());
  const Output x = ops::placeholder(b, "x", DType::kString, {2});
  const Output fixed = ops::constant(b, strings({"p\0", "q"}), "fixed");
  const Output upper = b.add("StringUpper", {b.add("StringJoin", {fixed, fixed})}, {}, "upper");
  const Output z = b.add("StringJoin", {x, upper}, {}, "z");
  ASSERT_TRUE(b.status().ok()) << b.status();
  passes::PassOptions options;
  options.evaluate = run;
  const auto plan = passes::run_passes(graph, {z}, {}, test_registry(), options);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const ir::Node* folded = plan->graph.find("upper");
  ASSERT_NE(folded, nullptr);
  ASSERT_EQ(folded->op, "Const");
  EXPECT_THAT(words(*ir::find_attr<Tensor>(folded->attrs, "value")), ElementsAre("PP", "QQ"));
}

TEST(Strings, pieces_show_the_bytes_of_the_input_as_long_as_they_live) {
  const ir::Node split = node("StringSplit", {{"separator", std::string(",")}},
                              {{DType::kString, Shape{-1}}, {DType::kInt64, Shape{-1}}});
  Result<std::vector<Tensor>> made = run(split, {strings({std::string(100, 'a') + ",b", "c"})});
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_THAT(words((*made)[0]), ElementsAre(std::string(100, 'a'), "b", "c"));
}

TEST(Strings, fields_that_lost_their_quotes_live_as_long_as_the_column) {
  const ir::Node decode = node("DecodeCsv", {}, {{DType::kString, Shape{-1}}});
  std::vector<Tensor> columns;
  for (int i = 0; i < 3; ++i) {
    Result<std::vector<Tensor>> made =
        run(decode, {strings({"\"" + std::string(50, 'q') + "\"\"\"", "plain"}), strings({""})});
    ASSERT_TRUE(made.ok()) << made.status();
    columns.push_back((*made)[0]);
  }
  for (const Tensor& column : columns) {
    EXPECT_THAT(words(column), ElementsAre(std::string(50, 'q') + "\"", "plain"));
  }
}

TEST(Strings, joined_without_measure_are_refused) {
  const ir::Node join =
      node("ReduceJoin", {{"separator", std::string(1 << 20, 'x')}}, {{DType::kString, Shape()}});
  const Tensor many = Tensor::empty(DType::kString, {1 << 13});
  EXPECT_EQ(run(join, {many}).status().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace sidereal::exec
