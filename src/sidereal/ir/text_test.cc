#include "sidereal/ir/text.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "sidereal/ir/testing/ops.h"
#include "sidereal/ir/verify.h"

namespace sidereal::ir {
namespace {

template <class T>
Tensor list_of(const std::vector<T>& values) {
  return Tensor::of<T>({static_cast<int64_t>(values.size())}, values);
}

/// A graph with every feature of the format.
Graph sample(const OpRegistry& registry) {
  Graph graph;
  Builder b(&graph, &registry);
  const Output x = b.add("Source", {}, {{"shape", Shape{-1, 3}}}, "a/x");
  const Output pair = b.add("Pair", {x, x}, {}, "pair");
  AttrMap attrs;
  attrs["bool_attr"] = true;
  attrs["bool_attr2"] = false;
  attrs["int_attr"] = std::numeric_limits<int64_t>::min();
  attrs["float_attr"] = 3.0;
  attrs["float_attr2"] = -std::numeric_limits<double>::infinity();
  attrs["float_attr3"] = std::bit_cast<double>(0xfff8000000000123U);
  attrs["string_attr"] = std::string("quote \" slash \\ line\n tab\t \x7f \xc3\xa9");
  attrs["string_attr2"] = std::string();
  attrs["dtype_attr"] = DType::kBFloat16;
  attrs["shape_attr"] = Shape{2, -1, 0};
  attrs["shape_attr2"] = Shape::unknown_rank();
  attrs["shape_attr3"] = Shape();
  attrs["ints_attr"] = std::vector<int64_t>{-1, 2};
  attrs["ints_attr2"] = std::vector<int64_t>{};
  attrs["floats_attr"] = std::vector<double>{1, 0.1, 1e-320, 1e300};
  attrs["strings_attr"] = std::vector<std::string>{"a", "", "b,c"};
  attrs["_class"] = std::vector<std::string>{"loc:@a/x"};
  attrs["_note"] = Shape{2, -1};
  attrs["tensor_attr"] = list_of<float>({1, 0.1F, -0.0F, 1e-44F, INFINITY, -INFINITY, NAN});
  attrs["tensor_attr2"] = Tensor::zeros(DType::kFloat16, {2, 0});
  attrs["tensor_attr3"] = Tensor::of<uint64_t>(Shape(), std::vector<uint64_t>{~uint64_t{0}});
  const NodeId all = b.add_node("Anything", {Output{pair.node, 1}, x}, attrs, {x.node}, "all");
  b.add_node("Touch", {}, {{"shared_name", std::string("bias")}}, {all, pair.node});
  EXPECT_TRUE(b.status().ok()) << b.status();
  graph.mutable_node(all).device = "/job:ps/task:1";
  return graph;
}

TEST(Text, is_one_line_per_node) {
  const OpRegistry registry = testing::registry();
  Graph graph;
  Builder b(&graph, &registry);
  const Output x = b.add("Source", {}, {{"shape", Shape{-1, 3}}}, "a/x");
  b.add_node("Pair", {x, x}, {}, {x.node}, "pair");
  EXPECT_EQ(to_text(graph),
            "sidereal-graph 1\n"
            "%0 = Source() name=\"a/x\" {shape=shape[?,3]} : float32[?,3]\n"
            "%1 = Pair(%0, %0) name=\"pair\" after(%0) : float32[?,3], int64[]\n");
}

TEST(Text, reads_back_every_feature_exactly) {
  const OpRegistry registry = testing::registry();
  const Graph graph = sample(registry);
  const std::string text = to_text(graph);
  const Result<Graph> back = from_text(text, registry);
  ASSERT_TRUE(back.ok()) << back.status() << "\n" << text;
  EXPECT_EQ(to_text(*back), text);
  for (size_t i = 0; i < graph.size(); ++i) {
    const Node& a = graph.nodes()[i];
    const Node& b = back->nodes()[i];
    EXPECT_EQ(a.inputs, b.inputs);
    EXPECT_EQ(a.control_inputs, b.control_inputs);
    EXPECT_EQ(a.device, b.device);
    ASSERT_EQ(a.attrs.size(), b.attrs.size());
    for (const auto& [name, value] : a.attrs) {
      EXPECT_TRUE(attr_equal(value, b.attrs.at(name))) << name;
    }
  }
}

TEST(Text, reads_back_tensors_of_every_dtype) {
  const OpRegistry registry = testing::registry();
  std::mt19937_64 random(5);
  for (int number = 1; number <= 26; ++number) {
    // In decimal, and in base64.
    const auto dtype = static_cast<DType>((number + 1) / 2);
    Tensor tensor = Tensor::empty(dtype, {number % 2 == 0 ? 33 : 65});
    for (size_t i = 0; i < tensor.nbytes(); ++i) {
      const auto byte = static_cast<std::byte>(random());
      tensor.raw()[i] = dtype == DType::kBool ? byte & std::byte{1} : byte;
    }
    Graph graph;
    Builder b(&graph, &registry);
    b.add_node("Anything", {}, {{"tensor_attr", tensor}});
    const Result<Graph> back = from_text(to_text(graph), registry);
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_TRUE(attr_equal(tensor, back->nodes()[0].attrs.at("tensor_attr")))
        << tensor::name_of(dtype);
  }
}

TEST(Text, reads_back_strings_of_any_bytes) {
  const OpRegistry registry = testing::registry();
  Graph graph;
  Builder b(&graph, &registry);
  const Tensor tensor = Tensor::strings({1, 3}, {"a,\"b\"\n", "\xff\x01\\", ""});
  b.add_node("Anything", {}, {{"tensor_attr", tensor}});
  const std::string text = to_text(graph);
  EXPECT_NE(text.find(R"(string[1,3]{"a,\"b\"\n","\xff\x01\\",""})"), std::string::npos) << text;
  const Result<Graph> back = from_text(text, registry);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_TRUE(attr_equal(tensor, back->nodes()[0].attrs.at("tensor_attr")));
  EXPECT_FALSE(attr_equal(Tensor::strings({1, 3}, {"a", "b", "c"}), tensor));
}

TEST(Text, may_have_comments_and_empty_lines) {
  const OpRegistry registry = testing::registry();
  const auto graph = from_text(
      "sidereal-graph 1\n\n# a comment\n%0 = Source() name=\"x\" {shape=shape[]} : float32[]",
      registry);
  EXPECT_TRUE(graph.ok()) << graph.status();
}

TEST(Text, names_the_place_of_an_error) {
  const OpRegistry registry = testing::registry();
  const std::string head = "sidereal-graph 1\n";
  const std::string x = "%0 = Source() name=\"x\" {shape=shape[2]} : float32[2]\n";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "graph text 1:1: expected 'sidereal-graph 1', got the end of the text"},
      {"sidereal-graph 3\n", "1:17: the text has version 3; this program reads versions 1 to 2"},
      {head + "%1 = Source()", "2:3: node %1 stands where %0 must be"},
      {head + "%0 = Source() nam", "2:15: expected 'name=', got 'n'"},
      {head + "%0 = Source() name=\"_\"", "2:23: '_' is not a legal name"},
      {head + x + "%1 = Pair(%0, %7)", "3:17: %7 is not an earlier node"},
      {head + x + "%1 = Pair(%0, %0:1)", "3:19: 'x' has 1 outputs; there is no output 1"},
      {head + x + "%1 = Source() name=\"x\"", "3:23: another node is named 'x' too"},
      {head + "var \"v\" float32[2]", "2:1: expected '%', got 'v'"},
      {head + x + "%1 = Touch() name=\"t\" : float33[2]", "3:32: 'float33' is not a dtype"},
      {head + x + "%1 = Touch() name=\"t\" : float32[2",
       "3:34: expected ',', got the end of the text"},
      {head + x + "%1 = Touch() name=\"t\" : float32[-2]",
       "3:35: an extent is negative; write '?' for unknown"},
      {head + "%0 = Anything() name=\"x\" {int_attr=99999999999999999999}",
       "2:36: the number is out of range for an int"},
      {head + "%0 = Anything() name=\"x\" {tensor_attr=float32[9999999]{0}}",
       "2:55: the tensor is larger than its text or than 2 GiB"},
      {head + "%0 = Anything() name=\"x\" {tensor_attr=float32[2]base64{AAAA}}",
       "2:56: expected 8 bytes in base64, got 'A'"},
      {head + "%0 = Anything() name=\"x\" {tensor_attr=float32[1]base64{A?AAAA==}}",
       "2:56: expected 4 bytes in base64, got 'A'"},
      {head + "%0 = Anything() name=\"x\" {tensor_attr=bool[3]base64{AAEC}}",
       "a bool is neither 0 nor 1"},
      {head + "%0 = Anything() name=\"x\" {tensor_attr=string[1]base64{AAEC}}",
       "strings are not written in base64"},
      {head + "%0 = Anything() name=\"x\" {string_attr=\"a", "expected a closing '\"'"},
      {head + "%0 = Anything() name=\"x\" {string_attr=\"a\n\"}", "got the end of the line"},
      {head + "%0 = Source() name=\"x\" {shape=shape[2]} : float32[3]\n",
       "output 0 is recorded as float32[3]; the op makes float32[2]"},
  };
  for (const auto& [text, message] : cases) {
    const Result<Graph> graph = from_text(text, registry);
    ASSERT_FALSE(graph.ok()) << text;
    EXPECT_NE(base::message_of(graph.status()).find(message), std::string::npos)
        << graph.status() << "\n"
        << text;
  }
}

