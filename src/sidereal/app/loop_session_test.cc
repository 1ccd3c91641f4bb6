#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <set>
#include <thread>

#include "sidereal/app/testing/model.h"
#include "sidereal/app/testing/processes.h"
#include "sidereal/base/sanitizer.h"
#include "sidereal/data/data_spec.h"
#include "sidereal/data/feeder.h"
#include "sidereal/data/reader.h"
#include "sidereal/service/session.h"
#include "sidereal/service/status_client.h"

// Loops of sessions over all protocols: what they compute, and how they end.

namespace sidereal::app {
namespace {

using std::chrono::milliseconds;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Eq;
using ::testing::HasSubstr;

std::string synthetic(int64_t rows, uint64_t seed = 1) {
  data::DataSpec spec;
  spec.format = data::Format::kSynthetic;
  spec.synthetic.rows = rows;
  spec.synthetic.seed = seed;
  spec.synthetic.vocabulary_max = 50;
  return data::to_json(spec);
}

data::ReadOptions in_batches_of(int64_t rows) {
  data::ReadOptions out;
  out.batch_size = rows;
  return out;
}

/// A model on two tasks: logistic regression of 13 numbers, by gradients that are written out. The
/// variable is on task 1.
class Regression : public Model {
 public:
  explicit Regression(std::string_view container = "") {
    const ir::Output x = add("Placeholder", {}, matrix(13), "x");
    const ir::Output y =
        add("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", Shape{-1}}}, "y");
    ir::AttrMap attrs = {{"shared_name", std::string("w")},
                         {"dtype", DType::kFloat32},
                         {"shape", Shape{13, 1}},
                         {"container", std::string(container)}};
    const ir::Output w = add("Variable", {}, attrs, "w", "/task:1");
    const ir::Output start = add(
        "Const", {}, {{"value", Tensor::of(Shape{13, 1}, std::vector<float>(13, 0.01F))}}, "start");
    add("VariableAssign", {w, start}, {}, "init");
    const ir::Output now =
        add("VariableRead", {w}, {{"dtype", DType::kFloat32}, {"shape", Shape{13, 1}}}, "now");
    const ir::Output logits = add("MatMul", {x, now}, {});
    const ir::Output p =
        add("Reshape", {add("Sigmoid", {logits}, {})}, {{"shape", std::vector<int64_t>{-1}}}, "p");
    const ir::Output error = add("Sub", {p, y}, {}, "error");
    add("ReduceMean", {add("Mul", {error, error}, {})}, {{"axes", std::vector<int64_t>{0}}},
        "loss");
    const ir::Output column = add("Reshape", {error}, {{"shape", std::vector<int64_t>{-1, 1}}});
    const ir::Output gradient = add("MatMul", {x, column}, {{"transpose_a", true}});
    const ir::Output rate =
        add("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", Shape()}}, "rate");
    add("VariableAssignAdd", {w, add("Mul", {gradient, add("Neg", {rate}, {})}, {})}, {}, "train");
  }

 private:
  static ir::AttrMap matrix(int64_t width) {
    return {{"dtype", DType::kFloat32}, {"shape", Shape{-1, width}}};
  }
};

Tensor rate() { return Tensor::scalar(0.001F); }

task::LoopOptions training(int64_t rows) {
  task::LoopOptions out;
  out.fetches = {{.name = "loss", .keep = task::Keep::kSeries}};
  out.targets = {"train"};
  out.source = synthetic(rows);
  out.columns = {{"x", "dense"}, {"y", "label"}};
  out.constants = {{"rate", rate()}};
  out.batch_size = 100;
  return out;
}

class LoopOfACluster : public ::testing::TestWithParam<ClusterKind> {
 protected:
  std::unique_ptr<service::Session> session_of(const ir::Graph& graph, int task = 0,
                                               const service::SessionOptions& options = patient()) {
    auto session = service::Session::create(cluster_.target(task), graph, options);
    EXPECT_TRUE(session.ok()) << session.status();
    return session.ok() ? *std::move(session) : nullptr;
  }

