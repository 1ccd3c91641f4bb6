// The services as other clients see them: raw calls.

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "sidereal/app/testing/figures.h"
#include "sidereal/app/testing/model.h"
#include "sidereal/app/testing/processes.h"
#include "sidereal/ir/text.h"
#include "sidereal/service/session.grpc.pb.h"
#include "sidereal/service/session.h"
#include "sidereal/service/worker_service.h"

namespace sidereal::app {
namespace {

namespace v1 = session::v1;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;
using ::testing::HasSubstr;

class Services : public ::testing::Test {
 protected:
  Services() {
    const auto channel =
        grpc::CreateChannel(server_->target().substr(7), grpc::InsecureChannelCredentials());
    master_ = v1::Master::NewStub(channel);
    worker_ = v1::Worker::NewStub(channel);
  }

  v1::CreateSessionReply create(const ir::Graph& graph) {
    v1::CreateSessionRequest request;
    request.set_version(service::kSessionVersion);
    request.set_graph(ir::to_text(graph));
    v1::CreateSessionReply reply;
    grpc::ClientContext context;
    const grpc::Status status = master_->CreateSession(&context, request, &reply);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return reply;
  }

  grpc::Status create_from(const std::string& nodes) {
    v1::CreateSessionRequest request;
    request.set_version(service::kSessionVersion);
    request.set_graph("sidereal-graph 1\n" + nodes);
    v1::CreateSessionReply reply;
    grpc::ClientContext context;
    return master_->CreateSession(&context, request, &reply);
  }

  grpc::Status extend(uint64_t session, int64_t version, const ir::Graph& graph) {
    v1::ExtendSessionRequest request;
    request.set_session(session);
    request.set_graph_version(version);
    request.set_graph(ir::to_text(graph));
    v1::ExtendSessionReply reply;
    grpc::ClientContext context;
    return master_->ExtendSession(&context, request, &reply);
  }

  v1::TaskStatus figures() {
    v1::GetStatusRequest request;
    request.set_version(service::kSessionVersion);
    v1::TaskStatus reply;
    grpc::ClientContext context;
    EXPECT_TRUE(worker_->GetStatus(&context, request, &reply).ok());
    return reply;
  }

