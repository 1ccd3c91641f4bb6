// Sessions over star_server_lite whose next pulls are sent when a step has ended.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sidereal/app/testing/data_port.h"
#include "sidereal/app/testing/figures.h"
#include "sidereal/app/testing/model.h"
#include "sidereal/service/session.h"
#include "sidereal/service/status_client.h"

namespace sidereal::app {
namespace {

using std::chrono::milliseconds;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;
using ::testing::AnyOf;
using ::testing::Eq;

/// Longer than any test takes.
constexpr int64_t kLongMs = 3'600'000;

/// A variable "v" on task 1: "train" adds what is fed, and what it read times zero. "w" on task 2
/// is multiplied by what was read of both.
class TrainingModel : public Model {
 public:
  TrainingModel() {
    const ir::Output x = placeholder("x");
    const ir::Output v = variable("v", "/task:1");
    const ir::Output w = variable("w", "/task:2");
    const ir::Output read_v = read(v, "read_v");
    const ir::Output read_w = read(w, "read_w");
    add("VariableAssign", {v, constant({0, 0})}, {}, "init_v");
    add("VariableAssign", {w, constant({1, 3})}, {}, "init_w");
    const ir::Output nothing = add("Mul", {read_v, constant({0, 0})}, {}, "", "/task:0");
    add("VariableAssignAdd", {v, add("Add", {x, nothing}, {}, "", "/task:0")}, {}, "train_v");
    const ir::Output both = add("Mul", {read_w, read_v}, {}, "", "/task:0");
    const ir::Output change = add("Tanh", {both}, {}, "change", "/task:0");
    add("VariableAssignSub", {w, change}, {}, "train_w");
    read(v, "look_v");
    read(w, "look_w");
  }

