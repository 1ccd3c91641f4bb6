#include "sidereal/partition/lanes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "sidereal/ir/function.h"
#include "sidereal/ops/control.h"
#include "sidereal/ops/ops.h"
#include "sidereal/partition/pull_push.h"

namespace sidereal::partition {
namespace {

using ir::DType;
using ir::NodeId;
using ir::Output;
using ir::Shape;
using tensor::Tensor;

constexpr DType kFloat = DType::kFloat32;

constexpr const char* kWorker = "/job:worker/replica:0/task:0/device:CPU:0";
constexpr const char* kPs = "/job:ps/replica:0/task:0/device:CPU:0";

/// A graph of a worker and a ps.
class PsGraph {
 public:
  PsGraph() { ops::register_all(&registry_); }

  Output add(const char* device, std::string_view op, const std::vector<Output>& inputs,
             const ir::AttrMap& attrs = {}, std::string_view name = {}) {
    const Output out = b_.add(op, inputs, attrs, name);
    EXPECT_TRUE(b_.status().ok()) << b_.status();
    graph_.mutable_node(out.node).device = device;
    return out;
  }
  NodeId add_node(const char* device, std::string_view op, const std::vector<Output>& inputs,
                  const ir::AttrMap& attrs = {}) {
    const NodeId out = b_.add_node(op, inputs, attrs, {});
    EXPECT_TRUE(b_.status().ok()) << b_.status();
    graph_.mutable_node(out).device = device;
    return out;
  }
  Output variable(const std::string& name, const Shape& shape) {
    return add(kPs, "Variable", {},
               {{"shared_name", name}, {"dtype", DType::kFloat32}, {"shape", shape}}, name);
  }
  Output read(Output handle, const Shape& shape) {
    return add(kPs, "VariableRead", {handle}, {{"dtype", DType::kFloat32}, {"shape", shape}});
  }
  void assign(int lanes) { assign_on(kPs, {.lanes = lanes}); }
  void assign_on(std::string_view ps, DeviceLanes lanes) {
    assign_lanes(&graph_, [&](const std::string& device) {
      return device == ps ? lanes : DeviceLanes{.tasks = lanes.tasks};
    });
  }
  [[nodiscard]] int lane(Output value) const { return lane_of(graph_.node(value.node).device); }

