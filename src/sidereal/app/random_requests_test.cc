#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "sidereal/app/testing/model.h"
#include "sidereal/ir/text.h"
#include "sidereal/service/session.grpc.pb.h"
#include "sidereal/service/session.h"
#include "sidereal/service/tensor_pieces.h"
#include "sidereal/service/worker_service.h"

// Requests that were changed at random: each is answered, and the server goes on.

namespace sidereal::app {
namespace {

namespace v1 = session::v1;
using tensor::Shape;
using tensor::Tensor;

uint64_t seed() {
  const char* const given = std::getenv("SIDEREAL_SEED");
  const uint64_t out = given != nullptr ? std::strtoull(given, nullptr, 10) : 20261122;
  ::testing::Test::RecordProperty("seed", std::to_string(out));
  return out;
}

/// Changes bytes of messages, and keeps what is still a message.
class Mutator {
 public:
  explicit Mutator(uint64_t seed) : random_(seed) {}

  uint64_t below(uint64_t n) { return random_() % n; }
  template <class Message>
  Message changed(const Message& message) {
    while (true) {
      std::string bytes = message.SerializeAsString();
      const uint64_t changes = below(4);
      for (uint64_t i = 0; i < changes && !bytes.empty(); ++i) change(&bytes);
      Message out;
      if (out.ParseFromString(bytes)) return out;
    }
  }

 private:
  void change(std::string* bytes) {
    const size_t at = below(bytes->size());
    switch (below(4)) {
      case 0:
        (*bytes)[at] = static_cast<char>(random_());
        break;
      case 1:
        (*bytes)[at] = static_cast<char>((*bytes)[at] ^ (1 << below(8)));
        break;
      case 2:
        bytes->insert(at, 1 + below(8), static_cast<char>(random_()));
        break;
      default:
        bytes->erase(at, 1 + below(4));
    }
  }

  std::mt19937_64 random_;
};

template <class Message, class Cutter>
std::vector<Message> pieces_of(const Tensor& value, Cutter into) {
  std::vector<Message> out;
  service::PieceCutter cutter(0, value);
  while (!cutter.done()) cutter.next(into(&out.emplace_back()));
  return out;
}

TEST(RandomPieces, are_tensors_or_refused) {
  Mutator mutate(seed());
  const std::vector<Tensor> values = {
      Tensor::of(Shape{2, 3}, std::vector<float>{1, 2, 3, 4, 5, 6}),
      Tensor::strings(Shape{2}, std::vector<std::string>{"a", "bc"}), Tensor::scalar(true)};
  std::vector<std::vector<v1::TensorPiece>> pieces;
  for (const Tensor& value : values) {
    pieces.push_back(pieces_of<v1::TensorPiece>(value, [](auto* piece) { return piece; }));
  }
  int joined = 0;
  for (int i = 0; i < 5000; ++i) {
    const auto room = std::make_shared<service::ArrivingBytes>(uint64_t{1} << 24);
    {
      service::PieceJoiner joiner(2, room);
      for (uint64_t k = 0; k < 3; ++k) {
        for (const v1::TensorPiece& piece : pieces[mutate.below(pieces.size())]) {
          const auto got = joiner.add(mutate.changed(piece));
          if (!got.ok() || !*got) continue;
          ASSERT_TRUE((*got)->second.defined());
          ++joined;
        }
      }
    }
    // Everything that was taken came back.
    ASSERT_TRUE(room->take(room->max()));
  }
  EXPECT_GT(joined, 100);
}

class RandomRequests : public ::testing::Test {
 protected:
  RandomRequests() {
    const auto channel =
        grpc::CreateChannel(server_->target().substr(7), grpc::InsecureChannelCredentials());
    master_ = v1::Master::NewStub(channel);
    worker_ = v1::Worker::NewStub(channel);
    model_.add("Mul", {model_.placeholder("x"), model_.constant({2, 3})}, {}, "y");
  }

  /// Sends changed requests, and waits a moment for an end.
  template <class Request, class Reply>
  void say(grpc::ClientContext* context,
           std::unique_ptr<grpc::ClientReaderWriter<Request, Reply>> stream,
           const std::vector<Request>& requests) {
    context->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(5));
    for (const Request& request : requests) stream->Write(mutate_.changed(request));
    stream->WritesDone();
    Reply reply;
    while (stream->Read(&reply)) {
    }
    EXPECT_NE(stream->Finish().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  }

