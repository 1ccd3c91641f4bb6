#include "sidereal/exec/owned_variables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "sidereal/exec/testing/one_program.h"
#include "sidereal/ir/function.h"
#include "sidereal/partition/by_device.h"
#include "sidereal/program/compile.h"
#include "sidereal/resources/variable.h"

namespace sidereal::exec {
namespace {

using ir::Output;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;

Tensor vec(const std::vector<float>& values) {
  return Tensor::of<float>({static_cast<int64_t>(values.size())}, values);
}
std::vector<float> list(const Tensor& t) {
  const auto data = t.data<const float>();
  return {data.begin(), data.end()};
}

/// Lanes that run what is posted to them when the test says so.
class HeldLanes final : public VariableLanes {
 public:
  bool post(int lane, std::function<void()> fn) override {
    if (is_stopping) return false;
    posted.emplace_back(lane, std::move(fn));
    return true;
  }
  bool answer(int lane, uint64_t step, std::function<void()> fn) override {
    answered.push_back(step);
    return post(lane, std::move(fn));
  }
  [[nodiscard]] int count() const override { return 3; }
  [[nodiscard]] bool are_planned() const override { return is_planned; }
  int next() override { return next_++ % count(); }
  BufferPool* pool(int lane) override { return &pools_[static_cast<size_t>(lane)]; }
  Workers* workers(int /*lane*/) override { return nullptr; }

  /// Runs what was posted first; on which lane.
  int run_one() {
    auto [lane, fn] = std::move(posted.front());
    posted.pop_front();
    fn();
    return lane;
  }
  /// Runs all, and what comes of it; on which lanes.
  std::vector<int> run_all() {
    std::vector<int> out;
    while (!posted.empty()) out.push_back(run_one());
    return out;
  }

  std::vector<uint64_t> answered;  ///< Numbers of steps.
  bool is_planned = false;
  bool is_stopping = false;
  std::deque<std::pair<int, std::function<void()>>> posted;

 private:
  int next_ = 0;
  std::array<BufferPool, 3> pools_ = {BufferPool(1 << 20), BufferPool(1 << 20),
                                      BufferPool(1 << 20)};
};

/// Programs of lanes, each of a graph that is made between two of them.
class OwnedVariables : public testing::Test {
 protected:
  using Progress = Step::Progress;

  /// A program on a lane, and a step of it.
  struct Running {
    std::unique_ptr<BoundProgram> bound;
    std::unique_ptr<BufferPool> pool = std::make_unique<BufferPool>(1 << 20);
    std::unique_ptr<Step> step;
  };

  ir::Builder& b() { return *builder_; }
  Output variable(const std::string& name, const Shape& shape = Shape{2},
                  DType dtype = DType::kFloat32) {
    return b().add("Variable", {}, {{"shared_name", name}, {"dtype", dtype}, {"shape", shape}});
  }
  Output constant(const std::vector<float>& values) {
    return b().add("Const", {}, {{"value", vec(values)}});
  }
  Output read(Output handle) {
    return b().add("VariableRead", {handle}, {{"dtype", DType::kFloat32}, {"shape", Shape{2}}});
  }
  Output scalar(const Tensor& value) { return b().add("Const", {}, {{"value", value}}); }
  Output adagrad(Output weights, Output slot, const std::vector<float>& gradient) {
    const ir::NodeId node = b().add_node("VariableUpdateDense",
                                         {weights, constant(gradient), scalar(Tensor::scalar(1.0)),
                                          scalar(Tensor::scalar(1.0F)), slot},
                                         {{"kind", std::string("adagrad")}});
    return after(node);
  }
  /// Something to fetch, which waits for `node`.
  Output after(ir::NodeId node) {
    return {b().add_node("Const", {}, {{"value", vec({0})}}, {node}), 0};
  }

