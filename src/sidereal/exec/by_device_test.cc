#include "sidereal/partition/by_device.h"

#include <gtest/gtest.h>

#include "sidereal/exec/testing/cuts.h"
#include "sidereal/ir/function.h"
#include "sidereal/ops/control.h"
#include "sidereal/ops/ops.h"
#include "sidereal/passes/place_devices.h"

// Graphs that were cut by devices, whose parts take turns in one thread, beside the whole graph in
// one program: the same bits.
namespace sidereal::exec {
namespace {

using ir::Builder;
using ir::FunctionPtr;
using ir::Graph;
using ir::Output;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

using Mode = partition::PullPushOptions::Mode;

std::vector<Tensor> run_whole(const ControlModel& model, const reference::Values& feeds,
                              uint64_t id) {
  WholeGraph whole;
  const Status made = whole.make(model);
  EXPECT_TRUE(made.ok()) << made;
  const auto got = whole.run(feeds, id);
  EXPECT_TRUE(got.ok()) << got.status();
  return got.ok() ? *got : std::vector<Tensor>();
}

/// Messages with several tensors, of any number of bytes.
partition::ByDeviceOptions fusing(Dice* dice) {
  return {.tensor_fuse = true, .fused_bytes_max = int64_t{1} << dice->number(3, 20)};
}

/// Runs two steps of a graph that was cut in every way, and compares them with `want`.
void compare_cuts(const passes::StepGraph& step, const reference::Values& feeds,
                  const std::vector<Tensor> (&want)[2], Dice* dice) {
  const std::string driver = dice->pick(four_devices());
  DeviceParts parts(dice);
  DeviceParts fused(dice);
  DrivenCalls layers(dice, Mode::kLayers);
  DrivenCalls lite(dice, Mode::kLite);
  const Status made[4] = {
      parts.make(step.graph, step.fetches), fused.make(step.graph, step.fetches, fusing(dice)),
      layers.make(step.graph, driver, step.fetches), lite.make(step.graph, driver, step.fetches)};
  Steps* const ways[4] = {&parts, &fused, &layers, &lite};
  for (size_t way = 0; way < 4; ++way) {
    SCOPED_TRACE(fmt::format("way {}, driver {}", way, driver));
    ASSERT_TRUE(made[way].ok()) << made[way];
    for (uint64_t id = 1; id <= 2; ++id) {
      const auto got = ways[way]->run(feeds, id);
      ASSERT_TRUE(got.ok()) << got.status();
      expect_same(*got, want[id - 1]);
    }
  }
  EXPECT_LE(lite.calls, layers.calls);
}

/// Cuts `graph` over some devices, with and without passes, and compares two steps.
void compare(ControlModel model, const reference::Values& feeds, Dice* dice) {
  const std::vector<Tensor> want[2] = {run_whole(model, feeds, 1), run_whole(model, feeds, 2)};
  const std::vector<std::string> devices(four_devices().begin(),
                                         four_devices().begin() + dice->number(1, 4));
  ask_for_devices(&model.graph, devices, dice);
  passes::StepGraph step{model.graph, model.fetches, {}};
  if (dice->chance(50)) {
    auto optimized = passes::optimize(std::move(step), test_registry());
    ASSERT_TRUE(optimized.ok()) << optimized.status();
    step = *std::move(optimized);
  }
  compare_cuts(step, feeds, want, dice);
}

passes::Devices test_devices() {
  passes::Devices devices;
  for (const std::string& name : four_devices()) {
    devices.all.push_back(*ir::DeviceSpec::parse(name));
  }
  devices.local = devices.all[2];
  return devices;
}

void clear_devices(Graph* graph) {
  for (size_t i = 0; i < graph->size(); ++i) {
    graph->mutable_node(ir::NodeId(static_cast<int32_t>(i))).device.clear();
  }
}

TEST(CutByDevice, RandomNestsAreWhatTheyAreInOneProgram) {
  for (uint32_t seed = 1; seed <= 250; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Dice dice(seed);
    const PiecePtr piece = random_piece(dice, 3, false);
    const reference::Values feeds = control_feeds(dice);
    ControlModel model = make_control(*piece, false, false);
    if (dice.chance(60)) add_orders(&model.graph, &dice);
    compare(model, feeds, &dice);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(CutByDevice, LoopsOverRowsOfWhichNobodyKnowsHowManyAreWhatTheyAreInOneProgram) {
  for (uint32_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Dice dice(seed);
    const ControlModel model = rows_model(&dice);
    reference::Values feeds = control_feeds(dice);
    // Without rows the stack of an outer loop has no shape to take.
    feeds["rows"] = dice.tensor(DType::kFloat64, {dice.number(0, 4), 3, 3}, -1, 1);
    compare(model, feeds, &dice);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(CutByDevice, VariablesInLoopsAreWhereTheyWerePlacedAndWhatTheyAreInOneProgram) {
  for (uint32_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Dice dice(seed);
    ControlModel model = variables_model(&dice);
    const reference::Values feeds = control_feeds(dice);
    const Status placed = passes::place_devices(&model.graph, test_devices(), test_registry());
    ASSERT_TRUE(placed.ok()) << placed;
    ControlModel whole = model;
    clear_devices(&whole.graph);
    const std::vector<Tensor> once = run_whole(whole, feeds, 1);
    compare_cuts({model.graph, model.fetches, {}}, feeds, {once, once}, &dice);
    if (testing::Test::HasFailure()) return;
  }
}

/// Runs steps of random models in one program and cut: by Send and Recv only where edges say all.
void compare_sessions(uint32_t seeds, bool orders_bodies) {
  for (uint32_t seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Dice dice(seed);
    ControlModel model = session_model(&dice, orders_bodies);
    reference::Values feeds = control_feeds(dice);
    const Status placed = passes::place_devices(&model.graph, test_devices(), test_registry());
    ASSERT_TRUE(placed.ok()) << placed;
    ControlModel cleared = model;
    clear_devices(&cleared.graph);
    const std::string driver = dice.pick(four_devices());
    WholeGraph whole;
    DeviceParts parts(&dice);
    DeviceParts fused(&dice);
    DrivenCalls layers(&dice, Mode::kLayers);
    DrivenCalls lite(&dice, Mode::kLite);
    const Status made[5] = {whole.make(cleared), parts.make(model.graph, model.fetches),
                            fused.make(model.graph, model.fetches, fusing(&dice)),
                            layers.make(model.graph, driver, model.fetches),
                            lite.make(model.graph, driver, model.fetches)};
    for (const Status& status : made) ASSERT_TRUE(status.ok()) << status;
    for (uint64_t id = 1; id <= 3; ++id) {
      feeds["first"] = Tensor::scalar(id == 1);
      const auto want = whole.run(feeds, id);
      ASSERT_TRUE(want.ok()) << want.status();
      Steps* const ways[4] = {&parts, &fused, &layers, &lite};
      for (size_t way = orders_bodies ? 0 : 2; way < 4; ++way) {
        SCOPED_TRACE(fmt::format("step {}, way {}, driver {}", id, way, driver));
        const auto got = ways[way]->run(feeds, id);
        ASSERT_TRUE(got.ok()) << got.status();
        expect_same(*got, *want);
      }
    }
    EXPECT_LE(lite.calls, layers.calls);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(CutByDevice, StepsThatChangeVariablesLeaveThemAsTheyAreInOneProgram) {
  compare_sessions(300, true);
}

TEST(CutIntoCalls, BodiesChangeVariablesInTheOrderOfTheProgram) { compare_sessions(300, false); }

TEST(CutByDevice, StringsArePassedAsAnythingElse) {
  Dice dice(1);
  Graph graph;
  Builder b(&graph, &test_registry());
  const Output x = ops::placeholder(b, "x", DType::kString, {-1});
  const Output y = b.add("Concat", {x, x}, {{"axis", int64_t{0}}});
  const Output z = b.add("Identity", {y});
  ASSERT_TRUE(b.status().ok()) << b.status();
  graph.mutable_node(x.node).device = four_devices()[0];
  graph.mutable_node(y.node).device = four_devices()[1];
  graph.mutable_node(z.node).device = four_devices()[2];
  DeviceParts parts(&dice);
  ASSERT_TRUE(parts.make(graph, {z}).ok());
  const auto got = parts.run({{"x", Tensor::strings({2}, {"a", std::string(100, 'b')})}}, 1);
  ASSERT_TRUE(got.ok()) << got.status();
  const auto strings = (*got)[0].data<const std::string_view>();
  ASSERT_EQ(strings.size(), 4U);
  EXPECT_EQ(strings[3], std::string(100, 'b'));
}

/// A loop of a million iterations at home, four_devices()[0], with a node of its body elsewhere
/// that takes nothing and gives nothing.
Graph endless_loop(bool is_scan) {
  Graph graph;
  Builder b(&graph, &test_registry());
  const auto on = [](Builder& f, const std::string& device) {
    for (size_t i = 0; i < f.graph().size(); ++i) {
      ir::Node& node = f.graph().mutable_node(ir::NodeId(static_cast<int32_t>(i)));
      if (node.device.empty()) node.device = device;
    }
  };
  const ir::TensorSpec count{DType::kFloat64, Shape()};
  const auto function = [&](bool is_body) {
    Graph body;
    const Output i = *ir::add_arg(&body, test_registry(), count);
    Builder f(&body, &test_registry());
    if (is_body) {
      (void)ops::tanh(f, ops::scalar(f, DType::kFloat64, 1));
      on(f, four_devices()[1]);
    }
    const Output one = ops::scalar(f, DType::kFloat64, 1);
    const Output next = is_body ? ops::sub(f, i, one) : ops::cast(f, i, DType::kBool);
    on(f, four_devices()[0]);
    return *ir::Function::make(std::move(body), {next});
  };
  const Output n = ops::scalar(b, DType::kFloat64, 1e6);
  if (is_scan) {
    ops::scan(b, function(true), {n}, {}, {}, {.length = 1000000}, "loop");
  } else {
    ops::while_loop(b, function(false), function(true), {n}, {}, -1, "loop");
  }
  on(b, four_devices()[0]);
  SR_CHECK(b.status().ok(), "{}", base::message_of(b.status()));
  return graph;
}

TEST(CutByDevice, NobodyRunsAheadByMoreThanAnIteration) {
  for (const bool is_scan : {false, true}) {
    const auto parts = partition::by_device(endless_loop(is_scan), {}, {}, test_registry());
    ASSERT_TRUE(parts.ok()) << parts.status();
    ASSERT_EQ(parts->size(), 2U);
    for (const partition::DevicePartition& part : *parts) {
      const auto made = program::compile(part);
      ASSERT_TRUE(made.ok()) << made.status();
      const auto bound = BoundProgram::bind(*made, all_kernels(), {});
      ASSERT_TRUE(bound.ok()) << bound.status();
      BufferPool pool(1 << 20);
      LocalRendezvous rendezvous;
      Step step(bound->get(), &pool, nullptr);
      step.set_rendezvous(&rendezvous);
      std::vector<ports::TensorSource> peers;
      for (const std::string& peer : part.peers) peers.push_back({.device = peer});
      step.set_peers(peers);
      step.begin(1);
      const auto progress = step.advance();
      ASSERT_TRUE(progress.ok()) << progress.status();
      EXPECT_EQ(*progress, Step::Progress::kBlocked) << part.device;
      EXPECT_LE(rendezvous.size(), 2U);
      step.end();
    }
  }
}

/// Spoils one thing in a graph.
void spoil(Graph* graph, Dice* dice) {
  const auto any = [&](int64_t below) { return static_cast<int32_t>(dice->number(-1, below)); };
  const auto size = static_cast<int64_t>(graph->size());
  ir::Node& node = graph->mutable_node(ir::NodeId(static_cast<int32_t>(dice->number(0, size - 1))));
  switch (dice->number(0, 7)) {
    case 0:
      node.device.clear();
      return;
    case 1:
      if (!node.inputs.empty()) node.inputs[0] = {ir::NodeId(any(size)), any(3)};
      return;
    case 2:
      node.control_inputs.emplace_back(any(size));
      return;
    case 3:
      if (!node.attrs.empty()) node.attrs.erase(node.attrs.begin());
      return;
    case 4:
      if (!node.inputs.empty()) node.inputs.pop_back();
      return;
    case 5:
      if (node.attrs.contains("variables")) node.attrs["variables"] = int64_t{any(6)};
      if (node.attrs.contains("sequences")) node.attrs["sequences"] = int64_t{any(6)};
      return;
    case 6:
      node.op = dice->pick<std::string>({"If", "Arg", "Scan", "NoOp", "Nothing", "Send", "Recv"});
      return;
    default:
      break;
  }
  if (graph->functions().empty()) return;
  ir::NamedFunction& held = graph->mutable_functions()[static_cast<size_t>(
      dice->number(0, static_cast<int64_t>(graph->functions().size()) - 1))];
  Graph body = held.function->body();
  spoil(&body, dice);
  auto made =
      ir::Function::make(std::move(body), held.function->outputs(), held.function->targets());
  if (made.ok()) held.function = *made;
}

TEST(CutByDevice, SpoiledGraphsAreErrorsOrParts) {
  int good = 0;
  for (uint32_t seed = 1; seed <= 600; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Dice dice(seed);
    ControlModel model = make_control(*random_piece(dice, 2, false), false, false);
    ask_for_devices(&model.graph, four_devices(), &dice);
    for (int64_t i = dice.number(1, 3); i > 0; --i) spoil(&model.graph, &dice);
    const auto parts = partition::by_device(model.graph, model.fetches, {}, test_registry());
    for (const Mode mode : {Mode::kLayers, Mode::kLite}) {
      const auto calls =
          partition::pull_push_by_device(model.graph, dice.pick(four_devices()), model.fetches, {},
                                         test_registry(), {.mode = mode});
      EXPECT_EQ(calls.ok(), parts.ok()) << calls.status() << parts.status();
      if (!calls.ok()) continue;
      const auto made = program::compile(*calls);
      EXPECT_TRUE(made.ok()) << made.status();
    }
    const auto fused = partition::by_device(model.graph, model.fetches, {}, test_registry(),
                                            {.tensor_fuse = true});
    EXPECT_EQ(fused.status(), parts.status());
    if (!parts.ok()) continue;
    ++good;
    for (const auto& part : *parts) EXPECT_TRUE(program::compile(part).ok());
    for (const auto& part : *fused) EXPECT_TRUE(program::compile(part).ok());
  }
  fmt::print("{} of 600 are good\n", good);
}

}  // namespace
}  // namespace sidereal::exec
