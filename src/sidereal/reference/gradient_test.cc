#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "sidereal/autodiff/autodiff.h"
#include "sidereal/ir/function.h"
#include "sidereal/ir/text.h"
#include "sidereal/ir/verify.h"
#include "sidereal/ops/ops.h"
#include "sidereal/reference/reference.h"
#include "sidereal/reference/testing/op_cases.h"

/// For every op of the registry: its gradient against finite differences, its inference with and
/// without known extents, and its text.
namespace sidereal::reference {
namespace {

using ir::Builder;
using ir::DType;
using ir::Graph;
using ir::Output;
using ir::Shape;
using ir::Tensor;

constexpr double kStep = 1e-5;
constexpr double kTolerance = 1e-7;

/// Reproducible numbers in [0, 1).
class Numbers {
 public:
  double next() {
    state_ = state_ * 6364136223846793005U + 1442695040888963407U;
    return static_cast<double>(state_ >> 40) * 0x1p-24;
  }
  /// A float64 tensor of values in [low, high], 0.01 or more away from 0.
  Tensor tensor(const Shape& shape, double low, double high) {
    Tensor out = Tensor::empty(DType::kFloat64, shape);
    for (double& x : out.data<double>()) {
      do {
        x = low + (high - low) * next();
      } while (std::abs(x) < 0.01);
    }
    return out;
  }

