#include "sidereal/serving/grpc_front.h"

#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace sidereal::serving {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

/// Gives back what it gets, once its gate is open.
class Echo final : public Model {
 public:
  Result<Columns> call(const Columns& columns) override {
    std::unique_lock lock(mutex_);
    ++calls_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return is_open_; });
    return columns;
  }
  void set_open(bool is_open) {
    const std::lock_guard lock(mutex_);
    is_open_ = is_open;
    changed_.notify_all();
  }
  bool wait_for_calls(int count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, seconds(60), [&] { return calls_ >= count; });
  }
  int calls() {
    const std::lock_guard lock(mutex_);
    return calls_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_open_ = true;
  int calls_ = 0;
};

/// A request of model `model` with one float32, 1, in input "x".
std::string request_of(const std::string& model) {
  const auto field = [](int number, const std::string& value) {
    return std::string{static_cast<char>(number << 3 | 2), static_cast<char>(value.size())} + value;
  };
  const std::string tensor = std::string("\x08\x01", 2) + field(2, field(2, {"\x08\x01", 2})) +
                             field(4, std::string("\x00\x00\x80\x3f", 4));
  return field(1, field(1, model)) + field(2, field(1, "x") + field(2, tensor));
}

struct Answer {
  grpc::Status status;
  std::string bytes;
};

