#include "sidereal/service/status_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sidereal/app/testing/model.h"
#include "sidereal/service/session.h"

namespace sidereal::app {
namespace {

using std::chrono::milliseconds;
using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr milliseconds kLimit(20'000);

TEST(StatusClient, asks_all_tasks_of_a_cluster_what_they_did) {
  const TestCluster cluster(2);
  Model model;
  model.constant({1, 2}, "far", "/task:1");
  auto session = service::Session::create(cluster.target(), model.graph(), patient());
  ASSERT_TRUE(session.ok()) << session.status();
  for (int i = 0; i < 5; ++i) ASSERT_TRUE((*session)->run({}, {"far"}).ok());

  auto client = service::StatusClient::create(cluster.options().cluster, {});
  ASSERT_TRUE(client.ok()) << client.status();
  const std::vector<service::TaskReport> reports = (*client)->ask(kLimit);
  ASSERT_EQ(reports.size(), 2);
  for (const service::TaskReport& report : reports) {
    EXPECT_TRUE(report.status.ok()) << report.status;
    EXPECT_NE(report.incarnation, 0);
    EXPECT_GT(report.figures.value("sidereal_task_uptime_seconds"), 0);
    EXPECT_GT(report.figures.value("sidereal_task_memory_bytes"), 0);
    EXPECT_GT(report.figures.value("sidereal_task_threads"), 0);
  }
  EXPECT_EQ(reports[1].task, "/job:w/replica:0/task:1");
  const metrics::Readings& far = reports[1].figures;
  EXPECT_EQ(far.value("sidereal_task_steps_total"), 5);
  EXPECT_EQ(far.value("sidereal_task_sessions"), 1);
  EXPECT_EQ(far.value("sidereal_task_programs"), 1);
}

TEST(StatusClient, hears_how_many_lanes_a_task_has) {
  for (const auto protocol : {cluster::Protocol::kGrpc, cluster::Protocol::kStarServer}) {
    for (const int lanes : {1, 3}) {
      const TestCluster cluster(1, ClusterKind{protocol, lanes});
      auto client = service::StatusClient::create(cluster.options().cluster, {});
      ASSERT_TRUE(client.ok()) << client.status();
      const std::vector<service::TaskReport> reports = (*client)->ask(kLimit);
      ASSERT_EQ(reports.size(), 1);
      EXPECT_EQ(reports[0].figures.value("sidereal_task_lanes"), lanes);
    }
  }
}

TEST(StatusClient, names_who_cannot_be_reached_and_who_is_somebody_else) {
  TestCluster cluster(3);
  cluster::ClusterSpec other;
  const auto tasks = cluster.options().cluster.tasks("w");
  ASSERT_TRUE(
      other.add_job("x", cluster::ClusterSpec::Tasks{{1, tasks->at(1)}, {2, tasks->at(2)}}).ok());
  cluster.stop(2);
  auto client = service::StatusClient::create(other, {});
  ASSERT_TRUE(client.ok()) << client.status();
  const std::vector<service::TaskReport> reports = (*client)->ask(kLimit);
  ASSERT_EQ(reports.size(), 2);
  EXPECT_EQ(reports[0].status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(base::message_of(reports[0].status), HasSubstr("is /job:w/replica:0/task:1"));
  EXPECT_EQ(reports[1].status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(base::message_of(reports[1].status), HasSubstr(tasks->at(2)));
}

TEST(StatusClient, learns_the_cluster_from_one_of_its_servers) {
  TestCluster cluster(3);
  cluster.stop(0);
  auto client = service::StatusClient::create(cluster.target(1), {}, kLimit);
  ASSERT_TRUE(client.ok()) << client.status();
  const std::vector<service::TaskReport> reports = (*client)->ask(kLimit);
  ASSERT_EQ(reports.size(), 3);
  EXPECT_FALSE(reports[0].status.ok());
  EXPECT_TRUE(reports[1].status.ok());
  EXPECT_TRUE(reports[2].status.ok());
}

TEST(StatusClient, refuses_what_is_no_cluster_and_no_target) {
  cluster::ClusterSpec cluster;
  EXPECT_EQ(service::StatusClient::create(cluster, {}).status().code(),
            StatusCode::kInvalidArgument);
  ASSERT_TRUE(cluster.add_job("w", std::vector<std::string>{"nowhere"}).ok());
  EXPECT_THAT(base::message_of(service::StatusClient::create(cluster, {}).status()),
              HasSubstr("/job:w/replica:0/task:0"));
  EXPECT_EQ(service::StatusClient::create("localhost:1", {}, kLimit).status().code(),
            StatusCode::kInvalidArgument);
  const Status nobody = service::StatusClient::create("grpc://localhost:1", {}, kLimit).status();
  EXPECT_THAT(nobody.code(), AnyOf(StatusCode::kUnavailable, StatusCode::kDeadlineExceeded));
}

}  // namespace
}  // namespace sidereal::app
