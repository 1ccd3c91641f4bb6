#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>

#include "sidereal/app/testing/figures.h"
#include "sidereal/app/testing/processes.h"
#include "sidereal/ir/function.h"
#include "sidereal/ir/text.h"
#include "sidereal/service/session.h"

// Sessions on processes that are killed, stopped and restarted.

namespace sidereal::app {
namespace {

using tensor::DType;
using tensor::Shape;
using tensor::Tensor;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kNoticedIn = 10;
constexpr const char* kTask1 = "/job:w/replica:0/task:1";
constexpr const char* kTargetOfChild = "SIDEREAL_TEST_TARGET";
constexpr const char* kStateGroup = "of_a_client";

/// A graph with a loop of `rounds` on task 1, "loop".
ir::Graph loop_model(float rounds) {
  ir::OpRegistry registry;
  ops::register_all(&registry);
  const auto function = [&](const auto& build) {
    ir::Graph body;
    const ir::Output x = *ir::add_arg(&body, registry, {DType::kFloat32, Shape()});
    ir::Builder b(&body, &registry);
    const ir::Output y = build(b, x);
    return *ir::Function::make(std::move(body), {y});
  };
  const auto scalar = [](ir::Builder& b, float value, const char* name) {
    return b.add("Const", {}, {{"value", Tensor::scalar(value)}}, name);
  };
  ir::Graph graph;
  graph.hold_function("cond", function([&](ir::Builder& b, ir::Output x) {
                        return b.add("Less", {x, scalar(b, rounds, "")});
                      }));
  graph.hold_function("body", function([&](ir::Builder& b, ir::Output x) {
                        return b.add("Add", {x, scalar(b, rounds > 0 ? 1.0F : 0.0F, "")});
                      }));
  ir::Builder b(&graph, &registry);
  const ir::Output zero = scalar(b, rounds > 0 ? 0.0F : -1.0F, "zero");
  const ir::Output loop = b.add(
      "While", {zero},
      {{"cond", std::string("cond")}, {"body", std::string("body")}, {"variables", int64_t{1}}},
      "loop");
  const ir::Output out = b.add("Neg", {loop}, {}, "out");
  EXPECT_TRUE(b.status().ok()) << b.status();
  graph.mutable_node(zero.node).device = "/job:w/task:1";
  graph.mutable_node(loop.node).device = "/job:w/task:1";
  graph.mutable_node(out.node).device = "/job:w/task:0";
  return graph;
}

class Faults : public ::testing::TestWithParam<cluster::Protocol> {
 protected:
  void SetUp() override {
    if (server_program().empty()) GTEST_SKIP() << "skipped: the program sidereal is not built";
    cluster_ = std::make_unique<ProcessCluster>(
        3, std::vector<std::string>{"--protocol", std::string(cluster::name_of(GetParam()))});
  }

  std::unique_ptr<service::Session> session(int master, const ir::Graph& graph) {
    auto made = service::Session::create(cluster_->target(master), graph, patient());
    EXPECT_TRUE(made.ok()) << made.status();
    return made.ok() ? *std::move(made) : nullptr;
  }
  std::unique_ptr<service::Session> session(int master = 0) {
    return session(master, model_.graph());
  }
  void expect_forgotten(int task) {
    EXPECT_TRUE(eventually([&] {
      const auto status = cluster_->status(task);
      return status.pid() != 0 && task_figure(status, "sessions") == 0 &&
             task_figure(status, "steps_running") == 0 && task_figure(status, "programs") == 0;
    })) << cluster_->status(task).DebugString();
  }
  /// With calls only the driver, and who holds up a call, have a part of a step: task 1.
  bool runs(int task, int64_t steps, int driver) {
    if (cluster::is_pull_push(GetParam()) && task != driver && task != 1) return true;
    return eventually(
        [&] { return task_figure(cluster_->status(task), "steps_running") >= steps; });
  }