  TestCluster cluster_{2, GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Over, LoopOfACluster,
                         ::testing::Values(ClusterKind{cluster::Protocol::kGrpc},
                                           ClusterKind{cluster::Protocol::kGrpcPlusPlus},
                                           ClusterKind{cluster::Protocol::kStarServer},
                                           ClusterKind{cluster::Protocol::kStarServerLite},
                                           ClusterKind{cluster::Protocol::kGrpcPlusPlus, 3},
                                           ClusterKind{cluster::Protocol::kStarServer, 3},
                                           ClusterKind{cluster::Protocol::kStarServerLite, 3}),
                         kind_name);

TEST_P(LoopOfACluster, gives_the_bits_of_as_many_steps_of_the_client) {
  const Regression model;
  const auto session = session_of(model.graph());
  ASSERT_NE(session, nullptr);
  ASSERT_TRUE(session->run({}, {}, {"init"}).ok());
  std::vector<double> losses;
  const auto spec = data::spec_from_json(synthetic(2050));
  auto reader = data::Reader::open(*spec, in_batches_of(100));
  ASSERT_TRUE(reader.ok()) << reader.status();
  data::Batch batch;
  while (*(*reader)->next(&batch)) {
    const auto got = session->run({{"x", batch.dense}, {"y", batch.label}, {"rate", rate()}},
                                  {"loss"}, {"train"});
    ASSERT_TRUE(got.ok()) << got.status();
    losses.push_back(static_cast<double>(floats((*got)[0])[0]));
  }
  const std::vector<float> by_steps = floats((*session->run({}, {"now"}))[0]);

  ASSERT_TRUE(session->run({}, {}, {"init"}).ok());
  const auto looped = session->run_loop(training(2050));
  ASSERT_TRUE(looped.ok()) << looped.status();
  EXPECT_EQ(looped->progress.steps, 21);
  EXPECT_EQ(looped->progress.rows, 2050);
  EXPECT_EQ(looped->series[0], losses);
  EXPECT_EQ(looped->progress.scalars[0].last, losses.back());
  EXPECT_EQ(floats((*session->run({}, {"now"}))[0]), by_steps);
  EXPECT_LT(losses.back(), losses.front());
}

TEST_P(LoopOfACluster, tells_the_mean_of_the_latest_steps_by_their_number) {
  const Regression model;
  const auto session = session_of(model.graph());
  ASSERT_NE(session, nullptr);
  ASSERT_TRUE(session->run({}, {}, {"init"}).ok());
  const auto looped = session->run_loop(training(25000));
  ASSERT_TRUE(looped.ok()) << looped.status();
  const std::vector<double>& losses = looped->series[0];
  ASSERT_EQ(losses.size(), 250);
  EXPECT_EQ(looped->progress.scalars[0].latest_steps, 100);
  EXPECT_NEAR(looped->progress.scalars[0].latest_sum,
              std::accumulate(losses.end() - 100, losses.end(), 0.0), 1e-6);
}

TEST_P(LoopOfACluster, numbers_its_steps_as_those_of_the_session) {
  Model model;
  model.add("RandomUniform", {},
            {{"shape", std::vector<int64_t>{1}}, {"seed", int64_t{7}}, {"seed2", int64_t{8}}},
            "random", "/task:1");
  const auto session = session_of(model.graph());
  std::vector<double> by_steps;
  for (int i = 0; i < 6; ++i) {
    const auto got = session->run({}, {"random"});
    ASSERT_TRUE(got.ok()) << got.status();
    by_steps.push_back(static_cast<double>(floats((*got)[0])[0]));
  }
  const auto again = session_of(model.graph());
  std::vector<double> numbers = {static_cast<double>(floats((*again->run({}, {"random"}))[0])[0])};
  task::LoopOptions options;
  options.fetches = {{.name = "random", .keep = task::Keep::kSeries}};
  options.steps = 4;
  const auto looped = again->run_loop(options);
  ASSERT_TRUE(looped.ok()) << looped.status();
  numbers.insert(numbers.end(), looped->series[0].begin(), looped->series[0].end());
  numbers.push_back(static_cast<double>(floats((*again->run({}, {"random"}))[0])[0]));
  EXPECT_EQ(numbers, by_steps);
}

TEST_P(LoopOfACluster, keeps_several_steps_in_flight) {
  const Regression model;
  const auto session = session_of(model.graph());
  task::LoopOptions options = training(10'000);
  options.steps_in_flight = 4;
  options.epochs = 2;
  std::vector<std::vector<double>> runs;
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(session->run({}, {}, {"init"}).ok());
    const auto looped = session->run_loop(options);
    ASSERT_TRUE(looped.ok()) << looped.status();
    EXPECT_EQ(looped->progress.steps, 200);
    EXPECT_DOUBLE_EQ(looped->progress.fraction, 1);
    runs.push_back(looped->series[0]);
  }
  EXPECT_LT(runs[0].back(), runs[0].front());
  // Which answers come first does not matter where steps take turns.
  if (GetParam().protocol == cluster::Protocol::kStarServer) {
    EXPECT_EQ(runs[0], runs[1]);
  }
}

TEST_P(LoopOfACluster, runs_on_several_lanes_each_with_its_rows) {
  Model model;
  model.add("Identity", {model.placeholder("y")}, {}, "back", "/task:1");
  const auto session = session_of(model.graph());
  task::LoopOptions options;
  options.fetches = {{.name = "back", .keep = task::Keep::kEach}};
  options.source = synthetic(1000);
  options.columns = {{"y", "truth"}};
  options.kept_columns = {"truth"};
  options.batch_size = 64;
  options.lanes = 0;
  std::vector<float> seen;
  std::map<int32_t, int64_t> steps;
  task::LoopObserver observer;
  observer.on_values = [&](task::LoopValues values) {
    EXPECT_EQ(values.step, steps[values.lane]++);
    ASSERT_EQ(values.values.size(), 2U);
    const std::vector<float> back = floats(values.values[0].second);
    EXPECT_EQ(back, floats(values.values[1].second));
    EXPECT_EQ(back.size(), static_cast<size_t>(values.rows));
    seen.insert(seen.end(), back.begin(), back.end());
  };
  const auto looped = session->run_loop(options, observer);
  ASSERT_TRUE(looped.ok()) << looped.status();
  EXPECT_EQ(steps.size(), static_cast<size_t>(GetParam().lanes));
  std::vector<float> all;
  auto reader = data::Reader::open(*data::spec_from_json(options.source), in_batches_of(1000));
  data::Batch batch;
  ASSERT_TRUE(*(*reader)->next(&batch));
  all = floats(batch.truth);
  std::sort(seen.begin(), seen.end());
  std::sort(all.begin(), all.end());
  EXPECT_EQ(seen, all);
}

TEST_P(LoopOfACluster, evaluates_and_takes_the_last_of_any_dtype) {
  Regression model;
  const auto text = Tensor::strings(Shape{2}, std::vector<std::string>{"a", "bc"});
  const ir::Output s =
      model.add("Placeholder", {}, {{"dtype", DType::kString}, {"shape", Shape{-1}}}, "s");
  model.add("Identity", {s}, {}, "t", "/task:1");
  const auto session = session_of(model.graph());
  ASSERT_TRUE(session->run({}, {}, {"init"}).ok());
  task::LoopOptions options;
  options.fetches = {{.name = "p", .keep = task::Keep::kLast},
                     {.name = "t", .keep = task::Keep::kLast},
                     {.name = "loss", .keep = task::Keep::kMean}};
  options.source = synthetic(1000);
  options.columns = {{"x", "dense"}, {"y", "label"}};
  options.constants = {{"s", text}};
  options.batch_size = 300;
  options.auc_fetch = 0;
  const auto looped = session->run_loop(options);
  ASSERT_TRUE(looped.ok()) << looped.status();
  EXPECT_EQ(looped->progress.steps, 4);
  EXPECT_EQ(looped->last[0].num_elements(), 100);
  EXPECT_EQ(looped->last[1].data<const std::string_view>()[1], "bc");
  EXPECT_GT(looped->progress.auc, 0);
  EXPECT_EQ(looped->progress.scalars[2].steps, 4);
  EXPECT_EQ(looped->progress.scalars[2].latest_steps, 4);
  EXPECT_EQ(looped->progress.scalars[2].latest_sum, looped->progress.scalars[2].sum);
  EXPECT_GT(looped->progress.elapsed_ns, 0);
}

TEST_P(LoopOfACluster, says_what_does_not_fit) {
  const Regression model;
  const auto session = session_of(model.graph());
  ASSERT_TRUE(session->run({}, {}, {"init"}).ok());
  const auto error_of = [&](const task::LoopOptions& options) {
    const Status status = session->run_loop(options).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status;
    return base::message_of(status);
  };
  task::LoopOptions options = training(1000);
  options.columns[0].second = "denses";
  EXPECT_THAT(error_of(options), HasSubstr("the data has no column 'denses'; it has label, dense"));
  options = training(1000);
  options.columns[0].second = "ids";
  EXPECT_THAT(error_of(options), HasSubstr("'x'"));
  options = training(1000);
  options.fetches[0].name = "p";
  EXPECT_THAT(error_of(options), HasSubstr("fetch 'p'"));
  options = training(1000);
  options.source = "{\"format\": \"nothing\"}";
  EXPECT_THAT(error_of(options), HasSubstr("nothing"));
  options = training(1000);
  options.batch_size = 0;
  EXPECT_THAT(error_of(options), HasSubstr("batch_size"));
  options = training(1000);
  options.constants.clear();
  EXPECT_THAT(error_of(options), HasSubstr("rate"));
  // It goes on.
  EXPECT_TRUE(session->run_loop(training(1000)).ok());
}

TEST_P(LoopOfACluster, ends_when_it_is_cancelled_and_leaves_nothing) {
  const Regression model;
  const auto session = session_of(model.graph());
  ASSERT_TRUE(session->run({}, {}, {"init"}).ok());
  task::LoopOptions options = training(1'000'000'000);
  std::atomic<int> heard = 0;
  task::LoopObserver observer;
  observer.on_progress = [&](const task::LoopProgress& progress) {
    heard += progress.steps > 0 ? 1 : 0;
  };
  observer.is_cancelled = [&] { return heard > 0; };
  const Status status = session->run_loop(options, observer).status();
  EXPECT_EQ(status.code(), StatusCode::kCancelled) << status;
  auto client = service::StatusClient::create(cluster_.target(), {}, std::chrono::seconds(60));
  ASSERT_TRUE(client.ok());
  EXPECT_TRUE(eventually([&] {
    const auto figures = (*client)->ask(std::chrono::seconds(60))[0].figures;
    return figures.value("sidereal_master_loops_running") == 0 &&
           figures.value("sidereal_task_steps_running") == 0;
  }));
  EXPECT_TRUE(session->run({}, {"now"}).ok());
}

/// Adds one to `n`, on task 1, in each step.
class Counter : public Model {
 public:
  Counter() {
    const ir::AttrMap number = {{"dtype", DType::kInt64}, {"shape", Shape()}};
    ir::AttrMap attrs = number;
    attrs["shared_name"] = std::string("n");
    const ir::Output n = add("Variable", {}, attrs, "n", "/task:1");
    const auto constant = [&](int64_t value) {
      return add("Const", {}, {{"value", Tensor::scalar(value)}});
    };
    add("VariableAssign", {n, constant(0)}, {}, "init");
    add("VariableRead", {n}, number, "now");
    add("VariableAssignAdd", {n, constant(1)}, {}, "count");
  }
};

/// Counts on all lanes.
task::LoopOptions counting(int64_t steps) {
  task::LoopOptions out;
  out.targets = {"count"};
  out.steps = steps;
  out.lanes = 0;
  return out;
}

int64_t count_of(service::Session* session) {
  const auto now = session->run({}, {"now"});
  EXPECT_TRUE(now.ok()) << now.status();
  return now.ok() ? (*now)[0].data<const int64_t>()[0] : -1;
}

TEST_P(LoopOfACluster, tells_all_that_it_has_done_when_it_is_stopped) {
  const Counter model;
  const auto session = session_of(model.graph());
  ASSERT_TRUE(session->run({}, {}, {"init"}).ok());
  task::LoopOptions options = counting(1'000'000'000);
  options.steps_in_flight = 2;
  int64_t heard = 0;
  std::set<int32_t> ended;
  task::LoopObserver observer;
  observer.on_progress = [&](const task::LoopProgress& progress) {
    heard = progress.steps;
    EXPECT_FALSE(std::ranges::any_of(progress.positions, &task::LoopPosition::is_end));
  };
  observer.on_lane_end = [&](int32_t lane) { EXPECT_TRUE(ended.insert(lane).second); };
  observer.stops = [&] { return heard > 0; };
  const Status status = session->run_loop(options, observer).status();
  EXPECT_EQ(status.code(), StatusCode::kCancelled) << status;
  EXPECT_EQ(ended.size(), static_cast<size_t>(GetParam().lanes));
  // Steps that were cancelled may have counted.
  const int64_t counted = count_of(session.get());
  EXPECT_GE(counted, heard);
  EXPECT_LE(counted, heard + GetParam().lanes * (options.steps_in_flight + 2));
}

TEST_P(LoopOfACluster, ends_well_when_it_is_drained) {
  const Counter model;
  const auto session = session_of(model.graph());
  ASSERT_TRUE(session->run({}, {}, {"init"}).ok());
  task::LoopOptions options = counting(1'000'000'000);
  options.steps_in_flight = 2;
  std::atomic<bool> has_begun = false;
  task::LoopObserver observer;
  observer.on_progress = [&](const task::LoopProgress& progress) {
    has_begun = has_begun || progress.steps > 0;
  };
  observer.drains = [&] { return has_begun.load(); };
  const auto looped = session->run_loop(options, observer);
  ASSERT_TRUE(looped.ok()) << looped.status();
  EXPECT_LT(looped->progress.steps, options.steps);
  EXPECT_FALSE(std::ranges::any_of(looped->progress.positions, &task::LoopPosition::is_end));
  // Each step that has begun has ended, and counts.
  EXPECT_EQ(count_of(session.get()), looped->progress.steps);
}

TEST_P(LoopOfACluster, is_no_further_ahead_of_its_client_than_it_may_be) {
  const Counter model;
  const auto session = session_of(model.graph());
  ASSERT_TRUE(session->run({}, {}, {"init"}).ok());
  constexpr int64_t kAhead = 8;
  task::LoopOptions options = counting(200);
  options.ahead_max = kAhead;
  int64_t told = 0;
  task::LoopObserver observer;
  observer.on_progress = [&](const task::LoopProgress& progress) {
    // What it is told now it has not heard of before this returns.
    EXPECT_LE(count_of(session.get()), told + kAhead * GetParam().lanes);
    told = progress.steps;
  };
  const auto looped = session->run_loop(options, observer);
  ASSERT_TRUE(looped.ok()) << looped.status();
  EXPECT_EQ(looped->progress.steps, 200);
  EXPECT_EQ(count_of(session.get()), 200);
}

TEST_P(LoopOfACluster, ends_when_it_is_cancelled_while_its_data_is_opened) {
  std::string folder = ::testing::TempDir() + "feeder-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string program = folder + "/feeder";
  const std::string asked = folder + "/asked";
  // It never answers.
  std::ofstream(program) << "#!/bin/sh\nread question\n: > " << asked << "\nread question\n";
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  setenv("SIDEREAL_PYTHON", program.c_str(), 1);
  data::take_environment();
  const Regression model;
  const auto session = session_of(model.graph());
  ASSERT_TRUE(session->run({}, {}, {"init"}).ok());
  task::LoopOptions options = training(1);
  data::DataSpec spec;
  spec.format = data::Format::kCsv;
  spec.files = {"s3://b/x.csv"};
  spec.label = "label";
  options.source = data::to_json(spec);
  task::LoopObserver observer;
  observer.is_cancelled = [&] { return std::filesystem::exists(asked); };
  const Status status = session->run_loop(options, observer).status();
  EXPECT_EQ(status.code(), StatusCode::kCancelled) << status;
  auto client = service::StatusClient::create(cluster_.target(), {}, std::chrono::seconds(60));
  ASSERT_TRUE(client.ok());
  EXPECT_TRUE(eventually([&] {
    const auto figures = (*client)->ask(std::chrono::seconds(60))[0].figures;
    return figures.value("sidereal_master_loops_running") == 0;
  }));
  unsetenv("SIDEREAL_PYTHON");
  data::take_environment();
  std::filesystem::remove_all(folder);
}

TEST_P(LoopOfACluster, ends_with_its_session) {
  const Regression model;
  const auto session = session_of(model.graph());
  ASSERT_TRUE(session->run({}, {}, {"init"}).ok());
  std::thread closer;
  task::LoopObserver observer;
  observer.on_progress = [&](const task::LoopProgress&) {
    if (!closer.joinable()) closer = std::thread([&] { static_cast<void>(session->close()); });
  };
  const Status status = session->run_loop(training(1'000'000'000), observer).status();
  EXPECT_THAT(status.code(), AnyOf(StatusCode::kCancelled, StatusCode::kAborted)) << status;
  closer.join();
}

TEST_P(LoopOfACluster, names_a_task_that_is_lost) {
  const Regression model;
  const auto session = session_of(model.graph());
  ASSERT_TRUE(session->run({}, {}, {"init"}).ok());
  std::thread stopper;
  task::LoopObserver observer;
  observer.on_progress = [&](const task::LoopProgress&) {
    if (!stopper.joinable()) stopper = std::thread([&] { cluster_.stop(1); });
  };
  const Status status = session->run_loop(training(1'000'000'000), observer).status();
  stopper.join();
  EXPECT_THAT(status.code(),
              AnyOf(StatusCode::kUnavailable, StatusCode::kAborted, StatusCode::kCancelled))
      << status;
  EXPECT_THAT(base::message_of(status), HasSubstr("/job:w/replica:0/task:1"));
}

TEST_P(LoopOfACluster, runs_beside_another_in_a_container_of_its_own) {
  const Regression first("first");
  const Regression second("second");
  std::vector<std::vector<double>> losses(2);
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&, i] {
      const auto session = session_of(i == 0 ? first.graph() : second.graph(), i);
      ASSERT_NE(session, nullptr);
      ASSERT_TRUE(session->run({}, {}, {"init"}).ok());
      const auto looped = session->run_loop(training(20'000));
      ASSERT_TRUE(looped.ok()) << looped.status();
      losses[static_cast<size_t>(i)] = looped->series[0];
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(losses[0].size(), 200U);
  // Neither sees the other's variable.
  EXPECT_EQ(losses[0], losses[1]);
}

TEST_P(LoopOfACluster, traces_the_steps_that_are_asked_for) {
  const Regression model;
  const auto session = session_of(model.graph());
  ASSERT_TRUE(session->run({}, {}, {"init"}).ok());
  task::LoopOptions options = training(1000);
  options.first_step = 100;
  options.trace_first = 103;
  options.trace_end = 105;
  const auto looped = session->run_loop(options);
  ASSERT_TRUE(looped.ok()) << looped.status();
  ASSERT_EQ(looped->traces.size(), 2U);
  EXPECT_THAT(looped->traces, Each(HasSubstr("MatMul")));
}

TEST_P(LoopOfACluster, ends_a_step_that_does_not_in_time) {
  Model model;
  const ir::Output queue = model.add(
      "Queue", {},
      {{"shared_name", std::string("q")}, {"dtypes", std::vector<std::string>{"float32"}}}, "q",
      "/task:1");
  model.add("QueueDequeue", {queue}, {{"dtypes", std::vector<std::string>{"float32"}}}, "take");
  const auto session = session_of(model.graph());
  task::LoopOptions options;
  options.fetches = {{.name = "take", .keep = task::Keep::kLast}};
  options.steps = 3;
  options.step_timeout = milliseconds(300);
  const Status status = session->run_loop(options).status();
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded) << status;
  EXPECT_THAT(base::message_of(status), HasSubstr("300 ms"));
  EXPECT_THAT(base::message_of(status), HasSubstr("queue 'q'"));
}

TEST_P(LoopOfACluster, holds_up_for_a_client_that_does_not_listen) {
  Model model;
  const ir::Output big =
      model.add("Const", {}, {{"value", Tensor::zeros(DType::kFloat32, Shape{1 << 18})}});
  model.add("Identity", {big}, {}, "big", "/task:0");
  const auto session = session_of(model.graph());
  task::LoopOptions options;
  options.fetches = {{.name = "big", .keep = task::Keep::kEach}};
  // Many times what may wait between the two; gigabytes take the thread sanitizer minutes.
  options.steps = base::kIsSanitized ? 400 : 3000;
  int64_t heard = 0;
  task::LoopObserver observer;
  observer.on_values = [&](const task::LoopValues& values) { EXPECT_EQ(values.step, heard++); };
  const auto looped = session->run_loop(options, observer);
  ASSERT_TRUE(looped.ok()) << looped.status();
  EXPECT_EQ(heard, options.steps);
}

}  // namespace
}  // namespace sidereal::app
