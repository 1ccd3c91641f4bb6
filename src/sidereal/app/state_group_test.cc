#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sidereal/app/testing/model.h"
#include "sidereal/app/testing/processes.h"
#include "sidereal/cluster/protocol.h"
#include "sidereal/cluster/task_name.h"
#include "sidereal/service/session.grpc.pb.h"
#include "sidereal/service/session.h"
#include "sidereal/service/status_client.h"
#include "sidereal/service/worker_service.h"
#include "sidereal/task/session_state.h"

/// Sessions that share variables, queues and tables by the name of their group.
namespace sidereal::app {
namespace {

namespace v1 = session::v1;
using tensor::DType;
using tensor::Shape;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A variable on task 2 that masters of other tasks use.
class CountingModel : public Model {
 public:
  CountingModel() {
    const ir::AttrMap is = {{"dtype", DType::kFloat32}, {"shape", Shape{2}}};
    ir::AttrMap named = is;
    named["shared_name"] = std::string("v");
    const ir::Output v = add("Variable", {}, named, "v", "/task:2");
    add("VariableAssign", {v, constant({1, 2})}, {}, "init");
    add("VariableAssignAdd", {v, constant({10, 20})}, {}, "add");
    add("VariableRead", {v}, is, "read");
  }
};

class StateGroups : public ::testing::TestWithParam<ClusterKind> {
 protected:
  /// A session of `group` at the master of `task`.
  std::unique_ptr<service::Session> session(const std::string& group, int task) {
    service::SessionOptions options = patient();
    options.state_group = group;
    auto made = service::Session::create(cluster_.target(task), model_.graph(), options);
    EXPECT_TRUE(made.ok()) << made.status();
    return made.ok() ? *std::move(made) : nullptr;
  }
  static StatusCode code_of_read(service::Session* session) {
    return session->run({}, {"read"}).status().code();
  }
  static std::vector<float> read(service::Session* session) {
    const auto got = session->run({}, {"read"});
    EXPECT_TRUE(got.ok()) << got.status();
    return got.ok() ? floats((*got)[0]) : std::vector<float>();
  }
  int64_t figure_of_ps(const std::string& name) {
    return (*client_)->ask(std::chrono::seconds(60))[2].figures.value(name);
  }
  bool comes_to(const std::string& name, int64_t value) {
    return eventually([&] { return figure_of_ps(name) == value; });
  }

  const TestCluster cluster_{3, GetParam()};
  const CountingModel model_;
  const Result<std::unique_ptr<service::StatusClient>> client_ =
      service::StatusClient::create(cluster_.target(), {}, std::chrono::seconds(60));
};
INSTANTIATE_TEST_SUITE_P(Over, StateGroups,
                         ::testing::Values(ClusterKind{cluster::Protocol::kGrpc},
                                           ClusterKind{cluster::Protocol::kGrpcPlusPlus},
                                           ClusterKind{cluster::Protocol::kStarServer},
                                           ClusterKind{cluster::Protocol::kStarServerLite},
                                           ClusterKind{cluster::Protocol::kGrpc, 3},
                                           ClusterKind{cluster::Protocol::kStarServer, 3}),
                         kind_name);

TEST_P(StateGroups, share_variables_over_masters_and_with_nobody_else) {
  const auto first = session("a", 0);
  ASSERT_TRUE(first->run({}, {}, {"init"}).ok());
  const auto second = session("a", 1);
  ASSERT_TRUE(second->run({}, {}, {"add"}).ok());
  EXPECT_THAT(read(second.get()), ElementsAre(11, 22));
  // That of the task where the variable is shares it as well.
  EXPECT_THAT(read(session("a", 2).get()), ElementsAre(11, 22));
  for (const char* group : {"", "b"}) {
    EXPECT_EQ(code_of_read(session(group, 0).get()), StatusCode::kFailedPrecondition) << group;
  }
  EXPECT_GT(figure_of_ps("sidereal_task_resource_bytes"), 0);
}

TEST_P(StateGroups, last_until_the_last_session_has_ended) {
  auto first = session("a", 0);
  ASSERT_TRUE(first->run({}, {}, {"init"}).ok());
  auto second = session("a", 1);
  first = nullptr;
  ASSERT_TRUE(comes_to("sidereal_task_sessions", 1));
  EXPECT_THAT(read(second.get()), ElementsAre(1, 2));
  second = nullptr;
  ASSERT_TRUE(comes_to("sidereal_task_sessions", 0));
  EXPECT_TRUE(comes_to("sidereal_task_resources", 0));
  const auto anew = session("a", 1);
  EXPECT_EQ(code_of_read(anew.get()), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(anew->run({}, {}, {"init"}).ok());
}

TEST_P(StateGroups, are_reset_for_the_sessions_of_other_masters_too) {
  const auto ended = session("a", 0);
  ASSERT_TRUE(ended->run({}, {}, {"init"}).ok());
  const auto other = session("a", 1);
  EXPECT_THAT(read(other.get()), ElementsAre(1, 2));
  ASSERT_TRUE(service::Session::reset(cluster_.target(), {}).ok());
  EXPECT_EQ(code_of_read(ended.get()), StatusCode::kAborted);
  EXPECT_EQ(code_of_read(other.get()), StatusCode::kFailedPrecondition);
}

TEST(StateGroup, is_refused_with_state_of_its_own_and_by_the_length_of_its_name) {
  const auto server = local_server();
  Model model;
  model.constant({1});
  service::SessionOptions options = patient();
  const auto create = [&] {
    return service::Session::create(server->target(), model.graph(), options).status();
  };
  options.state_group = std::string(task::kStateGroupBytesMax, 'g');
  EXPECT_TRUE(create().ok());
  options.state_group += "g";
  EXPECT_EQ(create().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(base::message_of(create()), HasSubstr("257 bytes"));
  options.state_group = "g";
  options.isolate_session_state = true;
  EXPECT_EQ(create().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(base::message_of(create()), HasSubstr("isolate_session_state"));
}

TEST(StateGroup, is_checked_by_the_task_that_a_master_attaches_to) {
  const auto server = local_server();
  const auto stub = v1::Worker::NewStub(
      grpc::CreateChannel(server->target().substr(7), grpc::InsecureChannelCredentials()));
  v1::GetStatusRequest ask;
  ask.set_version(service::kSessionVersion);
  v1::TaskStatus status;
  grpc::ClientContext asking;
  ASSERT_TRUE(stub->GetStatus(&asking, ask, &status).ok());
  grpc::ClientContext context;
  const auto stream = stub->Attach(&context);
  v1::AttachRequest request;
  v1::AttachHead* const head = request.mutable_head();
  head->set_version(service::kSessionVersion);
  head->set_task(cluster::task_of(status.devices(0).name()));
  head->set_session(1);
  head->set_state_group(std::string(task::kStateGroupBytesMax + 1, 'g'));
  stream->Write(request);
  v1::AttachReply reply;
  EXPECT_FALSE(stream->Read(&reply));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

}  // namespace
}  // namespace sidereal::app