  Mutator mutate_{seed()};
  Model model_;
  std::unique_ptr<Server> server_ = local_server();
  std::unique_ptr<v1::Master::Stub> master_;
  std::unique_ptr<v1::Worker::Stub> worker_;
};

TEST_F(RandomRequests, to_the_master_are_answered) {
  v1::CreateSessionRequest create;
  create.set_version(service::kSessionVersion);
  create.set_graph(ir::to_text(model_.graph()));
  create.mutable_config()->add_device_filters("/job:localhost");
  create.set_timeout_ms(100);
  const Tensor x = Tensor::of(Shape{2}, std::vector<float>{1, 10});
  for (int i = 0; i < 400; ++i) {
    v1::CreateSessionReply made;
    grpc::ClientContext creating;
    const v1::CreateSessionRequest changed = i % 2 == 0 ? create : mutate_.changed(create);
    if (!master_->CreateSession(&creating, changed, &made).ok()) continue;
    std::vector<v1::StepRequest> step(1);
    step[0].mutable_head()->set_session(made.session());
    step[0].mutable_head()->add_feeds("x");
    step[0].mutable_head()->add_fetches("y");
    for (auto& piece : pieces_of<v1::StepRequest>(x, [](auto* r) { return r->mutable_piece(); })) {
      step.push_back(piece);
    }
    for (int k = 0; k < 5; ++k) {
      grpc::ClientContext context;
      say(&context, master_->RunStep(&context), step);
    }
    v1::CloseSessionRequest close;
    close.set_session(made.session());
    v1::CloseSessionReply closed;
    grpc::ClientContext closing;
    EXPECT_TRUE(master_->CloseSession(&closing, close, &closed).ok());
  }
}

TEST_F(RandomRequests, to_the_worker_are_answered) {
  std::vector<v1::AttachRequest> attach(3);
  attach[0].mutable_head()->set_version(service::kSessionVersion);
  attach[0].mutable_head()->set_task(server_->task());
  attach[0].mutable_head()->set_session(7);
  attach[1].set_program("program");
  std::vector<v1::ProgramRequest> run(3);
  run[0].mutable_head()->set_session(7);
  run[0].mutable_head()->set_feeds(1);
  run[1].mutable_piece()->set_bytes(4);
  run[2].set_cancel(true);
  std::vector<v1::FollowRequest> follow(2);
  follow[0].mutable_head()->set_version(service::kSessionVersion);
  follow[0].mutable_head()->set_task(server_->task());
  follow[0].mutable_head()->set_window_bytes(1000);
  follow[1].set_taken(10);
  v1::RecvTensorsRequest receive;
  for (int i = 0; i < 3; ++i) receive.add_keys()->set_edge(i);
  v1::TakeCopyRequest copy;
  copy.set_version(service::kSessionVersion);
  copy.set_task(server_->task());
  copy.set_life(1);
  std::vector<v1::MoveRequest> move(3);
  v1::MoveHead* const head = move[0].mutable_head();
  head->set_version(service::kSessionVersion);
  head->set_task(server_->task());
  head->set_state_group("g");
  head->add_sources()->set_task(server_->task());
  head->mutable_sources(0)->set_address("127.0.0.1:1");
  head->mutable_sources(0)->add_names("v");
  move[1].set_take_ms(1);
  move[2].set_commit(true);
  for (int i = 0; i < 1000; ++i) {
    grpc::ClientContext attaching;
    say(&attaching, worker_->Attach(&attaching), attach);
    grpc::ClientContext running;
    say(&running, worker_->RunProgram(&running), run);
    grpc::ClientContext following;
    say(&following, worker_->FollowChanges(&following), follow);
    grpc::ClientContext moving;
    say(&moving, worker_->MoveVariables(&moving), move);
    grpc::ClientContext receiving;
    receiving.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(2));
    static_cast<void>(worker_->RecvTensors(&receiving, mutate_.changed(receive))->Finish());
    grpc::ClientContext copying;
    copying.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    const auto taking = worker_->TakeCopy(&copying, mutate_.changed(copy));
    for (v1::TakeCopyReply reply; taking->Read(&reply);) {
    }
    static_cast<void>(taking->Finish());
  }
  // It goes on.
  auto session = service::Session::create(server_->target(), model_.graph(), patient());
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_TRUE((*session)->run({{"x", Tensor::of(Shape{2}, std::vector<float>{1, 2})}}, {"y"}).ok());
}

}  // namespace
}  // namespace sidereal::app
