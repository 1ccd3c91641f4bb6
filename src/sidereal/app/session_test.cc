#include "sidereal/service/session.h"
#include "sidereal/app/testing/figures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "sidereal/app/server.h"
#include "sidereal/app/testing/processes.h"

namespace sidereal::app {
namespace {

using tensor::DType;
using tensor::Shape;
using tensor::Tensor;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Session, runs_a_graph_on_a_server_of_this_process) {
  const auto server = local_server();
  Model model;
  model.add("Mul", {model.placeholder("x"), model.constant({2, 3})}, {}, "y");
  auto session = service::Session::create(server->target(), model.graph(), patient());
  ASSERT_TRUE(session.ok()) << session.status();
  for (int i = 0; i < 3; ++i) {
    const auto got = (*session)->run({{"x", Tensor::of(Shape{2}, std::vector<float>{1, 10})}},
                                     {"y", "x", "y:0"});
    ASSERT_TRUE(got.ok()) << got.status();
    ASSERT_EQ(got->size(), 3);
    EXPECT_THAT(floats((*got)[0]), ElementsAre(2, 30));
    EXPECT_THAT(floats((*got)[1]), ElementsAre(1, 10));
    EXPECT_THAT(floats((*got)[2]), ElementsAre(2, 30));
  }
  EXPECT_TRUE((*session)->close().ok());
  EXPECT_TRUE((*session)->close().ok());
}

TEST(Session, says_which_placeholder_was_not_fed_and_which_name_is_unknown) {
  const auto server = local_server();
  Model model;
  model.add("Mul", {model.placeholder("x"), model.constant({2, 3})}, {}, "y");
  auto session = service::Session::create(server->target(), model.graph(), patient());
  ASSERT_TRUE(session.ok()) << session.status();
  const Status unfed = (*session)->run({}, {"y"}).status();
  EXPECT_EQ(unfed.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(base::message_of(unfed), HasSubstr("'x'"));
  EXPECT_EQ((*session)->run({}, {"z"}).status().code(), StatusCode::kNotFound);
}

TEST(Session, a_graph_grows) {
  const auto server = local_server();
  Model model;
  const ir::Output a = model.constant({1, 2}, "a");
  auto session = service::Session::create(server->target(), model.graph(), patient());
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_EQ((*session)->run({}, {"b"}).status().code(), StatusCode::kNotFound);
  model.add("Neg", {a}, {}, "b");
  ASSERT_TRUE((*session)->extend(model.graph()).ok());
  const auto got = (*session)->run({}, {"b"});
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_THAT(floats((*got)[0]), ElementsAre(-1, -2));
  Model other;
  other.constant({7}, "a");
  EXPECT_EQ((*session)->extend(other.graph()).code(), StatusCode::kInvalidArgument);
}

TEST(Session, an_error_of_a_kernel_names_the_node) {
  const auto server = local_server();
  Model model;
  model.add("Add", {model.placeholder("x"), model.constant({2, 3})}, {}, "sum");
  auto session = service::Session::create(server->target(), model.graph(), patient());
  ASSERT_TRUE(session.ok()) << session.status();
  const Status status =
      (*session)->run({{"x", Tensor::of(Shape{3}, std::vector<float>{1, 2, 3})}}, {"sum"}).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(base::message_of(status), HasSubstr("sum"));
}

class Waiting : public ::testing::Test {
 protected:
  void SetUp() override {
    const ir::Output queue = model_.add(
        "Queue", {},
        {{"shared_name", std::string("q")}, {"dtypes", std::vector<std::string>{"float32"}}}, "q");
    model_.add("QueueDequeue", {queue}, {{"dtypes", std::vector<std::string>{"float32"}}}, "take");
    model_.add("QueueEnqueue", {queue, model_.constant({5})}, {}, "put");
  }

  /// Waits until a step waits for the queue.
  bool somebody_waits() {
    const auto stub = session::v1::Worker::NewStub(
        grpc::CreateChannel(server_->target().substr(7), grpc::InsecureChannelCredentials()));
    session::v1::GetStatusRequest request;
    request.set_version(service::kSessionVersion);
    return eventually([&] {
      session::v1::TaskStatus reply;
      grpc::ClientContext context;
      return stub->GetStatus(&context, request, &reply).ok() &&
             task_figure(reply, "steps_blocked") > 0;
    });
  }

  std::unique_ptr<Server> server_ = local_server();
  Model model_;
};

TEST_F(Waiting, a_step_that_waits_goes_on_when_another_session_helps) {
  auto a = service::Session::create(server_->target(), model_.graph(), patient());
  auto b = service::Session::create(server_->target(), model_.graph(), patient());
  ASSERT_TRUE(a.ok() && b.ok());
  Result<std::vector<Tensor>> got = base::internal("not yet");
  std::thread receiver([&] { got = (*a)->run({}, {"take"}); });
  ASSERT_TRUE((*b)->run({}, {}, {"put"}).ok());
  receiver.join();
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_THAT(floats((*got)[0]), ElementsAre(5));
}

TEST_F(Waiting, a_deadline_says_what_was_waited_for) {
  auto session = service::Session::create(server_->target(), model_.graph(), patient());
  ASSERT_TRUE(session.ok());
  service::RunOptions options;
  options.timeout = std::chrono::milliseconds(500);
  const Status status = (*session)->run({}, {"take"}, {}, options).status();
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(base::message_of(status), HasSubstr("queue 'q'"));
  // It can be used after that.
  ASSERT_TRUE((*session)->run({}, {}, {"put"}).ok());
  EXPECT_TRUE((*session)->run({}, {"take"}).ok());
}

TEST_F(Waiting, closing_a_session_ends_its_steps) {
  auto session = service::Session::create(server_->target(), model_.graph(), patient());
  ASSERT_TRUE(session.ok());
  Status status;
  std::thread receiver([&] { status = (*session)->run({}, {"take"}).status(); });
  EXPECT_TRUE(somebody_waits());
  EXPECT_TRUE((*session)->close().ok());
  receiver.join();
  EXPECT_EQ(status.code(), StatusCode::kCancelled);
  EXPECT_THAT(base::message_of(status), HasSubstr("Session::Close"));
}

TEST_F(Waiting, stopping_a_server_ends_its_steps) {
  auto session = service::Session::create(server_->target(), model_.graph(), patient());
  ASSERT_TRUE(session.ok());
  Status status;
  std::thread receiver([&] { status = (*session)->run({}, {"take"}).status(); });
  EXPECT_TRUE(somebody_waits());
  server_->stop();
  receiver.join();
  EXPECT_EQ(status.code(), StatusCode::kCancelled);
  EXPECT_TRUE(server_->join(0));
}

TEST(Session, a_client_without_the_secret_of_the_master_is_told_so_at_once) {
  const ReservedPorts port(1);
  ServerOptions options;
  ASSERT_TRUE(options.cluster.add_job("localhost", port.addresses()).ok());
  options.job = "localhost";
  options.security.secret = "the secret of the cluster";
  const auto server = Server::create(options);
  ASSERT_TRUE(server.ok()) << server.status();
  Model model;
  model.constant({1, 2}, "c");
  for (const char* secret : {"", "a secret of another cluster"}) {
    service::SessionOptions session = patient();
    session.security.secret = secret;
    const Status status =
        service::Session::create((*server)->target(), model.graph(), session).status();
    EXPECT_EQ(status.code(), StatusCode::kUnauthenticated) << status;
    EXPECT_THAT(base::message_of(status), HasSubstr((*server)->target()));
  }
}

TEST(Session, a_server_restarts_at_its_port) {
  const ReservedPorts port(1);
  ServerOptions options;
  ASSERT_TRUE(options.cluster.add_job("localhost", port.addresses()).ok());
  options.job = "localhost";
  auto first = Server::create(options);
  ASSERT_TRUE(first.ok()) << first.status();
  const Status taken = Server::create(options).status();
  EXPECT_EQ(taken.code(), StatusCode::kUnknown);
  EXPECT_THAT(base::message_of(taken), HasSubstr("Could not start gRPC server"));
  const std::string target = (*first)->target();
  (*first)->stop();
  auto again = Server::create(options);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ((*again)->target(), target);
}

}  // namespace
}  // namespace sidereal::app
