#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "sidereal/ir/function.h"
#include "sidereal/ir/text.h"
#include "sidereal/ir/verify.h"
#include "sidereal/ops/control.h"
#include "sidereal/ops/ops.h"
#include "sidereal/partition/pull_push.h"

// What cut graphs compute is tested in exec/by_device_test.cc.
namespace sidereal::partition {
namespace {

using ir::Builder;
using ir::DType;
using ir::FunctionPtr;
using ir::Graph;
using ir::NodeId;
using ir::Output;
using ir::Shape;
using testing::HasSubstr;
using Mode = PullPushOptions::Mode;

constexpr const char* kWorker = "/job:worker/replica:0/task:0/device:CPU:0";
constexpr const char* kPs0 = "/job:ps/replica:0/task:0/device:CPU:0";
constexpr const char* kPs1 = "/job:ps/replica:0/task:1/device:CPU:0";

class PullPushByDevice : public testing::Test {
 protected:
  PullPushByDevice() { ops::register_all(&registry_); }

  Output on(const char* device, Output value) {
    graph_.mutable_node(value.node).device = device;
    return value;
  }
  NodeId on(const char* device, NodeId id) {
    graph_.mutable_node(id).device = device;
    return id;
  }
  Output variable(const char* device, const std::string& name, const Shape& shape) {
    const ir::AttrMap attrs = {{"shared_name", name}, {"dtype", DType::kFloat32}, {"shape", shape}};
    return on(device, b_.add("Variable", {}, attrs, name));
  }
  static NodeId read(Builder& b, Output handle, const Shape& shape, const std::string& name = "",
                     const std::vector<NodeId>& after = {}) {
    return b.add_node("VariableRead", {handle}, {{"dtype", DType::kFloat32}, {"shape", shape}},
                      after, name);
  }
  Output read(const char* device, Output handle, const Shape& shape) {
    return on(device, Output{read(b_, handle, shape), 0});
  }
  NodeId subtract(const char* device, Output handle, Output value,
                  const std::vector<NodeId>& after = {}) {
    return on(device, b_.add_node("VariableAssignSub", {handle, value}, {}, after));
  }
  Output queue(const char* device, const std::string& name) {
    ir::AttrMap attrs = components();
    attrs["shared_name"] = name;
    return on(device, b_.add("Queue", {}, attrs, name));
  }
  static ir::AttrMap components() {
    return {{"dtypes", std::vector<std::string>{"float32"}}, {"shapes", std::vector<int64_t>{0}}};
  }
  template <class Make>
  FunctionPtr function(const std::vector<ir::TensorSpec>& inputs, Make make) {
    Graph body;
    std::vector<Output> args;
    for (const ir::TensorSpec& spec : inputs) args.push_back(*ir::add_arg(&body, registry_, spec));
    Builder b(&body, &registry_);
    std::vector<Output> outputs = make(b, args);
    EXPECT_TRUE(b.status().ok()) << b.status();
    return *ir::Function::make(std::move(body), std::move(outputs));
  }
  static void all_on(const char* device, Graph* graph) {
    for (size_t i = 0; i < graph->size(); ++i) {
      ir::Node& node = graph->mutable_node(NodeId(static_cast<int32_t>(i)));
      if (node.device.empty()) node.device = device;
    }
  }

  /// The parts, verified. What has no device is the worker's.
  PartitionedGraph cut(Mode mode, const std::vector<Output>& fetches,
                       const std::vector<NodeId>& targets = {}) {
    EXPECT_TRUE(b_.status().ok()) << b_.status();
    all_on(kWorker, &graph_);
    auto parts = pull_push_by_device(graph_, kWorker, fetches, targets, registry_, {.mode = mode});
    EXPECT_TRUE(parts.ok()) << parts.status();
    if (!parts.ok()) return {};
    for (const RemoteGraph& remote : parts->remotes) check(remote.graph);
    check(parts->worker);
    return *std::move(parts);
  }
  void check(const Graph& graph) {
    const Status status = ir::verify(graph, registry_);
    EXPECT_TRUE(status.ok()) << status;
  }

