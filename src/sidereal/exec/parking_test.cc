#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sidereal/exec/executor.h"
#include "sidereal/exec/testing/one_program.h"
#include "sidereal/ir/component_specs.h"
#include "sidereal/ir/function.h"
#include "sidereal/ops/ops.h"
#include "sidereal/partition/by_device.h"
#include "sidereal/program/compile.h"
#include "sidereal/resources/manager.h"
#include "sidereal/resources/step_barrier.h"

// Programs in which an instruction that must wait holds up only those that need it.
namespace sidereal::exec {
namespace {

using ir::NodeId;
using ir::Output;
using program::Program;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

/// Tensors that come when a test says so.
class Arrivals final : public ports::Rendezvous {
 public:
  Status send(const ports::RendezvousKey& key, std::span<const Tensor> values) override {
    sent.push_back(key.edge);
    static_cast<void>(values);
    return {};
  }
  Result<std::span<Tensor>> receive(const ports::RendezvousKey& key, const ports::TensorSource&,
                                    size_t) override {
    ++tries;
    const auto found = here.find(key.edge);
    if (found == here.end() && come_when_asked != nullptr) come_when_asked(key);
    if (found == here.end()) return std::span<Tensor>();
    received_ = {found->second};
    return std::span<Tensor>(received_);
  }

  std::map<int64_t, Tensor> here;
  std::vector<int64_t> sent;
  int tries = 0;
  std::function<void(const ports::RendezvousKey&)> come_when_asked;

 private:
  ports::TensorGroup received_;
};

Tensor vec(const std::vector<float>& values) {
  return Tensor::of<float>({static_cast<int64_t>(values.size())}, values);
}

std::vector<float> list(const Tensor& t) {
  const auto data = t.data<const float>();
  return {data.begin(), data.end()};
}

/// A graph of one device, and a step of it.
class Parking : public testing::Test {
 protected:
  static constexpr int64_t kLength = 3;

  static ir::AttrMap components() {
    return ir::component_attrs({{DType::kFloat32, Shape{kLength}}});
  }
  Output queue(const std::string& name, int64_t capacity = -1) {
    ir::AttrMap attrs = components();
    attrs["shared_name"] = name;
    if (capacity > 0) attrs["capacity"] = capacity;
    return b_.add("Queue", {}, attrs, name);
  }
  Output dequeue(Output queue, const std::vector<NodeId>& after = {}) {
    return {b_.add_node("QueueDequeue", {queue}, components(), after), 0};
  }
  Output enqueue(Output queue, Output value, const std::vector<NodeId>& after = {}) {
    return {b_.add_node("QueueEnqueue", {queue, value}, {}, after), 0};
  }
  Output constant(const std::vector<float>& values) {
    return b_.add("Const", {}, {{"value", vec(values)}});
  }
  Output recv(int64_t edge) {
    ir::AttrMap attrs = components();
    attrs["edge"] = edge;
    attrs["peer"] = int64_t{0};
    attrs["tensor_name"] = fmt::format("x{}", edge);
    return b_.add("Recv", {}, attrs);
  }
  void send(int64_t edge, Output value) {
    b_.add_node("Send", {value},
                {{"edge", edge}, {"peer", int64_t{0}}, {"tensor_name", std::string("y")}});
  }

  Program compile(const std::vector<Output>& fetches) {
    EXPECT_TRUE(b_.status().ok()) << b_.status();
    partition::DevicePartition part;
    part.graph = graph_;
    part.fetches = fetches;
    for (size_t i = 0; i < fetches.size(); ++i) part.fetch_names.push_back(fmt::format("f{}", i));
    auto made = program::compile(part);
    EXPECT_TRUE(made.ok()) << made.status();
    // As a task gets it.
    auto read = program::decode(program::encode(*made));
    EXPECT_TRUE(read.ok()) << read.status();
    return *read;
  }

  Step* begin(Program program) {
    auto bound = BoundProgram::bind(std::move(program), all_kernels(), {.resources = &manager_});
    EXPECT_TRUE(bound.ok()) << bound.status();
    step_ = nullptr;
    bound_ = *std::move(bound);
    step_ = std::make_unique<Step>(bound_.get(), &pool_, nullptr);
    step_->set_rendezvous(&arrivals_);
    step_->set_peers(peers_);
    step_->begin(1);
    return step_.get();
  }
  Step* begin(const std::vector<Output>& fetches) { return begin(compile(fetches)); }

