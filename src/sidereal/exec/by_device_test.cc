#include "sidereal/partition/by_device.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <optional>

#include "sidereal/exec/local_rendezvous.h"
#include "sidereal/exec/random_control.h"
#include "sidereal/ir/function.h"
#include "sidereal/ir/verify.h"
#include "sidereal/ops/control.h"
#include "sidereal/ops/ops.h"
#include "sidereal/passes/place_devices.h"
#include "sidereal/resources/manager.h"

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

/// A rendezvous where tensors are late now and then. Fails the test when the memory of one changes
/// on its way.
class SlowRendezvous final : public ports::Rendezvous {
 public:
  explicit SlowRendezvous(Dice* dice) : dice_(*dice) {}

  Status send(const ports::RendezvousKey& key, Tensor value) override {
    ++moves;
    if (value.dtype() != DType::kString) copies_[key] = value.clone();
    return local_.send(key, std::move(value));
  }
  Result<std::optional<Tensor>> receive(const ports::RendezvousKey& key,
                                        const ports::TensorSource& source) override {
    if (dice_.chance(30)) {
      ++moves;
      return std::optional<Tensor>();
    }
    SR_ASSIGN_OR_RETURN(std::optional<Tensor> value, local_.receive(key, source));
    if (!value.has_value()) return value;
    ++moves;
    const auto copy = copies_.find(key);
    if (copy == copies_.end()) return value;
    expect_same({*value}, {copy->second});
    copies_.erase(copy);
    return value;
  }
  [[nodiscard]] size_t size() const { return local_.size(); }

  int64_t moves = 0;  ///< What was sent, received, or not received though it may be there.

 private:
  Dice& dice_;
  LocalRendezvous local_;
  std::map<ports::RendezvousKey, Tensor> copies_;
};

/// The parts of a graph, bound. Thread: core-local.
class Parts {
 public:
  explicit Parts(Dice* dice) : rendezvous_(dice), dice_(*dice) {}

  Status make(const Graph& graph, const std::vector<Output>& fetches) {
    num_fetches_ = fetches.size();
    SR_ASSIGN_OR_RETURN(parts_, partition::by_device(graph, fetches, {}, test_registry()));
    for (const partition::DevicePartition& part : parts_) {
      SR_RETURN_IF_ERROR(ir::verify(part.graph, test_registry()));
      SR_ASSIGN_OR_RETURN(const program::Program made, program::compile(part));
      SR_ASSIGN_OR_RETURN(program::Program read, program::decode(program::encode(made)));
      managers_.push_back(std::make_unique<resources::Manager>());
      SR_ASSIGN_OR_RETURN(auto bound, BoundProgram::bind(std::move(read), worker_kernels(),
                                                         {.resources = managers_.back().get()}));
      pools_.push_back(std::make_unique<BufferPool>(size_t{1} << 30));
      steps_.push_back(std::make_unique<Step>(bound.get(), pools_.back().get(), nullptr));
      steps_.back()->set_rendezvous(&rendezvous_);
      bound_.push_back(std::move(bound));
    }
    return {};
  }

  /// Runs one step; parts go on in an order that the dice choose.
  Result<std::vector<Tensor>> run(const reference::Values& feeds, uint64_t id) {
    for (size_t p = 0; p < steps_.size(); ++p) {
      const program::Program& program = bound_[p]->program();
      steps_[p]->begin(id);
      for (size_t i = 0; i < program.feeds.size(); ++i) {
        SR_RETURN_IF_ERROR(steps_[p]->feed(static_cast<int>(i), feeds.at(program.feed_names[i])));
      }
    }
    std::vector<bool> done(steps_.size(), false);
    for (size_t left = steps_.size(); left > 0;) {
      const int64_t before = rendezvous_.moves;
      const size_t left_before = left;
      const auto first = static_cast<size_t>(dice_.number(0, 100));
      for (size_t i = 0; i < steps_.size(); ++i) {
        const size_t p = (first + i) % steps_.size();
        if (done[p]) continue;
        SR_ASSIGN_OR_RETURN(const Step::Progress progress, steps_[p]->advance());
        done[p] = progress == Step::Progress::kDone;
        if (done[p]) --left;
      }
      if (rendezvous_.moves == before && left == left_before) return stuck(done);
    }
    EXPECT_EQ(rendezvous_.size(), 0U);
    std::vector<Tensor> out(num_fetches_);
    for (size_t p = 0; p < steps_.size(); ++p) {
      for (size_t i = 0; i < parts_[p].fetches.size(); ++i) {
        out[parts_[p].fetch_indices[i]] = steps_[p]->fetch(static_cast<int>(i)).clone();
      }
    }
    return out;
  }