/// `text` with a few characters changed, taken out, repeated or moved.
std::string mutated(std::string text, std::mt19937_64* random) {
  constexpr std::string_view kCharacters = "%=(){}[]\":,?-.0123456789aefinxvr \\\n";
  const auto below = [&](size_t n) { return static_cast<size_t>((*random)() % n); };
  for (size_t change = 1 + below(4); change > 0 && !text.empty(); --change) {
    const size_t at = below(text.size());
    const size_t length = std::min(text.size() - at, 1 + below(12));
    switch (below(5)) {
      case 0:
        text[at] = kCharacters[below(kCharacters.size())];
        break;
      case 1:
        text.erase(at, length);
        break;
      case 2:
        text.insert(at, text.substr(below(text.size()), length));
        break;
      case 3:
        text[at] = static_cast<char>(below(256));
        break;
      default:
        text.resize(at);
        break;
    }
  }
  return text;
}

TEST(Text, however_mutated_gives_an_error_or_a_sound_graph) {
  const OpRegistry registry = testing::registry();
  const std::string text = to_text(sample(registry));
  constexpr uint64_t kSeed = 11;
  std::mt19937_64 random(kSeed);
  int read = 0;
  for (int i = 0; i < 20000; ++i) {
    const std::string wrong = mutated(text, &random);
    const Result<Graph> graph = from_text(wrong, registry);
    if (!graph.ok()) {
      EXPECT_FALSE(base::message_of(graph.status()).empty());
      continue;
    }
    ++read;
    const Result<Graph> again = from_text(to_text(*graph), registry);
    ASSERT_TRUE(again.ok()) << "seed " << kSeed << ", text " << i << ": " << again.status();
    EXPECT_EQ(to_text(*again), to_text(*graph));
  }
  EXPECT_GT(read, 100);
}

}  // namespace
}  // namespace sidereal::ir