  /// Goes on while what steps share changes.
  static Result<Step::Progress> run(Step* step) {
    for (size_t before = SIZE_MAX; before != step->position();) {
      before = step->position();
      SR_ASSIGN_OR_RETURN(const Step::Progress progress, step->advance());
      if (progress == Step::Progress::kDone) return progress;
    }
    return Step::Progress::kBlocked;
  }

  ir::Graph graph_;
  ir::Builder b_{&graph_, &test_registry()};
  resources::Manager manager_;
  BufferPool pool_{1 << 24};
  Arrivals arrivals_;
  const std::vector<ports::TensorSource> peers_ = {{"/job:ps/replica:0/task:0/device:CPU:0", 0}};
  std::unique_ptr<BoundProgram> bound_;
  std::unique_ptr<Step> step_;
};

TEST_F(Parking, programs_in_which_nothing_waits_keep_the_flat_list) {
  const Output y = b_.add("Neg", {constant({1, 2, 3})});
  const Program program = compile({y});
  EXPECT_FALSE(program.parks);
  begin(program);
  EXPECT_EQ(bound_->needs(), nullptr);
}

TEST_F(Parking, what_is_taken_may_be_put_in_behind) {
  const Output q = queue("q");
  const Output taken = dequeue(q);
  const Output put = enqueue(q, constant({1, 2, 3}));
  Step* const step = begin({taken, put});
  const auto progress = run(step);
  ASSERT_TRUE(progress.ok()) << progress.status();
  ASSERT_EQ(*progress, Step::Progress::kDone) << step->waits_for();
  EXPECT_EQ(list(step->fetch(0)), (std::vector<float>{1, 2, 3}));
}

TEST_F(Parking, what_waits_for_room_lets_what_makes_room_go_on) {
  const Output q = queue("small", 1);
  const Output first = enqueue(q, constant({1, 2, 3}));
  const Output second = enqueue(q, constant({4, 5, 6}), {first.node});
  const Output taken = dequeue(q);
  Step* const step = begin({second, taken});
  const auto progress = run(step);
  ASSERT_TRUE(progress.ok()) << progress.status();
  ASSERT_EQ(*progress, Step::Progress::kDone) << step->waits_for();
  EXPECT_EQ(list(step->fetch(1)), (std::vector<float>{1, 2, 3}));
}

TEST_F(Parking, what_fails_behind_what_waits_ends_the_step) {
  const Output taken = dequeue(queue("never"));
  const Output no = b_.add("Const", {}, {{"value", Tensor::scalar(false)}});
  b_.add_node("Assert", {no, constant({1})}, {});
  Step* const step = begin({taken});
  EXPECT_EQ(run(step).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(Parking, what_an_edge_puts_behind_waits_too) {
  const Output q = queue("q");
  const Output taken = dequeue(q);
  const NodeId both = b_.add_node("NoOp", {}, {}, {taken.node});
  const Output put = enqueue(q, constant({1, 2, 3}), {both});
  Step* const step = begin({taken, put});
  const auto progress = run(step);
  ASSERT_TRUE(progress.ok()) << progress.status();
  EXPECT_EQ(*progress, Step::Progress::kBlocked);
  EXPECT_EQ(step->waits_for(), "1 elements of queue 'q' (0 elements)");
  EXPECT_FALSE(step->waits_for_messages());
  step->end();
}

TEST_F(Parking, what_waits_at_a_barrier_says_for_whom) {
  const auto one = [this](int64_t value) {
    return b_.add("Const", {}, {{"value", Tensor::scalar(value)}});
  };
  const auto barrier = *manager_.find_or_create<resources::StepBarrier>(
      "b", [] { return resources::StepBarrier::make("b"); });
  ASSERT_TRUE(barrier->restart(4, 0, {"w0", "w1"}).ok());
  ASSERT_TRUE(barrier->advance(4).ok());
  const Output handle = b_.add("StepBarrier", {}, {{"shared_name", std::string("b")}});
  Step* const step = begin({b_.add("StepBarrierAwait", {handle, one(4)})});
  ASSERT_TRUE(run(step).ok());
  EXPECT_EQ(step->waits_for(), "barrier 'b', where w1 has ended 0 steps, for step 1 of w0");
  ASSERT_TRUE(barrier->advance(5).ok());
  const auto progress = run(step);
  ASSERT_TRUE(progress.ok()) << progress.status();
  ASSERT_EQ(*progress, Step::Progress::kDone) << step->waits_for();
  EXPECT_EQ(step->fetch(0).data<const int64_t>()[0], 1);
}

TEST_F(Parking, what_steps_share_is_told_of_before_messages) {
  const Output far = recv(1);
  const Output taken = dequeue(queue("q"));
  Step* const step = begin({far, taken});
  ASSERT_TRUE(run(step).ok());
  EXPECT_EQ(step->waits_for(), "1 elements of queue 'q' (0 elements)");
  step->end();
}

TEST_F(Parking, what_is_made_leaves_before_what_comes_is_there) {
  const Output far = recv(1);
  send(2, b_.add("Neg", {far}));
  send(3, b_.add("Neg", {constant({1, 2, 3})}));
  Step* const step = begin(std::vector<Output>{});
  ASSERT_TRUE(run(step).ok());
  EXPECT_TRUE(step->waits_for_messages());
  EXPECT_THAT(arrivals_.sent, testing::ElementsAre(3));
  arrivals_.here[1] = vec({1, 2, 3});
  ASSERT_TRUE(run(step).ok());
  EXPECT_THAT(arrivals_.sent, testing::ElementsAre(3, 2));
}

TEST_F(Parking, what_is_told_of_arrivals_tries_what_has_come_alone) {
  constexpr int64_t kCount = 50;
  std::vector<Output> all;
  for (int64_t edge = 0; edge < kCount; ++edge) all.push_back(recv(edge));
  Step* const step = begin(all);
  step->set_rendezvous(&arrivals_, true);
  ASSERT_TRUE(run(step).ok());
  EXPECT_EQ(step->waits_for(), "tensor 'x0' from /job:ps/replica:0/task:0/device:CPU:0");
  EXPECT_TRUE(step->waits_for_messages());
  for (int64_t edge = kCount - 1; edge >= 0; --edge) {
    arrivals_.here[edge] = vec({1, 2, static_cast<float>(edge)});
    step->arrived({.edge = edge, .step = step->id()});
    const auto progress = run(step);
    ASSERT_TRUE(progress.ok()) << progress.status();
    ASSERT_EQ(*progress, edge > 0 ? Step::Progress::kBlocked : Step::Progress::kDone);
  }
  EXPECT_EQ(arrivals_.tries, 2 * kCount);
  EXPECT_EQ(list(step->fetch(7)), (std::vector<float>{1, 2, 7}));
}

TEST_F(Parking, what_comes_while_it_is_asked_for_is_taken) {
  const Output far = recv(3);
  Step* const step = begin({far});
  step->set_rendezvous(&arrivals_, true);
  arrivals_.come_when_asked = [&](const ports::RendezvousKey& key) {
    arrivals_.here[key.edge] = vec({1, 2, 3});
    step->arrived(key);
  };
  ASSERT_EQ(*run(step), Step::Progress::kDone) << step->waits_for();
}

TEST_F(Parking, news_of_no_edge_have_all_that_waits_look_again) {
  Step* const step = begin({recv(1), recv(2)});
  step->set_rendezvous(&arrivals_, true);
  ASSERT_TRUE(run(step).ok());
  ASSERT_TRUE(run(step).ok());
  EXPECT_EQ(arrivals_.tries, 2);
  arrivals_.here = {{1, vec({1, 2, 3})}, {2, vec({1, 2, 3})}};
  // Of no Recv that the program has.
  step->arrived({.edge = 9, .step = step->id()});
  EXPECT_EQ(*run(step), Step::Progress::kDone);
}

TEST_F(Parking, a_wait_in_a_body_holds_up_its_readers_alone) {
  ir::Graph body;
  ir::Builder in(&body, &test_registry());
  const Output handle = *ir::add_arg(&body, test_registry(), {DType::kString, Shape()}, "handle");
  const NodeId taken = in.add_node("QueueDequeue", {handle}, components());
  ASSERT_TRUE(in.status().ok()) << in.status();
  const auto function = ir::Function::make(body, {{taken, 0}});
  ASSERT_TRUE(function.ok()) << function.status();
  const Output q = queue("q");
  const std::string name = graph_.hold_function("take", *function);
  const Output got = {b_.add_node("FunctionCall", {q}, {{"function", name}}), 0};
  const Output put = enqueue(q, constant({1, 2, 3}));
  Step* const step = begin({got, put});
  const auto progress = run(step);
  ASSERT_TRUE(progress.ok()) << progress.status();
  ASSERT_EQ(*progress, Step::Progress::kDone) << step->waits_for();
  EXPECT_EQ(list(step->fetch(0)), (std::vector<float>{1, 2, 3}));
}

TEST_F(Parking, a_program_of_a_peer_runs_nothing_before_what_it_reads) {
  const Output q = queue("q");
  Program program = compile({b_.add("Neg", {dequeue(q)}), enqueue(q, constant({1, 2, 3}))});
  ASSERT_TRUE(program.parks);
  for (program::Instruction& instruction : program.instructions) instruction.after.clear();
  Step* step = begin(program);
  ASSERT_EQ(*run(step), Step::Progress::kDone);
  EXPECT_EQ(list(step->fetch(0)), (std::vector<float>{-1, -2, -3}));
  program.instructions[1].after = {1};
  EXPECT_EQ(program::decode(program::encode(program)).status().code(),
            StatusCode::kInvalidArgument);
  program.instructions[1].after = {-1};
  EXPECT_EQ(program::decode(program::encode(program)).status().code(),
            StatusCode::kInvalidArgument);
}

/// Values of element-wise ops, views and sums over tensors that come in any order, with what each
/// of them must be.
TEST_F(Parking, memory_is_used_again_only_when_nobody_has_still_to_read_it) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    Dice dice(seed);
    graph_ = ir::Graph();
    arrivals_ = Arrivals();
    std::vector<Output> values;
    std::vector<std::vector<float>> wanted;
    std::map<int64_t, Tensor> to_come;
    const int64_t count = dice.number(2, 60);
    for (int64_t i = 0; i < count; ++i) {
      const auto pick = [&] {
        return static_cast<size_t>(dice.number(0, static_cast<int64_t>(values.size()) - 1));
      };
      if (values.empty() || dice.chance(15)) {
        wanted.push_back({static_cast<float>(i), static_cast<float>(dice.number(-9, 9)), 1});
        to_come[i] = vec(wanted.back());
        values.push_back(recv(i));
      } else if (dice.chance(20)) {
        const size_t x = pick();
        values.push_back(b_.add("Identity", {values[x]}));
        wanted.push_back(std::vector<float>(wanted[x]));
      } else if (dice.chance(40)) {
        const size_t x = pick();
        values.push_back(b_.add("Neg", {values[x]}));
        wanted.emplace_back();
        for (const float v : std::vector<float>(wanted[x])) wanted.back().push_back(-v);
      } else {
        const size_t x = pick();
        const size_t y = pick();
        values.push_back(b_.add("Maximum", {values[x], values[y]}));
        std::vector<float> sum;
        for (size_t k = 0; k < kLength; ++k) sum.push_back(std::max(wanted[x][k], wanted[y][k]));
        wanted.push_back(sum);
      }
    }
    std::vector<Output> fetches;
    std::vector<size_t> fetched;
    for (size_t i = 0; i < values.size(); ++i) {
      if (i + 1 < values.size() && !dice.chance(30)) continue;
      fetches.push_back(values[i]);
      fetched.push_back(i);
    }
    Step* const step = begin(fetches);
    for (uint64_t id = 1; id <= 2; ++id) {
      if (id > 1) step->begin(id);
      arrivals_.here.clear();
      std::map<int64_t, Tensor> left = to_come;
      Result<Step::Progress> progress = step->advance();
      while (progress.ok() && *progress == Step::Progress::kBlocked) {
        ASSERT_FALSE(left.empty());
        auto next = std::next(left.begin(), dice.number(0, static_cast<int64_t>(left.size()) - 1));
        arrivals_.here[next->first] = next->second.clone();
        left.erase(next);
        progress = step->advance();
      }
      ASSERT_TRUE(progress.ok()) << progress.status();
      for (size_t f = 0; f < fetched.size(); ++f) {
        EXPECT_EQ(list(step->fetch(static_cast<int>(f))), wanted[fetched[f]]);
      }
      step->end();
    }
  }
}

}  // namespace
}  // namespace sidereal::exec