  /// The graph so far as a program of `lane`, which has begun a step; the next graph is empty.
  Running on(int lane, const std::vector<Output>& fetches, bool parks = false) {
    EXPECT_TRUE(b().status().ok()) << b().status();
    partition::DevicePartition part;
    part.graph = std::move(graph_);
    part.fetches = fetches;
    for (size_t i = 0; i < fetches.size(); ++i) part.fetch_names.push_back(fmt::format("f{}", i));
    auto program = program::compile(part);
    EXPECT_TRUE(program.ok()) << program.status();
    EXPECT_EQ(program->parks, parks);
    graph_ = ir::Graph();
    builder_.emplace(&graph_, &test_registry());
    Environment place;
    place.resources = &manager_;
    place.lanes = &lanes_;
    place.lane = lane;
    Running out;
    auto bound = BoundProgram::bind(*std::move(program), all_kernels(), place);
    EXPECT_TRUE(bound.ok()) << bound.status();
    out.bound = *std::move(bound);
    out.step = std::make_unique<Step>(out.bound.get(), out.pool.get(), nullptr);
    out.step->set_number(static_cast<uint64_t>(10 + lane));
    out.step->begin(1);
    return out;
  }
  static Progress advance(Running& running) {
    const auto progress = running.step->advance();
    EXPECT_TRUE(progress.ok()) << progress.status();
    return progress.value_or(Progress::kBlocked);
  }
  /// Goes on until it is done; on which lanes something was done for it.
  std::vector<int> finish(Running& running) {
    std::vector<int> lanes;
    while (advance(running) == Progress::kBlocked && !lanes_.posted.empty()) {
      for (const int lane : lanes_.run_all()) lanes.push_back(lane);
    }
    EXPECT_EQ(advance(running), Progress::kDone);
    return lanes;
  }
  /// Makes a variable with this value.
  void assign(const std::string& name, const std::vector<float>& values) {
    Running made = on(0, {b().add("VariableAssign", {variable(name), constant(values)})});
    finish(made);
  }
  int lane_of(const std::string& name) {
    return (*manager_.find<resources::Variable>(name))->owner()->lane();
  }
  std::vector<float> value_of(const std::string& name) {
    return list(*(*manager_.find<resources::Variable>(name))->read());
  }

  HeldLanes lanes_;
  resources::Manager manager_;

