#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string_view>
#include <thread>
#include <vector>

#include "sidereal/app/testing/model.h"
#include "sidereal/base/event_log.h"
#include "sidereal/ir/function.h"
#include "sidereal/service/session.h"
#include "sidereal/service/status_client.h"

namespace sidereal::app {
namespace {

using tensor::DType;
using tensor::Shape;
using tensor::Tensor;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

ir::AttrMap variable_attrs(const std::string& name, const Shape& shape) {
  return {{"shared_name", name}, {"dtype", DType::kFloat32}, {"shape", shape}};
}

std::unique_ptr<service::Session> session_of(const TestCluster& cluster, const Model& model,
                                             int task = 0,
                                             const service::SessionOptions& options = patient()) {
  auto session = service::Session::create(cluster.target(task), model.graph(), options);
  EXPECT_TRUE(session.ok()) << session.status();
  return session.ok() ? *std::move(session) : nullptr;
}

class SessionOfACluster : public ::testing::TestWithParam<ClusterKind> {};
INSTANTIATE_TEST_SUITE_P(Over, SessionOfACluster,
                         ::testing::Values(ClusterKind{cluster::Protocol::kGrpc},
                                           ClusterKind{cluster::Protocol::kGrpcPlusPlus},
                                           ClusterKind{cluster::Protocol::kStarServer},
                                           ClusterKind{cluster::Protocol::kStarServerLite},
                                           ClusterKind{cluster::Protocol::kGrpc, 3},
                                           ClusterKind{cluster::Protocol::kGrpcPlusPlus, 3},
                                           ClusterKind{cluster::Protocol::kStarServer, 3},
                                           ClusterKind{cluster::Protocol::kStarServerLite, 3}),
                         kind_name);

TEST_P(SessionOfACluster, passes_values_between_tasks) {
  const TestCluster cluster(3, GetParam());
  Model model;
  const ir::Output x = model.placeholder("x");
  const ir::Output a =
      model.add("Mul", {x, model.constant({2, 3}, "", "/task:1")}, {}, "a", "/task:1");
  const ir::Output b = model.add("Neg", {a}, {}, "b", "/task:2");
  model.add("Add", {a, b}, {}, "zero", "/task:0");
  model.add("Add", {b, b}, {}, "twice", "/task:1");
  const auto session = session_of(cluster, model);
  ASSERT_NE(session, nullptr);
  for (int i = 0; i < 20; ++i) {
    const auto got = session->run({{"x", Tensor::of(Shape{2}, std::vector<float>{1, 10})}},
                                  {"zero", "twice", "a"});
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_THAT(floats((*got)[0]), ElementsAre(0, 0));
    EXPECT_THAT(floats((*got)[1]), ElementsAre(-4, -60));
    EXPECT_THAT(floats((*got)[2]), ElementsAre(2, 30));
  }
}

TEST_P(SessionOfACluster, workers_with_the_same_graph_share_what_a_task_runs_for_them) {
  const TestCluster cluster(4, GetParam());
  const auto programs_there = [&] {
    auto client = service::StatusClient::create(cluster.target(), {}, std::chrono::seconds(60));
    EXPECT_TRUE(client.ok()) << client.status();
    return (*client)->ask(std::chrono::seconds(60))[0].figures.value("sidereal_task_programs");
  };
  std::vector<std::unique_ptr<service::Session>> sessions;
  int64_t programs = 0;
  for (const int worker : {1, 2, 3}) {
    const std::string own = fmt::format("/task:{}", worker);
    Model model;
    const ir::Output x = model.add("Neg", {model.placeholder("x")}, {}, "of_worker", own);
    const ir::Output there =
        model.add("Mul", {x, model.constant({2, 3}, "", "/task:0")}, {}, "there", "/task:0");
    model.add("Neg", {there}, {}, "back", own);
    sessions.push_back(session_of(cluster, model, worker));
    ASSERT_NE(sessions.back(), nullptr);
    for (int round = 0; round < 3; ++round) {
      for (const auto& session : sessions) {
        const auto got =
            session->run({{"x", Tensor::of(Shape{2}, std::vector<float>{1, 10})}}, {"back"});
        ASSERT_TRUE(got.ok()) << got.status();
        EXPECT_THAT(floats((*got)[0]), ElementsAre(2, 30));
      }
    }
    if (worker == 1) programs = programs_there();
  }
  ASSERT_GT(programs, 0);
  // With several lanes, sessions with Send and Recv are on one of them each.
  const bool is_one_lane = GetParam().lanes == 1 || cluster::is_pull_push(GetParam().protocol);
  EXPECT_LE(programs_there(), is_one_lane ? programs : 3 * programs);
}

TEST_P(SessionOfACluster, passes_strings_and_large_tensors) {
  const TestCluster cluster(2, GetParam());
  Model model;
  const auto text =
      Tensor::strings(Shape{2}, std::vector<std::string>{"a", std::string(5000, 'b')});
  const ir::Output s = model.add("Const", {}, {{"value", text}}, "s", "/task:1");
  model.add("Identity", {s}, {}, "t", "/task:0");
  const ir::Output x = model.placeholder("x");
  const ir::Output there = model.add("Neg", {x}, {}, "there", "/task:1");
  model.add("Neg", {there}, {}, "back", "/task:0");
  const auto session = session_of(cluster, model);
  std::vector<float> many(3'000'000);
  for (size_t i = 0; i < many.size(); ++i) many[i] = static_cast<float>(i % 1000);
  const auto got = session->run({{"x", Tensor::of(Shape{3'000'000}, many)}}, {"t", "back"});
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ((*got)[0].data<const std::string_view>()[1], std::string(5000, 'b'));
  EXPECT_EQ(floats((*got)[1]), many);
}

TEST_P(SessionOfACluster, fuses_messages_without_a_change_of_results) {
  const TestCluster cluster(3, GetParam());
  Model model;
  const ir::Output x = model.placeholder("x");
  std::vector<std::string> fetches;
  std::vector<ir::Output> backs;
  // There, over to another task and back again: many small values, some large, strings.
  for (int i = 0; i < 40; ++i) {
    const std::string n = std::to_string(i);
    const ir::Output there =
        model.add("Mul", {x, model.constant({static_cast<float>(i + 1)}, "c" + n, "/task:1")}, {},
                  "there" + n, i % 3 == 0 ? "/task:2" : "/task:1");
    backs.push_back(model.add("Neg", {there}, {}, "back" + n, "/task:0"));
  }
  for (int i = 0; i < 40; ++i) {
    const std::string n = std::to_string(i);
    model.add("Add", {backs[i], backs[(i + 7) % 40]}, {}, "last" + n, "/task:1");
    fetches.push_back("last" + n);
  }
  const auto text = Tensor::strings(Shape{2}, std::vector<std::string>{"a", "bc"});
  const ir::Output s = model.add("Const", {}, {{"value", text}}, "s", "/task:1");
  model.add("Identity", {s}, {}, "text", "/task:0");
  fetches.emplace_back("text");
  service::SessionOptions fuse;
  fuse.tensor_fuse = true;
  const auto plain = session_of(cluster, model);
  const auto fused = session_of(cluster, model, 0, fuse);
  for (const int64_t size : {1, 1000, 400'000, 0}) {
    std::vector<float> values(static_cast<size_t>(size));
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 77) * 0.37F;
    const std::vector<service::Session::Feed> feeds = {{"x", Tensor::of(Shape{size}, values)}};
    const auto want = plain->run(feeds, fetches);
    ASSERT_TRUE(want.ok()) << want.status();
    const auto got = fused->run(feeds, fetches);
    ASSERT_TRUE(got.ok()) << got.status();
    for (size_t i = 0; i + 1 < fetches.size(); ++i) {
      EXPECT_EQ(floats((*got)[i]), floats((*want)[i])) << fetches[i];
    }
    EXPECT_EQ(got->back().data<const std::string_view>()[1], "bc");
  }
}

TEST_P(SessionOfACluster, shares_variables_that_outlive_it) {
  const TestCluster cluster(2, GetParam());
  Model model;
  const ir::Output v = model.add("Variable", {}, variable_attrs("v", Shape{2}), "v", "/task:1");
  model.add("VariableAssign", {v, model.constant({1, 2})}, {}, "init");
  model.add("VariableAssignAdd", {v, model.constant({10, 20}, "", "/task:0")}, {}, "add");
  model.add("VariableRead", {v}, {{"dtype", DType::kFloat32}, {"shape", Shape{2}}}, "read");
  {
    const auto first = session_of(cluster, model);
    const Status unset = first->run({}, {"read"}).status();
    EXPECT_EQ(unset.code(), StatusCode::kFailedPrecondition);
    ASSERT_TRUE(first->run({}, {}, {"init"}).ok());
  }
  const auto second = session_of(cluster, model, 1);
  ASSERT_TRUE(second->run({}, {}, {"add"}).ok());
  auto got = second->run({}, {"read"});
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_THAT(floats((*got)[0]), ElementsAre(11, 22));
  service::SessionOptions alone;
  alone.isolate_session_state = true;
  const auto third = session_of(cluster, model, 0, alone);
  EXPECT_EQ(third->run({}, {"read"}).status().code(), StatusCode::kFailedPrecondition);
}

TEST_P(SessionOfACluster, runs_a_loop_whose_body_is_on_several_tasks) {
  const TestCluster cluster(2, GetParam());
  ir::OpRegistry registry;
  ops::register_all(&registry);
  const ir::TensorSpec scalar = {DType::kFloat32, Shape()};
  const auto function = [&](const auto& build) {
    ir::Graph body;
    const ir::Output x = *ir::add_arg(&body, registry, scalar);
    ir::Builder b(&body, &registry);
    const ir::Output y = build(b, x);
    EXPECT_TRUE(b.status().ok()) << b.status();
    return *ir::Function::make(std::move(body), {y});
  };
  const ir::FunctionPtr condition = function([](ir::Builder& b, ir::Output x) {
    return b.add("Less", {x, b.add("Const", {}, {{"value", Tensor::scalar(1000.0F)}})});
  });
  const ir::FunctionPtr body = function([](ir::Builder& b, ir::Output x) {
    const ir::Output twice = b.add("Add", {x, x});
    b.graph().mutable_node(twice.node).device = "/job:w/task:1";
    return b.add("Add", {twice, b.add("Const", {}, {{"value", Tensor::scalar(1.0F)}})});
  });
  Model model;
  ir::Graph graph = model.graph();
  graph.hold_function("cond", condition);
  graph.hold_function("body", body);
  ir::Builder b(&graph, &registry);
  const ir::Output zero = b.add("Const", {}, {{"value", Tensor::scalar(0.0F)}}, "zero");
  b.add("While", {zero},
        {{"cond", std::string("cond")}, {"body", std::string("body")}, {"variables", int64_t{1}}},
        "loop");
  ASSERT_TRUE(b.status().ok()) << b.status();
  for (const bool fuse : {false, true}) {
    service::SessionOptions options = patient();
    options.tensor_fuse = fuse;
    auto session = service::Session::create(cluster.target(), graph, options);
    ASSERT_TRUE(session.ok()) << session.status();
    for (int i = 0; i < 5; ++i) {
      const auto got = (*session)->run({}, {"loop"});
      ASSERT_TRUE(got.ok()) << got.status();
      EXPECT_EQ((*got)[0].data<const float>()[0], 1023);
    }
  }
}

TEST_P(SessionOfACluster, tells_the_first_error_and_stops_the_other_tasks) {
  const TestCluster cluster(3, GetParam());
  Model model;
  const ir::Output queue = model.add(
      "Queue", {},
      {{"shared_name", std::string("q")}, {"dtypes", std::vector<std::string>{"float32"}}}, "q",
      "/task:1");
  const ir::Output taken =
      model.add("QueueDequeue", {queue}, {{"dtypes", std::vector<std::string>{"float32"}}}, "take");
  const ir::Output bad = model.add(
      "Add", {model.placeholder("x"), model.constant({1, 2}, "", "/task:2")}, {}, "bad", "/task:2");
  model.add("Neg", {bad}, {}, "out", "/task:0");
  static_cast<void>(taken);
  const auto session = session_of(cluster, model);
  const Status status =
      session->run({{"x", Tensor::of(Shape{3}, std::vector<float>{1, 2, 3})}}, {"take", "out"})
          .status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(base::message_of(status), HasSubstr("bad"));
  EXPECT_THAT(base::message_of(status), HasSubstr("/task:2"));
}

TEST_P(SessionOfACluster, names_a_task_that_does_not_come_up) {
  TestCluster cluster(2, GetParam());
  cluster.stop(1);
  Model model;
  model.constant({1}, "there", "/task:1");
  service::SessionOptions options = patient();
  options.connect_timeout = std::chrono::milliseconds(2000);
  const Status status = service::Session::create(cluster.target(), model.graph(), options).status();
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(base::message_of(status), HasSubstr("/job:w/replica:0/task:1"));
  EXPECT_THAT(base::message_of(status), HasSubstr("CreateSession still waiting"));
}

TEST_P(SessionOfACluster, names_a_master_that_does_not_answer) {
  const ReservedPorts port(1);
  const std::string target = "grpc://" + port.addresses()[0];
  Model model;
  model.constant({1}, "a");
  service::SessionOptions options = patient();
  options.connect_timeout = std::chrono::milliseconds(300);
  const auto began = std::chrono::steady_clock::now();
  const Status status = service::Session::create(target, model.graph(), options).status();
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(20));
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(base::message_of(status), HasSubstr(target));
  EXPECT_THAT(base::message_of(status), HasSubstr("300 ms"));
}

TEST_P(SessionOfACluster, does_not_wait_for_tasks_that_the_graph_does_not_use) {
  TestCluster cluster(2, GetParam());
  cluster.stop(1);
  Model model;
  model.constant({1}, "here", "/task:0");
  const auto session = session_of(cluster, model);
  ASSERT_NE(session, nullptr);
  EXPECT_TRUE(session->run({}, {"here"}).ok());
}

TEST_P(SessionOfACluster, notices_a_task_that_was_restarted) {
  TestCluster cluster(2, GetParam());
  Model model;
  const ir::Output there = model.add("Neg", {model.placeholder("x")}, {}, "there", "/task:1");
  model.add("Neg", {there}, {}, "back", "/task:0");
  const service::Session::Feed feed = {"x", Tensor::of(Shape{1}, std::vector<float>{1})};
  auto session = session_of(cluster, model);
  ASSERT_TRUE(session->run({feed}, {"back"}).ok());
  cluster.stop(1);
  cluster.start(1);
  const Status status = session->run({feed}, {"back"}).status();
  EXPECT_THAT(status.code(), AnyOf(StatusCode::kUnavailable, StatusCode::kAborted));
  EXPECT_THAT(base::message_of(status), HasSubstr("/job:w/replica:0/task:1"));
  session = session_of(cluster, model);
  EXPECT_TRUE(session->run({feed}, {"back"}).ok());
}

TEST_P(SessionOfACluster, keeps_to_its_device_filters) {
  const TestCluster cluster(3, GetParam());
  Model model;
  model.constant({1}, "there", "/task:2");
  service::SessionOptions options = patient();
  options.device_filters = {"/job:w/task:1"};
  const Status status = service::Session::create(cluster.target(), model.graph(), options).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(base::message_of(status), HasSubstr("available devices are"));
}

TEST_P(SessionOfACluster, keeps_to_what_its_master_sees_and_is_told) {
  ServerOptions options;
  const TestCluster others(2);
  options.cluster = others.options().cluster;
  ASSERT_TRUE(options.cluster.add_job("m", std::vector<std::string>{"127.0.0.1:0"}).ok());
  options.job = "m";
  options.device_filters = {"/job:w/task:1"};
  options.session_defaults.allow_soft_placement = true;
  options.session_defaults.operation_timeout = std::chrono::milliseconds(2000);
  const auto master = Server::create(options);
  ASSERT_TRUE(master.ok()) << master.status();

  Model hidden;
  hidden.constant({1}, "there", "/job:w/task:0");
  const Status unseen =
      service::Session::create((*master)->target(), hidden.graph(), patient()).status();
  EXPECT_THAT(base::message_of(unseen), HasSubstr("available devices are"));

  Model model;
  model.constant({1}, "own", "/job:m");
  model.constant({1}, "soft", "/job:w/task:1/device:GPU:3");
  const ir::Output queue = model.add(
      "Queue", {},
      {{"shared_name", std::string("q")}, {"dtypes", std::vector<std::string>{"float32"}}}, "q");
  model.add("QueueDequeue", {queue}, {{"dtypes", std::vector<std::string>{"float32"}}}, "take");
  const auto session = service::Session::create((*master)->target(), model.graph(), patient());
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_TRUE((*session)->run({}, {"own", "soft"}).ok());
  EXPECT_EQ((*session)->run({}, {"take"}).status().code(), StatusCode::kDeadlineExceeded);

  options.device_filters = {"/job:?"};
  EXPECT_EQ(Server::create(options).status().code(), StatusCode::kInvalidArgument);
}

TEST_P(SessionOfACluster, tells_its_client_where_nodes_were_placed) {
  const TestCluster cluster(2, GetParam());
  Model model;
  model.add("Variable", {}, variable_attrs("v", Shape{2}), "v", "/task:1");
  service::SessionOptions options = patient();
  options.log_device_placement = true;
  const auto session = session_of(cluster, model, 0, options);
  std::string told = session->take_placement();
  EXPECT_THAT(told, HasSubstr("v: (Variable): /job:w/replica:0/task:1/device:CPU:0\n"));
  EXPECT_THAT(told, HasSubstr("float32[2]"));
  model.constant({1}, "c");
  ASSERT_TRUE(session->extend(model.graph()).ok());
  told = session->take_placement();
  EXPECT_THAT(told, testing::StartsWith("c: (Const): /job:w/replica:0/task:0/device:CPU:0\n"));
  EXPECT_EQ(session->take_placement(), "");
  EXPECT_EQ(session_of(cluster, model)->take_placement(), "");
}

TEST_P(SessionOfACluster, lists_the_devices_of_all_tasks) {
  const TestCluster cluster(3, GetParam());
  Model model;
  model.constant({1});
  const auto session = session_of(cluster, model, 1);
  const auto devices = session->list_devices();
  ASSERT_TRUE(devices.ok()) << devices.status();
  ASSERT_EQ(devices->size(), 3);
  EXPECT_EQ((*devices)[2].name, "/job:w/replica:0/task:2/device:CPU:0");
  EXPECT_EQ((*devices)[2].type, "CPU");
  EXPECT_NE((*devices)[2].incarnation, (*devices)[1].incarnation);
}

TEST_P(SessionOfACluster, reset_forgets_containers_and_ends_sessions) {
  const TestCluster cluster(2, GetParam());
  Model model;
  ir::AttrMap attrs = variable_attrs("v", Shape{1});
  const ir::Output v = model.add("Variable", {}, attrs, "v", "/task:1");
  attrs["container"] = std::string("kept");
  const ir::Output w = model.add("Variable", {}, attrs, "w", "/task:1");
  for (const auto& [handle, name] : {std::pair(v, "v"), std::pair(w, "w")}) {
    model.add("VariableAssign", {handle, model.constant({1})}, {}, std::string("init_") + name);
    model.add("VariableRead", {handle}, {{"dtype", DType::kFloat32}, {"shape", Shape{1}}},
              std::string("read_") + name);
  }
  auto session = session_of(cluster, model);
  ASSERT_TRUE(session->run({}, {}, {"init_v", "init_w"}).ok());
  ASSERT_TRUE(service::Session::reset(cluster.target(), {}).ok());
  EXPECT_EQ(session->run({}, {"read_w"}).status().code(), StatusCode::kAborted);
  session = session_of(cluster, model);
  EXPECT_TRUE(session->run({}, {"read_w"}).ok());
  EXPECT_EQ(session->run({}, {"read_v"}).status().code(), StatusCode::kFailedPrecondition);
}

TEST(SessionEvents, say_whether_the_client_closed_a_session) {
  std::vector<std::string> told;
  const base::EventSinkRegistration sink([&](std::string_view line) {
    if (line.find("\"session_ended\"") != line.npos) told.emplace_back(line);
  });
  const TestCluster cluster(1);
  Model model;
  model.constant({1}, "a");
  EXPECT_TRUE(session_of(cluster, model)->close().ok());
  const auto session = session_of(cluster, model);
  ASSERT_TRUE(service::Session::reset(cluster.target(), {}).ok());
  EXPECT_THAT(told, ElementsAre(HasSubstr("\"why\":\"its client closed it\""),
                                HasSubstr("\"why\":\"the containers of the session's cluster")));
}

TEST_P(SessionOfACluster, extensions_race_and_one_wins) {
  const TestCluster cluster(1, GetParam());
  Model model;
  model.constant({1}, "a");
  auto session = session_of(cluster, model);
  model.constant({2}, "b");
  ASSERT_TRUE(session->extend(model.graph()).ok());
  EXPECT_TRUE(session->run({}, {"b"}).ok());
}

/// A variable on a ps of star_server_lite, to which a driver pushes.
class AsyncPushesOfSessions : public ::testing::TestWithParam<int> {
 protected:
  AsyncPushesOfSessions() {
    const ir::Output v = model_.add("Variable", {}, variable_attrs("v", Shape{2}), "v", "/task:1");
    model_.add("VariableAssign", {v, model_.constant({0, 0})}, {}, "init");
    model_.add("VariableAssignAdd", {v, model_.placeholder("x")}, {}, "push");
    model_.add("VariableRead", {v}, {{"dtype", DType::kFloat32}, {"shape", Shape{2}}}, "read");
    session_ = session_of(cluster_, model_);
    EXPECT_TRUE(session_->run({}, {}, {"init"}).ok());
  }
  Status push(std::vector<float> x) {
    const auto n = static_cast<int64_t>(x.size());
    return session_->run({{"x", Tensor::of(Shape{n}, x)}}, {}, {"push"}).status();
  }