/// Waits until `condition` holds, of which nobody tells; false after a minute.
template <class Condition>
bool eventually(Condition condition) {
  const auto end = Clock::now() + seconds(60);
  while (!condition()) {
    if (Clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

class GrpcFrontTest : public ::testing::Test {
 protected:
  void start(int calls = 8, std::chrono::nanoseconds timeout = seconds(60)) {
    GrpcFrontOptions options{.address = "127.0.0.1:0", .security = {}};
    options.message_bytes = 4096;
    options.calls = calls;
    options.timeout = timeout;
    auto made = GrpcFront::start(options, [](std::unique_ptr<OtherCall> call) {
      if (call->method() == "GetModelStatus") {
        call->reply("said " + call->request());
      } else if (call->method() == "Predict") {
        call->reply(base::not_found("no such model"));
      }  // Else it is let go.
    });
    ASSERT_TRUE(made.ok()) << made.status();
    front_ = std::move(*made);
    auto model = std::make_unique<Echo>();
    model_ = model.get();
    auto version = std::make_shared<Version>();
    version->model = "m";
    version->number = 1;
    version->signatures.push_back(
        {.name = "serving_default",
         .inputs = {{"x", tensor::DType::kFloat32, tensor::Shape{-1}}},
         .outputs = {"y"},
         .batcher = std::make_shared<Batcher>("f", std::move(model), BatchOptions{},
                                              std::make_shared<BatchFigures>())});
    batcher_ = version->signatures[0].batcher;
    front_->serve(version);
    channel_ = grpc::CreateChannel("127.0.0.1:" + std::to_string(front_->port()),
                                   grpc::InsecureChannelCredentials());
  }
  ~GrpcFrontTest() override {
    if (model_ != nullptr) model_->set_open(true);
  }

  Answer call(const std::string& method, const std::string& request) {
    grpc::ClientContext context;
    return call(method, request, &context);
  }
  /// `context`: with which another thread may cancel the call.
  Answer call(const std::string& method, const std::string& request, grpc::ClientContext* context) {
    grpc::GenericStub stub(channel_);
    context->set_wait_for_ready(true);
    context->set_deadline(std::chrono::system_clock::now() + seconds(60));
    const grpc::Slice slice(request);
    grpc::CompletionQueue queue;
    const auto reader = stub.PrepareUnaryCall(context, "/tensorflow.serving." + method,
                                              grpc::ByteBuffer(&slice, 1), &queue);
    reader->StartCall();
    Answer answer;
    grpc::ByteBuffer bytes;
    reader->Finish(&bytes, &answer.status, this);
    void* tag = nullptr;
    bool ok = false;
    EXPECT_TRUE(queue.Next(&tag, &ok) && ok);
    grpc::Slice whole;
    if (answer.status.ok() && bytes.DumpToSingleSlice(&whole).ok()) {
      answer.bytes.assign(reinterpret_cast<const char*>(whole.begin()), whole.size());
    }
    return answer;
  }
  Answer predict() { return call("PredictionService/Predict", request_of("m")); }

  std::unique_ptr<GrpcFront> front_;
  std::shared_ptr<Batcher> batcher_;
  Echo* model_ = nullptr;
  std::shared_ptr<grpc::Channel> channel_;
};

TEST_F(GrpcFrontTest, PredictsAndHandsOverWhatIsElse) {
  start();
  const Answer found = predict();
  ASSERT_TRUE(found.status.ok()) << found.status.error_message();
  EXPECT_THAT(found.bytes, HasSubstr("\x80\x3f"));
  const Answer other = call("PredictionService/Predict", request_of("n"));
  EXPECT_EQ(other.status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(other.status.error_message(), "no such model");
  EXPECT_EQ(call("ModelService/GetModelStatus", "abc").bytes, "said abc");
  const Answer gone = call("PredictionService/GetModelMetadata", "");
  EXPECT_EQ(gone.status.error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_EQ(call("PredictionService/Nothing", "").status.error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
  const Answer bad = call("PredictionService/Predict", "\xff\xff");
  EXPECT_EQ(bad.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(call("PredictionService/Predict", std::string(5000, 'a')).status.error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ((front_->answered()[{"Predict", "OK"}]), 1U);
  EXPECT_EQ((front_->answered()[{"Predict", "NOT_FOUND"}]), 1U);
  front_->serve(nullptr);
  EXPECT_EQ(predict().status.error_message(), "no such model");
}

TEST_F(GrpcFrontTest, WhatIsTooMuchIsRefusedAndTheOthersAnswered) {
  start(1);
  model_->set_open(false);
  Answer first;
  std::thread asking([&] { first = predict(); });
  EXPECT_TRUE(model_->wait_for_calls(1));
  const Answer second = predict();
  EXPECT_EQ(second.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(second.status.error_message(), HasSubstr("--max-connections"));
  model_->set_open(true);
  asking.join();
  EXPECT_TRUE(first.status.ok()) << first.status.error_message();
}

TEST_F(GrpcFrontTest, TheTimeOfTheServerEndsACall) {
  start(8, milliseconds(200));
  model_->set_open(false);
  const Answer by_server = predict();
  EXPECT_EQ(by_server.status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_THAT(by_server.status.error_message(), HasSubstr("no answer in the time"));
}

TEST_F(GrpcFrontTest, ACallWhoseCallerGoesAwayIsNotComputed) {
  start();
  model_->set_open(false);
  Answer first;
  std::thread asking([&] { first = predict(); });
  EXPECT_TRUE(model_->wait_for_calls(1));
  // This one waits behind the first.
  grpc::ClientContext context;
  Answer second;
  std::thread leaving(
      [&] { second = call("PredictionService/Predict", request_of("m"), &context); });
  EXPECT_TRUE(eventually([&] { return batcher_->waiting_rows() == 1; }));
  context.TryCancel();
  leaving.join();
  EXPECT_EQ(second.status.error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(eventually([&] { return front_->answered()[{"Predict", "CANCELLED"}] == 1; }));
  model_->set_open(true);
  asking.join();
  EXPECT_TRUE(first.status.ok()) << first.status.error_message();
  ASSERT_TRUE(batcher_->wait_idle(seconds(60)));
  EXPECT_EQ(model_->calls(), 1);
  EXPECT_TRUE(predict().status.ok());
}

TEST_F(GrpcFrontTest, TheEndWaitsForWhatWasAskedAndNoLongerThanItMay) {
  start();
  model_->set_open(false);
  Answer first;
  std::thread asking([&] { first = predict(); });
  EXPECT_TRUE(model_->wait_for_calls(1));
  std::thread stopping([&] { front_->stop(seconds(60)); });
  model_->set_open(true);
  asking.join();
  stopping.join();
  EXPECT_TRUE(first.status.ok()) << first.status.error_message();

  start();
  model_->set_open(false);
  std::thread cut([&] { first = predict(); });
  EXPECT_TRUE(model_->wait_for_calls(1));
  front_->stop(milliseconds(10));
  cut.join();
  EXPECT_FALSE(first.status.ok());
  model_->set_open(true);
  ASSERT_TRUE(batcher_->wait_idle(seconds(60)));
}

}  // namespace
}  // namespace sidereal::serving
