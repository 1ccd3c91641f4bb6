#include "sidereal/ir/function.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "sidereal/ir/testing/ops.h"
#include "sidereal/ir/text.h"
#include "sidereal/ir/verify.h"

namespace sidereal::ir {
namespace {

using ::testing::HasSubstr;

const OpRegistry& ops() {
  static const OpRegistry* const made = new OpRegistry(testing::registry());
  return *made;
}

/// (x, y) -> (Pair(x, y), y), on float32[?,2].
FunctionPtr pair_function() {
  Graph body;
  const Output x = *add_arg(&body, ops(), {DType::kFloat32, {-1, 2}}, "x");
  const Output y = *add_arg(&body, ops(), {DType::kFloat32, {-1, 2}}, "y");
  Builder b(&body, &ops());
  const Output sum = b.add("Pair", {x, y}, {}, "both");
  return *Function::make(std::move(body), {sum, y});
}

/// x -> f(x, x), where f is `inner`.
FunctionPtr calling(const FunctionPtr& inner) {
  Graph body;
  const Output x = *add_arg(&body, ops(), inner->input(0), "x");
  Builder b(&body, &ops());
  std::vector<Output> inputs(inner->num_inputs(), x);
  const std::string name = body.hold_function("inner", inner);
  const Output result = b.add("Run", inputs, {{"function", name}});
  return *Function::make(std::move(body), {result});
}

Graph graph_that_calls(const FunctionPtr& function) {
  Graph graph;
  Builder b(&graph, &ops());
  const Output x = b.add("Source", {}, {{"shape", Shape{-1, 2}}}, "x");
  const std::string name = graph.hold_function("f", function);
  const std::vector<Output> inputs(function->num_inputs(), x);
  (void)b.add("Run", inputs, {{"function", name}}, "y");
  EXPECT_TRUE(b.status().ok()) << base::message_of(b.status());
  return graph;
}

constexpr const char* kNested = R"(sidereal-graph 1
function @0 {
  %0 = Arg() name="x" {dtype=float32, index=0, shape=shape[?,2]} : float32[?,2]
  %1 = Arg() name="y" {dtype=float32, index=1, shape=shape[?,2]} : float32[?,2]
  %2 = Pair(%0, %1) name="both" : float32[?,2], int64[]
  return %2, %1
}
function @1 {
  use "inner" @0
  %0 = Arg() name="x" {dtype=float32, index=0, shape=shape[?,2]} : float32[?,2]
  %1 = Run(%0, %0) name="Run" {function="inner"} : float32[?,2], float32[?,2]
  return %1
}
use "f" @1
%0 = Source() name="x" {shape=shape[?,2]} : float32[?,2]
%1 = Run(%0) name="y" {function="f"} : float32[?,2]
)";

std::string error_of(const std::string& text) {
  const auto read = from_text(text, ops());
  EXPECT_FALSE(read.ok());
  return base::message_of(read.status());
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(Function, KnowsItsSignature) {
  const FunctionPtr f = pair_function();
  EXPECT_EQ(f->num_inputs(), 2U);
  EXPECT_EQ(to_string(f->input(1)), "float32[?,2]");
  EXPECT_EQ(f->num_outputs(), 2U);
  EXPECT_EQ(f->depth(), 1);
  EXPECT_EQ(calling(f)->depth(), 2);
}

TEST(Function, TextShowsEveryFunctionOnceBeforeItsUse) {
  const FunctionPtr inner = pair_function();
  EXPECT_EQ(to_text(graph_that_calls(calling(inner))), kNested);
}

TEST(Function, TextReadsBackAsTheSameText) {
  const auto read = from_text(kNested, ops());
  ASSERT_TRUE(read.ok()) << base::message_of(read.status());
  EXPECT_EQ(to_text(*read), kNested);
  EXPECT_EQ(content_hash(*read), content_hash(*from_text(kNested, ops())));
}

TEST(Function, ASharedFunctionIsOneFunctionAfterReading) {
  const FunctionPtr inner = pair_function();
  Graph graph = graph_that_calls(calling(inner));
  graph.hold_function("also", inner);
  const std::string text = to_text(graph);
  EXPECT_THAT(text, HasSubstr("use \"also\" @0\n"));
  const auto read = from_text(text, ops());
  ASSERT_TRUE(read.ok()) << base::message_of(read.status());
  EXPECT_EQ(read->find_function("f")->body().find_function("inner"), read->find_function("also"));
}

TEST(Function, RecursionIsRefused) {
  EXPECT_THAT(error_of(replaced(kNested, "\"inner\" @0", "\"inner\" @1")),
              HasSubstr("9:17: @1 is not an earlier function; functions do not call themselves"));
  EXPECT_THAT(error_of(replaced(kNested, "function @1", "function @2")),
              HasSubstr("function @2 stands where @1 must be"));
}

TEST(Function, BadTextIsAnError) {
  EXPECT_THAT(error_of(replaced(kNested, "return %2, %1\n", "")), HasSubstr("expected '%'"));
  EXPECT_THAT(error_of(replaced(kNested, "return %2, %1\n", "return %2:7\n")),
              HasSubstr("there is no output 7"));
  EXPECT_THAT(error_of(replaced(kNested, "return %2, %1\n", "return %9\n")),
              HasSubstr("%9 is not an earlier node"));
  EXPECT_THAT(error_of(replaced(kNested, "{function=\"f\"}", "{function=\"g\"}")),
              HasSubstr("names function 'g', which the graph does not hold"));
  EXPECT_THAT(error_of(replaced(kNested, "index=1", "index=0")), HasSubstr("numbered from 0"));
  EXPECT_THAT(error_of(replaced(kNested, "use \"f\" @1", "use \"f\" @1\nuse \"f\" @0")),
              HasSubstr("two functions are named 'f'"));
  EXPECT_THAT(error_of(replaced(kNested, "Pair(%0, %1)", "Pair(%0)")),
              HasSubstr("exactly 2 needed"));
  EXPECT_THAT(error_of("sidereal-graph 1\nfunction @0 {\n"), HasSubstr("expected 'return'"));
  EXPECT_THAT(error_of("sidereal-graph 1\nfunction @0 {\nfunction @1 {\n"),
              HasSubstr("expected '%'"));
}

TEST(Function, MutatedTextIsAnErrorOrAnotherGraph) {
  std::mt19937 random(11);
  const std::string good = kNested;
  const std::string letters = "%@{}()\"=:,0123 \nfunctionuseretunaft";
  int accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text = good;
    for (int c = 1 + static_cast<int>(random() % 3); c > 0; --c) {
      const size_t at = random() % text.size();
      if (random() % 3 == 0) {
        text.erase(at, 1 + random() % 9);
      } else {
        text[at] = letters[random() % letters.size()];
      }
    }
    const auto read = from_text(text, ops());
    if (!read.ok()) continue;
    ++accepted;
    const auto again = from_text(to_text(*read), ops());
    ASSERT_TRUE(again.ok()) << text;
    EXPECT_EQ(to_text(*again), to_text(*read));
  }
  EXPECT_GT(accepted, 0);
}

TEST(Function, NestingIsBounded) {
  FunctionPtr f = pair_function();
  for (int depth = 1; depth < kMaxFunctionDepth; ++depth) f = calling(f);
  EXPECT_EQ(f->depth(), kMaxFunctionDepth);
  const std::string text = to_text(graph_that_calls(f));
  ASSERT_TRUE(from_text(text, ops()).ok());
  Graph body;
  body.hold_function("deep", f);
  const auto deeper = Function::make(std::move(body), {});
  EXPECT_THAT(base::message_of(deeper.status()), HasSubstr("nested deeper than 32 levels"));
}

TEST(Function, ArgsComeFirstAndOutputsExist) {
  Graph late;
  Builder b(&late, &ops());
  (void)b.add("Source", {}, {{"shape", Shape{2}}});
  (void)b.add("Arg", {}, {{"index", int64_t{0}}, {"dtype", DType::kInt64}, {"shape", Shape{}}});
  EXPECT_THAT(base::message_of(Function::make(late, {}).status()), HasSubstr("inputs come first"));
  EXPECT_THAT(base::message_of(Function::make(Graph(), {{NodeId(0), 0}}).status()),
              HasSubstr("output 0 of the function is not a value"));
  EXPECT_THAT(base::message_of(Function::make(Graph(), {}, {NodeId(3)}).status()),
              HasSubstr("target 0 of the function is not a node"));
}

TEST(Function, InliningPutsInputsInThePlaceOfArgs) {
  Graph graph;
  Builder b(&graph, &ops());
  const Output x = b.add("Source", {}, {{"shape", Shape{3, 2}}}, "x");
  const FunctionPtr f = calling(pair_function());
  const auto inlined = inline_function(*f, {x}, ops(), "here/", &graph);
  ASSERT_TRUE(inlined.ok()) << base::message_of(inlined.status());
  EXPECT_EQ(graph.output_name(inlined->outputs[0]), "here/Run");
  EXPECT_NE(graph.find_function("inner"), nullptr);
  const auto again = inline_function(*pair_function(), {x, x}, ops(), "here/", &graph);
  ASSERT_TRUE(again.ok());
  // Shapes are inferred from what is there now.
  EXPECT_EQ(to_string(graph.spec(again->outputs[0])), "float32[3,2]");
  EXPECT_EQ(again->outputs[1], x);
  EXPECT_TRUE(verify(graph, ops()).ok());
}

TEST(Function, InliningChecksItsInputs) {
  Graph graph;
  Builder b(&graph, &ops());
  const Output x = b.add("Source", {}, {{"shape", Shape{3, 2}}}, "x");
  const Output pair = b.add("Pair", {x, x});
  const FunctionPtr f = pair_function();
  EXPECT_FALSE(inline_function(*f, {x}, ops(), "", &graph).ok());
  EXPECT_FALSE(inline_function(*f, {x, {pair.node, 1}}, ops(), "", &graph).ok());
}

TEST(Function, AGraphRefusesTwoFunctionsOfOneName) {
  Graph graph;
  const FunctionPtr f = pair_function();
  EXPECT_TRUE(graph.add_function("f", f).ok());
  EXPECT_TRUE(graph.add_function("f", f).ok());
  EXPECT_FALSE(graph.add_function("f", pair_function()).ok());
  EXPECT_EQ(graph.hold_function("g", f), "f");
  EXPECT_EQ(graph.hold_function("f", pair_function()), "f_1");
}

}  // namespace
}  // namespace sidereal::ir
