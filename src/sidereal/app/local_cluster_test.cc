#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/types.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <map>

#include "sidereal/app/cluster.h"
#include "sidereal/app/testing/processes.h"
#include "sidereal/service/status_client.h"

namespace sidereal::app {
namespace {

using tensor::Shape;
using tensor::Tensor;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Two ps and a worker.
std::unique_ptr<Cluster> started(cluster::Protocol protocol, bool in_process) {
  auto cluster =
      start_local_cluster({.ps = 2, .ps_lanes = 2, .protocol = protocol, .in_process = in_process});
  EXPECT_TRUE(cluster.ok()) << cluster.status();
  return cluster.ok() ? *std::move(cluster) : nullptr;
}

/// From worker 0 to ps 1 and back.
ir::Graph round_trip() {
  Model model;
  const ir::Output there =
      model.add("Neg", {model.placeholder("x")}, {}, "there", "/job:ps/task:1");
  model.add("Mul", {there, model.constant({2, 3}, "", "/job:worker")}, {}, "back", "/job:worker");
  return model.graph();
}

Result<std::unique_ptr<service::Session>> session_at_worker(const Cluster& cluster) {
  service::SessionOptions options = cluster.session_options();
  options.connect_timeout = std::chrono::seconds(60);
  return service::Session::create(cluster.target("worker", 0), round_trip(), options);
}

std::vector<float> run_round_trip(service::Session* session) {
  const auto got = session->run({{"x", Tensor::of(Shape{2}, std::vector<float>{1, 10})}}, {"back"});
  EXPECT_TRUE(got.ok()) << got.status();
  return got.ok() ? floats((*got)[0]) : std::vector<float>();
}

/// Process numbers of all tasks, by name.
std::map<std::string, pid_t> pids_of(const Cluster& cluster) {
  std::map<std::string, pid_t> out;
  const auto client = service::StatusClient::create(cluster.spec(), cluster.security());
  EXPECT_TRUE(client.ok()) << client.status();
  for (const service::TaskReport& task : (*client)->ask(std::chrono::seconds(60))) {
    EXPECT_TRUE(task.status.ok()) << task.status;
    out[task.task] = static_cast<pid_t>(task.pid);
  }
  return out;
}

bool is_gone(pid_t pid) { return kill(pid, 0) != 0 && errno == ESRCH; }

constexpr const char* kPs1 = "/job:ps/replica:0/task:1";
constexpr const char* kWorker0 = "/job:worker/replica:0/task:0";

struct Kind {
  cluster::Protocol protocol;
  bool in_process;
};

class LocalClusters : public ::testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    if (!GetParam().in_process && server_program().empty()) {
      GTEST_SKIP() << "skipped: the program sidereal is not built";
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Over, LocalClusters,
                         ::testing::Values(Kind{cluster::Protocol::kGrpc, true},
                                           Kind{cluster::Protocol::kGrpc, false},
                                           Kind{cluster::Protocol::kGrpcPlusPlus, true},
                                           Kind{cluster::Protocol::kGrpcPlusPlus, false},
                                           Kind{cluster::Protocol::kStarServer, true},
                                           Kind{cluster::Protocol::kStarServer, false},
                                           Kind{cluster::Protocol::kStarServerLite, true},
                                           Kind{cluster::Protocol::kStarServerLite, false}),
                         [](const auto& info) {
                           return test_name({info.param.protocol, info.index}) +
                                  (info.param.in_process ? "_in_process" : "_processes");
                         });

TEST_P(LocalClusters, run_steps_of_a_session_at_a_worker_on_their_ps) {
  const auto cluster = started(GetParam().protocol, GetParam().in_process);
  ASSERT_NE(cluster, nullptr);
  EXPECT_EQ(cluster->spec().addresses("ps")->size(), 2);
  EXPECT_EQ(cluster->spec().addresses("worker")->size(), 1);
  {
    const auto session = session_at_worker(*cluster);
    ASSERT_TRUE(session.ok()) << session.status();
    for (int i = 0; i < 3; ++i) EXPECT_THAT(run_round_trip(session->get()), ElementsAre(-2, -30));
    EXPECT_EQ((*session)->list_devices()->size(), 3);
  }
  EXPECT_TRUE(cluster->check_alive().ok());
  EXPECT_TRUE(cluster->stop().ok());
  EXPECT_TRUE(cluster->stop().ok());
}

TEST_P(LocalClusters, let_in_nobody_without_their_secret) {
  const auto cluster = started(GetParam().protocol, GetParam().in_process);
  ASSERT_NE(cluster, nullptr);
  service::SessionOptions options = cluster->session_options();
  options.security = {};
  options.connect_timeout = std::chrono::seconds(60);
  EXPECT_EQ(
      service::Session::create(cluster->target("worker", 0), round_trip(), options).status().code(),
      StatusCode::kUnauthenticated);
}

class ClusterOfProcesses : public ::testing::Test {
 protected:
  void SetUp() override {
    if (server_program().empty()) {
      GTEST_SKIP() << "skipped: the program sidereal is not built";
    }
    cluster_ = started(cluster::Protocol::kStarServer, false);
    ASSERT_NE(cluster_, nullptr);
  }
  std::unique_ptr<Cluster> cluster_;
};

TEST_F(ClusterOfProcesses, says_which_task_was_killed) {
  ASSERT_TRUE(cluster_->check_alive().ok());
  const pid_t pid = pids_of(*cluster_)[kPs1];
  ASSERT_GT(pid, 0);
  ASSERT_EQ(kill(pid, SIGKILL), 0);
  ASSERT_TRUE(eventually([&] { return !cluster_->check_alive().ok(); }));
  const Status lost = cluster_->check_alive();
  EXPECT_EQ(lost.code(), StatusCode::kUnavailable);
  EXPECT_THAT(base::message_of(lost),
              ::testing::AllOf(HasSubstr("/job:ps/task:1"), HasSubstr("signal 9"),
                               HasSubstr(std::to_string(pid))));
  EXPECT_TRUE(cluster_->stop().ok());
}

TEST_F(ClusterOfProcesses, ends_them_all_in_the_middle_of_a_step) {
  const auto session = session_at_worker(*cluster_);
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_THAT(run_round_trip(session->get()), ElementsAre(-2, -30));
  const std::map<std::string, pid_t> pids = pids_of(*cluster_);
  ASSERT_EQ(pids.size(), 3);
  EXPECT_TRUE(cluster_->stop().ok());
  for (const auto& [task, pid] : pids) EXPECT_TRUE(is_gone(pid)) << task;
}

TEST_F(ClusterOfProcesses, kills_a_task_that_does_not_stop) {
  const pid_t pid = pids_of(*cluster_)[kPs1];
  ASSERT_GT(pid, 0);
  ASSERT_EQ(kill(pid, SIGSTOP), 0);
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(cluster_->stop().ok());
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("is killed task=/job:ps/task:1"));
  EXPECT_TRUE(is_gone(pid));
}

/// Two ps and a worker, which are started again once.
class SupervisedCluster : public ::testing::TestWithParam<cluster::Protocol> {
 protected:
  void SetUp() override {
    if (server_program().empty()) {
      GTEST_SKIP() << "skipped: the program sidereal is not built";
    }
    auto made = start_local_cluster({.ps = 2,
                                     .ps_lanes = 2,
                                     .protocol = GetParam(),
                                     .restarts = true,
                                     .replicas = replicas(),
                                     .restarts_max = 1,
                                     .silence_s = silence_s()});
    ASSERT_TRUE(made.ok()) << made.status();
    cluster_ = *std::move(made);
  }
  [[nodiscard]] virtual int replicas() const { return 1; }
  /// Longer than a loaded machine keeps a task that works from answering.
  [[nodiscard]] virtual double silence_s() const { return 60; }
  pid_t pid_of_ps1() { return pids_of(*cluster_)[kPs1]; }
  std::unique_ptr<Cluster> cluster_;
};
INSTANTIATE_TEST_SUITE_P(Over, SupervisedCluster,
                         ::testing::Values(cluster::Protocol::kGrpc,
                                           cluster::Protocol::kStarServer));

/// One whose tasks must not hang for long.
class WatchedCluster : public SupervisedCluster {
 protected:
  [[nodiscard]] double silence_s() const override { return 2; }
};
INSTANTIATE_TEST_SUITE_P(Over, WatchedCluster,
                         ::testing::Values(cluster::Protocol::kGrpc,
                                           cluster::Protocol::kStarServer));

TEST_P(SupervisedCluster, starts_a_killed_ps_again_at_its_address) {
  const pid_t first = pid_of_ps1();
  {
    const auto session = session_at_worker(*cluster_);
    ASSERT_TRUE(session.ok()) << session.status();
    EXPECT_THAT(run_round_trip(session->get()), ElementsAre(-2, -30));
  }
  ASSERT_EQ(kill(first, SIGKILL), 0);
  EXPECT_TRUE(cluster_->check_alive().ok());
  // A session waits until it is there.
  const auto session = session_at_worker(*cluster_);
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_THAT(run_round_trip(session->get()), ElementsAre(-2, -30));
  const pid_t second = pid_of_ps1();
  EXPECT_NE(second, first);
  EXPECT_TRUE(cluster_->check_alive().ok());

  // Once too often.
  ASSERT_EQ(kill(second, SIGKILL), 0);
  ASSERT_TRUE(eventually([&] { return !cluster_->check_alive().ok(); }));
  EXPECT_THAT(base::message_of(cluster_->check_alive()), HasSubstr("/job:ps/task:1"));
  EXPECT_TRUE(cluster_->stop().ok());
}

TEST_P(SupervisedCluster, starts_a_killed_worker_again_at_its_address) {
  const pid_t first = pids_of(*cluster_)[kWorker0];
  ASSERT_GT(first, 0);
  ASSERT_EQ(kill(first, SIGKILL), 0);
  const auto session = session_at_worker(*cluster_);
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_THAT(run_round_trip(session->get()), ElementsAre(-2, -30));
  EXPECT_NE(pids_of(*cluster_)[kWorker0], first);
}

TEST_P(WatchedCluster, kills_a_ps_that_hangs_before_it_starts_it_again) {
  const pid_t first = pid_of_ps1();
  ASSERT_GT(first, 0);
  const Lateness lateness;
  const Stopwatch watch;
  ASSERT_EQ(kill(first, SIGSTOP), 0);
  ASSERT_TRUE(eventually([&] { return is_gone(first); }, 60));
  EXPECT_TRUE(cluster_->check_alive().ok());
  const auto session = session_at_worker(*cluster_);
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_THAT(run_round_trip(session->get()), ElementsAre(-2, -30));
  // Two seconds of silence, one between two questions, and what a start takes.
  EXPECT_LT(watch.seconds(), lateness.allows(10));
  EXPECT_NE(pid_of_ps1(), first);
}

TEST_P(SupervisedCluster, starts_nothing_again_when_it_stops) {
  const pid_t pid = pid_of_ps1();
  EXPECT_TRUE(cluster_->stop().ok());
  EXPECT_TRUE(is_gone(pid));
}

/// A variable of ps 1.
class CountOnPs1 : public Model {
 public:
  CountOnPs1() {
    const ir::AttrMap of_floats = {{"dtype", tensor::DType::kFloat32}, {"shape", Shape{2}}};
    ir::AttrMap attrs = of_floats;
    attrs["shared_name"] = std::string("count");
    const std::string ps = "/job:ps/task:1";
    const ir::Output count = add("Variable", {}, attrs, "count", ps);
    add("VariableAssign", {count, constant({0, 0}, "", ps)}, {}, "init", ps);
    add("VariableAssignAdd", {count, constant({1, 2}, "", ps)}, {}, "push", ps);
    add("VariableRead", {count}, of_floats, "pull", ps);
  }
};

/// One whose ps are standbys of each other.
class ClusterWithReplicas : public SupervisedCluster {
 protected:
  [[nodiscard]] int replicas() const override { return 2; }
};
INSTANTIATE_TEST_SUITE_P(Over, ClusterWithReplicas,
                         ::testing::Values(cluster::Protocol::kGrpc,
                                           cluster::Protocol::kStarServer));

TEST_P(ClusterWithReplicas, has_what_a_killed_ps_had) {
  service::SessionOptions options = cluster_->session_options();
  options.connect_timeout = std::chrono::seconds(60);
  const CountOnPs1 model;
  const std::string target = cluster_->target("worker", 0);
  {
    auto session = service::Session::create(target, model.graph(), options);
    ASSERT_TRUE(session.ok()) << session.status();
    ASSERT_TRUE((*session)->run({}, {}, {"init"}).ok());
    const auto client = service::StatusClient::create(cluster_->spec(), cluster_->security());
    ASSERT_TRUE(client.ok()) << client.status();
    ASSERT_TRUE(eventually(
        [&] {
          int64_t streams = 0;
          for (const service::TaskReport& task : (*client)->ask(std::chrono::seconds(60), "ps")) {
            if (task.task == kPs1) streams = task.figures.value("sidereal_standbys");
          }
          return streams == 2;
        },
        60));
    for (int i = 0; i < 5; ++i) ASSERT_TRUE((*session)->run({}, {}, {"push"}).ok());
  }
  ASSERT_EQ(kill(pid_of_ps1(), SIGKILL), 0);
  auto session = service::Session::create(target, model.graph(), options);
  ASSERT_TRUE(session.ok()) << session.status();
  const auto got = (*session)->run({}, {"pull"});
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_THAT(floats((*got)[0]), ElementsAre(5, 10));
}

TEST(LocalClusterOptions, with_more_replicas_than_ps_are_refused) {
  const Status status = start_local_cluster({.ps = 2, .replicas = 3}).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(base::message_of(status), HasSubstr("from 1 to the number of ps, which is 2"));
}

TEST(RemoteCluster, says_what_a_session_to_its_tasks_needs) {
  cluster::ClusterSpec spec;
  ASSERT_TRUE(spec.add_job("ps", std::vector<std::string>{"a:1", "b:2"}).ok());
  ASSERT_TRUE(spec.add_job("worker", std::vector<std::string>{"c:3"}).ok());
  const auto cluster = remote_cluster(spec, {.secret = "sixteen bytes are enough"});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_EQ((*cluster)->session_options().cluster, spec);
  EXPECT_EQ((*cluster)->session_options().security.secret, "sixteen bytes are enough");
  EXPECT_EQ((*cluster)->target("ps", 1), "grpc://b:2");
  EXPECT_EQ((*cluster)->target("ps", 2), "");
}

TEST(LocalClusterOptions, name_a_folder_of_events_that_cannot_be_made) {
  const std::string file = ::testing::TempDir() + "/events_in_" + std::to_string(getpid());
  ASSERT_TRUE(std::ofstream(file).good());
  const Status status = start_local_cluster({.event_dir = file + "/folder"}).status();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(base::message_of(status), HasSubstr("event_dir: cannot make directory " + file));
  EXPECT_EQ(std::remove(file.c_str()), 0);
}

TEST(LocalClusterOptions, that_ask_for_no_tasks_are_refused) {
  EXPECT_EQ(start_local_cluster({.ps = 0}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(start_local_cluster({.program = "/nowhere/sidereal"}).status().code(),
            StatusCode::kNotFound);
}

}  // namespace
}  // namespace sidereal::app
