#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include "sidereal/app/testing/model.h"
#include "sidereal/ir/function.h"
#include "sidereal/service/session.h"
#include "sidereal/service/status_client.h"

// Variables of tasks with one lane and with several, each of which belongs to one of them.
namespace sidereal::app {
namespace {

using tensor::DType;
using tensor::Shape;
using tensor::Tensor;
using ::testing::Each;

constexpr int kLength = 300;  // Too long to be sent beside other values.
constexpr const char* kPs = "/job:w/replica:0/task:0/device:CPU:0";

class VariableLanes : public ::testing::TestWithParam<ClusterKind> {
 protected:
  using Protocol = cluster::Protocol;

  static ir::Output variable(Model* model, const std::string& name, const std::string& device = kPs,
                             int length = kLength) {
    return model->add("Variable", {},
                      {{"shared_name", name},
                       {"dtype", DType::kFloat32},
                       {"shape", Shape{static_cast<int64_t>(length)}}},
                      name + "/handle", device);
  }
  static ir::Output constant(Model* model, float value, const std::string& name,
                             const std::string& device = kPs) {
    return model->constant(std::vector<float>(kLength, value), name, device);
  }
  /// Nodes "NAME/init", which sets the variable to `value`, and "NAME/read".
  static void add_init_and_read(Model* model, ir::Output handle, const std::string& name,
                                float value, const std::string& device = kPs) {
    model->add("VariableAssign", {handle, constant(model, value, name + "/value", device)}, {},
               name + "/init", device);
    model->add("VariableRead", {handle},
               {{"dtype", DType::kFloat32}, {"shape", Shape{static_cast<int64_t>(kLength)}}},
               name + "/read", device);
  }
  std::unique_ptr<service::Session> session(const ir::Graph& graph, int task) {
    // Each step sees what the one before it has done.
    service::SessionOptions options = patient();
    options.pull_prefetch_ms = 0;
    auto made = service::Session::create(cluster_.target(task), graph, options);
    EXPECT_TRUE(made.ok()) << made.status();
    return made.ok() ? *std::move(made) : nullptr;
  }
  static void run(service::Session* session, const std::vector<std::string>& targets,
                  int times = 1) {
    for (int i = 0; i < times; ++i) {
      const auto done = session->run({}, {}, targets);
      ASSERT_TRUE(done.ok()) << done.status();
    }
  }
  static std::vector<float> value_of(service::Session* session, const std::string& name) {
    const auto got = session->run({}, {name + "/read"});
    EXPECT_TRUE(got.ok()) << got.status();
    return got.ok() ? floats((*got)[0]) : std::vector<float>();
  }

  /// Instructions that lanes of task `task` handed over so far.
  [[nodiscard]] int64_t handed_over(int task) const {
    const auto client =
        service::StatusClient::create(cluster_.target(task), {}, std::chrono::seconds(60));
    EXPECT_TRUE(client.ok()) << client.status();
    const auto reports = (*client)->ask(std::chrono::seconds(60));
    return reports[static_cast<size_t>(task)].figures.value("sidereal_task_handed_over_total");
  }
  [[nodiscard]] static bool has_calls() { return cluster::is_pull_push(GetParam().protocol); }