  std::unique_ptr<ProcessCluster> cluster_;
  SpreadModel model_{3};
};

TEST_P(Faults, a_worker_killed_between_steps_is_named_and_a_new_session_works) {
  const auto old = session();
  ASSERT_TRUE(old->run({feed_of_x()}, {"back"}).ok());
  cluster_->kill(1);
  Status status = old->run({feed_of_x()}, {"back"}).status();
  EXPECT_THAT(status.code(), AnyOf(StatusCode::kUnavailable, StatusCode::kAborted)) << status;
  EXPECT_THAT(base::message_of(status), HasSubstr(kTask1));
  cluster_->start(1);
  const auto fresh = session();
  EXPECT_TRUE(fresh->run({feed_of_x()}, {"back"}).ok());
  // The one that knew the old process never uses the new one.
  status = old->run({feed_of_x()}, {"back"}).status();
  EXPECT_THAT(status.code(), AnyOf(StatusCode::kUnavailable, StatusCode::kAborted)) << status;
  EXPECT_THAT(base::message_of(status), HasSubstr(kTask1));
}

TEST_P(Faults, a_peer_restarted_at_its_port_is_never_used_silently) {
  const auto first = session(0);
  const auto second = session(2);
  ASSERT_TRUE(first->run({feed_of_x()}, {"back"}).ok());
  ASSERT_TRUE(second->run({feed_of_x()}, {"back"}).ok());
  cluster_->kill(1);
  cluster_->start(1);
  ASSERT_TRUE(cluster_->is_up(1));
  for (service::Session* const one : {first.get(), second.get()}) {
    const Status status = one->run({feed_of_x()}, {"back"}).status();
    EXPECT_THAT(status.code(), AnyOf(StatusCode::kUnavailable, StatusCode::kAborted)) << status;
    EXPECT_THAT(base::message_of(status), HasSubstr(kTask1));
  }
  // Nor when the master itself was.
  cluster_->kill(0);
  cluster_->start(0);
  ASSERT_TRUE(cluster_->is_up(0));
  const Status status = first->run({feed_of_x()}, {"back"}).status();
  EXPECT_THAT(status.code(), AnyOf(StatusCode::kUnavailable, StatusCode::kAborted)) << status;
}

/// Steps of two masters wait for task 1, to which something is done.
class FaultsOfAPs : public Faults {
 protected:
  void end_steps_in_time(int signal) {
    const auto here = session(0);
    const auto elsewhere = session(2);
    Status of_here;
    Status of_elsewhere;
    std::thread a([&] { of_here = here->run({}, {"taken"}).status(); });
    std::thread b([&] {
      of_elsewhere = elsewhere->run({}, {"taken", "taken_elsewhere"}).status();
    });
    EXPECT_TRUE(runs(1, 2, 0));
    const Stopwatch watch;
    cluster_->process(1).signal(signal);
    a.join();
    b.join();
    EXPECT_LT(watch.seconds(), cluster_->allows(kNoticedIn));
    for (const Status& status : {of_here, of_elsewhere}) {
      EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status;
      EXPECT_THAT(base::message_of(status), HasSubstr(kTask1));
      EXPECT_THAT(base::message_of(status),
                  AnyOf(HasSubstr("no sign of life"), HasSubstr("closed the connection"),
                        HasSubstr("was not reached again")));
      // It has answered before.
      EXPECT_THAT(base::message_of(status), Not(HasSubstr("does it want a secret")));
    }
    cluster_->kill(1);
    cluster_->start(1);
    EXPECT_TRUE(session(2)->run({feed_of_x()}, {"back"}).ok());
  }
};

TEST_P(FaultsOfAPs, killed_end_steps_that_run_with_its_name) { end_steps_in_time(SIGKILL); }
TEST_P(FaultsOfAPs, stopped_end_steps_that_run_within_seconds_with_its_name) {
  end_steps_in_time(SIGSTOP);
}

TEST_P(Faults, a_worker_restarted_during_a_step_ends_it) {
  const auto one = session(2);
  Status status;
  std::thread runner([&] { status = one->run({}, {"taken", "taken_elsewhere"}).status(); });
  EXPECT_TRUE(runs(0, 1, 2));
  EXPECT_TRUE(runs(1, 1, 0));
  cluster_->kill(0);
  cluster_->start(0);
  runner.join();
  EXPECT_THAT(status.code(), AnyOf(StatusCode::kUnavailable, StatusCode::kAborted)) << status;
  EXPECT_THAT(base::message_of(status), HasSubstr("/job:w/replica:0/task:0"));
  EXPECT_TRUE(session(2)->run({feed_of_x()}, {"back"}).ok());
}

TEST_P(Faults, tasks_forget_the_sessions_of_a_master_that_was_killed) {
  const auto waits = session();
  const auto goes_round = session(0, loop_model(0));
  Status of_waits;
  Status of_loop;
  std::thread a([&] { of_waits = waits->run({}, {"taken", "taken_elsewhere"}).status(); });
  EXPECT_TRUE(runs(1, 1, 0));
  EXPECT_TRUE(runs(2, 1, 0));
  // It holds the only thread that steps have there.
  std::thread b([&] { of_loop = goes_round->run({}, {"out"}).status(); });
  EXPECT_TRUE(runs(1, 2, 0));
  cluster_->kill(0);
  a.join();
  b.join();
  EXPECT_EQ(of_waits.code(), StatusCode::kUnavailable) << of_waits;
  EXPECT_THAT(base::message_of(of_waits), HasSubstr("closed the connection (Socket closed): it"));
  EXPECT_EQ(of_loop.code(), StatusCode::kUnavailable) << of_loop;
  expect_forgotten(1);
  expect_forgotten(2);
}

TEST_P(Faults, tasks_forget_the_sessions_of_a_master_that_was_stopped) {
  const auto waits = session();
  Status status;
  std::thread a([&] { status = waits->run({}, {"taken", "taken_elsewhere"}).status(); });
  EXPECT_TRUE(runs(2, 1, 0));
  const Stopwatch watch;
  cluster_->process(0).signal(SIGSTOP);
  a.join();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status;
  EXPECT_THAT(base::message_of(status), HasSubstr("gives no sign of life"));
  expect_forgotten(1);
  expect_forgotten(2);
  EXPECT_LT(watch.seconds(), cluster_->allows(2 * kNoticedIn));
}

/// What the next test kills.
TEST(ClientOfFaults, waits_for_what_never_comes) {
  const SpreadModel model(3);
  const char* const target = std::getenv(kTargetOfChild);
  if (target == nullptr) GTEST_SKIP() << "skipped: only for the test that starts and kills it";
  service::SessionOptions options = patient();
  options.state_group = kStateGroup;
  auto session = service::Session::create(target, model.graph(), options);
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_TRUE((*session)->run({}, {"taken", "taken_elsewhere"}).ok());
}

TEST_P(Faults, masters_forget_the_sessions_of_a_client_that_was_killed) {
  ChildProcess client({this_program(), "--gtest_filter=ClientOfFaults.*"},
                      {std::string(kTargetOfChild) + "=" + cluster_->target()});
  for (int task = 0; task < 3; ++task) EXPECT_TRUE(runs(task, 1, 0)) << task;
  // The queue is its group's.
  EXPECT_TRUE(eventually([&] { return task_figure(cluster_->status(1), "resources") == 1; }));
  client.signal(SIGKILL);
  EXPECT_EQ(client.wait(), -SIGKILL);
  for (int task = 0; task < 3; ++task) expect_forgotten(task);
  EXPECT_TRUE(eventually([&] { return task_figure(cluster_->status(1), "resources") == 0; }));
}

TEST_P(Faults, a_server_that_never_comes_up_is_named_at_the_deadline) {
  cluster_->kill(1);
  service::SessionOptions options = patient();
  options.connect_timeout = std::chrono::milliseconds(700);
  Stopwatch watch;
  Status status = service::Session::create(cluster_->target(), model_.graph(), options).status();
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(base::message_of(status), HasSubstr(kTask1));
  EXPECT_LT(watch.seconds(), cluster_->allows(2.5));
  EXPECT_EQ(task_figure(cluster_->status(0), "sessions"), 0);
  EXPECT_EQ(task_figure(cluster_->status(2), "sessions"), 0);
  watch = Stopwatch();
  status = service::Session::create(cluster_->target(1), model_.graph(), options).status();
  EXPECT_THAT(status.code(), AnyOf(StatusCode::kDeadlineExceeded, StatusCode::kUnavailable));
  EXPECT_THAT(base::message_of(status), HasSubstr(cluster_->address(1)));
  EXPECT_LT(watch.seconds(), cluster_->allows(5));
}

TEST_P(Faults, a_client_that_gives_up_leaves_no_session_in_the_making) {
  cluster_->kill(1);
  service::SessionOptions options = patient();
  options.interrupt = [this] { return task_figure(cluster_->status(2), "sessions") == 1; };
  const Status status =
      service::Session::create(cluster_->target(), model_.graph(), options).status();
  EXPECT_EQ(status.code(), StatusCode::kCancelled) << status;
  expect_forgotten(0);
  expect_forgotten(2);
}

TEST_P(Faults, a_session_that_nobody_held_is_closed) {
  const auto stub = session::v1::Master::NewStub(cluster_->channel());
  session::v1::CreateSessionRequest request;
  request.set_version(service::kSessionVersion);
  session::v1::CreateSessionReply reply;
  request.set_graph(ir::to_text(model_.graph()));
  grpc::ClientContext context;
  ASSERT_TRUE(stub->CreateSession(&context, request, &reply).ok());
  EXPECT_EQ(task_figure(cluster_->status(1), "sessions"), 1);
  expect_forgotten(1);
}

TEST_P(Faults, a_server_told_to_end_lets_steps_end_that_run) {
  for (const int ended : {1, 0}) {
    const auto one = session(0, loop_model(300'000));
    ASSERT_NE(one, nullptr);
    Result<std::vector<Tensor>> got = base::internal("not yet");
    std::thread runner([&] { got = one->run({}, {"out"}); });
    EXPECT_TRUE(runs(1, 1, 0));
    const Stopwatch watch;
    cluster_->process(ended).signal(SIGTERM);
    EXPECT_EQ(cluster_->process(ended).wait(), 0);
    runner.join();
    EXPECT_LT(watch.seconds(), cluster_->allows(5));
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(floats((*got)[0])[0], -300'000);
    cluster_->start(ended);
  }
}

TEST_P(Faults, a_server_told_to_end_cancels_what_does_not_end) {
  cluster_ = nullptr;
  cluster_ = std::make_unique<ProcessCluster>(3, std::vector<std::string>{"--drain", "0.3"});
  const auto one = session();
  Status status;
  std::thread runner([&] { status = one->run({}, {"taken"}).status(); });
  EXPECT_TRUE(runs(1, 1, 0));
  const Stopwatch watch;
  cluster_->process(0).signal(SIGTERM);
  EXPECT_EQ(cluster_->process(0).wait(), 0);
  runner.join();
  EXPECT_EQ(status.code(), StatusCode::kCancelled) << status;
  EXPECT_LT(watch.seconds(), cluster_->allows(5));
  expect_forgotten(1);
}

/// All of them where time matters less.
std::vector<cluster::Protocol> protocols() {
  using cluster::Protocol;
  if (std::getenv("CI") == nullptr) return {Protocol::kGrpc, Protocol::kStarServer};
  return {Protocol::kGrpc, Protocol::kGrpcPlusPlus, Protocol::kStarServer,
          Protocol::kStarServerLite};
}
INSTANTIATE_TEST_SUITE_P(Over, Faults, ::testing::ValuesIn(protocols()), test_name);
INSTANTIATE_TEST_SUITE_P(Over, FaultsOfAPs, ::testing::ValuesIn(protocols()), test_name);

}  // namespace
}  // namespace sidereal::app
