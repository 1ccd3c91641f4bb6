#include <gtest/gtest.h>

#include <set>

#include "sidereal/exec/testing/random_control.h"
#include "sidereal/ir/function.h"
#include "sidereal/ops/ops.h"

// Passes over graphs whose nodes ask for devices.
namespace sidereal::exec {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::Output;
using tensor::DType;
using tensor::Tensor;

const std::vector<std::string> kDevices = {"/job:ps/task:0", "/job:ps/task:1",
                                           "/job:worker/task:0"};

std::vector<Tensor> run(const ControlModel& model, const reference::Values& feeds, bool fuse) {
  const auto step = compile_for_test(model.graph, model.fetches, {}, passes_of(fuse));
  EXPECT_TRUE(step.ok()) << step.status();
  if (!step.ok()) return {};
  BufferPool pool(size_t{1} << 30);
  const auto bound = BoundProgram::bind(*step, all_kernels(), {});
  EXPECT_TRUE(bound.ok()) << bound.status();
  if (!bound.ok()) return {};
  Step running(bound->get(), &pool, nullptr);
  const auto got = run_step(&running, (*bound)->program(), feeds, 1);
  EXPECT_TRUE(got.ok()) << got.status();
  std::vector<Tensor> out;
  if (got.ok()) {
    for (const Tensor& t : *got) out.push_back(t.clone());
  }
  return out;
}

/// By name of a node: its device, as far as names are used once.
void collect(const Graph& graph, std::map<std::string, std::set<std::string>>* out) {
  for (const Node& node : graph.nodes()) (*out)[node.name].insert(node.device);
  for (const ir::NamedFunction& held : graph.functions()) collect(held.function->body(), out);
}

TEST(Devices, PassesOverRandomGraphsKeepValuesAndDevices) {
  size_t changed = 0;
  for (uint32_t seed = 1; seed <= 80; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Dice dice(seed);
    const PiecePtr piece = random_piece(dice, 3, false);
    const reference::Values feeds = control_feeds(dice);
    ControlModel model = make_control(*piece, false, false);
    const std::vector<Tensor> want = run(model, feeds, false);
    ask_for_devices(&model.graph, kDevices, &dice);
    expect_same(run(model, feeds, true), want);

    const auto plan =
        passes::run_passes(model.graph, model.fetches, {}, test_registry(), {.fuse = true});
    ASSERT_TRUE(plan.ok()) << plan.status();
    std::map<std::string, std::set<std::string>> before;
    std::map<std::string, std::set<std::string>> after;
    collect(model.graph, &before);
    collect(plan->graph, &after);
    for (const auto& [name, devices] : after) {
      // What is made for others is called like one of them, or like that and something behind.
      auto source = before.find(name);
      for (std::string stem = name; source == before.end() && stem.rfind('/') != stem.npos;) {
        stem.resize(stem.rfind('/'));
        source = before.find(stem);
      }
      for (const std::string& device : devices) {
        EXPECT_TRUE(std::find(kDevices.begin(), kDevices.end(), device) != kDevices.end()) << name;
        if (source == before.end() || source->first != name) continue;
        EXPECT_TRUE(source->second.contains(device)) << name << " on " << device;
      }
      changed += before.contains(name) ? 0 : 1;
    }
    if (testing::Test::HasFailure()) return;
  }
  fmt::print("{} nodes under new names\n", changed);
}

TEST(Devices, NodesOfDifferentDevicesAreNeverMadeOne) {
  for (const bool same : {true, false}) {
    Graph graph;
    ir::Builder b(&graph, &test_registry());
    const Output x = ops::placeholder(b, "x", DType::kFloat32, {2, 3});
    const Output w = ops::placeholder(b, "w", DType::kFloat32, {3, 4});
    const Output bias = ops::placeholder(b, "b", DType::kFloat32, {4});
    const Output product = ops::mat_mul(b, x, w);
    const Output sum = ops::bias_add(b, product, bias);
    const Output a = ops::tanh(b, ops::sigmoid(b, sum));
    const Output twin = ops::tanh(b, ops::sigmoid(b, sum));
    ASSERT_TRUE(b.status().ok()) << b.status();
    for (size_t i = 0; i < graph.size(); ++i) {
      const bool odd = !same && i % 2 == 1;
      graph.mutable_node(NodeId(static_cast<int32_t>(i))).device =
          odd ? "/job:ps/task:0" : "/job:worker/task:0";
    }
    // The twins: sigmoids and tanhs on devices of their own.
    if (!same) {
      graph.mutable_node(NodeId(twin.node.value)).device = "/job:ps/task:1";
      graph.mutable_node(graph.node(twin.node).inputs[0].node).device = "/job:ps/task:2";
    }
    const auto plan = passes::run_passes(graph, {a, twin}, {}, test_registry());
    ASSERT_TRUE(plan.ok()) << plan.status();
    std::multiset<std::string> ops;
    for (const Node& node : plan->graph.nodes()) ops.insert(node.op);
    EXPECT_EQ(ops.count("FusedMatMul"), same ? 1 : 0);
    EXPECT_EQ(ops.count("FusedElementwise"), same ? 1 : 0);
    EXPECT_EQ(ops.count("Tanh"), same ? 0 : 2);
  }
}

TEST(Devices, NotesAreForThePlanAndNotForPrograms) {
  Graph graph;
  ir::Builder b(&graph, &test_registry());
  const Output x = ops::placeholder(b, "x", DType::kFloat32, {2});
  const Output y = b.add("Tanh", {x}, {{"_class", std::vector<std::string>{"loc:@x"}}}, "y");
  ASSERT_TRUE(b.status().ok()) << b.status();
  const auto plan = passes::run_passes(graph, {y}, {}, test_registry());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE(plan->graph.find("y")->attrs.contains("_class"));
  const auto step = compile_for_test(graph, {y});
  ASSERT_TRUE(step.ok()) << step.status();
  ASSERT_EQ(step->instructions.size(), 1U);
  EXPECT_TRUE(step->instructions[0].attrs.empty());
}

}  // namespace
}  // namespace sidereal::exec