  ir::OpRegistry registry_;
  ir::Graph graph_;
  ir::Builder b_{&graph_, &registry_};
};

class Lanes : public testing::Test, protected PsGraph {};

TEST_F(Lanes, a_name_says_the_lane_and_lane_0_is_the_device_itself) {
  EXPECT_EQ(on_lane(kPs, 0), kPs);
  EXPECT_EQ(on_lane(kPs, 12), std::string(kPs) + "/lane:12");
  EXPECT_EQ(lane_of(on_lane(kPs, 12)), 12);
  EXPECT_EQ(lane_of(kPs), 0);
  EXPECT_EQ(lane_of("/lane:x"), 0);
}

TEST_F(Lanes, variables_are_spread_over_all_lanes_and_everybody_agrees_on_where_they_are) {
  std::vector<Output> handles;
  std::set<int> used;
  for (int i = 0; i < 40; ++i) {
    handles.push_back(variable("v" + std::to_string(i), Shape{100, 16}));
    read(handles.back(), Shape{100, 16});
  }
  assign(4);
  for (const Output handle : handles) used.insert(lane(handle));
  EXPECT_EQ(used.size(), 4U);
  // Another graph, of another session, with some of them.
  PsGraph other;
  const Output v7 = other.variable("v7", Shape{100, 16});
  other.assign(4);
  EXPECT_EQ(other.lane(v7), lane(handles[7]));
}

TEST_F(Lanes, pieces_of_a_table_share_the_work_evenly) {
  for (const int lanes : {2, 3, 4}) {
    for (const int tasks : {1, 2, 3, 4, 6, 8}) {
      for (const bool round_robin : {true, false}) {
        PsGraph ps;
        std::vector<Output> pieces;
        for (int i = 0; i < 2 * lanes * tasks; ++i) {
          // What other tasks have does not matter.
          if (round_robin && i % tasks != tasks - 1) continue;
          pieces.push_back(ps.variable("table/part_" + std::to_string(i), Shape{1000, 16}));
        }
        ps.assign_on(kPs, {.lanes = lanes, .tasks = tasks});
        std::vector<int> count(static_cast<size_t>(lanes));
        for (const Output piece : pieces) ++count[static_cast<size_t>(ps.lane(piece))];
        EXPECT_THAT(count, testing::Each(round_robin ? 2 : 2 * tasks))
            << lanes << " lanes, " << tasks << " tasks, round robin: " << round_robin;
      }
    }
  }
}

TEST_F(Lanes, a_slot_of_a_piece_is_where_its_piece_is) {
  std::vector<Output> pieces;
  std::vector<Output> slots;
  for (int i = 0; i < 8; ++i) {
    const std::string name = "a/part_x/table/part_" + std::to_string(i);
    pieces.push_back(variable(name, Shape{1000, 16}));
    slots.push_back(variable(name + "/Adam_1", Shape{1000, 16}));
  }
  assign(4);
  std::set<int> used;
  for (size_t i = 0; i < pieces.size(); ++i) {
    EXPECT_EQ(lane(slots[i]), lane(pieces[i])) << i;
    used.insert(lane(slots[i]));
  }
  EXPECT_EQ(used.size(), 4U);
}

TEST_F(Lanes, what_one_update_uses_is_on_the_lane_of_the_first_name) {
  const Shape shape{50, 8};
  const Output v = variable("v", shape);
  const Output slot = variable("v/Adagrad", shape);
  const Output sum = add(kPs, "Add", {read(v, shape), read(slot, shape)});
  const Output gradient = add(kWorker, "Neg", {sum});
  const NodeId push = add_node(kPs, "VariableAssignSub", {v, gradient});
  assign(7);
  EXPECT_EQ(lane(slot), lane(v));
  EXPECT_EQ(lane(sum), lane(v));
  EXPECT_EQ(lane_of(graph_.node(push).device), lane(v));
  EXPECT_EQ(graph_.node(gradient.node).device, kWorker);
  PsGraph alone;
  const Output same = alone.variable("v", shape);
  alone.assign(7);
  EXPECT_EQ(alone.lane(same), lane(v));
}

TEST_F(Lanes, a_small_value_does_not_bind_who_reads_it) {
  const Output rate = read(variable("rate", Shape()), Shape());
  std::set<int> used;
  for (int i = 0; i < 20; ++i) {
    const Output v = variable("w" + std::to_string(i), Shape{64, 64});
    add_node(kPs, "VariableAssignSub", {v, add(kPs, "Mul", {read(v, Shape{64, 64}), rate})});
  }
  assign(4);
  for (const ir::Node& node : graph_.nodes()) used.insert(lane_of(node.device));
  EXPECT_EQ(used.size(), 4U);
}

TEST_F(Lanes, one_lane_leaves_the_graph_as_it_is) {
  variable("v", Shape{2});
  assign(1);
  EXPECT_EQ(graph_.node(NodeId(0)).device, kPs);
}

TEST_F(Lanes, a_step_is_at_most_two_calls_for_each_lane) {
  const Shape shape{1000, 16};
  std::vector<NodeId> targets;
  const Output ids =
      add(kWorker, "Placeholder", {}, {{"dtype", DType::kInt64}, {"shape", Shape{8}}});
  for (int i = 0; i < 26; ++i) {
    const Output v = variable("emb_" + std::to_string(i), shape);
    const Output rows = add(kPs, "Gather", {read(v, shape), ids});
    const Output gradient = add(kWorker, "Neg", {rows});
    targets.push_back(add_node(kPs, "VariableScatterSub", {v, ids, gradient}));
  }
  assign(4);
  const auto cut = pull_push_by_device(graph_, kWorker, {}, targets, registry_);
  ASSERT_TRUE(cut.ok()) << cut.status();
  EXPECT_EQ(cut->devices.size(), 4U);
  EXPECT_EQ(cut->remotes.size(), 8U);
  for (const RemoteGraph& remote : cut->remotes) EXPECT_LE(remote.level, 2);
}

TEST(AssignLanes, slots_alone_are_where_their_weights_are) {
  PsGraph train;
  const auto update = [](PsGraph* g, const std::vector<Output>& handles) {
    const Output gradient = g->add(kPs, "Const", {}, {{"value", Tensor::zeros(kFloat, {4})}});
    const Output step = g->add(kPs, "Const", {}, {{"value", Tensor::scalar(1.0)}});
    const Output rate = g->add(kPs, "Const", {}, {{"value", Tensor::scalar(0.1F)}});
    std::vector<Output> inputs = {handles[0], gradient, step, rate};
    inputs.insert(inputs.end(), handles.begin() + 1, handles.end());
    g->add_node(kPs, "VariableUpdateDense", inputs, {{"kind", std::string("adam")}});
  };
  PsGraph alone;
  std::vector<Output> of_training;
  std::vector<Output> of_slots;
  for (int i = 0; i < 20; ++i) {
    const std::string name = "weights" + std::to_string(i);
    // One of them comes before the weights in the alphabet.
    const std::vector<std::string> names = {name, "a_slot_of_" + name, name + "_z"};
    std::vector<Output> handles;
    for (const std::string& one : names) handles.push_back(train.variable(one, {4}));
    update(&train, handles);
    of_training.insert(of_training.end(), 2, handles[0]);
    for (int slot : {1, 2})
      of_slots.push_back(alone.variable(names[static_cast<size_t>(slot)], {4}));
  }
  const LeadingNames leading = leading_names(train.graph_);
  EXPECT_EQ(leading.at("a_slot_of_weights3"), "weights3");
  const auto four = [](const std::string&) { return DeviceLanes{.lanes = 4}; };
  for (PsGraph* const g : {&train, &alone}) assign_lanes(&g->graph_, four, leading);
  std::set<int> lanes;
  for (size_t i = 0; i < of_slots.size(); ++i) {
    EXPECT_EQ(alone.lane(of_slots[i]), train.lane(of_training[i])) << i;
    lanes.insert(train.lane(of_training[i]));
  }
  EXPECT_EQ(lanes.size(), 4U);
}

// Or saving would put all that a task has on one lane, of every step.
TEST(AssignLanes, what_saves_variables_holds_none_together) {
  PsGraph g;
  const Output text =
      g.add(kPs, "Const", {}, {{"value", Tensor::strings(Shape(), std::vector<std::string>{"x"})}});
  std::vector<Output> handles;
  std::vector<Output> saved = {text, text};
  std::vector<std::string> names;
  for (int i = 0; i < 20; ++i) {
    names.push_back("w" + std::to_string(i));
    handles.push_back(g.variable(names.back(), {4}));
    saved.push_back(handles.back());
  }
  g.add(kPs, "SaveVariables", saved,
        {{"names", names},
         {"slices", std::vector<std::string>(20)},
         {"shard", int64_t{0}},
         {"shards", int64_t{1}}});
  const LeadingNames leading = leading_names(g.graph_);
  EXPECT_TRUE(leading.empty());
  const auto four = [](const std::string&) { return DeviceLanes{.lanes = 4}; };
  assign_lanes(&g.graph_, four, leading);
  std::set<int> lanes;
  for (const Output& handle : handles) lanes.insert(g.lane(handle));
  EXPECT_EQ(lanes.size(), 4U);
}

}  // namespace
}  // namespace sidereal::partition
