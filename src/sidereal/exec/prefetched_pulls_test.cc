#include <gtest/gtest.h>

#include "sidereal/exec/testing/cuts.h"
#include "sidereal/ir/builder.h"
#include "sidereal/ops/ops.h"

// Steps whose pulls are sent when the step before has ended. What is marked so is tested in
// partition/pull_push_device_test.cc.
namespace sidereal::exec {
namespace {

using ir::Graph;
using ir::NodeId;
using ir::Output;
using partition::PullPushOptions;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;
using Mode = PullPushOptions::Mode;

const Shape kShape = {3};

/// Variables on devices that the dice choose, and graphs that use them.
class Variables {
 public:
  explicit Variables(Dice* dice) : dice_(*dice) {
    const int64_t count = dice_.number(1, 5);
    for (int64_t i = 0; i < count; ++i) devices_.push_back(dice_.pick(four_devices()));
  }

  /// Sets all of them.
  Graph setting(float first) {
    ir::Builder b = begin();
    for (size_t i = 0; i < devices_.size(); ++i) {
      const std::vector<float> values(3, first + static_cast<float>(i));
      const Output value = b.add("Const", {}, {{"value", Tensor::of(kShape, values)}});
      on(devices_[i], b.add_node("VariableAssign", {handle(b, i), value}));
    }
    return end();
  }
  /// Changes each by what it reads of some, and fetches all that it read.
  Graph training(std::vector<Output>* fetches) {
    ir::Builder b = begin();
    Output sum = ops::placeholder(b, "x", DType::kFloat32, kShape);
    std::vector<Output> values;
    for (size_t i = 0; i < devices_.size(); ++i) {
      values.push_back(on(devices_[i], b.add("VariableRead", {handle(b, i)}, attrs())));
      if (dice_.chance(60)) sum = ops::tanh(b, ops::add(b, sum, values.back()));
    }
    for (size_t i = 0; i < devices_.size(); ++i) {
      if (dice_.chance(30)) continue;
      const NodeId change =
          b.add_node("VariableAssignSub", {handle(b, i), ops::mul(b, sum, values[i])});
      on(devices_[i], change);
      if (!dice_.chance(30)) continue;
      const NodeId after = b.add_node("VariableRead", {handle(b, i)}, attrs(), {change});
      fetches->push_back({on(devices_[i], after), 0});
    }
    // Nothing is left out by a step that fetches what comes of all.
    fetches->push_back(sum);
    if (dice_.chance(50)) fetches->insert(fetches->end(), values.begin(), values.end());
    return end();
  }

 private:
  ir::Builder begin() {
    graph_ = Graph();
    return ir::Builder(&graph_, &test_registry());
  }
  Graph end() {
    for (size_t i = 0; i < graph_.size(); ++i) {
      ir::Node& node = graph_.mutable_node(NodeId(static_cast<int32_t>(i)));
      if (node.device.empty()) node.device = four_devices()[2];
    }
    return std::move(graph_);
  }
  NodeId on(const std::string& device, NodeId id) {
    graph_.mutable_node(id).device = device;
    return id;
  }
  Output on(const std::string& device, Output value) {
    on(device, value.node);
    return value;
  }
  static ir::AttrMap attrs() { return {{"dtype", DType::kFloat32}, {"shape", kShape}}; }
  Output handle(ir::Builder& b, size_t i) {
    ir::AttrMap named = attrs();
    named["shared_name"] = fmt::format("v{}", i);
    return on(devices_[i], b.add("Variable", {}, named));
  }

  Dice& dice_;
  std::vector<std::string> devices_;
  Graph graph_;
};

/// One way to run: a program that sets variables, and one that trains.
struct Way {
  Way(Dice* dice, Mode mode) : setting(dice, mode), again(dice, mode), training(dice, mode) {
    again.share(setting);
    training.share(setting);
  }
  DrivenCalls setting;
  DrivenCalls again;
  DrivenCalls training;
};

TEST(PrefetchedPulls, StepsAndWritesInBetweenGiveTheBitsThatTheyGiveWithoutThem) {
  int64_t sent = 0;
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Dice dice(seed);
    Variables variables(&dice);
    const Graph first = variables.setting(0.5F);
    const Graph again = variables.setting(0.25F);
    std::vector<Output> fetches;
    const Graph training = variables.training(&fetches);
    Way layers(&dice, Mode::kLayers);
    Way lite(&dice, Mode::kLite);
    for (Way* const way : {&layers, &lite}) {
      const std::string& driver = four_devices()[2];
      ASSERT_TRUE(way->setting.make(first, driver, {}).ok());
      ASSERT_TRUE(way->again.make(again, driver, {}).ok());
      const Status made = way->training.make(training, driver, fetches);
      ASSERT_TRUE(made.ok()) << made;
      ASSERT_TRUE(way->setting.run({}, 1).ok());
      ASSERT_TRUE(way->setting.make_way().ok());
    }
    for (uint64_t step = 2; step < 8; ++step) {
      const bool is_set = dice.chance(25);
      const auto x = static_cast<float>(dice.number(-3, 3));
      std::vector<std::vector<Tensor>> got;
      for (Way* const way : {&layers, &lite}) {
        if (is_set) {
          ASSERT_TRUE(way->training.make_way().ok());
          ASSERT_TRUE(way->again.run({}, step).ok());
          ASSERT_TRUE(way->again.make_way().ok());
        }
        auto values =
            way->training.run({{"x", Tensor::of(kShape, std::vector<float>{x, x / 2, 1})}}, step);
        ASSERT_TRUE(values.ok()) << values.status();
        got.push_back(*std::move(values));
      }
      expect_same(got[1], got[0]);
    }
    ASSERT_TRUE(lite.training.make_way().ok());
    sent += lite.training.prefetched;
    if (HasFailure()) return;
  }
  EXPECT_GT(sent, 300);
}

}  // namespace
}  // namespace sidereal::exec