 private:
  ir::Output variable(const std::string& name, const std::string& device) {
    return add("Variable", {},
               {{"shared_name", name}, {"dtype", DType::kFloat32}, {"shape", Shape{2}}}, name,
               device);
  }
  ir::Output read(ir::Output handle, const std::string& name) {
    return add("VariableRead", {handle}, {{"dtype", DType::kFloat32}, {"shape", Shape{2}}}, name);
  }
};

std::vector<service::Session::Feed> feed(float x) {
  return {{"x", Tensor::of(Shape{2}, std::vector<float>{x, -x})}};
}

class PrefetchedPullsInSessions : public ::testing::TestWithParam<int> {
 protected:
  std::unique_ptr<service::Session> session(std::optional<int64_t> pull_prefetch_ms,
                                            bool isolated = false) {
    service::SessionOptions options;
    options.pull_prefetch_ms = pull_prefetch_ms;
    options.isolate_session_state = isolated;
    auto made = service::Session::create(cluster_.target(), model_.graph(), options);
    EXPECT_TRUE(made.ok()) << made.status();
    return made.ok() ? *std::move(made) : nullptr;
  }
  static void init(service::Session* session) {
    const auto done = session->run({}, {}, {"init_v", "init_w"});
    ASSERT_TRUE(done.ok()) << done.status();
  }
  /// A step that adds `x`; what it read of v.
  static float train(service::Session* session, float x) {
    const auto got = session->run(feed(x), {"read_v", "change"}, {"train_v", "train_w"});
    EXPECT_TRUE(got.ok()) << got.status();
    return got.ok() ? floats((*got)[0])[0] : -1;
  }
  static float look(service::Session* session) {
    const auto got = session->run({}, {"look_v"});
    EXPECT_TRUE(got.ok()) << got.status();
    return got.ok() ? floats((*got)[0])[0] : -1;
  }
  /// Looks until it sees `value`, to which pushes of others are on their way; for 20 s.
  static void expect_soon(service::Session* session, float value) {
    const Stopwatch watch;
    float seen = look(session);
    while (seen != value && watch.seconds() < 20) seen = look(session);
    EXPECT_EQ(seen, value);
  }
  service::TaskReport report() {
    auto client = service::StatusClient::create(cluster_.options().cluster, {});
    EXPECT_TRUE(client.ok()) << client.status();
    return (*client)->ask(milliseconds(20'000)).front();
  }

  TestCluster cluster_{
      3, ClusterKind{.protocol = cluster::Protocol::kStarServerLite, .lanes = GetParam()}};
  const TrainingModel model_;
};
INSTANTIATE_TEST_SUITE_P(OnLanes, PrefetchedPullsInSessions, ::testing::Values(1, 3));

TEST_P(PrefetchedPullsInSessions, one_worker_gets_the_same_bits_whatever_it_runs_in_between) {
  const auto with = session(kLongMs, true);
  const auto without = session(0, true);
  for (service::Session* const one : {with.get(), without.get()}) init(one);
  for (int i = 0; i < 60; ++i) {
    std::vector<std::vector<float>> got;
    for (service::Session* const one : {with.get(), without.get()}) {
      if (i % 20 == 19) init(one);
      const auto step = i % 7 == 6
                            ? one->run({}, {"look_v", "look_w"})
                            : one->run(feed(0.125F * static_cast<float>(i)),
                                       {"read_v", "read_w", "change"}, {"train_v", "train_w"});
      ASSERT_TRUE(step.ok()) << step.status();
      for (const Tensor& value : *step) got.push_back(floats(value));
    }
    const size_t half = got.size() / 2;
    for (size_t k = 0; k < half; ++k) EXPECT_EQ(got[k], got[half + k]) << "step " << i;
  }
  const service::TaskReport now = report();
  EXPECT_GT(now.figures.value("sidereal_task_prefetched_pulls_total"), 20);
  EXPECT_GT(now.figures.value("sidereal_task_prefetched_pulls_unused_total"), 0);
  EXPECT_LT(now.figures.value("sidereal_task_prefetched_pulls_unused_total"),
            now.figures.value("sidereal_task_prefetched_pulls_total"));
}

TEST_P(PrefetchedPullsInSessions, a_step_misses_at_most_what_others_did_since_the_one_before_it) {
  const auto here = session(kLongMs);
  const auto there = session(kLongMs);
  init(here.get());
  float sum = 0;
  for (int round = 0; round < 20; ++round) {
    // Its own pushes it sees at once.
    for (int i = 0; i < 4; ++i) EXPECT_EQ(train(here.get(), 1), sum++);
    train(there.get(), 100);
    expect_soon(there.get(), sum + 100);
    EXPECT_THAT(train(here.get(), 1), AnyOf(Eq(sum), Eq(sum + 100)));
    sum += 101;
    EXPECT_EQ(train(here.get(), 1), sum);
    ++sum;
  }
  // What only reads asks when it runs.
  train(there.get(), 100);
  expect_soon(there.get(), sum + 100);
  EXPECT_EQ(look(here.get()), sum + 100);
  EXPECT_EQ(look(here.get()), sum + 100);
  EXPECT_GT(report().figures.value("sidereal_task_prefetched_pulls_total"), 0);
}

TEST_P(PrefetchedPullsInSessions, without_them_a_step_sees_all_that_has_ended) {
  const auto here = session(0);
  const auto there = session(0);
  init(here.get());
  float sum = 0;
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < 3; ++i) EXPECT_EQ(train(here.get(), 1), sum++);
    train(there.get(), 100);
    expect_soon(there.get(), sum + 100);
    sum += 100;
    EXPECT_EQ(train(here.get(), 1), sum++);
  }
  EXPECT_EQ(report().figures.value("sidereal_task_prefetched_pulls_total"), 0);
}

TEST_P(PrefetchedPullsInSessions, a_step_that_waits_for_its_pushes_is_seen_by_all_when_it_ends) {
  const auto here = session(kLongMs);
  init(here.get());
  // Of another master, whose reads do not follow those pushes.
  auto made = service::Session::create(cluster_.target(1), model_.graph());
  ASSERT_TRUE(made.ok()) << made.status();
  for (int i = 1; i <= 200; ++i) {
    const auto got =
        here->run(feed(1), {"read_v"}, {"train_v"}, service::RunOptions{.waits_for_pushes = true});
    ASSERT_TRUE(got.ok()) << got.status();
    ASSERT_EQ(look(made->get()), static_cast<float>(i));
  }
}

TEST_P(PrefetchedPullsInSessions, a_task_that_is_gone_ends_the_step_and_not_the_pull) {
  auto one = session(kLongMs);
  init(one.get());
  for (int i = 0; i < 5; ++i) train(one.get(), 1);
  EXPECT_GT(report().figures.value("sidereal_task_prefetched_pulls_total"), 0);
  cluster_.stop(1);
  // The first steps may have what was pulled before; their pushes do not arrive.
  Status failed;
  for (int i = 0; i < 100 && failed.ok(); ++i) {
    failed = one->run(feed(1), {"read_v"}, {"train_v", "train_w"}).status();
  }
  EXPECT_THAT(failed.code(), AnyOf(StatusCode::kUnavailable, StatusCode::kAborted)) << failed;
  one = nullptr;
  cluster_.start(1);
  one = session(kLongMs);
  init(one.get());
  for (int i = 0; i < 5; ++i) EXPECT_EQ(train(one.get(), 1), static_cast<float>(i));
}

TEST_P(PrefetchedPullsInSessions, closing_and_resetting_leave_nothing_behind) {
  for (int i = 0; i < 5; ++i) {
    const auto one = session(kLongMs);
    init(one.get());
    for (int k = 0; k < 4; ++k) EXPECT_EQ(train(one.get(), 2), 2 * static_cast<float>(k));
  }
  auto one = session(kLongMs);
  for (int k = 4; k < 8; ++k) EXPECT_EQ(train(one.get(), 2), 2 * static_cast<float>(k));
  const Status reset = service::Session::reset(cluster_.target(), {}, service::SessionOptions());
  EXPECT_TRUE(reset.ok()) << reset;
  EXPECT_FALSE(one->run(feed(1), {"read_v"}, {"train_v", "train_w"}).ok());
  one = session(kLongMs);
  EXPECT_EQ(one->run(feed(1), {"read_v"}, {"train_v", "train_w"}).status().code(),
            StatusCode::kFailedPrecondition);
  init(one.get());
  EXPECT_EQ(train(one.get(), 1), 0);
  // At once, though pulls may be kept for an hour.
  one = nullptr;
  EXPECT_EQ(report().figures.value("sidereal_task_sessions"), 0);
}

TEST_P(PrefetchedPullsInSessions, a_limit_that_cannot_be_is_refused) {
  service::SessionOptions options;
  options.pull_prefetch_ms = -1;
  const auto made = service::Session::create(cluster_.target(), model_.graph(), options);
  EXPECT_EQ(made.status().code(), StatusCode::kInvalidArgument) << made.status();
}

/// Steps in a second of a session whose answers from its ps are a millisecond late; its client
/// works for `work` before each.
double steps_per_second(service::Session* session, milliseconds work) {
  constexpr int kSteps = 200;
  const Stopwatch watch;
  for (int i = 0; i < kSteps; ++i) {
    const auto until = std::chrono::steady_clock::now() + work;
    while (std::chrono::steady_clock::now() < until) continue;
    const auto got = session->run(feed(1), {"read_v"}, {"train_v"});
    EXPECT_TRUE(got.ok()) << got.status();
  }
  return kSteps / watch.seconds();
}

/// Three processes, of which task 0 reaches task 1 through a proxy.
class PrefetchedPullsThroughAProxy : public ::testing::Test {
 protected:
  void SetUp() override {
    if (server_program().empty()) GTEST_SKIP() << "skipped: the program sidereal is not built";
    std::string folder = ::testing::TempDir() + "prefetched_pulls_XXXXXX";
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    cluster_ = std::make_unique<ProcessCluster>(
        3, std::vector<std::string>{"--protocol", "star_server_lite"});
    proxy_.start("127.0.0.1:" + std::to_string(cluster_->status(1).data_port()));
    std::ofstream(folder_ / ".endpoint_map") << cluster_->address(1) << "=" << proxy_.address();
    cluster_->kill(0);
    cluster_->start(0, {"--endpoint-map", folder});
    ASSERT_TRUE(cluster_->is_up(0));
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  /// A session with variables that have values.
  std::unique_ptr<service::Session> session(int64_t pull_prefetch_ms) {
    service::SessionOptions options;
    options.pull_prefetch_ms = pull_prefetch_ms;
    auto made = service::Session::create(cluster_->target(0), model_.graph(), options);
    EXPECT_TRUE(made.ok()) << made.status();
    if (!made.ok()) return nullptr;
    const auto done = (*made)->run({}, {}, {"init_v", "init_w"});
    EXPECT_TRUE(done.ok()) << done.status();
    return *std::move(made);
  }

  const TrainingModel model_;
  std::filesystem::path folder_;
  std::unique_ptr<ProcessCluster> cluster_;
  Proxy proxy_;
};

TEST_F(PrefetchedPullsThroughAProxy, come_while_the_client_prepares_the_next_step) {
  proxy_.change([](std::string* /*bytes*/) {
    poll(nullptr, 0, 1);
    return true;
  });
  for (const int64_t work_ms : {0, 1, 3}) {
    std::array<double, 2> rates = {};
    for (const bool ahead : {false, true}) {
      const auto one = session(ahead ? kLongMs : 0);
      ASSERT_NE(one, nullptr);
      steps_per_second(one.get(), milliseconds(0));
      rates[ahead ? 1 : 0] = steps_per_second(one.get(), milliseconds(work_ms));
    }
    std::cout << fmt::format(
        "answers 1 ms late, {} ms of the client before a step: {:.0f} steps/s, {:.0f} with pulls "
        "prefetched\n",
        work_ms, rates[0], rates[1]);
  }
  EXPECT_GT(task_figure(cluster_->status(0), "prefetched_pulls_total"), 1000);
}

TEST_F(PrefetchedPullsThroughAProxy, end_when_their_task_is_killed_while_they_are_under_way) {
  auto one = session(kLongMs);
  ASSERT_NE(one, nullptr);
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(one->run(feed(1), {"read_v"}, {"train_v"}).ok());
  }
  EXPECT_GT(task_figure(cluster_->status(0), "prefetched_pulls_total"), 0);
  // Nothing comes back any more. A step may have what has come before; what it sends for the next
  // one stays under way.
  proxy_.change([](std::string* bytes) {
    bytes->clear();
    return true;
  });
  const auto last = one->run(feed(1), {"read_v"}, {"train_v"}, {.timeout = milliseconds(300)});
  EXPECT_TRUE(last.ok() || last.status().code() == StatusCode::kDeadlineExceeded) << last.status();
  cluster_->kill(1);
  const Stopwatch watch;
  const Status failed = one->run(feed(1), {"read_v"}, {"train_v"}).status();
  EXPECT_THAT(failed.code(), AnyOf(StatusCode::kUnavailable, StatusCode::kAborted)) << failed;
  one = nullptr;
  EXPECT_LT(watch.seconds(), 30);
  EXPECT_TRUE(eventually([&] { return task_figure(cluster_->status(0), "sessions") == 0; }));
}

}  // namespace
}  // namespace sidereal::app