  const TestCluster cluster_{2, ClusterKind{cluster::Protocol::kStarServerLite, GetParam()}};
  Model model_;
  std::unique_ptr<service::Session> session_;
};
INSTANTIATE_TEST_SUITE_P(Lanes, AsyncPushesOfSessions, ::testing::Values(1, 3));

TEST_P(AsyncPushesOfSessions, are_seen_by_the_next_step_of_their_driver) {
  for (int i = 1; i <= 100; ++i) {
    ASSERT_TRUE(push({1, 2}).ok());
    const auto got = session_->run({}, {"read"});
    ASSERT_TRUE(got.ok()) << got.status();
    const auto n = static_cast<float>(i);
    EXPECT_THAT(floats((*got)[0]), ElementsAre(n, 2 * n));
  }
}

TEST_P(AsyncPushesOfSessions, are_bounded_and_none_is_lost) {
  // Far more than may be under way, of large values that the steps' memory holds.
  for (int i = 0; i < 500; ++i) ASSERT_TRUE(push({1, 0}).ok());
  ASSERT_TRUE(session_->close().ok());
  session_ = session_of(cluster_, model_, 1);
  const auto got = session_->run({}, {"read"});
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_THAT(floats((*got)[0]), ElementsAre(500, 0));
}

TEST_P(AsyncPushesOfSessions, end_a_later_step_when_they_fail) {
  // Shapes that do not fit are found where the variable is.
  Status status = push({1, 2, 3});
  for (int i = 0; i < 1000 && status.ok(); ++i) status = session_->run({}, {"read"}).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(base::message_of(status), HasSubstr("a push of an earlier step"));
  EXPECT_TRUE(push({1, 1}).ok());
  EXPECT_TRUE(session_->run({}, {"read"}).ok());
}

}  // namespace
}  // namespace sidereal::app