 private:
  ir::Graph graph_;
  std::optional<ir::Builder> builder_{std::in_place, &graph_, &test_registry()};
};

TEST_F(OwnedVariables, go_round_the_lanes_and_slots_go_with_their_weights) {
  for (const char* name : {"a", "a/Adagrad", "b", "c/part_0", "c/part_0/m", "d", "a/x/y"}) {
    assign(name, {1, 2});
  }
  EXPECT_EQ(lane_of("a"), 0);
  EXPECT_EQ(lane_of("a/Adagrad"), 0);
  EXPECT_EQ(lane_of("b"), 1);
  EXPECT_EQ(lane_of("c/part_0"), 2);
  EXPECT_EQ(lane_of("c/part_0/m"), 2);
  EXPECT_EQ(lane_of("d"), 0);
  EXPECT_EQ(lane_of("a/x/y"), 0);
}

TEST_F(OwnedVariables, belong_to_the_lane_that_makes_them_where_that_is_planned) {
  lanes_.is_planned = true;
  Running made = on(2, {b().add("VariableAssign", {variable("a"), constant({1, 2})})});
  EXPECT_EQ(advance(made), Progress::kDone);
  EXPECT_EQ(lane_of("a"), 2);
  EXPECT_TRUE(lanes_.posted.empty());
}

TEST_F(OwnedVariables, are_used_at_once_by_their_lane) {
  assign("a", {1, 2});
  Running here = on(0, {read(variable("a"))});
  EXPECT_EQ(advance(here), Progress::kDone);
  EXPECT_THAT(list(here.step->fetch(0)), ElementsAre(1, 2));
}

TEST_F(OwnedVariables, are_used_by_others_on_their_lane) {
  assign("a", {1, 2});
  assign("b", {3, 4});
  ASSERT_EQ(lane_of("b"), 1);
  Running there = on(2, {b().add("Neg", {read(variable("b"))})});
  EXPECT_EQ(advance(there), Progress::kBlocked);
  EXPECT_THAT(there.step->waits_for(), HasSubstr("lane 1"));
  EXPECT_FALSE(there.step->waits_for_messages());
  // It is asked once, however often the step looks.
  EXPECT_EQ(advance(there), Progress::kBlocked);
  lanes_.answered.clear();
  EXPECT_THAT(lanes_.run_all(), ElementsAre(1, 2));
  EXPECT_THAT(lanes_.answered, ElementsAre(12));
  EXPECT_EQ(advance(there), Progress::kDone);
  EXPECT_THAT(list(there.step->fetch(0)), ElementsAre(-3, -4));
  // Once more, with what is kept for it.
  there.step->begin(2);
  EXPECT_THAT(finish(there), ElementsAre(1, 2));
  EXPECT_THAT(list(there.step->fetch(0)), ElementsAre(-3, -4));
}

TEST_F(OwnedVariables, tell_errors_as_on_their_lane_itself) {
  assign("a", {1, 2});
  Output handle = variable("none");
  Running there = on(2, {read(handle)});
  EXPECT_EQ(advance(there), Progress::kBlocked);
  lanes_.run_all();
  const Status there_says = there.step->advance().status();
  ASSERT_EQ(lane_of("none"), 1);
  handle = variable("none");
  Running here = on(1, {read(handle)});
  EXPECT_EQ(there_says.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(base::message_of(there_says), base::message_of(here.step->advance().status()));
}

TEST_F(OwnedVariables, of_one_op_come_together_on_the_lane_of_the_first) {
  assign("w", {1, 1});
  assign("m", {0, 0});
  assign("v", {5, 5});
  ASSERT_EQ(lane_of("w"), 0);
  ASSERT_EQ(lane_of("m"), 1);
  // To the lane of the weights, which has the slot given to it.
  Output weights = variable("w");
  Running update = on(2, {adagrad(weights, variable("m"), {1, 2})});
  EXPECT_THAT(finish(update), ElementsAre(0, 1, 0, 2));
  EXPECT_EQ(lane_of("m"), 0);
  EXPECT_THAT(value_of("m"), ElementsAre(1, 4));
  EXPECT_THAT(value_of("w"), Each(FloatNear(0, 1e-6)));
  // A slot of two takes its weights along.
  weights = variable("v");
  Running other = on(0, {adagrad(weights, variable("m"), {1, 1})});
  finish(other);
  EXPECT_EQ(lane_of("v"), 2);
  EXPECT_EQ(lane_of("m"), 2);
  EXPECT_EQ(lane_of("w"), 2);
  EXPECT_THAT(value_of("m"), ElementsAre(2, 5));
  EXPECT_NEAR(value_of("v")[0], 5 - 1 / std::sqrt(2.0), 1e-6);
}

TEST_F(OwnedVariables, that_two_ops_want_elsewhere_at_once_are_used_by_both) {
  assign("w", {1, 1});
  assign("m", {0, 0});
  assign("v", {5, 5});
  Output weights = variable("w");
  Running one = on(1, {adagrad(weights, variable("m"), {1, 1})});
  weights = variable("v");
  Running two = on(1, {adagrad(weights, variable("m"), {1, 1})});
  EXPECT_EQ(advance(one), Progress::kBlocked);
  EXPECT_EQ(advance(two), Progress::kBlocked);
  lanes_.run_all();
  EXPECT_EQ(advance(one), Progress::kDone);
  EXPECT_EQ(advance(two), Progress::kDone);
  EXPECT_THAT(value_of("m"), ElementsAre(2, 2));
  EXPECT_EQ(lane_of("w"), lane_of("m"));
  EXPECT_EQ(lane_of("v"), lane_of("m"));
}

TEST_F(OwnedVariables, are_followed_when_they_go_before_an_op_comes) {
  assign("w", {1, 2});
  Running there = on(2, {read(variable("w"))});
  EXPECT_EQ(advance(there), Progress::kBlocked);
  (*manager_.find<resources::Variable>("w"))->owner()->give_to(1);
  EXPECT_THAT(lanes_.run_all(), ElementsAre(0, 1, 2));
  EXPECT_EQ(advance(there), Progress::kDone);
  EXPECT_THAT(list(there.step->fetch(0)), ElementsAre(1, 2));
}

TEST_F(OwnedVariables, that_come_to_a_waiting_step_are_not_changed_twice) {
  assign("w", {1, 2});
  Running there = on(2, {b().add("VariableAssignAdd", {variable("w"), constant({1, 1})})});
  EXPECT_EQ(advance(there), Progress::kBlocked);
  EXPECT_EQ(lanes_.run_one(), 0);
  (*manager_.find<resources::Variable>("w"))->owner()->give_to(2);
  EXPECT_EQ(advance(there), Progress::kBlocked);
  finish(there);
  EXPECT_THAT(value_of("w"), ElementsAre(2, 3));
}

TEST_F(OwnedVariables, may_be_done_with_after_the_step_that_asked) {
  assign("w", {1, 2});
  {
    Running there = on(2, {b().add("VariableAssignAdd", {variable("w"), constant({1, 1})})});
    EXPECT_EQ(advance(there), Progress::kBlocked);
    there.step->end();
  }
  lanes_.run_all();
  EXPECT_THAT(value_of("w"), ElementsAre(2, 3));
}

TEST_F(OwnedVariables, of_a_lane_that_stops_end_the_step) {
  assign("w", {1, 2});
  Running there = on(2, {read(variable("w"))});
  lanes_.is_stopping = true;
  const Status status = there.step->advance().status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(base::message_of(status), HasSubstr("lane 0"));
}

TEST_F(OwnedVariables, that_were_forgotten_meanwhile_are_an_error) {
  assign("w", {1, 2});
  Running there = on(2, {read(variable("w"))});
  EXPECT_EQ(advance(there), Progress::kBlocked);
  EXPECT_TRUE(manager_.erase("w"));
  lanes_.run_all();
  EXPECT_EQ(there.step->advance().status().code(), StatusCode::kNotFound);
}

TEST_F(OwnedVariables, of_several_lanes_are_used_at_once_where_waiting_instructions_are_parked) {
  assign("a", {1, 2});
  assign("b", {3, 4});
  const ir::AttrMap from = {{"shared_name", std::string("q")},
                            {"dtypes", std::vector<std::string>{"float32"}}};
  const Output queue = b().add("Queue", {}, from);
  const Output enqueued = b().add("QueueEnqueue", {queue, constant({7, 7})});
  const Output a = read(variable("a"));
  Running there = on(2, {enqueued, a, read(variable("b"))}, true);
  EXPECT_EQ(advance(there), Progress::kBlocked);
  ASSERT_EQ(lanes_.posted.size(), 2U);
  EXPECT_EQ(lanes_.posted[0].first, 0);
  EXPECT_EQ(lanes_.posted[1].first, 1);
  // The answers come in any order.
  std::swap(lanes_.posted[0], lanes_.posted[1]);
  finish(there);
  EXPECT_THAT(list(there.step->fetch(1)), ElementsAre(1, 2));
  EXPECT_THAT(list(there.step->fetch(2)), ElementsAre(3, 4));
}

TEST_F(OwnedVariables, give_out_nothing_that_no_node_reads) {
  assign("w", {1, 2});
  const Output sum = b().add("VariableAssignAdd", {variable("w"), constant({1, 1})});
  Running there = on(2, {after(sum.node)});
  const auto variable = *manager_.find<resources::Variable>("w");
  const std::byte* const memory = variable->read()->raw();
  finish(there);
  there.step->begin(2);
  finish(there);
  // With a holder each time, it would have needed a second memory.
  EXPECT_EQ(variable->read()->raw(), memory);
  EXPECT_THAT(value_of("w"), ElementsAre(3, 4));
}

TEST_F(OwnedVariables, of_strings_are_assigned_on_their_lane) {
  assign("w", {1, 2});
  const Output text = scalar(Tensor::strings(Shape(), std::vector<std::string>{"hello"}));
  const Output handle = variable("s", Shape(), DType::kString);
  Running made = on(0, {b().add("VariableAssign", {handle, text})});
  EXPECT_THAT(finish(made), ElementsAre(1, 0));
  EXPECT_EQ((*manager_.find<resources::Variable>("s"))->read()->data<const std::string_view>()[0],
            "hello");
}

}  // namespace
}  // namespace sidereal::exec