 private:
  uint64_t state_ = 7;
};

const ir::OpRegistry& registry() {
  static const ir::OpRegistry* const all = [] {
    auto* out = new ir::OpRegistry;
    ops::register_all(out);
    return out;
  }();
  return *all;
}

Shape without_extents(const Shape& shape) {
  Shape out = shape;
  // The first extent is the batch; the others are structure that some rules need.
  if (out.rank() > 1) out.set_dim(0, -1);
  return out;
}

/// One case as a graph: inputs, sum(weights * output), and the gradients of the inputs.
struct CaseGraph {
  Graph graph;
  std::vector<Output> inputs;
  Output loss;
  std::vector<Output> grads;
  Values feeds;
};

CaseGraph build(const OpCase& op_case, bool known_extents) {
  CaseGraph out;
  Builder b(&out.graph, &registry());
  Numbers numbers;
  for (size_t i = 0; i < op_case.inputs.size(); ++i) {
    const CaseInput& input = op_case.inputs[i];
    const std::string name = fmt::format("input{}", i);
    const Shape shape = known_extents ? input.shape : without_extents(input.shape);
    out.inputs.push_back(ops::placeholder(b, name, DType::kFloat64, shape));
    out.feeds[name] = numbers.tensor(input.shape, input.low, input.high);
  }
  const Output y = op_case.build(b, out.inputs);
  // Weights that differ tell apart what plain sums would not.
  const Output weights = ops::placeholder(b, "weights", DType::kFloat64, b.spec(y).shape);
  out.loss = ops::mul(b, y, weights);
  Result<std::vector<Output>> grads = autodiff::gradients(b, out.loss, out.inputs);
  EXPECT_TRUE(grads.ok()) << grads.status();
  EXPECT_TRUE(b.status().ok()) << b.status();
  if (!grads.ok()) return out;
  out.grads = *grads;
  const auto probe = evaluate(out.graph, {.feeds = out.feeds, .fetches = {y}, .targets = {}});
  EXPECT_TRUE(probe.ok()) << probe.status();
  if (probe.ok()) out.feeds["weights"] = numbers.tensor((*probe)[0].shape(), -1, 1);
  return out;
}

double loss_at(const CaseGraph& g, const Values& feeds) {
  const auto result =
      evaluate(g.graph, {.feeds = feeds, .fetches = {g.loss}, .targets = {}, .step = 3});
  EXPECT_TRUE(result.ok()) << result.status();
  double sum = 0;
  if (result.ok()) {
    for (const double x : (*result)[0].data<double>()) sum += x;
  }
  return sum;
}

/// d loss / d input `i` by central differences.
std::vector<double> differences(const CaseGraph& g, size_t i) {
  const std::string name = fmt::format("input{}", i);
  std::vector<double> out;
  for (int64_t k = 0; k < g.feeds.at(name).num_elements(); ++k) {
    double values[2];
    for (const int side : {0, 1}) {
      Values feeds = g.feeds;
      feeds[name] = feeds[name].clone();
      feeds[name].data<double>()[k] += side == 0 ? -kStep : kStep;
      values[side] = loss_at(g, feeds);
    }
    out.push_back((values[1] - values[0]) / (2 * kStep));
  }
  return out;
}

void check_input(const CaseGraph& g, const CaseInput& input, size_t i) {
  SCOPED_TRACE(fmt::format("input {}", i));
  if (!input.takes_gradient) {
    EXPECT_FALSE(g.grads[i].valid());
    return;
  }
  std::vector<double> actual(input.shape.num_elements(), 0.0);
  if (g.grads[i].valid()) {
    const auto result =
        evaluate(g.graph, {.feeds = g.feeds, .fetches = {g.grads[i]}, .targets = {}, .step = 3});
    ASSERT_TRUE(result.ok()) << result.status();
    ASSERT_EQ((*result)[0].shape(), input.shape);
    const auto data = (*result)[0].data<double>();
    actual.assign(data.begin(), data.end());
  }
  const std::vector<double> expected = differences(g, i);
  for (size_t k = 0; k < expected.size(); ++k) {
    EXPECT_NEAR(actual[k], expected[k], kTolerance * (1 + std::abs(expected[k])))
        << "element " << k;
  }
}

void expect_round_trip(const Graph& graph) {
  const std::string text = ir::to_text(graph);
  const Result<Graph> back = ir::from_text(text, registry());
  ASSERT_TRUE(back.ok()) << back.status() << "\n" << text;
  EXPECT_EQ(ir::to_text(*back), text);
}

std::set<std::string> ops_of(const Graph& graph) {
  std::set<std::string> out;
  for (const ir::Node& node : graph.nodes()) out.insert(node.op);
  return out;
}

TEST(Gradients, of_every_op_equal_finite_differences) {
  int checked = 0;
  for (const OpCase& op_case : gradient_cases()) {
    for (const bool known : {true, false}) {
      SCOPED_TRACE(fmt::format("{} ({}), extents {}", op_case.op, op_case.what,
                               known ? "known" : "unknown"));
      const CaseGraph g = build(op_case, known);
      ASSERT_EQ(g.grads.size(), op_case.inputs.size());
      for (size_t i = 0; i < op_case.inputs.size(); ++i) check_input(g, op_case.inputs[i], i);
      EXPECT_TRUE(ir::verify(g.graph, registry()).ok()) << ir::verify(g.graph, registry());
      expect_round_trip(g.graph);
      ++checked;
    }
  }
  fmt::print("{} graphs checked against finite differences\n", checked);
}

TEST(Gradients, every_differentiable_op_has_a_case) {
  // A read has no input to differentiate by, nor has a look-up. The gradient of Gather is checked
  // from Python: the reference does not know the ops that it is made of.
  std::set<std::string> covered = {"VariableRead", "EmbeddingLookup", "Gather"};
  for (const OpCase& op_case : gradient_cases()) covered.insert(op_case.op);
  int differentiable = 0;
  // Parts of gradients: what they are differentiated to is checked from Python.
  const std::set<std::string> helpers = {
      "ReluGrad",    "SigmoidGrad",       "TanhGrad",     "SigmoidCrossEntropyGrad",
      "BiasAddGrad", "FmInteractionGrad", "SumToShapeOf", "BroadcastAxes"};
  for (const std::string& name : registry().names()) {
    if (!registry().find(name)->differentiable) continue;
    // Control flow is compared with what it stands for, in exec/control_random_test.cc.
    if (!ir::function_attrs(*registry().find(name)).empty()) continue;
    ++differentiable;
    EXPECT_TRUE(covered.contains(name) || helpers.contains(name) || !knows(name))
        << name << " has no case in op_cases.cc";
    EXPECT_TRUE(registry().find(name)->gradient != nullptr) << name << " has no gradient rule";
  }
  fmt::print("{} differentiable ops of {}, {} cases\n", differentiable, registry().names().size(),
             gradient_cases().size());
}

TEST(Text, of_every_op_reads_back_as_it_was) {
  Graph others;
  Builder b(&others, &registry());
  build_other_ops(b);
  ASSERT_TRUE(b.status().ok()) << b.status();
  EXPECT_TRUE(ir::verify(others, registry()).ok()) << ir::verify(others, registry());
  expect_round_trip(others);
  std::set<std::string> seen = ops_of(others);
  for (const OpCase& op_case : gradient_cases()) seen.merge(ops_of(build(op_case, true).graph));
  for (const std::string& name : registry().names()) {
    if (!ir::function_attrs(*registry().find(name)).empty()) continue;
    EXPECT_TRUE(seen.contains(name) || !knows(name)) << name << " is in no case of op_cases.cc";
  }
}

TEST(Schemas, say_what_every_op_attribute_and_input_is) {
  for (const std::string& name : registry().names()) {
    const ir::OpSchema& schema = *registry().find(name);
    EXPECT_FALSE(schema.doc.empty()) << name;
    for (const ir::AttrSpec& attr : schema.attrs) EXPECT_FALSE(attr.doc.empty()) << name;
    EXPECT_TRUE(schema.max_inputs < 0 || schema.max_inputs >= schema.min_inputs) << name;
  }
}

/// Attributes of the right types and senseless values.
ir::AttrMap awkward_attrs(const ir::OpSchema& schema, size_t count, int64_t number, DType dtype,
                          const Shape& shape) {
  ir::AttrMap out;
  for (const ir::AttrSpec& attr : schema.attrs) {
    if (attr.type == "int") out[attr.name] = number;
    if (attr.type == "ints") out[attr.name] = std::vector<int64_t>(count, number);
    if (attr.type == "float") out[attr.name] = static_cast<double>(number);
    if (attr.type == "bool") out[attr.name] = number > 0;
    if (attr.type == "string") out[attr.name] = std::string("v");
    if (attr.type == "strings") out[attr.name] = std::vector<std::string>(count, "[");
    if (attr.type == "dtype") out[attr.name] = dtype;
    if (attr.type == "shape") out[attr.name] = shape;
  }
  return out;
}

/// True when the node could be made; then the graph must verify.
bool try_awkward(const std::string& op, const Shape& shape, DType dtype, size_t count,
                 int64_t number) {
  Graph graph;
  Builder b(&graph, &registry());
  const Output x = ops::placeholder(b, "x", dtype, shape);
  const ir::NodeId id =
      b.add_node(op, std::vector<Output>(count, x),
                 awkward_attrs(*registry().find(op), count, number, dtype, shape));
  EXPECT_EQ(id.valid(), b.status().ok());
  EXPECT_TRUE(ir::verify(graph, registry()).ok()) << op << ir::verify(graph, registry());
  return id.valid();
}

TEST(Schemas, turn_awkward_inputs_into_an_error_or_a_node_for_every_op) {
  const std::vector<Shape> shapes = {
      {}, {0}, {-1}, {2, 3}, {-1, -1, 4}, Shape::unknown_rank(), {1, 1 << 30, 1 << 17}};
  int accepted = 0;
  for (const std::string& op : registry().names()) {
    for (const Shape& shape : shapes) {
      for (const DType dtype : {DType::kFloat32, DType::kInt64, DType::kBool}) {
        for (size_t count = 0; count < 5; ++count) {
          for (const int64_t number : {-3, 0, 7}) {
            accepted += try_awkward(op, shape, dtype, count, number) ? 1 : 0;
          }
        }
      }
    }
  }
  EXPECT_GT(accepted, 100);
}

}  // namespace
}  // namespace sidereal::reference