 private:
  Status stuck(const std::vector<bool>& done) const {
    std::string text = "all parts wait:";
    for (size_t p = 0; p < done.size(); ++p) {
      if (!done[p]) text += fmt::format(" {} for {};", parts_[p].device, steps_[p]->waits_for());
    }
    return base::internal("{}", text);
  }

  SlowRendezvous rendezvous_;
  Dice& dice_;
  size_t num_fetches_ = 0;
  std::vector<partition::DevicePartition> parts_;
  std::vector<std::unique_ptr<resources::Manager>> managers_;  // A task has its own resources.
  std::vector<std::unique_ptr<BufferPool>> pools_;
  std::vector<std::unique_ptr<BoundProgram>> bound_;
  std::vector<std::unique_ptr<Step>> steps_;
};

/// The whole graph in one program, without passes.
std::vector<Tensor> run_whole(const Graph& graph, const std::vector<Output>& fetches,
                              const reference::Values& feeds, uint64_t id, Dice* dice) {
  auto step = compile_for_test(graph, fetches, {}, {}, passes::PassOptions{.fuse = false});
  EXPECT_TRUE(step.ok()) << step.status();
  if (!step.ok()) return {};
  BufferPool pool(size_t{1} << 30);
  resources::Manager manager;
  const auto bound =
      BoundProgram::bind(step->compiled.worker, worker_kernels(), {.resources = &manager});
  EXPECT_TRUE(bound.ok()) << bound.status();
  if (!bound.ok()) return {};
  Step running(bound->get(), &pool, nullptr);
  const auto got = run_step(&running, (*bound)->program(), feeds, id, nullptr, dice);
  EXPECT_TRUE(got.ok()) << got.status();
  std::vector<Tensor> out;
  for (const Tensor& t : got.ok() ? *got : std::vector<Tensor>()) out.push_back(t.clone());
  return out;
}

const std::vector<std::string> kDevices = {
    "/job:ps/replica:0/task:0/device:CPU:0", "/job:ps/replica:0/task:1/device:CPU:0",
    "/job:worker/replica:0/task:0/device:CPU:0", "/job:worker/replica:0/task:1/device:CPU:0"};

/// Cuts `graph` over some devices, with and without passes, and compares two steps.
void compare(Graph graph, const std::vector<Output>& fetches, const reference::Values& feeds,
             Dice* dice) {
  const std::vector<Tensor> want[2] = {run_whole(graph, fetches, feeds, 1, dice),
                                       run_whole(graph, fetches, feeds, 2, dice)};
  const std::vector<std::string> devices(kDevices.begin(), kDevices.begin() + dice->number(1, 4));
  ask_for_devices(&graph, devices, dice);
  passes::StepGraph step{graph, fetches, {}};
  if (dice->chance(50)) {
    auto optimized = passes::optimize(std::move(step), test_registry());
    ASSERT_TRUE(optimized.ok()) << optimized.status();
    step = *std::move(optimized);
  }
  Parts parts(dice);
  const Status made = parts.make(step.graph, step.fetches);
  ASSERT_TRUE(made.ok()) << made;
  for (uint64_t id = 1; id <= 2; ++id) {
    const auto got = parts.run(feeds, id);
    ASSERT_TRUE(got.ok()) << got.status();
    expect_same(*got, want[id - 1]);
  }
}

/// Some nodes wait for earlier ones, in bodies too.
void add_orders(Graph* graph, Dice* dice) {
  for (size_t i = 1; i < graph->size(); ++i) {
    const ir::NodeId before(static_cast<int32_t>(dice->number(0, static_cast<int64_t>(i) - 1)));
    ir::Node& node = graph->mutable_node(ir::NodeId(static_cast<int32_t>(i)));
    if (node.op == ir::kArgOp || !dice->chance(8)) continue;
    node.control_inputs.push_back(before);
  }
  for (ir::NamedFunction& held : graph->mutable_functions()) {
    Graph body = held.function->body();
    add_orders(&body, dice);
    const FunctionPtr whole = held.function;
    held.function = *ir::Function::make(std::move(body), whole->outputs(), whole->targets());
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
    compare(model.graph, model.fetches, feeds, &dice);
    if (testing::Test::HasFailure()) return;
  }
}