  /// A step of logistic regression with a counter of steps; the node that does it all.
  NodeId build_regression() {
    const Output w = variable(kPs0, "w", {4, 1});
    const Output bias = variable(kPs1, "bias", {1});
    const Output count = variable(kPs0, "global_step", {});
    const Output x = ops::placeholder(b_, "x", DType::kFloat32, {-1, 4});
    const Output y = ops::placeholder(b_, "y", DType::kFloat32, {-1, 1});
    const Output logits = ops::bias_add(b_, ops::mat_mul(b_, x, read(kPs0, w, {4, 1})),
                                        read(kPs1, bias, {1}), "logits");
    const Output error = ops::sub(b_, ops::sigmoid(b_, logits), y);
    loss_ = ops::reduce_mean(b_, ops::square(b_, error), {}, false, "loss");
    const NodeId updates = ops::no_op(b_, {subtract(kPs0, w, ops::mat_mul(b_, x, error, true)),
                                           subtract(kPs1, bias, ops::reduce_sum(b_, error, {0}))});
    const Output one = on(kPs0, ops::scalar(b_, DType::kFloat32, 1));
    return on(kPs0, b_.add_node("VariableAssignAdd", {count, one}, {}, {updates}, "train"));
  }

  ir::OpRegistry registry_;
  Graph graph_;
  Builder b_{&graph_, &registry_};
  Output loss_;
};

TEST_F(PullPushByDevice, LogisticRegressionPullsPushesAndCounts) {
  const NodeId train = build_regression();
  EXPECT_EQ(summary(cut(Mode::kLayers, {loss_}, {train})),
            R"(5 calls in 3 rounds to 2 devices; 11 nodes on the driver
/job:ps/replica:0/task:0/device:CPU:0
  round 1, call 0: 1 Variable, 1 VariableRead
    0 feeds
    1 fetch: float32[4,1]
  round 2, call 2: 1 Variable, 1 VariableAssignSub
    1 feed: float32[4,1]
    0 fetches
  round 3, call 4: 1 Const, 1 Variable, 1 VariableAssignAdd
    0 feeds
    0 fetches
/job:ps/replica:0/task:1/device:CPU:0
  round 1, call 1: 1 Variable, 1 VariableRead
    0 feeds
    1 fetch: float32[1]
  round 2, call 3: 1 Variable, 1 VariableAssignSub
    1 feed: float32[1]
    0 fetches
)");
  EXPECT_EQ(summary(cut(Mode::kLite, {loss_}, {train})),
            R"(4 calls in 3 rounds to 2 devices; 11 nodes on the driver
prefetched: 2 of 2 pulls
/job:ps/replica:0/task:0/device:CPU:0
  round 1, call 0, prefetched: 1 Variable, 1 VariableRead
    0 feeds
    1 fetch: float32[4,1]
  round 3, call 3, asynchronous: 1 Const, 2 Variable, 1 VariableAssignAdd, 1 VariableAssignSub
    1 feed: float32[4,1]
    0 fetches
/job:ps/replica:0/task:1/device:CPU:0
  round 1, call 1, prefetched: 1 Variable, 1 VariableRead
    0 feeds
    1 fetch: float32[1]
  round 2, call 2: 1 Variable, 1 VariableAssignSub
    1 feed: float32[1]
    0 fetches
)");
}

/// How many pulls of the lite form of a step may be prefetched.
int64_t ahead(const PartitionedGraph& parts) {
  return std::count_if(parts.remotes.begin(), parts.remotes.end(),
                       [](const RemoteGraph& remote) { return remote.ahead; });
}

TEST_F(PullPushByDevice, PullsThatNeedNothingOfTheirStepArePrefetched) {
  const NodeId train = build_regression();
  EXPECT_EQ(ahead(cut(Mode::kLayers, {loss_}, {train})), 0);
  const PartitionedGraph parts = cut(Mode::kLite, {loss_}, {train});
  EXPECT_EQ(ahead(parts), 2);
  for (const ir::Node& node : parts.worker.nodes()) {
    if (node.op != "Call") continue;
    const RemoteGraph& remote = parts.remotes[ir::attr_or<int64_t>(node.attrs, "call", -1)];
    EXPECT_EQ(ir::attr_or(node.attrs, "ahead", false), remote.ahead);
    EXPECT_FALSE(remote.ahead && !node.inputs.empty());
  }
}

TEST_F(PullPushByDevice, WhatOnlyReadsMayBeRunAgainAndWhatChangesAnythingMayNot) {
  const NodeId train = build_regression();
  for (const Mode mode : {Mode::kLayers, Mode::kLite}) {
    const PartitionedGraph parts = cut(mode, {loss_}, {train});
    ASSERT_GE(parts.remotes.size(), 4U);
    for (const RemoteGraph& remote : parts.remotes) {
      EXPECT_EQ(remote.repeatable, remote.level == 1) << remote.level;
    }
    for (const ir::Node& node : parts.worker.nodes()) {
      if (node.op != "Call") continue;
      const RemoteGraph& remote = parts.remotes[ir::attr_or<int64_t>(node.attrs, "call", -1)];
      EXPECT_EQ(ir::attr_or(node.attrs, "repeatable", false), remote.repeatable);
    }
  }
}

TEST_F(PullPushByDevice, RowsOfConstantIdsAreSentAheadAndThoseOfFedIdsAreNot) {
  const Output fed = ops::placeholder(b_, "ids", DType::kInt64, {-1});
  const Output known = on(
      kPs0, b_.add("Const", {}, {{"value", ir::Tensor::of(Shape{2}, std::vector<int64_t>{1, 3})}}));
  const Output deep = variable(kPs0, "deep", {100, 8});
  const Output wide = variable(kPs1, "wide", {100, 8});
  const auto rows = [&](const char* device, Output table, Output ids) {
    const Output whole = read(device, table, {100, 8});
    return on(device, b_.add("Gather", {whole, ids}, {{"axis", int64_t{0}}}));
  };
  const Output x = ops::reduce_sum(b_, rows(kPs0, deep, known), {0});
  const Output y = ops::reduce_sum(b_, rows(kPs1, wide, fed), {0});
  const Output change = ops::reduce_sum(b_, ops::mul(b_, x, y), {});
  const Output w = variable(kPs0, "w", {});
  const Output v = variable(kPs1, "v", {});
  const PartitionedGraph parts =
      cut(Mode::kLite, {}, {subtract(kPs0, w, change), subtract(kPs1, v, change)});
  EXPECT_EQ(ahead(parts), 1);
  for (const RemoteGraph& remote : parts.remotes) {
    EXPECT_EQ(remote.ahead, remote.device == kPs0 && remote.level == 1);
  }
  EXPECT_THAT(summary(parts), HasSubstr("prefetched: 1 of 2 pulls"));
}

TEST_F(PullPushByDevice, AStepThatOnlyReadsPrefetchesNothing) {
  const Output w = variable(kPs0, "w", {4});
  const Output x = ops::tanh(b_, read(kPs0, w, {4}));
  EXPECT_EQ(ahead(cut(Mode::kLite, {x})), 0);
  // What it changes comes of nothing that it reads.
  const Output count = variable(kPs1, "count", {});
  const NodeId counts = subtract(kPs1, count, ops::scalar(b_, DType::kFloat32, 1));
  EXPECT_EQ(ahead(cut(Mode::kLite, {x}, {counts})), 0);
}

TEST_F(PullPushByDevice, WhatChangesOrDrawsNumbersIsNotPrefetched) {
  const Output w = variable(kPs0, "w", {4});
  const Output v = variable(kPs1, "v", {4});
  const Output noise =
      on(kPs0,
         b_.add("RandomUniform", {},
                {{"seed", int64_t{1}}, {"seed2", int64_t{2}}, {"shape", std::vector<int64_t>{4}}}));
  const Output noisy = on(kPs0, ops::add(b_, read(kPs0, w, {4}), noise));
  const Output one =
      on(kPs1, b_.add("Const", {}, {{"value", ir::Tensor::zeros(DType::kFloat32, {4})}}));
  const NodeId first = on(kPs1, b_.add_node("VariableAssignAdd", {v, one}));
  const Output changed{on(kPs1, read(b_, v, {4}, "", {first})), 0};
  const Output sum = ops::tanh(b_, ops::add(b_, noisy, changed));
  EXPECT_EQ(ahead(cut(Mode::kLite, {}, {subtract(kPs0, w, sum), subtract(kPs1, v, sum)})), 0);
}

TEST_F(PullPushByDevice, NothingIsSentAheadOfAStepThatMayWaitForOthers) {
  const NodeId train = build_regression();
  const NodeId token = on(kPs1, b_.add_node("QueueDequeue", {queue(kPs1, "tokens")}, components()));
  EXPECT_EQ(ahead(cut(Mode::kLite, {loss_}, {train, token})), 0);
}

TEST_F(PullPushByDevice, WhatWaitsForSomethingOfTheStepIsNotPrefetched) {
  const Output x = ops::placeholder(b_, "x", DType::kFloat32, {4});
  const Output w = variable(kPs0, "w", {4});
  const Output local = variable(kWorker, "local", {4});
  const NodeId kept = subtract(kWorker, local, x);
  const Output value{on(kPs0, read(b_, w, {4}, "", {kept})), 0};
  const NodeId push = subtract(kPs0, w, ops::tanh(b_, value));
  EXPECT_EQ(ahead(cut(Mode::kLite, {}, {push})), 0);
}

/// Two tables and two layers on two ps, by gathers and scattered updates.
TEST_F(PullPushByDevice, WideAndDeepPullsAndPushesOncePerTask) {
  const Output ids = ops::placeholder(b_, "ids", DType::kInt64, {-1});
  const Output deep = variable(kPs0, "deep", {100, 8});
  const Output wide = variable(kPs1, "wide", {100, 1});
  const Output kernel = variable(kPs1, "kernel", {8, 1});
  const Output bias = variable(kPs0, "bias", {1});
  const auto rows = [&](const char* device, Output table, const Shape& shape) {
    const Output whole = read(device, table, shape);
    return on(device, b_.add("Gather", {whole, ids}, {{"axis", int64_t{0}}}));
  };
  const Output x = rows(kPs0, deep, {100, 8});
  const Output line = rows(kPs1, wide, {100, 1});
  const Output logits = ops::add(
      b_, ops::bias_add(b_, ops::mat_mul(b_, x, read(kPs1, kernel, {8, 1})), read(kPs0, bias, {1})),
      line);
  loss_ = ops::reduce_mean(b_, ops::square(b_, logits), {}, false, "loss");
  const Output to_x =
      ops::mat_mul(b_, logits,
                   b_.add("Transpose", {ops::placeholder(b_, "k", DType::kFloat32, {8, 1})},
                          {{"perm", std::vector<int64_t>{1, 0}}}));
  const auto scatter = [&](const char* device, Output table, Output values) {
    return on(device, b_.add_node("VariableScatterSub", {table, ids, values}, {}, {}));
  };
  const NodeId train = ops::no_op(b_,
                                  {scatter(kPs0, deep, to_x), scatter(kPs1, wide, logits),
                                   subtract(kPs1, kernel, ops::mat_mul(b_, x, logits, true)),
                                   subtract(kPs0, bias, ops::reduce_sum(b_, logits, {0}))},
                                  "train");
  EXPECT_EQ(summary(cut(Mode::kLayers, {loss_}, {train})),
            R"(4 calls in 2 rounds to 2 devices; 12 nodes on the driver
/job:ps/replica:0/task:0/device:CPU:0
  round 1, call 0: 1 Gather, 2 Variable, 2 VariableRead
    1 feed: int64[?]
    2 fetches: float32[?,8], float32[1]
  round 2, call 2: 2 Variable, 1 VariableAssignSub, 1 VariableScatterSub
    3 feeds: int64[?], float32[?,8], float32[1]
    0 fetches
/job:ps/replica:0/task:1/device:CPU:0
  round 1, call 1: 1 Gather, 2 Variable, 2 VariableRead
    1 feed: int64[?]
    2 fetches: float32[?,1], float32[8,1]
  round 2, call 3: 2 Variable, 1 VariableAssignSub, 1 VariableScatterSub
    3 feeds: int64[?], float32[?,1], float32[8,1]
    0 fetches
)");
  EXPECT_EQ(summary(cut(Mode::kLite, {loss_}, {train})),
            R"(4 calls in 2 rounds to 2 devices; 12 nodes on the driver
/job:ps/replica:0/task:0/device:CPU:0
  round 1, call 0: 1 Gather, 2 Variable, 2 VariableRead
    1 feed: int64[?]
    2 fetches: float32[?,8], float32[1]
  round 2, call 2, asynchronous: 2 Variable, 1 VariableAssignSub, 1 VariableScatterSub
    3 feeds: int64[?], float32[?,8], float32[1]
    0 fetches
/job:ps/replica:0/task:1/device:CPU:0
  round 1, call 1: 1 Gather, 2 Variable, 2 VariableRead
    1 feed: int64[?]
    2 fetches: float32[?,1], float32[8,1]
  round 2, call 3, asynchronous: 2 Variable, 1 VariableAssignSub, 1 VariableScatterSub
    3 feeds: int64[?], float32[?,1], float32[8,1]
    0 fetches
)");
}

TEST_F(PullPushByDevice, ALoopReadsAVariableInEachIterationAndFetchesNoHandle) {
  const Output w = variable(kPs0, "w", {2, 2});
  const Output hits = variable(kPs0, "hits", {});
  const Output x = ops::placeholder(b_, "x", DType::kFloat32, {2, 2});
  const ir::TensorSpec square{DType::kFloat32, {2, 2}};
  const ir::TensorSpec handle{DType::kString, {}};
  const ir::TensorSpec count{DType::kFloat32, {}};
  const std::vector<ir::TensorSpec> inputs = {count, square, handle, handle};
  const FunctionPtr cond = function(inputs, [](Builder& f, const auto& in) {
    const Output out = ops::cast(f, in[0], DType::kBool);
    all_on(kWorker, &f.graph());
    return std::vector<Output>{out};
  });
  const FunctionPtr body = function(inputs, [](Builder& f, const auto& in) {
    const Output value{read(f, in[2], {2, 2}, "value"), 0};
    const Output one = ops::scalar(f, DType::kFloat32, 1);
    const NodeId hit = f.add_node("VariableAssignAdd", {in[3], one}, {}, {}, "hit");
    for (const NodeId id : {value.node, hit}) f.graph().mutable_node(id).device = kPs0;
    const Output next = ops::tanh(f, ops::mat_mul(f, in[1], value));
    const Output left = ops::sub(f, in[0], one);
    all_on(kWorker, &f.graph());
    return std::vector<Output>{left, next};
  });
  const Output n = ops::scalar(b_, DType::kFloat32, 5);
  const NodeId loop = ops::while_loop(b_, cond, body, {n, x}, {w, hits}, -1, "loop");
  const Output y = ops::mat_mul(b_, Output{loop, 1}, read(kPs0, w, {2, 2}));
  for (const Mode mode : {Mode::kLayers, Mode::kLite}) {
    const PartitionedGraph parts = cut(mode, {y});
    EXPECT_EQ(summary(parts), R"(2 calls in 1 rounds to 1 devices; 4 nodes on the driver
rounds in each run of 'loop': 1
/job:ps/replica:0/task:0/device:CPU:0
  round 1, call 0, in 'loop': 1 Const, 2 Variable, 1 VariableAssignAdd, 1 VariableRead
    0 feeds
    1 fetch: float32[2,2]
  round 1, call 1: 1 Variable, 1 VariableRead
    0 feeds
    1 fetch: float32[2,2]
)");
    EXPECT_EQ(parts.worker.find("loop")->inputs.size(), 2U);
    EXPECT_NE(parts.remotes[0].graph.find("w"), nullptr);
    EXPECT_NE(parts.remotes[1].graph.find("w"), nullptr);
  }
}

TEST_F(PullPushByDevice, ABodyChangesAndReadsAVariableInTheOrderOfTheProgram) {
  const Output w = variable(kPs0, "w", {});
  const Output x = ops::placeholder(b_, "x", DType::kFloat32, {});
  const FunctionPtr body =
      function({{DType::kFloat32, {}}, {DType::kString, {}}}, [](Builder& f, const auto& in) {
        const Output first{read(f, in[1], {}, "first"), 0};
        const Output next = ops::tanh(f, first);
        f.add_node("VariableAssign", {in[1], next}, {}, {}, "change");
        const NodeId second = read(f, in[1], {}, "second");
        for (const char* name : {"first", "change", "second"}) {
          f.graph().mutable_node(f.graph().find(name)->id).device = kPs0;
        }
        const Output sum = ops::add(f, in[0], Output{second, 0});
        all_on(kWorker, &f.graph());
        return std::vector<Output>{sum};
      });
  const NodeId loop = ops::scan(b_, body, {x}, {}, {w}, {.length = 3}, "loop");
  for (const Mode mode : {Mode::kLayers, Mode::kLite}) {
    const PartitionedGraph parts = cut(mode, {{loop, 0}});
    ASSERT_EQ(parts.remotes.size(), 2U);
    EXPECT_EQ(parts.remotes[1].level, 2);
    EXPECT_NE(parts.remotes[1].graph.find("change"), nullptr);
    EXPECT_NE(parts.remotes[1].graph.find("second"), nullptr);
  }
}

TEST_F(PullPushByDevice, ALoopThatIsWhollyOnOneDeviceIsOneCall) {
  const Output w = variable(kPs0, "w", {2, 2});
  const Output x = ops::placeholder(b_, "x", DType::kFloat32, {2, 2});
  const FunctionPtr body =
      function({{DType::kFloat32, {2, 2}}, {DType::kString, {}}}, [](Builder& f, const auto& in) {
        const Output next = ops::tanh(f, ops::mat_mul(f, in[0], Output{read(f, in[1], {2, 2}), 0}));
        all_on(kPs0, &f.graph());
        return std::vector<Output>{next};
      });
  const NodeId loop = ops::scan(b_, body, {x}, {}, {w}, {.length = 3}, "loop");
  const PartitionedGraph parts = cut(Mode::kLayers, {{loop, 0}});
  ASSERT_EQ(parts.remotes.size(), 1U);
  EXPECT_NE(parts.remotes[0].graph.find("loop"), nullptr);
  EXPECT_NE(parts.remotes[0].graph.find("w"), nullptr);
}

TEST_F(PullPushByDevice, WhatMayWaitHoldsUpOnlyWhatNeedsIt) {
  const Output q = queue(kPs0, "q");
  const Output w = variable(kPs0, "w", {});
  const Output taken{on(kPs0, b_.add_node("QueueDequeue", {q}, components(), {}, "take")), 0};
  const Output value = read(kPs0, w, {});
  const Output sum = on(kPs0, ops::add(b_, taken, value));
  const Output later{on(kPs0, b_.add_node("QueueDequeue", {q}, components(), {}, "later")), 0};
  for (const Mode mode : {Mode::kLayers, Mode::kLite}) {
    const PartitionedGraph parts = cut(mode, {value, sum, later});
    EXPECT_EQ(summary(parts), mode == Mode::kLayers
                                  ? R"(3 calls in 2 rounds to 1 devices; 0 nodes on the driver
/job:ps/replica:0/task:0/device:CPU:0
  round 1, call 0: 1 Variable, 1 VariableRead
    0 feeds
    1 fetch: float32[]
  round 1, call 1, may wait: 1 Queue, 1 QueueDequeue
    0 feeds
    1 fetch: float32[]
  round 2, call 2, may wait: 1 Add, 1 Queue, 1 QueueDequeue
    1 feed: float32[]
    1 fetch: float32[]
)"
                                  : R"(1 calls in 1 rounds to 1 devices; 0 nodes on the driver
/job:ps/replica:0/task:0/device:CPU:0
  round 1, call 0, may wait: 1 Add, 1 Queue, 2 QueueDequeue, 1 Variable, 1 VariableRead
    0 feeds
    3 fetches: float32[], float32[], float32[]
)");
  }
}

/// Of two changes in the second round, one waits for what is taken: a call of both would wait.
TEST_F(PullPushByDevice, WhatWaitsInOneRoundHoldsUpNothingInTheNext) {
  const Output taken = {
      on(kPs0, b_.add_node("QueueDequeue", {queue(kPs0, "q")}, components(), {}, "take")), 0};
  const Output near = read(kPs0, variable(kPs0, "v", {}), {});
  const auto change = [&](Output value) {
    return subtract(kPs1, variable(kPs1, "w" + graph_.node(value.node).name, {}),
                    on(kWorker, ops::tanh(b_, value)));
  };
  const std::vector<NodeId> targets = {change(taken), change(near)};
  for (const Mode mode : {Mode::kLayers, Mode::kLite}) {
    EXPECT_EQ(cut(mode, {}, targets).remotes.size(), 4U);
  }
  // Both wait.
  graph_.mutable_node(near.node).control_inputs = {taken.node};
  EXPECT_EQ(cut(Mode::kLayers, {}, targets).remotes.size(), 2U);
}

TEST_F(PullPushByDevice, TheDriverWaitsBesideItsCalls) {
  const Output own = {
      on(kWorker, b_.add_node("QueueDequeue", {queue(kWorker, "own")}, components(), {})), 0};
  const Output w = variable(kPs0, "w", {});
  const NodeId waits = subtract(kPs0, w, own);
  const NodeId goes_on = subtract(kPs0, w, read(kPs1, variable(kPs1, "v", {}), {}));
  const PartitionedGraph parts = cut(Mode::kLayers, {}, {waits, goes_on});
  ASSERT_EQ(parts.remotes.size(), 3U);
  for (const RemoteGraph& remote : parts.remotes) {
    const ir::Node* const call =
        parts.worker.find(fmt::format("call_{}", &remote - parts.remotes.data()));
    ASSERT_NE(call, nullptr);
    EXPECT_TRUE(call->control_inputs.empty());
  }
}

TEST_F(PullPushByDevice, ThousandsThatWaitInLineAreCallsInLine) {
  constexpr size_t kCount = 4000;
  const Output q = queue(kPs0, "q");
  std::vector<NodeId> line;
  std::vector<NodeId> after;
  for (size_t i = 0; i < kCount; ++i) {
    line.push_back(on(kPs0, b_.add_node("QueueDequeue", {q}, components(), after)));
    after = {line.back()};
  }
  EXPECT_EQ(cut(Mode::kLayers, {}, line).remotes.size(), kCount);
}

/// Another step answers what is put into the one queue by putting something into the other.
TEST_F(PullPushByDevice, NobodyWaitsForWhatItDoesNotNeed) {
  for (const bool asks_first : {true, false}) {
    graph_ = Graph();
    const Output w = variable(kPs0, "w", {});
    const Output questions = queue(kPs1, "questions");
    const Output answers = queue(kPs0, "answers");
    const Output value = read(kPs0, w, {});
    const auto ask = [&] {
      const Output question = on(kWorker, ops::tanh(b_, value));
      return on(kPs1, b_.add_node("QueueEnqueue", {questions, question}, {}, {}, "ask"));
    };
    NodeId asked;
    if (asks_first) asked = ask();
    const NodeId taken = on(kPs0, b_.add_node("QueueDequeue", {answers}, components(), {}, "take"));
    if (!asks_first) asked = ask();
    const PartitionedGraph parts = cut(Mode::kLite, {{taken, 0}}, {asked});
    EXPECT_EQ(parts.remotes.size(), 3U) << summary(parts);
  }
}

TEST_F(PullPushByDevice, OpsOnOneQueueAreTriedInTheOrderOfTheGraph) {
  const Output q = queue(kPs0, "q");
  const Output x = ops::placeholder(b_, "x", DType::kFloat32, {});
  const NodeId put = on(kPs0, b_.add_node("QueueEnqueue", {q, ops::tanh(b_, x)}, {}, {}, "put"));
  const NodeId take = on(kPs0, b_.add_node("QueueDequeue", {q}, components(), {}, "take"));
  const PartitionedGraph parts = cut(Mode::kLayers, {{take, 0}}, {put});
  ASSERT_EQ(parts.remotes.size(), 2U);
  EXPECT_NE(parts.remotes[0].graph.find("put"), nullptr);
  EXPECT_TRUE(parts.worker.find("call_1")->control_inputs.empty());
  // In one call the one that must wait lets the other one go on.
  EXPECT_EQ(cut(Mode::kLite, {{take, 0}}, {put}).remotes.size(), 1U);
}

TEST_F(PullPushByDevice, MergedCallsKeepWhatIsReadAndChangedInOrder) {
  const Output w = variable(kPs0, "w", {});
  const Output x = ops::placeholder(b_, "x", DType::kFloat32, {});
  // No edge says whether it is read before or after the change.
  const Output before = read(kPs0, w, {});
  const NodeId change = subtract(kPs0, w, on(kWorker, ops::tanh(b_, x)));
  EXPECT_EQ(cut(Mode::kLayers, {before}, {change}).remotes.size(), 1U);
  const NodeId second =
      subtract(kPs0, w, on(kWorker, ops::tanh(b_, read(kPs1, variable(kPs1, "v", {}), {}))));
  // Between the two it makes a difference.
  EXPECT_EQ(cut(Mode::kLayers, {before}, {change, second}).remotes.size(), 3U);
  EXPECT_EQ(cut(Mode::kLite, {before}, {change, second}).remotes.size(), 2U);
}

TEST_F(PullPushByDevice, AReadIsNotDelayedBeyondAChangeThatNoEdgeOrders) {
  const Output w = variable(kPs0, "w", {});
  const Output before = read(kPs0, w, {});
  const Output other = ops::tanh(b_, read(kPs1, variable(kPs1, "v", {}), {}));
  const Output changed{subtract(kPs0, w, other), 0};
  const NodeId again = subtract(kPs0, w, ops::tanh(b_, changed));
  EXPECT_EQ(cut(Mode::kLayers, {before}, {again}).remotes.size(), 4U);
  EXPECT_EQ(cut(Mode::kLite, {before}, {again}).remotes.size(), 4U);
  // Behind an edge it may come when it likes.
  graph_.mutable_node(changed.node).control_inputs = {before.node};
  EXPECT_LT(cut(Mode::kLite, {before}, {again}).remotes.size(), 4U);
}

TEST_F(PullPushByDevice, AReadOfASlotIsNotDelayedBeyondAnUpdateThatChangesIt) {
  const Output w = variable(kPs0, "w", {2});
  const Output slot = variable(kPs0, "slot", {2});
  const Output before = read(kPs0, slot, {2});
  const Output step = ops::constant(b_, ir::Tensor::scalar(1.0));
  const Output rate = ops::constant(b_, ir::Tensor::scalar(0.5F));
  const auto update = [&](Output gradient, const std::vector<NodeId>& after) {
    return on(kPs0, b_.add_node("VariableUpdateDense", {w, gradient, step, rate, slot},
                                {{"kind", std::string("momentum")}, {"momentum", 0.5}}, after));
  };
  const Output other = ops::tanh(b_, read(kPs1, variable(kPs1, "v", {2}), {2}));
  const NodeId once = update(other, {});
  const Output more{b_.add_node("Neg", {other}, {}, {once}), 0};
  const NodeId twice = update(more, {});
  EXPECT_EQ(cut(Mode::kLayers, {before}, {twice}).remotes.size(), 4U);
  EXPECT_EQ(cut(Mode::kLite, {before}, {twice}).remotes.size(), 4U);
}

TEST_F(PullPushByDevice, TheDriverMayHaveNoNodeAndConstantsDoNotTravel) {
  const Output three = on(kPs0, ops::scalar(b_, DType::kFloat32, 3));
  const Output w = on(kPs0, ops::tanh(b_, three));
  const Output y = on(kPs1, ops::add(b_, w, three));
  const PartitionedGraph parts = cut(Mode::kLayers, {y, three});
  ASSERT_EQ(parts.remotes.size(), 2U);
  EXPECT_EQ(parts.devices, (std::vector<std::string>{kPs0, kPs1}));
  EXPECT_EQ(parts.worker.find("call_0")->inputs.size(), 0U);
  EXPECT_EQ(parts.worker.find("call_1")->inputs.size(), 1U);
  EXPECT_EQ(parts.worker.size(), 3U);
}

TEST_F(PullPushByDevice, WhatCannotBeCutIsRefused) {
  const Output x = ops::placeholder(b_, "x", DType::kFloat32, {});
  const auto error = [&](const std::vector<Output>& fetches, const std::vector<NodeId>& targets) {
    return base::message_of(
        pull_push_by_device(graph_, kWorker, fetches, targets, registry_).status());
  };
  EXPECT_THAT(error({x}, {}), HasSubstr("node 'x' (Placeholder) has no device"));
  all_on(kPs0, &graph_);
  EXPECT_THAT(error({{NodeId(7), 0}}, {}), HasSubstr("fetch 0 is not an output"));
  EXPECT_THAT(error({}, {NodeId(7)}), HasSubstr("target 0 is not a node"));
  EXPECT_EQ(cut(Mode::kLite, {x}).remotes.size(), 0U);
}

TEST_F(PullPushByDevice, who_runs_a_check_is_told) {
  const Output v = variable(kPs0, "v", {1});
  const Output one =
      on(kPs0, b_.add("Const", {}, {{"value", tensor::Tensor::empty(DType::kFloat32, {1})}}));
  const Output no = on(kPs0, b_.add("Const", {}, {{"value", tensor::Tensor::scalar(false)}}));
  const NodeId push = subtract(kPs0, v, one);
  EXPECT_THAT(summary(cut(Mode::kLite, {}, {push})), HasSubstr("asynchronous"));
  const NodeId check = on(kPs0, b_.add_node("Assert", {no, one}, {}));
  EXPECT_THAT(summary(cut(Mode::kLite, {}, {check})), testing::Not(HasSubstr("asynchronous")));
  EXPECT_THAT(summary(cut(Mode::kLite, {}, {push, check})),
              testing::Not(HasSubstr("asynchronous")));
}

}  // namespace
}  // namespace sidereal::partition
