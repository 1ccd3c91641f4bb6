#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <thread>

#include "sidereal/app/testing/model.h"
#include "sidereal/ir/text.h"
#include "sidereal/service/channels.h"
#include "sidereal/service/session.grpc.pb.h"
#include "sidereal/service/session.h"
#include "sidereal/service/status_client.h"
#include "sidereal/service/worker_service.h"

namespace sidereal::app {
namespace {

namespace v1 = session::v1;
using cluster::ClusterSpec;
using tensor::Shape;
using tensor::Tensor;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A server of job "w" that nobody has told its cluster.
std::unique_ptr<Server> started(int task, cluster::Protocol protocol = cluster::Protocol::kGrpc,
                                const ClusterSpec& cluster = {}) {
  ServerOptions options;
  options.cluster = cluster;
  options.job = "w";
  options.task = task;
  options.listen = "127.0.0.1:0";
  options.protocol = protocol;
  auto server = Server::create(options);
  EXPECT_TRUE(server.ok()) << server.status();
  return *std::move(server);
}

std::string address_of(const Server& server) { return server.target().substr(7); }

ClusterSpec cluster_of(const std::vector<std::string>& addresses) {
  ClusterSpec out;
  EXPECT_TRUE(out.add_job("w", addresses).ok());
  return out;
}

Result<std::unique_ptr<service::Session>> session_at(const Server& server, const ir::Graph& graph,
                                                     const ClusterSpec& cluster = {}) {
  service::SessionOptions options = patient();
  options.cluster = cluster;
  return service::Session::create(server.target(), graph, options);
}

/// From task 0 to task 1 and back: 2 x^2, 3 x^2.
ir::Graph round_trip() {
  Model model;
  const ir::Output here = model.add("Neg", {model.placeholder("x")}, {}, "here", "/job:w/task:0");
  const ir::Output there = model.add("Square", {here}, {}, "there", "/job:w/task:1");
  model.add("Mul", {there, model.constant({2, 3}, "", "/job:w/task:0")}, {}, "back",
            "/job:w/task:0");
  return model.graph();
}

ir::Graph at_home() {
  Model model;
  model.constant({7}, "c");
  return model.graph();
}

std::vector<float> run_round_trip(service::Session* session) {
  const auto got = session->run({{"x", Tensor::of(Shape{2}, std::vector<float>{1, 10})}}, {"back"});
  EXPECT_TRUE(got.ok()) << got.status();
  return got.ok() ? floats((*got)[0]) : std::vector<float>();
}

class SessionCluster : public ::testing::TestWithParam<cluster::Protocol> {};
INSTANTIATE_TEST_SUITE_P(Over, SessionCluster,
                         ::testing::Values(cluster::Protocol::kGrpc,
                                           cluster::Protocol::kGrpcPlusPlus,
                                           cluster::Protocol::kStarServer,
                                           cluster::Protocol::kStarServerLite),
                         test_name);

TEST_P(SessionCluster, tells_servers_that_were_started_without_one) {
  const auto first = started(0, GetParam());
  const auto second = started(1, GetParam());
  const ClusterSpec cluster = cluster_of({address_of(*first), address_of(*second)});
  const auto session = session_at(*first, round_trip(), cluster);
  ASSERT_TRUE(session.ok()) << session.status();
  for (int i = 0; i < 5; ++i) EXPECT_THAT(run_round_trip(session->get()), ElementsAre(2, 300));
  // Both know it from now on: a session of the other one needs not say it.
  EXPECT_EQ(first->cluster(), cluster);
  EXPECT_EQ(second->cluster(), cluster);
  const auto other = session_at(*second, round_trip());
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_THAT(run_round_trip(other->get()), ElementsAre(2, 300));
  // And one that names it again is welcome.
  EXPECT_TRUE(session_at(*second, round_trip(), cluster).ok());
  const auto client = service::StatusClient::create(first->target(), {}, std::chrono::seconds(60));
  ASSERT_TRUE(client.ok()) << client.status();
  EXPECT_EQ((*client)->ask(std::chrono::seconds(60)).size(), 2);
}

TEST_P(SessionCluster, is_the_server_alone_while_nobody_names_one) {
  const auto server = started(3, GetParam());
  const auto session = session_at(*server, at_home());
  ASSERT_TRUE(session.ok()) << session.status();
  const auto got = (*session)->run({}, {"c"});
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_THAT(floats((*got)[0]), ElementsAre(7));
  const auto devices = (*session)->list_devices();
  ASSERT_TRUE(devices.ok()) << devices.status();
  ASSERT_EQ(devices->size(), 1);
  EXPECT_EQ((*devices)[0].name, "/job:w/replica:0/task:3/device:CPU:0");
  const Status wants_more = session_at(*server, round_trip()).status();
  EXPECT_EQ(wants_more.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(base::message_of(wants_more), HasSubstr("without a cluster"));
  // None of these said what its cluster is.
  ClusterSpec cluster;
  ASSERT_TRUE(cluster.add_job("w", ClusterSpec::Tasks{{3, address_of(*server)}}).ok());
  EXPECT_TRUE(session_at(*server, at_home(), cluster).ok());
}

TEST(SessionClusters, of_which_the_server_knows_another_are_refused) {
  const auto first = started(0);
  const auto second = started(1);
  const std::string here = address_of(*first);
  const std::string there = address_of(*second);
  ASSERT_TRUE(session_at(*first, round_trip(), cluster_of({here, there})).ok());
  const auto refused = [](const Result<std::unique_ptr<service::Session>>& made) {
    EXPECT_EQ(made.status().code(), StatusCode::kFailedPrecondition) << made.status();
    return base::message_of(made.status());
  };
  EXPECT_THAT(refused(session_at(*first, at_home(), cluster_of({here, "127.0.0.1:1"}))),
              ::testing::AllOf(HasSubstr("/task:1"), HasSubstr("127.0.0.1:1,"), HasSubstr(there)));
  EXPECT_THAT(refused(session_at(*first, at_home(), cluster_of({here, there, "127.0.0.1:1"}))),
              HasSubstr("no such task"));
  // A master that knew nothing takes what the task it attaches to does not.
  const auto stranger = started(2);
  ClusterSpec wrong = cluster_of({"127.0.0.1:1", there, address_of(*stranger)});
  EXPECT_THAT(refused(session_at(*stranger, round_trip(), wrong)), HasSubstr("/task:1"));
  // Those that were right go on.
  EXPECT_TRUE(session_at(*first, round_trip(), cluster_of({here, there})).ok());
}

TEST(SessionClusters, without_the_server_or_with_it_elsewhere_are_refused) {
  const auto server = started(1);
  ClusterSpec other;
  ASSERT_TRUE(other.add_job("ps", std::vector{address_of(*server)}).ok());
  const Status absent = session_at(*server, at_home(), other).status();
  EXPECT_EQ(absent.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(base::message_of(absent), HasSubstr("no /job:w/replica:0/task:1"));
  const Status elsewhere =
      session_at(*server, at_home(), cluster_of({"127.0.0.1:5", "127.0.0.1:6"})).status();
  EXPECT_EQ(elsewhere.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(base::message_of(elsewhere), HasSubstr(address_of(*server)));
  EXPECT_TRUE(
      session_at(*server, at_home(), cluster_of({"127.0.0.1:5", address_of(*server)})).ok());
}

TEST(SessionClusters, may_be_a_part_of_the_one_a_server_was_started_with) {
  const auto second = started(1);
  const auto first =
      started(0, cluster::Protocol::kGrpc, cluster_of({"127.0.0.1:0", address_of(*second)}));
  const ClusterSpec part = cluster_of({address_of(*first)});
  const auto session = session_at(*first, at_home(), part);
  ASSERT_TRUE(session.ok()) << session.status();
  const auto devices = (*session)->list_devices();
  ASSERT_TRUE(devices.ok()) << devices.status();
  EXPECT_EQ(devices->size(), 1);
  EXPECT_FALSE(session_at(*first, round_trip(), part).ok());
  EXPECT_EQ(first->cluster().num_tasks("w").value(), 2);
  EXPECT_EQ(session_at(*first, at_home(), cluster_of({"127.0.0.1:1"})).status().code(),
            StatusCode::kFailedPrecondition);
}

TEST(SessionClusters, that_a_step_needs_and_a_task_was_not_told_are_named_as_missing) {
  for (const cluster::Protocol protocol :
       {cluster::Protocol::kGrpc, cluster::Protocol::kGrpcPlusPlus}) {
    const auto second = started(1, protocol);
    const auto first = started(0, protocol, cluster_of({"127.0.0.1:0", address_of(*second)}));
    // The session names none, so that task 1 does not hear where task 0 is.
    const auto session = session_at(*first, round_trip());
    ASSERT_TRUE(session.ok()) << session.status();
    const Status failed =
        (*session)
            ->run({{"x", Tensor::of(Shape{2}, std::vector<float>{1, 10})}}, {"back"})
            .status();
    EXPECT_EQ(failed.code(), StatusCode::kNotFound) << failed;
    EXPECT_THAT(base::message_of(failed), HasSubstr("without a cluster"));
  }
}

TEST(SessionClusters, of_which_many_are_named_at_once_one_holds) {
  const auto server = started(0);
  std::vector<std::thread> clients;
  std::vector<Status> made(8);
  for (size_t i = 0; i < made.size(); ++i) {
    clients.emplace_back([&, i] {
      const std::string other = "127.0.0.1:" + std::to_string(1 + i % 2);
      made[i] = session_at(*server, at_home(), cluster_of({address_of(*server), other})).status();
    });
  }
  for (std::thread& client : clients) client.join();
  const std::string chosen = *server->cluster().task_address("w", 1);
  for (size_t i = 0; i < made.size(); ++i) {
    const bool is_chosen = chosen == "127.0.0.1:" + std::to_string(1 + i % 2);
    EXPECT_EQ(made[i].code(), is_chosen ? StatusCode::kOk : StatusCode::kFailedPrecondition);
  }
}

TEST(SessionClusters, of_liars_are_refused_and_change_nothing) {
  const auto server = started(0);
  const auto credentials = security::Credentials::create({});
  const auto channel = service::make_channel(address_of(*server), **credentials);
  const auto master = v1::Master::NewStub(channel);
  const auto worker = v1::Worker::NewStub(channel);
  std::string many = R"({"w": [")" + address_of(*server) + '"';
  for (int i = 0; i < 65'536; ++i) many += R"(,"a:1")";
  many += "]}";
  const std::vector<std::string> lies = {
      "no JSON",
      "[]",
      "7",
      "null",
      R"({"w": 1})",
      R"({"w": ["127.0.0.1:0"]})",
      R"({"w": ["nowhere"]})",
      R"({"w": ["a b:1"]})",
      R"({"w": {"-1": "a:1"}})",
      R"({"w": {"99999999999": "a:1"}})",
      R"({"w": {"2000000": "a:1"}})",
      R"({"w/x": ["a:1"]})",
      R"({"w": ["a:1"], "w": ["b:1"]})",
      std::string(200'000, '['),
      many,
      R"({"w": [")" + std::string(size_t{5} << 20, 'a') + R"(:1"]})"};
  for (const std::string& lie : lies) {
    v1::CreateSessionRequest request;
    request.set_version(service::kSessionVersion);
    request.set_graph(ir::to_text(at_home()));
    request.set_cluster(lie);
    v1::CreateSessionReply reply;
    grpc::ClientContext context;
    EXPECT_EQ(master->CreateSession(&context, request, &reply).error_code(),
              grpc::StatusCode::INVALID_ARGUMENT)
        << lie.substr(0, 100);
    v1::ResetRequest reset;
    reset.set_cluster(lie);
    v1::ResetReply done;
    grpc::ClientContext resetting;
    EXPECT_EQ(master->Reset(&resetting, reset, &done).error_code(),
              grpc::StatusCode::INVALID_ARGUMENT);
    v1::AttachRequest head;
    head.mutable_head()->set_version(service::kSessionVersion);
    head.mutable_head()->set_task(server->task());
    head.mutable_head()->set_session(5);
    head.mutable_head()->set_cluster(lie);
    grpc::ClientContext attaching;
    const auto stream = worker->Attach(&attaching);
    stream->Write(head);
    v1::AttachReply attached;
    EXPECT_FALSE(stream->Read(&attached));
    EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  }
  EXPECT_EQ(server->figures().value("sidereal_task_sessions"), 0);
  EXPECT_EQ(server->cluster(), cluster_of({address_of(*server)}));
  EXPECT_TRUE(
      session_at(*server, at_home(), cluster_of({address_of(*server), "127.0.0.1:1"})).ok());
}

TEST(ServerWithoutACluster, wants_to_know_where_to_listen_and_who_it_is) {
  ServerOptions options;
  options.job = "w";
  const Status nowhere = Server::create(options).status();
  EXPECT_EQ(nowhere.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(base::message_of(nowhere), HasSubstr("listen"));
  options.listen = "127.0.0.1:0";
  options.job = "no/job";
  EXPECT_EQ(Server::create(options).status().code(), StatusCode::kInvalidArgument);
  options.job = "w";
  options.task = -1;
  EXPECT_EQ(Server::create(options).status().code(), StatusCode::kInvalidArgument);
}

TEST(ServerWithoutACluster, resets_the_tasks_of_the_cluster_that_is_named) {
  const auto first = started(0);
  const auto second = started(1);
  service::SessionOptions options = patient();
  options.cluster = cluster_of({address_of(*first), address_of(*second)});
  ASSERT_TRUE(service::Session::reset(first->target(), {}, options).ok());
  EXPECT_EQ(first->cluster(), options.cluster);
  options.cluster = cluster_of({address_of(*first), "127.0.0.1:1"});
  EXPECT_EQ(service::Session::reset(first->target(), {}, options).code(),
            StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace sidereal::app