  TestCluster cluster_{3, GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Over, VariableLanes,
                         ::testing::Values(ClusterKind{cluster::Protocol::kGrpc},
                                           ClusterKind{cluster::Protocol::kGrpcPlusPlus},
                                           ClusterKind{cluster::Protocol::kStarServer},
                                           ClusterKind{cluster::Protocol::kStarServerLite},
                                           ClusterKind{cluster::Protocol::kGrpc, 2},
                                           ClusterKind{cluster::Protocol::kGrpcPlusPlus, 2},
                                           ClusterKind{cluster::Protocol::kStarServer, 2},
                                           ClusterKind{cluster::Protocol::kStarServerLite, 2},
                                           ClusterKind{cluster::Protocol::kGrpc, 3},
                                           ClusterKind{cluster::Protocol::kGrpcPlusPlus, 3},
                                           ClusterKind{cluster::Protocol::kStarServer, 3},
                                           ClusterKind{cluster::Protocol::kStarServerLite, 3}),
                         kind_name);

/// Variables of task 0, which sessions of all tasks add to. One of them is that task's own.
TEST_P(VariableLanes, take_all_that_sessions_of_all_tasks_add_at_once) {
  constexpr int kVariables = 5;
  constexpr int kSteps = 40;
  Model model;
  std::vector<std::string> inits;
  std::vector<std::string> adds;
  for (int i = 0; i < kVariables; ++i) {
    const std::string name = "v" + std::to_string(i);
    const ir::Output handle = variable(&model, name);
    add_init_and_read(&model, handle, name, static_cast<float>(i));
    // What is added is computed by whoever makes the step.
    const ir::Output term =
        model.add("Neg", {constant(&model, -1, name + "/minus", "")}, {}, name + "/term");
    model.add("VariableAssignAdd", {handle, term}, {}, name + "/add", kPs);
    inits.push_back(name + "/init");
    adds.push_back(name + "/add");
  }
  std::vector<std::unique_ptr<service::Session>> sessions;
  for (const int task : {0, 1, 2, 1}) sessions.push_back(session(model.graph(), task));
  for (const auto& one : sessions) ASSERT_NE(one, nullptr);
  run(sessions[1].get(), inits);
  std::vector<std::thread> threads;
  for (const auto& one : sessions) {
    threads.emplace_back([&, session = one.get()] { run(session, adds, kSteps); });
  }
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < kVariables; ++i) {
    const std::vector<float> value = value_of(sessions[2].get(), "v" + std::to_string(i));
    ASSERT_EQ(value.size(), static_cast<size_t>(kLength));
    EXPECT_THAT(value, Each(static_cast<float>(i + 4 * kSteps)));
  }
  // Calls go to the lane that has the variable; the driver's own task may have it on another one.
  EXPECT_EQ(handed_over(1), 0);
  if (GetParam().lanes == 1) {
    EXPECT_EQ(handed_over(0), 0);
  } else if (!has_calls()) {
    // Sessions are on lanes by chance: sooner or later one is where the variables are not.
    for (int i = 0; i < 64 && handed_over(0) == 0; ++i) {
      const auto other = session(model.graph(), 1);
      ASSERT_NE(other, nullptr);
      run(other.get(), adds);
    }
    EXPECT_GT(handed_over(0), 0);
  }
}

TEST_P(VariableLanes, are_where_calls_come_that_use_them) {
  Model model;
  std::vector<std::string> inits;
  std::vector<std::string> adds;
  for (int i = 0; i < 6; ++i) {
    const std::string name = "v" + std::to_string(i);
    const ir::Output handle = variable(&model, name);
    add_init_and_read(&model, handle, name, 0);
    model.add("VariableAssignAdd", {handle, constant(&model, 1, name + "/one")}, {}, name + "/add",
              kPs);
    inits.push_back(name + "/init");
    adds.push_back(name + "/add");
  }
  const auto first = session(model.graph(), 1);
  const auto second = session(model.graph(), 2);
  ASSERT_TRUE(first != nullptr && second != nullptr);
  run(first.get(), inits);
  run(second.get(), adds, 3);
  EXPECT_THAT(value_of(first.get(), "v3"), Each(3.0F));
  // Each comes to the lane of its variable. Parts of steps come to that of their session.
  if (has_calls()) {
    EXPECT_EQ(handed_over(0), 0);
  }
}

/// What one session makes alone, another one changes together.
TEST_P(VariableLanes, that_were_made_apart_are_updated_together) {
  constexpr int kSteps = 30;
  Model apart;
  for (const std::string name : {"w", "v", "slot"}) {
    add_init_and_read(&apart, variable(&apart, name), name, 0);
  }
  const auto update = [](Model* model, const std::string& weights) {
    const ir::Output handle = variable(model, weights);
    const ir::Output slot = variable(model, "slot");
    model->add_node("VariableUpdateDense",
                    {handle, constant(model, 1, "gradient"),
                     model->add("Const", {}, {{"value", Tensor::scalar(1.0)}}, "step", kPs),
                     model->add("Const", {}, {{"value", Tensor::scalar(1.0F)}}, "rate", kPs), slot},
                    {{"kind", std::string("adagrad")}}, "update", kPs);
  };
  Model of_w;
  update(&of_w, "w");
  Model of_v;
  update(&of_v, "v");
  const auto reader = session(apart.graph(), 1);
  const auto first = session(of_w.graph(), 2);
  const auto second = session(of_v.graph(), 1);
  ASSERT_TRUE(reader != nullptr && first != nullptr && second != nullptr);
  for (const std::string name : {"w", "v", "slot"}) run(reader.get(), {name + "/init"});
  std::vector<std::thread> threads;
  threads.emplace_back([&] { run(first.get(), {"update"}, kSteps); });
  threads.emplace_back([&] { run(second.get(), {"update"}, kSteps); });
  threads.emplace_back([&] {
    // It reads the slot alone, which is the same everywhere at each time.
    for (int i = 0; i < kSteps; ++i) {
      const std::vector<float> value = value_of(reader.get(), "slot");
      ASSERT_EQ(value.size(), static_cast<size_t>(kLength));
      EXPECT_THAT(value, Each(value[0]));
    }
  });
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(value_of(reader.get(), "slot"), Each(2.0F * kSteps));
  // Each update took 1 / sqrt(slot): all of them together do not depend on their order.
  float all = 0;
  for (int i = 1; i <= 2 * kSteps; ++i) all -= 1 / std::sqrt(static_cast<float>(i));
  EXPECT_NEAR(value_of(reader.get(), "w")[7] + value_of(reader.get(), "v")[7], all, 1e-3);
}

/// A loop of a session's own task and of task 0, with a branch in its body.
TEST_P(VariableLanes, are_changed_by_bodies_of_loops_and_branches) {
  constexpr int kRounds = 6;
  constexpr int kSteps = 10;
  const auto graph_of = [](const std::string& home) {
    ir::OpRegistry registry;
    ops::register_all(&registry);
    const auto add_to = [&registry](ir::Builder& b, const std::string& name, float value,
                                    const std::vector<ir::NodeId>& after) {
      const ir::NodeId handle = b.add_node(
          "Variable", {}, {{"shared_name", name}, {"dtype", DType::kFloat32}, {"shape", Shape{2}}},
          after);
      b.graph().mutable_node(handle).device = kPs;
      const ir::Output term =
          b.add("Const", {}, {{"value", Tensor::of<float>(Shape{2}, {value, value})}});
      b.graph().mutable_node(term.node).device = kPs;
      const ir::Output sum = b.add("VariableAssignAdd", {ir::Output{handle, 0}, term});
      b.graph().mutable_node(sum.node).device = kPs;
      return sum.node;
    };
    const auto body_of = [&registry](const auto& make) {
      ir::Graph body;
      ir::Builder b(&body, &registry);
      const ir::Output x =
          *ir::add_arg(&body, registry, ir::TensorSpec{DType::kInt64, Shape()}, "x");
      std::vector<ir::NodeId> targets;
      const ir::Output y = make(b, x, &targets);
      EXPECT_TRUE(b.status().ok()) << b.status();
      return *ir::Function::make(std::move(body), {y}, std::move(targets));
    };
    const auto number = [](ir::Builder& b, int64_t value) {
      return b.add("Const", {}, {{"value", Tensor::scalar(value)}});
    };
    ir::Graph graph;
    const ir::FunctionPtr low = body_of([&](ir::Builder& b, ir::Output x, auto* targets) {
      targets->push_back(add_to(b, "low", 1, {}));
      return b.add("Identity", {x});
    });
    const ir::FunctionPtr high = body_of([&](ir::Builder& b, ir::Output x, auto* targets) {
      targets->push_back(add_to(b, "high", 1, {}));
      return b.add("Identity", {x});
    });
    const ir::FunctionPtr condition = body_of([&](ir::Builder& b, ir::Output x, auto*) {
      return b.add("Less", {x, number(b, kRounds)});
    });
    const ir::FunctionPtr body = body_of([&](ir::Builder& b, ir::Output x, auto* targets) {
      targets->push_back(add_to(b, "each", 1, {add_to(b, "first", 2, {})}));
      b.graph().hold_function("low", low);
      b.graph().hold_function("high", high);
      const ir::Output is_low = b.add("Less", {x, number(b, 2)});
      const ir::Output same =
          b.add("If", {is_low, x},
                {{"then_branch", std::string("low")}, {"else_branch", std::string("high")}});
      return b.add("Add", {same, number(b, 1)});
    });
    graph.hold_function("cond", condition);
    graph.hold_function("body", body);
    ir::Builder b(&graph, &registry);
    const ir::Output zero = number(b, 0);
    b.graph().mutable_node(zero.node).device = home;
    const ir::Output loop = b.add(
        "While", {zero},
        {{"cond", std::string("cond")}, {"body", std::string("body")}, {"variables", int64_t{1}}},
        "loop");
    b.graph().mutable_node(loop.node).device = home;
    EXPECT_TRUE(b.status().ok()) << b.status();
    return graph;
  };
  Model whole;
  std::vector<std::string> inits;
  for (const std::string name : {"low", "high", "each", "first"}) {
    const ir::Output handle = variable(&whole, name, kPs, 2);
    whole.add("VariableAssign", {handle, whole.constant({0, 0}, name + "/value", kPs)}, {},
              name + "/init", kPs);
    whole.add("VariableRead", {handle}, {{"dtype", DType::kFloat32}, {"shape", Shape{2}}},
              name + "/read", kPs);
    inits.push_back(name + "/init");
  }
  const auto reader = session(whole.graph(), 1);
  ASSERT_NE(reader, nullptr);
  run(reader.get(), inits);
  std::vector<std::thread> threads;
  for (const int task : {0, 1, 2}) {
    // That of task 2 is all on task 0.
    const ir::Graph graph = graph_of(task == 2 ? kPs : fmt::format("/job:w/task:{}", task));
    threads.emplace_back([&, task, graph] {
      const auto looping = session(graph, task);
      ASSERT_NE(looping, nullptr);
      for (int i = 0; i < kSteps; ++i) {
        const auto got = looping->run({}, {"loop"});
        ASSERT_TRUE(got.ok()) << got.status();
        EXPECT_EQ((*got)[0].data<const int64_t>()[0], kRounds);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  constexpr float kTimes = 3 * kSteps;
  EXPECT_THAT(value_of(reader.get(), "low"), Each(2 * kTimes));
  EXPECT_THAT(value_of(reader.get(), "high"), Each((kRounds - 2) * kTimes));
  EXPECT_THAT(value_of(reader.get(), "each"), Each(kRounds * kTimes));
  EXPECT_THAT(value_of(reader.get(), "first"), Each(2 * kRounds * kTimes));
}

/// Containers are forgotten while steps use what is in them.
TEST_P(VariableLanes, may_be_forgotten_while_they_are_used) {
  Model model;
  const ir::Output handle = variable(&model, "v");
  add_init_and_read(&model, handle, "v", 1);
  model.add("VariableAssignAdd", {handle, constant(&model, 1, "one")}, {}, "add", kPs);
  std::vector<std::unique_ptr<service::Session>> sessions;
  // Those of the master that forgets would end.
  for (const int task : {1, 2, 1}) sessions.push_back(session(model.graph(), task));
  std::vector<std::thread> threads;
  for (const auto& one : sessions) {
    ASSERT_NE(one, nullptr);
    threads.emplace_back([session = one.get()] {
      for (int i = 0; i < 60; ++i) {
        const Status status = session->run({}, {}, {i % 2 == 0 ? "v/init" : "add"}).status();
        // It may have gone since it was made.
        if (!status.ok()) {
          EXPECT_TRUE(status.code() == StatusCode::kFailedPrecondition ||
                      status.code() == StatusCode::kNotFound)
              << status;
        }
      }
    });
  }
  for (int i = 0; i < 20; ++i) {
    const Status reset = service::Session::reset(cluster_.target(), {});
    EXPECT_TRUE(reset.ok()) << reset;
  }
  for (std::thread& thread : threads) thread.join();
  run(sessions[0].get(), {"v/init"});
  EXPECT_THAT(value_of(sessions[1].get(), "v"), Each(1.0F));
}

}  // namespace
}  // namespace sidereal::app