/// A loop over as many rows as are fed, of which two deep loops may be one.
ControlModel rows_model(Dice* dice) {
  ControlModel made;
  Builder b(&made.graph, &test_registry());
  const ir::TensorSpec square{DType::kFloat64, kControlShape};
  const ir::TensorSpec rows{DType::kFloat64, {-1, 3, 3}};
  const ops::ScanOptions options{.reverse = dice->chance(50)};
  const auto body_of = [&](const std::vector<ir::TensorSpec>& inputs, auto make) {
    Graph body;
    std::vector<Output> args;
    for (const auto& spec : inputs) args.push_back(*ir::add_arg(&body, test_registry(), spec));
    Builder inner(&body, &test_registry());
    const std::vector<Output> outputs = make(inner, args);
    SR_CHECK(inner.status().ok(), "{}", base::message_of(inner.status()));
    return *ir::Function::make(std::move(body), outputs);
  };
  const PiecePtr piece = random_piece(*dice, 1, false);
  const FunctionPtr step = body_of({square, square, square}, [&](Builder& f, const auto& in) {
    const Piece::Two out = piece->emit(f, {in[0], in[1], in[2]}, false);
    return std::vector<Output>{out[0], out[1]};
  });
  const FunctionPtr outer = body_of({square, square, rows}, [&](Builder& f, const auto& in) {
    const ir::NodeId loop = ops::scan(f, step, {in[0]}, {in[2]}, {in[1]}, options, "inner");
    return std::vector<Output>{{loop, 0}, {loop, 1}};
  });
  const Output x = ops::placeholder(b, "x0", DType::kFloat64, kControlShape);
  const Output z = ops::placeholder(b, "x1", DType::kFloat64, kControlShape);
  const Output fed = ops::placeholder(b, "rows", DType::kFloat64, rows.shape);
  const ir::NodeId loop = dice->chance(50)
                              ? ops::scan(b, step, {x}, {fed}, {z}, options, "loop")
                              : ops::scan(b, outer, {x}, {fed}, {fed}, {.reverse = true}, "loop");
  SR_CHECK(b.status().ok(), "{}", base::message_of(b.status()));
  made.fetches = {{loop, 0}, {loop, 1}};
  return made;
}

TEST(CutByDevice, LoopsOverRowsOfWhichNobodyKnowsHowManyAreWhatTheyAreInOneProgram) {
  for (uint32_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Dice dice(seed);
    const ControlModel model = rows_model(&dice);
    reference::Values feeds = control_feeds(dice);
    // Without rows the stack of an outer loop has no shape to take.
    feeds["rows"] = dice.tensor(DType::kFloat64, {dice.number(0, 4), 3, 3}, -1, 1);
    compare(model.graph, model.fetches, feeds, &dice);
    if (testing::Test::HasFailure()) return;
  }
}

/// Two variables, and a loop whose body reads one and adds to the other, in some order.
/// Fetches: what the loop returns, and the other variable behind it.
ControlModel variables_model(Dice* dice) {
  ControlModel made;
  const ir::TensorSpec square{DType::kFloat64, kControlShape};
  const ir::TensorSpec handle{DType::kString, Shape()};
  const ir::TensorSpec count{DType::kFloat64, Shape()};
  const auto read = [](Builder& b, Output of, const std::vector<ir::NodeId>& after) {
    const ir::AttrMap attrs = {{"dtype", DType::kFloat64}, {"shape", kControlShape}};
    return Output{b.add_node("VariableRead", {of}, attrs, after), 0};
  };
  const auto function = [&](bool is_body) {
    Graph body;
    std::vector<Output> in;
    for (const auto& spec : {count, square, handle, handle}) {
      in.push_back(*ir::add_arg(&body, test_registry(), spec));
    }
    Builder b(&body, &test_registry());
    std::vector<Output> out;
    if (is_body) {
      const Output next = ops::tanh(b, ops::mat_mul(b, in[1], read(b, in[2], {})));
      const ir::NodeId added = b.add_node("VariableAssignAdd", {in[3], next}, {}, {});
      const Output sum = ops::add(b, next, read(b, in[3], {added}));
      out = {ops::sub(b, in[0], ops::scalar(b, DType::kFloat64, 1)), sum};
    } else {
      out = {ops::cast(b, in[0], DType::kBool)};
    }
    for (size_t i = in.size(); i < body.size(); ++i) {
      ir::Node& node = body.mutable_node(ir::NodeId(static_cast<int32_t>(i)));
      const bool is_free = !node.op.starts_with("Variable") && dice->chance(40);
      if (is_free) node.device = dice->pick(kDevices);
    }
    SR_CHECK(b.status().ok(), "{}", base::message_of(b.status()));
    return *ir::Function::make(std::move(body), out);
  };
  Builder b(&made.graph, &test_registry());
  std::vector<Output> handles;
  std::vector<ir::NodeId> assigned;
  for (const char* name : {"v", "w"}) {
    handles.push_back(b.add(
        "Variable", {},
        {{"shared_name", std::string(name)}, {"dtype", DType::kFloat64}, {"shape", kControlShape}},
        name));
    made.graph.mutable_node(handles.back().node).device = dice->pick(kDevices);
    const Output x =
        ops::placeholder(b, fmt::format("x{}", assigned.size()), DType::kFloat64, kControlShape);
    assigned.push_back(b.add_node("VariableAssign", {handles.back(), x}, {}, {}));
  }
  const Output n = ops::scalar(b, DType::kFloat64, 4);
  const Output x = ops::placeholder(b, "x2", DType::kFloat64, kControlShape);
  const ir::NodeId loop = ops::while_loop(b, function(false), function(true), {n, x}, handles, -1);
  made.graph.mutable_node(loop).control_inputs = assigned;
  made.graph.mutable_node(loop).device = dice->pick(kDevices);
  made.fetches = {{loop, 1}, read(b, handles[1], {loop})};
  SR_CHECK(b.status().ok(), "{}", base::message_of(b.status()));
  return made;
}

