#include "sidereal/app/cluster_coordinator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "sidereal/app/cluster.h"
#include "sidereal/app/testing/model.h"
#include "sidereal/base/event_log.h"
#include "sidereal/cluster/task_name.h"
#include "sidereal/service/status_client.h"
#include "sidereal/service/variable_move.h"

// Closures on clusters of this process. Faults of real processes are tests in Python.
namespace sidereal::app {
namespace {

using std::chrono::milliseconds;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;
using ::testing::HasSubstr;

constexpr const char* kPs = "/job:ps/replica:0/task:0/device:CPU:0";
constexpr const char* kOtherPs = "/job:ps/replica:0/task:1/device:CPU:0";
constexpr milliseconds kLong(60'000);

/// Adds to a variable of a ps, and doubles what it is given.
struct Steps {
  Steps() {
    handle = model.add(
        "Variable", {},
        {{"shared_name", std::string("v")}, {"dtype", DType::kFloat32}, {"shape", Shape{1}}},
        "handle", kPs);
    model.add("VariableAssign", {handle, model.constant({0}, "zero", kPs)}, {}, "init", kPs);
    model.add("VariableRead", {handle}, {{"dtype", DType::kFloat32}, {"shape", Shape{1}}}, "read",
              kPs);
    added =
        model.add("VariableAssignAdd", {handle, model.constant({1}, "one", kPs)}, {}, "add", kPs);
    model.add("VariableAssignSub", {handle, model.constant({1}, "one_less", kPs)}, {}, "sub", kPs);
    const ir::Output x = model.placeholder("x");
    model.add("Add", {x, x}, {}, "double");
    model.add("Reshape", {x}, {{"shape", std::vector<int64_t>{7}}}, "wrong");
  }
  Model model;
  ir::Output handle;
  ir::Output added;
};

class Coordinators : public ::testing::TestWithParam<cluster::Protocol> {
 protected:
  void start(int workers, int in_flight = 1,
             const std::function<void(ClusterCoordinatorOptions*)>& change = nullptr) {
    LocalClusterOptions options;
    options.workers = workers;
    options.ps = ps_;
    options.in_process = true;
    options.protocol = GetParam();
    auto cluster = start_local_cluster(options);
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    cluster_ = *std::move(cluster);
    ClusterCoordinatorOptions coordinator;
    for (int i = 0; i < workers; ++i) {
      coordinator.workers.push_back(cluster_->target("worker", i));
    }
    coordinator.ps = ps_;
    coordinator.session = cluster_->session_options();
    coordinator.session.state_group = "coordinator";
    coordinator.session.pull_prefetch_ms = 0;
    coordinator.scheduler.in_flight_max = in_flight;
    if (change) change(&coordinator);
    auto made = ClusterCoordinator::create(coordinator);
    ASSERT_TRUE(made.ok()) << made.status();
    coordinator_ = *std::move(made);
    coordinator_->set_graph(steps_.model.graph());
  }
  Result<std::shared_ptr<RemoteValue>> schedule(uint64_t plan, std::vector<Tensor> feeds = {},
                                                std::vector<coord::ResourceId> resources = {}) {
    return coordinator_->schedule(plan, std::move(feeds), resources, kLong, nullptr);
  }
  std::vector<float> value(const std::shared_ptr<RemoteValue>& remote) {
    const auto got = remote->wait(kLong, nullptr);
    EXPECT_TRUE(got.ok()) << got.status();
    return got.ok() ? floats((*got)[0]) : std::vector<float>();
  }
  void run_once(uint64_t plan) {
    const auto done = schedule(plan);
    ASSERT_TRUE(done.ok()) << done.status();
    ASSERT_TRUE((*done)->wait(kLong, nullptr).ok());
  }

  /// Runs a closure that adds to a variable and then waits too long, until another one has given it
  /// what it waits for. How often it has added.
  float additions(bool effectively_once) {
    const ir::Output queue = steps_.model.add(
        "Queue", {},
        {{"shared_name", std::string("q")}, {"dtypes", std::vector<std::string>{"float32"}}}, "q",
        kPs);
    const ir::Output added = steps_.model.add("Identity", {steps_.added}, {}, "added");
    steps_.model.add("QueueDequeue", {queue}, {{"dtypes", std::vector<std::string>{"float32"}}},
                     "take", kPs);
    steps_.model.add_node("QueueEnqueue", {queue, added}, {}, "give", kPs);
    start(1, 2, [&](ClusterCoordinatorOptions* options) {
      options->effectively_once = effectively_once;
      options->closure_timeout = milliseconds(300);
      options->scheduler.transient_timeouts = 1000;
    });
    run_once(coordinator_->add_plan({.targets = {"init"}}));
    const auto waits =
        schedule(coordinator_->add_plan({.fetches = {"take"}, .targets = {"add", "added"}}));
    EXPECT_TRUE(waits.ok()) << waits.status();
    while (coordinator_->figures().retried < 2) {
    }
    run_once(coordinator_->add_plan({.targets = {"give"}}));
    EXPECT_TRUE((*waits)->wait(kLong, nullptr).ok());
    const auto read = schedule(coordinator_->add_plan({.fetches = {"read"}}));
    EXPECT_TRUE(read.ok()) << read.status();
    return value(*read)[0] - 1;  // "give" adds as well.
  }

  /// Has variable "v" on the other ps, where `session` holds it.
  void move(service::Session* session) {
    auto credentials = security::Credentials::create(cluster_->security());
    ASSERT_TRUE(credentials.ok()) << credentials.status();
    const auto address = [&](int task) {
      const std::string target = cluster_->target("ps", task);
      return service::FollowedAddress{.task = cluster::task_name("ps", task),
                                      .address = target.substr(target.find("//") + 2)};
    };
    auto moves = service::VariableMove::begin(address(1), "coordinator",
                                              {{.from = address(0), .names = {"v"}}}, *credentials);
    ASSERT_TRUE(moves.ok()) << moves.status();
    ASSERT_EQ(coordinator_->hold(kLong, nullptr), Status());
    EXPECT_EQ(coordinator_->hold(kLong, nullptr).code(), StatusCode::kFailedPrecondition);
    const ir::PlacementOverrides overrides = {.variables = {{"v", kOtherPs}}, .tasks = {}};
    ASSERT_EQ(session->extend(steps_.model.graph(), overrides), Status());
    ASSERT_EQ((*moves)->take(kLong), Status());
    ASSERT_EQ((*moves)->commit(), Status());
    coordinator_->place(overrides);
    coordinator_->go_on();
  }

  Steps steps_;
  int ps_ = 1;
  std::unique_ptr<Cluster> cluster_;
  std::shared_ptr<ClusterCoordinator> coordinator_;
};
INSTANTIATE_TEST_SUITE_P(Over, Coordinators,
                         ::testing::Values(cluster::Protocol::kGrpc,
                                           cluster::Protocol::kGrpcPlusPlus,
                                           cluster::Protocol::kStarServer,
                                           cluster::Protocol::kStarServerLite),
                         test_name);

TEST_P(Coordinators, go_on_when_variables_have_moved) {
  constexpr int kClosures = 200;
  ps_ = 2;
  start(2, 2);
  run_once(coordinator_->add_plan({.targets = {"init"}}));
  service::SessionOptions options = cluster_->session_options();
  options.state_group = "coordinator";
  const auto session =
      service::Session::create(cluster_->target("ps", 0), steps_.model.graph(), options);
  ASSERT_TRUE(session.ok()) << session.status();
  const uint64_t add = coordinator_->add_plan({.targets = {"add"}});
  std::vector<std::shared_ptr<RemoteValue>> values;
  std::thread scheduling([&] {
    for (int i = 0; i < kClosures; ++i) {
      const auto one = schedule(add);
      ASSERT_TRUE(one.ok()) << one.status();
      values.push_back(*one);
    }
  });
  move(session->get());
  scheduling.join();
  ASSERT_EQ(coordinator_->join(kLong, nullptr), Status());
  for (const auto& one : values) EXPECT_TRUE(one->wait(kLong, nullptr).ok());
  const auto read = schedule(coordinator_->add_plan({.fetches = {"read"}}));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(value(*read)[0], kClosures);
  // Nothing of it was made where it was.
  const auto there = (*session)->run({}, {"read"});
  ASSERT_TRUE(there.ok()) << there.status();
  EXPECT_EQ(floats((*there)[0])[0], kClosures);
}

TEST_P(Coordinators, that_are_held_say_what_runs_too_long) {
  const ir::Output queue = steps_.model.add(
      "Queue", {},
      {{"shared_name", std::string("q")}, {"dtypes", std::vector<std::string>{"float32"}}}, "q",
      kPs);
  steps_.model.add("QueueDequeue", {queue}, {{"dtypes", std::vector<std::string>{"float32"}}},
                   "take", kPs);
  const ir::Output one = steps_.model.constant({1}, "given", kPs);
  steps_.model.add_node("QueueEnqueue", {queue, one}, {}, "give", kPs);
  start(2);
  const auto waits = schedule(coordinator_->add_plan({.fetches = {"take"}}));
  ASSERT_TRUE(waits.ok()) << waits.status();
  while (coordinator_->figures().in_flight == 0) {
  }
  const Status held = coordinator_->hold(milliseconds(200), nullptr);
  EXPECT_EQ(held.code(), StatusCode::kDeadlineExceeded) << held;
  EXPECT_THAT(base::message_of(held), HasSubstr("what runs to end: 0 are queued, 1 run"));
  EXPECT_EQ(coordinator_->hold(kLong, [] { return true; }).code(), StatusCode::kCancelled);
  run_once(coordinator_->add_plan({.targets = {"give"}}));
  EXPECT_EQ(value(*waits), std::vector<float>{1});
}

TEST_P(Coordinators, run_closures_on_all_workers_and_give_their_values) {
  constexpr int kClosures = 300;
  start(3, 4);
  run_once(coordinator_->add_plan({.targets = {"init"}}));
  const uint64_t plan =
      coordinator_->add_plan({.feeds = {"x"}, .fetches = {"double"}, .targets = {"add"}});
  std::vector<std::shared_ptr<RemoteValue>> values;
  for (int i = 0; i < kClosures; ++i) {
    const auto value =
        schedule(plan, {Tensor::of(Shape{1}, std::vector<float>{static_cast<float>(i)})});
    ASSERT_TRUE(value.ok()) << value.status();
    values.push_back(*value);
  }
  ASSERT_TRUE(coordinator_->join(kLong, nullptr).ok());
  for (int i = 0; i < kClosures; ++i) {
    ASSERT_TRUE(values[static_cast<size_t>(i)]->is_ready());
    EXPECT_EQ(value(values[static_cast<size_t>(i)]), std::vector<float>{2 * static_cast<float>(i)});
  }
  const auto read = schedule(coordinator_->add_plan({.fetches = {"read"}}));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(value(*read), std::vector<float>{kClosures});
  EXPECT_TRUE(*coordinator_->done(nullptr));
  EXPECT_EQ(coordinator_->timing(Timing::kClosureExecution).count, kClosures + 2);
  EXPECT_EQ(coordinator_->timing(Timing::kRemoteValueFetch).count, kClosures + 2);
  EXPECT_GE(coordinator_->timing(Timing::kServerDefUpdate).count, 1);
  EXPECT_EQ(coordinator_->timing(Timing::kFunctionTracing).count, 0);
}

TEST_P(Coordinators, have_variables_change_once_by_the_mean_of_a_step) {
  Model& model = steps_.model;
  const ir::AttrMap parts = {{"dtypes", std::vector<std::string>{"float32"}},
                             {"shapes", std::vector<int64_t>{1, 1}}};
  ir::AttrMap attrs = parts;
  attrs["shared_name"] = std::string("sum");
  const ir::Output sum = model.add("Accumulator", {}, attrs, "sum", kPs);
  const ir::Output step = model.placeholder("step", DType::kInt64, Shape());
  model.add("AccumulatorApply", {sum, step, model.placeholder("gradient")}, {}, "contribute", kPs);
  const ir::Output next = model.placeholder("next", DType::kInt64, Shape());
  attrs = parts;
  attrs["waits"] = false;
  const ir::Output mean = model.add("AccumulatorTake", {sum, next}, attrs, "mean", kPs);
  model.add("VariableAssignAdd", {steps_.handle, mean}, {}, "update", kPs);
  model.add("AccumulatorRestart", {sum, next, next}, {}, "forget", kPs);
  start(2, 1, [this](ClusterCoordinatorOptions* options) {
    options->consistency = "sync";
    options->step_target = cluster_->target("ps", 0);
  });
  run_once(coordinator_->add_plan({.targets = {"init"}}));
  const uint64_t end =
      coordinator_->add_step({.update = {.feeds = {"next"}, .targets = {"update"}},
                              .forget = {.feeds = {"next"}, .targets = {"forget"}}});
  const uint64_t plan = coordinator_->add_plan(
      {.feeds = {"gradient", "step"}, .targets = {"contribute"}}, {.steps = {end}});
  for (const float x : {1.0F, 3.0F, 5.0F}) {
    ASSERT_TRUE(schedule(plan, {Tensor::of(Shape{1}, std::vector<float>{x})}).ok());
  }
  const Status joined = coordinator_->join(kLong, nullptr);
  ASSERT_TRUE(joined.ok()) << joined;
  EXPECT_EQ(coordinator_->figures().steps, 2);
  const auto read = schedule(coordinator_->add_plan({.fetches = {"read"}}));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(value(*read), std::vector<float>{2 + 5});
  EXPECT_EQ(coordinator_->feed_step(end, {Tensor::scalar(1.0F)}).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(coordinator_->feed_step(end + 1, {}).code(), StatusCode::kNotFound);
  EXPECT_EQ(coordinator_->schedule_on(0, plan, {Tensor::scalar(1.0F)}, {}, true).status().code(),
            StatusCode::kInvalidArgument);
}

TEST_P(Coordinators, carry_values_of_many_pieces_and_of_none) {
  start(1, 8);
  const uint64_t plan = coordinator_->add_plan({.feeds = {"x"}, .fetches = {"double", "x"}});
  std::vector<std::shared_ptr<RemoteValue>> values;
  const std::vector<int64_t> sizes = {0, 1, 3'000'000, 0, 5, 700'000};
  for (const int64_t size : sizes) {
    const auto value =
        schedule(plan, {Tensor::of(Shape{size}, std::vector<float>(static_cast<size_t>(size), 2))});
    ASSERT_TRUE(value.ok()) << value.status();
    values.push_back(*value);
  }
  for (size_t i = 0; i < sizes.size(); ++i) {
    const auto got = values[i]->wait(kLong, nullptr);
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_TRUE(std::ranges::all_of(floats((*got)[0]), [](float x) { return x == 4; }));
    EXPECT_EQ((*got)[1].num_elements(), sizes[i]);
  }
}

TEST_P(Coordinators, raise_an_error_once_and_cancel_what_waits) {
  start(2);
  const uint64_t wrong = coordinator_->add_plan({.feeds = {"x"}, .fetches = {"wrong"}});
  const uint64_t good = coordinator_->add_plan({.feeds = {"x"}, .fetches = {"double"}});
  const Tensor x = Tensor::of(Shape{1}, std::vector<float>{1});
  ASSERT_TRUE(schedule(wrong, {x}).ok());
  const Status raised = coordinator_->join(kLong, nullptr);
  EXPECT_EQ(raised.code(), StatusCode::kInvalidArgument) << raised;
  EXPECT_THAT(base::message_of(raised), HasSubstr("wrong"));
  // Nothing is left of it.
  const auto after = schedule(good, {x});
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_TRUE(coordinator_->join(kLong, nullptr).ok());
  EXPECT_EQ(value(*after), std::vector<float>{2});
}

TEST_P(Coordinators, take_graphs_that_grow) {
  start(2);
  const Tensor x = Tensor::of(Shape{1}, std::vector<float>{1});
  const uint64_t before = coordinator_->add_plan({.feeds = {"x"}, .fetches = {"double"}});
  ASSERT_TRUE(schedule(before, {x}).ok());
  for (int i = 0; i < 5; ++i) {
    const std::string name = "more" + std::to_string(i);
    steps_.model.add("Neg", {steps_.model.placeholder("y" + std::to_string(i))}, {}, name);
    coordinator_->set_graph(steps_.model.graph());
    const uint64_t plan =
        coordinator_->add_plan({.feeds = {"y" + std::to_string(i)}, .fetches = {name}});
    for (int k = 0; k < 6; ++k) {
      const auto got = schedule(plan, {x});
      ASSERT_TRUE(got.ok()) << got.status();
      EXPECT_EQ(value(*got), std::vector<float>{-1});
    }
  }
}

TEST_P(Coordinators, make_a_resource_on_each_worker_before_it_is_used_and_drop_it) {
  start(3);
  run_once(coordinator_->add_plan({.targets = {"init"}}));
  // What a worker makes is counted at the ps.
  const uint64_t make = coordinator_->add_plan({.targets = {"add"}});
  const uint64_t read = coordinator_->add_plan({.fetches = {"read"}});
  const uint64_t drop = coordinator_->add_plan({.targets = {"sub"}});
  const coord::ResourceId resource = coordinator_->create_resource(make, drop);
  const auto made = [&] {
    const auto got = schedule(read, {}, {resource});
    EXPECT_TRUE(got.ok()) << got.status();
    return got.ok() ? value(*got)[0] : 0;
  };
  // Workers are found one after the other.
  EXPECT_GE(made(), 1);
  const auto until = std::chrono::steady_clock::now() + kLong;
  while (made() < 3 && std::chrono::steady_clock::now() < until) {
  }
  for (int i = 0; i < 30; ++i) EXPECT_EQ(made(), 3);
  coordinator_->release_resource(resource);
  EXPECT_EQ(schedule(read, {}, {resource}).status().code(), StatusCode::kNotFound);
  const auto left = [&] {
    const auto got = schedule(read);
    EXPECT_TRUE(got.ok()) << got.status();
    return got.ok() ? value(*got)[0] : 3;
  };
  while (left() > 0 && std::chrono::steady_clock::now() < until) {
  }
  EXPECT_EQ(left(), 0);
}

TEST_P(Coordinators, change_variables_each_time_that_a_closure_is_tried) {
  EXPECT_GE(additions(false), 3);
}

TEST_P(Coordinators, change_variables_once_where_it_is_asked_for) {
  EXPECT_EQ(additions(true), 1);
  // The server counts what was not made again, and the story has why.
  const auto status = service::StatusClient::create(cluster_->spec(), cluster_->security());
  ASSERT_TRUE(status.ok()) << status.status();
  int64_t repeated = 0;
  for (const service::TaskReport& report : (*status)->ask(kLong, "ps")) {
    EXPECT_TRUE(report.status.ok()) << report.status;
    repeated += report.figures.value("sidereal_repeated_changes_total");
  }
  EXPECT_GE(repeated, 2);
  EXPECT_THAT(base::recent_events(base::kEventsKept),
              ::testing::Contains(
                  ::testing::HasSubstr(R"("event":"closure_retried","fields":{"closure":)")));
}

TEST_P(Coordinators, end_while_their_workers_take_a_graph) {
  constexpr int kNodes = 3000;
  start(3);
  run_once(coordinator_->add_plan({.targets = {"init"}}));
  for (int i = 0; i < kNodes; ++i) steps_.model.constant({1}, fmt::format("more_{}", i));
  coordinator_->set_graph(steps_.model.graph());
  // All workers are to take it; one of them is enough for the value.
  const uint64_t more = coordinator_->add_plan({.targets = {"more_0"}});
  coordinator_->create_resource(more, more);
  run_once(coordinator_->add_plan({.targets = {"more_1"}}));
  coordinator_ = nullptr;
}

TEST_P(Coordinators, refuse_what_does_not_fit) {
  start(1);
  const uint64_t plan = coordinator_->add_plan({.feeds = {"x"}, .fetches = {"double"}});
  EXPECT_EQ(schedule(plan, {}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(schedule(plan + 1, {}).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(ClusterCoordinator::create({}).status().code(), StatusCode::kInvalidArgument);
}

TEST_P(Coordinators, end_waits_that_last_too_long_and_say_for_whom) {
  LocalClusterOptions options;
  options.in_process = true;
  options.protocol = GetParam();
  auto cluster = start_local_cluster(options);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const ReservedPorts nobody(1);
  ClusterCoordinatorOptions coordinator;
  coordinator.workers = {"grpc://" + nobody.addresses()[0]};
  coordinator.ps = 1;
  coordinator.session = (*cluster)->session_options();
  coordinator.scheduler.queue_max = 1;
  auto made = ClusterCoordinator::create(coordinator);
  ASSERT_TRUE(made.ok()) << made.status();
  (*made)->set_graph(steps_.model.graph());
  const uint64_t plan = (*made)->add_plan({.fetches = {"read"}});
  const auto value = (*made)->schedule(plan, {}, {}, kLong, nullptr);
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_EQ((*made)->schedule(plan, {}, {}, milliseconds(300), nullptr).status().code(),
            StatusCode::kDeadlineExceeded);
  const Status joined = (*made)->join(milliseconds(300), nullptr);
  EXPECT_EQ(joined.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(base::message_of(joined), HasSubstr("/job:worker/replica:0/task:0"));
  EXPECT_EQ((*value)->wait(milliseconds(100), nullptr).status().code(),
            StatusCode::kDeadlineExceeded);
  EXPECT_EQ((*made)->join({}, [] { return true; }).code(), StatusCode::kCancelled);
  // What waits for a value hears when the coordinator ends.
  *made = nullptr;
  EXPECT_EQ((*value)->wait(kLong, nullptr).status().code(), StatusCode::kCancelled);
}

}  // namespace
}  // namespace sidereal::app
