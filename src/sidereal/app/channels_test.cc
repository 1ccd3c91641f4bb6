#include "sidereal/service/channels.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "sidereal/app/testing/model.h"
#include "sidereal/cluster/cluster_spec.h"
#include "sidereal/security/credentials.h"

namespace sidereal::app {
namespace {

constexpr const char* kTask = "/job:localhost/replica:0/task:0";
constexpr const char* kOther = "/job:other/replica:0/task:0";

/// Of a cluster of one task, kTask.
std::unique_ptr<service::Channels> channels_of(const std::string& address) {
  cluster::ClusterSpec cluster;
  EXPECT_TRUE(cluster.add_job("localhost", std::vector{address}).ok());
  const auto credentials = security::Credentials::create({});
  EXPECT_TRUE(credentials.ok()) << credentials.status();
  return std::make_unique<service::Channels>(std::make_shared<service::KnownCluster>(cluster),
                                             *credentials);
}

TEST(Channels, are_made_anew_for_a_task_that_was_started_again) {
  const std::unique_ptr<Server> server = local_server();
  const auto channels = channels_of(server->target().substr(7));
  const auto soon = std::chrono::system_clock::now() + std::chrono::seconds(30);

  const auto first = channels->to(kTask);
  ASSERT_TRUE(first.ok() && (*first)->WaitForConnected(soon));
  // One that is connected serves, whoever asks; so it does for the same start.
  EXPECT_EQ(*channels->to(kTask, 1), *first);
  EXPECT_EQ(*channels->to(kTask, 1), *first);
  EXPECT_EQ(*channels->to(kTask), *first);
  const auto second = channels->to(kTask, 2);
  ASSERT_TRUE(second.ok());
  EXPECT_NE(*second, *first);
  EXPECT_EQ(*channels->to(kTask), *second);
  EXPECT_FALSE(channels->to(kOther, 1).ok());
}

TEST(Channels, that_reached_nobody_are_not_used_for_a_task_that_is_there) {
  const ReservedPorts port(1);
  const auto channels = channels_of(port.addresses()[0]);
  const auto failed = channels->to(kTask);
  ASSERT_TRUE(failed.ok());
  const auto now = std::chrono::system_clock::now();
  EXPECT_FALSE((*failed)->WaitForConnected(now + std::chrono::milliseconds(50)));
  EXPECT_NE(*channels->to(kTask, 1), *failed);
}

TEST(Channels, for_a_receive_request_go_when_it_is_answered_unless_somebody_keeps_them) {
  const ReservedPorts port(1);
  const auto channels = channels_of(port.addresses()[0]);
  auto one = channels->passing(kTask);
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_EQ(*channels->passing(kTask), *one);
  std::weak_ptr<grpc::Channel> watched = *one;
  *one = nullptr;
  EXPECT_TRUE(watched.expired());
  const auto kept = channels->to(kTask);
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_EQ(*channels->passing(kTask), *kept);
  EXPECT_FALSE(channels->passing(kOther).ok());
}

}  // namespace
}  // namespace sidereal::app