  std::unique_ptr<Server> server_ = local_server();
  std::unique_ptr<v1::Master::Stub> master_;
  std::unique_ptr<v1::Worker::Stub> worker_;
};

TEST_F(Services, of_many_extensions_of_one_version_exactly_one_is_taken) {
  Model model;
  model.constant({1}, "a");
  const v1::CreateSessionReply made = create(model.graph());
  model.constant({2}, "b");
  constexpr int kClients = 8;
  std::atomic<int> taken = 0;
  std::atomic<int> aborted = 0;
  std::vector<std::thread> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.emplace_back([&] {
      const grpc::Status status = extend(made.session(), made.graph_version(), model.graph());
      taken += status.ok() ? 1 : 0;
      aborted += status.error_code() == grpc::StatusCode::ABORTED ? 1 : 0;
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(taken, 1);
  EXPECT_EQ(aborted, kClients - 1);
}

TEST_F(Services, a_session_that_is_not_known_is_aborted) {
  Model model;
  EXPECT_EQ(extend(17, 0, model.graph()).error_code(), grpc::StatusCode::ABORTED);
  v1::CloseSessionRequest close;
  close.set_session(17);
  v1::CloseSessionReply closed;
  grpc::ClientContext context;
  EXPECT_EQ(master_->CloseSession(&context, close, &closed).error_code(),
            grpc::StatusCode::ABORTED);
  grpc::ClientContext step_context;
  const auto stream = master_->RunStep(&step_context);
  v1::StepRequest request;
  request.mutable_head()->set_session(17);
  stream->Write(request);
  v1::StepReply reply;
  while (stream->Read(&reply)) {
  }
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::ABORTED);
}

TEST_F(Services, another_version_is_refused) {
  v1::CreateSessionRequest create_request;
  create_request.set_version(service::kSessionVersion + 1);
  v1::CreateSessionReply created;
  grpc::ClientContext create_context;
  const grpc::Status status = master_->CreateSession(&create_context, create_request, &created);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("use one release"));
  v1::GetStatusRequest request;
  v1::TaskStatus reply;
  grpc::ClientContext context;
  EXPECT_EQ(worker_->GetStatus(&context, request, &reply).error_code(),
            grpc::StatusCode::FAILED_PRECONDITION);
}

TEST_F(Services, a_status_tells_who_is_there_and_how_it_fares) {
  Model model;
  model.constant({1}, "a");
  const v1::CreateSessionReply made = create(model.graph());
  v1::GetStatusRequest request;
  request.set_version(service::kSessionVersion);
  v1::TaskStatus reply;
  grpc::ClientContext context;
  ASSERT_TRUE(worker_->GetStatus(&context, request, &reply).ok());
  EXPECT_EQ(reply.task(), "/job:localhost/replica:0/task:0");
  EXPECT_EQ(task_figure(reply, "sessions"), 1);
  EXPECT_GT(task_figure(reply, "memory_bytes"), 0);
  EXPECT_GT(task_figure(reply, "threads"), 0);
  EXPECT_GT(task_figure(reply, "open_files"), 0);
  EXPECT_EQ(reply.devices_size(), 1);
}

TEST_F(Services, an_error_of_a_megabyte_arrives_whole) {
  Model model;
  const std::string text(size_t{1} << 20, 'e');
  const ir::Output no = model.add("Const", {}, {{"value", Tensor::scalar(false)}});
  const ir::Output data = model.add(
      "Const", {}, {{"value", Tensor::strings(Shape{1}, std::vector<std::string>{text})}});
  model.add_node("Assert", {no, data}, {}, "check");
  auto session = service::Session::create(server_->target(), model.graph(), patient());
  ASSERT_TRUE(session.ok()) << session.status();
  const Status status = (*session)->run({}, {}, {"check"}).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  // Not with a matcher, which would print it.
  EXPECT_NE(base::message_of(status).find(text), std::string::npos);
}

TEST_F(Services, a_client_that_has_said_all_may_close_its_side_of_a_step) {
  Model model;
  const ir::Output queue = model.add(
      "Queue", {},
      {{"shared_name", std::string("q")}, {"dtypes", std::vector<std::string>{"float32"}}}, "q");
  model.add("QueueDequeue", {queue}, {{"dtypes", std::vector<std::string>{"float32"}}}, "take");
  model.add("QueueEnqueue", {queue, model.constant({5})}, {}, "put");
  const v1::CreateSessionReply made = create(model.graph());
  const auto step = [&](grpc::ClientContext* context, const std::string& fetch,
                        const std::string& target) {
    auto stream = master_->RunStep(context);
    v1::StepRequest request;
    request.mutable_head()->set_session(made.session());
    if (!fetch.empty()) request.mutable_head()->add_fetches(fetch);
    if (!target.empty()) request.mutable_head()->add_targets(target);
    EXPECT_TRUE(stream->Write(request));
    EXPECT_TRUE(stream->WritesDone());
    return stream;
  };
  grpc::ClientContext waiting_context;
  const auto waiting = step(&waiting_context, "take", "");
  EXPECT_TRUE(eventually([&] { return task_figure(figures(), "steps_blocked") == 1; }));
  grpc::ClientContext context;
  const auto put = step(&context, "", "put");
  for (const auto& stream : {put.get(), waiting.get()}) {
    v1::StepReply reply;
    bool has_tail = false;
    int pieces = 0;
    while (stream->Read(&reply)) {
      pieces += reply.has_piece() ? 1 : 0;
      if (!reply.has_tail()) continue;
      has_tail = true;
      EXPECT_FALSE(reply.tail().has_failure()) << reply.tail().failure().message();
    }
    EXPECT_TRUE(has_tail);
    EXPECT_EQ(pieces, stream == waiting.get() ? 1 : 0);
    const grpc::Status status = stream->Finish();
    EXPECT_TRUE(status.ok()) << status.error_message();
  }
}

TEST_F(Services, a_client_that_closes_its_side_too_early_is_told) {
  Model model;
  model.placeholder("x");
  const v1::CreateSessionReply made = create(model.graph());
  for (const bool has_head : {false, true}) {
    grpc::ClientContext context;
    const auto stream = master_->RunStep(&context);
    if (has_head) {
      v1::StepRequest request;
      request.mutable_head()->set_session(made.session());
      request.mutable_head()->add_feeds("x");
      request.mutable_head()->add_fetches("x");
      stream->Write(request);
    }
    stream->WritesDone();
    v1::StepReply reply;
    while (stream->Read(&reply)) {
    }
    const grpc::Status status = stream->Finish();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr(has_head ? "1 of 1 feeds" : "without a head"));
  }
}

TEST_F(Services, a_name_that_no_node_can_have_is_refused) {
  for (const std::string name : {"a:b", "a:0", "_a", "", "^a", "a b"}) {
    const grpc::Status status = create_from(fmt::format("%0 = NoOp() name=\"{}\"\n", name));
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << name;
    EXPECT_THAT(status.error_message(), HasSubstr("is not a legal name")) << name;
  }
  for (const std::string name : {"a", ".a", "A.b_c\\\\d/e>f-1", "0"}) {
    const grpc::Status status = create_from(fmt::format("%0 = NoOp() name=\"{}\"\n", name));
    EXPECT_TRUE(status.ok()) << name << ": " << status.error_message();
  }
}

TEST_F(Services, an_input_that_is_no_output_of_a_node_is_refused) {
  // Inputs are numbers of nodes here; TensorFlow's "a:first", "_a", "_a:0" and "a:01" are names.
  const std::string first = "%0 = Placeholder() name=\"a\" {dtype=float32} : float32?\n";
  for (const std::string input : {"%0:first", "_a", "%0:1", "%1", "%7", "%-1", "%0:-1", "a:0"}) {
    const grpc::Status status =
        create_from(first + fmt::format("%1 = Neg({}) name=\"b\" : float32?\n", input));
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << input;
  }
}

TEST_F(Services, an_extension_keeps_the_nodes_that_are_there) {
  Model model;
  model.constant({1}, "a");
  model.add("Variable", {},
            {{"shared_name", std::string("b")}, {"dtype", DType::kFloat32}, {"shape", Shape{1}}},
            "b");
  const v1::CreateSessionReply made = create(model.graph());
  // The same node again, another node of its name, a changed one, one that is gone.
  const std::string text = ir::to_text(model.graph());
  const std::string again = text + "%2 = NoOp() name=\"b\"\n";
  std::string changed = text;
  changed.replace(changed.find("float32", changed.find("Variable")), 7, "float64");
  const std::string gone = text.substr(0, text.find("%1"));
  for (const std::string& graph : {again, changed, gone}) {
    v1::ExtendSessionRequest request;
    request.set_session(made.session());
    request.set_graph_version(made.graph_version());
    request.set_graph(graph);
    v1::ExtendSessionReply reply;
    grpc::ClientContext context;
    const grpc::Status status = master_->ExtendSession(&context, request, &reply);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << graph;
    EXPECT_THAT(status.error_message(), HasSubstr("'b'"));
  }
  EXPECT_TRUE(extend(made.session(), made.graph_version(), model.graph()).ok());
}

}  // namespace
}  // namespace sidereal::app
