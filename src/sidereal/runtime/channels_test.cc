#include "sidereal/runtime/channels.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "sidereal/cluster/cluster_spec.h"
#include "sidereal/runtime/test_model.h"
#include "sidereal/security/credentials.h"

namespace sidereal::runtime {
namespace {

TEST(Channels, are_made_anew_for_a_task_that_was_started_again) {
  const std::string task = "/job:localhost/replica:0/task:0";
  std::unique_ptr<Server> server = local_server();
  cluster::ClusterSpec cluster;
  ASSERT_TRUE(cluster.add_job("localhost", std::vector{server->target().substr(7)}).ok());
  const auto credentials = security::Credentials::create({});
  ASSERT_TRUE(credentials.ok()) << credentials.status();
  Channels channels(cluster, *credentials);
  const auto soon = std::chrono::system_clock::now() + std::chrono::seconds(30);

  const auto first = channels.to(task);
  ASSERT_TRUE(first.ok() && (*first)->WaitForConnected(soon));
  // One that is connected serves, whoever asks; so it does for the same start.
  EXPECT_EQ(*channels.to(task, 1), *first);
  EXPECT_EQ(*channels.to(task, 1), *first);
  EXPECT_EQ(*channels.to(task), *first);
  const auto second = channels.to(task, 2);
  ASSERT_TRUE(second.ok());
  EXPECT_NE(*second, *first);
  EXPECT_EQ(*channels.to(task), *second);
  EXPECT_FALSE(channels.to("/job:other/replica:0/task:0", 1).ok());
}

TEST(Channels, that_reached_nobody_are_not_used_for_a_task_that_is_there) {
  const std::string task = "/job:localhost/replica:0/task:0";
  const ReservedPorts port(1);
  cluster::ClusterSpec cluster;
  ASSERT_TRUE(cluster.add_job("localhost", port.addresses()).ok());
  const auto credentials = security::Credentials::create({});
  ASSERT_TRUE(credentials.ok()) << credentials.status();
  Channels channels(cluster, *credentials);
  const auto failed = channels.to(task);
  ASSERT_TRUE(failed.ok());
  const auto now = std::chrono::system_clock::now();
  EXPECT_FALSE((*failed)->WaitForConnected(now + std::chrono::milliseconds(50)));
  EXPECT_NE(*channels.to(task, 1), *failed);
}

TEST(Channels, for_a_question_go_when_it_is_answered_unless_somebody_keeps_them) {
  const std::string task = "/job:localhost/replica:0/task:0";
  const ReservedPorts port(1);
  cluster::ClusterSpec cluster;
  ASSERT_TRUE(cluster.add_job("localhost", port.addresses()).ok());
  const auto credentials = security::Credentials::create({});
  ASSERT_TRUE(credentials.ok()) << credentials.status();
  Channels channels(cluster, *credentials);
  auto one = channels.passing(task);
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_EQ(*channels.passing(task), *one);
  std::weak_ptr<grpc::Channel> watched = *one;
  *one = nullptr;
  EXPECT_TRUE(watched.expired());
  const auto kept = channels.to(task);
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_EQ(*channels.passing(task), *kept);
  EXPECT_FALSE(channels.passing("/job:other/replica:0/task:0").ok());
}

}  // namespace
}  // namespace sidereal::runtime