TEST(CutByDevice, VariablesInLoopsAreWhereTheyWerePlacedAndWhatTheyAreInOneProgram) {
  passes::Devices devices;
  for (const std::string& name : kDevices) devices.all.push_back(*ir::DeviceSpec::parse(name));
  devices.local = devices.all[2];
  for (uint32_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Dice dice(seed);
    ControlModel model = variables_model(&dice);
    const reference::Values feeds = control_feeds(dice);
    const Status placed = passes::place_devices(&model.graph, devices, test_registry());
    ASSERT_TRUE(placed.ok()) << placed;
    ControlModel whole = model;
    for (size_t i = 0; i < whole.graph.size(); ++i) {
      whole.graph.mutable_node(ir::NodeId(static_cast<int32_t>(i))).device.clear();
    }
    const std::vector<Tensor> want = run_whole(whole.graph, whole.fetches, feeds, 1, &dice);
    Parts parts(&dice);
    const Status made = parts.make(model.graph, model.fetches);
    ASSERT_TRUE(made.ok()) << made;
    for (uint64_t id = 1; id <= 2; ++id) {
      const auto got = parts.run(feeds, id);
      ASSERT_TRUE(got.ok()) << got.status();
      expect_same(*got, want);
    }
    if (testing::Test::HasFailure()) return;
  }
}

TEST(CutByDevice, StringsArePassedAsAnythingElse) {
  Dice dice(1);
  Graph graph;
  Builder b(&graph, &test_registry());
  const Output x = ops::placeholder(b, "x", DType::kString, {-1});
  const Output y = b.add("Concat", {x, x}, {{"axis", int64_t{0}}});
  const Output z = b.add("Identity", {y});
  ASSERT_TRUE(b.status().ok()) << b.status();
  graph.mutable_node(x.node).device = kDevices[0];
  graph.mutable_node(y.node).device = kDevices[1];
  graph.mutable_node(z.node).device = kDevices[2];
  Parts parts(&dice);
  ASSERT_TRUE(parts.make(graph, {z}).ok());
  const auto got = parts.run({{"x", Tensor::strings({2}, {"a", std::string(100, 'b')})}}, 1);
  ASSERT_TRUE(got.ok()) << got.status();
  const auto strings = (*got)[0].data<const std::string_view>();
  ASSERT_EQ(strings.size(), 4U);
  EXPECT_EQ(strings[3], std::string(100, 'b'));
}

/// A loop of a million iterations at home, kDevices[0], with a node of its body elsewhere that
/// takes nothing and gives nothing.
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
      on(f, kDevices[1]);
    }
    const Output one = ops::scalar(f, DType::kFloat64, 1);
    const Output next = is_body ? ops::sub(f, i, one) : ops::cast(f, i, DType::kBool);
    on(f, kDevices[0]);
    return *ir::Function::make(std::move(body), {next});
  };
  const Output n = ops::scalar(b, DType::kFloat64, 1e6);
  if (is_scan) {
    ops::scan(b, function(true), {n}, {}, {}, {.length = 1000000}, "loop");
  } else {
    ops::while_loop(b, function(false), function(true), {n}, {}, -1, "loop");
  }
  on(b, kDevices[0]);
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
      const auto bound = BoundProgram::bind(*made, worker_kernels(), {});
      ASSERT_TRUE(bound.ok()) << bound.status();
      BufferPool pool(1 << 20);
      LocalRendezvous rendezvous;
      Step step(bound->get(), &pool, nullptr);
      step.set_rendezvous(&rendezvous);
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
    ask_for_devices(&model.graph, kDevices, &dice);
    for (int64_t i = dice.number(1, 3); i > 0; --i) spoil(&model.graph, &dice);
    const auto parts = partition::by_device(model.graph, model.fetches, {}, test_registry());
    if (!parts.ok()) continue;
    ++good;
    for (const auto& part : *parts) EXPECT_TRUE(program::compile(part).ok());
  }
  fmt::print("{} of 600 are good\n", good);
}

}  // namespace
}  // namespace sidereal::exec
