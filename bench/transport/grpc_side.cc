// gRPC: unary calls over callbacks, or over completion queues on both sides.
#include <grpcpp/grpcpp.h>

#include <array>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "../ps/work.h"
#include "bench/session/echo.grpc.pb.h"
#include "sidereal/base/check.h"
#include "sides.h"

namespace sidereal::bench {
namespace {

constexpr int64_t kConnectSeconds = 20;

void answer_to(Answer* answer) { answer->mutable_data()->resize(kReplyBytes); }

class CallbackService final : public Echo::CallbackService {
  grpc::ServerUnaryReactor* Call(grpc::CallbackServerContext* context, const Ask*,
                                 Answer* answer) override {
    answer_to(answer);
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

/// Serves one call after the other through a completion queue.
class QueueCall {
 public:
  QueueCall(Echo::AsyncService* service, grpc::ServerCompletionQueue* queue)
      : service_(service), queue_(queue) {
    wait();
  }
  void proceed() {
    if (answering_) return wait();
    answering_ = true;
    answer_to(&answer_);
    writer_->Finish(answer_, grpc::Status::OK, this);
  }

 private:
  void wait() {
    answering_ = false;
    writer_.reset();
    context_.emplace();
    writer_.emplace(&*context_);
    service_->RequestCall(&*context_, &ask_, &*writer_, queue_, queue_, this);
  }

  Echo::AsyncService* service_;
  grpc::ServerCompletionQueue* queue_;
  std::optional<grpc::ServerContext> context_;
  std::optional<grpc::ServerAsyncResponseWriter<Answer>> writer_;
  Ask ask_;
  Answer answer_;
  bool answering_ = false;
};

/// One message that is under way at the client, again and again.
struct Slot {
  std::optional<grpc::ClientContext> context;
  Ask ask;
  Answer answer;
  grpc::Status status;
  std::unique_ptr<grpc::ClientAsyncResponseReader<Answer>> reader;
  int64_t sent = 0;
};

class Client {
 public:
  Client(int port, bool queue) : is_queue_(queue) {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    const auto channel = grpc::CreateCustomChannel("127.0.0.1:" + std::to_string(port),
                                                   grpc::InsecureChannelCredentials(), arguments);
    const auto deadline = std::chrono::system_clock::now() + std::chrono::seconds(kConnectSeconds);
    SR_CHECK(channel->WaitForConnected(deadline), "no gRPC server on port {}", port);
    stub_ = Echo::NewStub(channel);
    use_cubic();
  }

  Outcome run(const Load& load) {
    recorder_.emplace(load);
    for (Slot& slot : slots_) slot.ask.mutable_data()->resize(static_cast<size_t>(load.bytes));
    return is_queue_ ? run_queue(load) : run_callbacks(load);
  }

 private:
  void prepare(Slot* slot) {
    slot->context.emplace();
    slot->sent = recorder_->sent();
  }

  Outcome run_queue(const Load& load) {
    const auto send = [this](Slot* slot) {
      prepare(slot);
      slot->reader = stub_->AsyncCall(&*slot->context, slot->ask, &queue_);
      slot->reader->Finish(&slot->answer, &slot->status, slot);
    };
    int64_t under_way = 0;
    for (; under_way < load.outstanding; ++under_way) send(&slots_[under_way]);
    while (under_way > 0) {
      void* tag = nullptr;
      bool ok = false;
      SR_CHECK(queue_.Next(&tag, &ok) && ok);
      auto* const slot = static_cast<Slot*>(tag);
      SR_CHECK(slot->status.ok(), "{}", slot->status.error_message());
      if (recorder_->answered(slot->sent)) {
        send(slot);
      } else {
        --under_way;
      }
    }
    return recorder_->outcome();
  }

  void send_by_callback(Slot* slot) {
    stub_->async()->Call(&*slot->context, &slot->ask, &slot->answer,
                         [this, slot](const grpc::Status& status) { answered(slot, status); });
  }
  void answered(Slot* slot, const grpc::Status& status) {
    SR_CHECK(status.ok(), "{}", status.error_message());
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!recorder_->answered(slot->sent)) {
        if (--under_way_ == 0) ended_->set_value(recorder_->outcome());
        return;
      }
      prepare(slot);
    }
    send_by_callback(slot);
  }
  Outcome run_callbacks(const Load& load) {
    std::promise<Outcome> ended;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      ended_ = &ended;
      under_way_ = load.outstanding;
      for (int64_t i = 0; i < load.outstanding; ++i) prepare(&slots_[i]);
    }
    for (int64_t i = 0; i < load.outstanding; ++i) send_by_callback(&slots_[i]);
    return ended.get_future().get();
  }

  const bool is_queue_;
  std::unique_ptr<Echo::Stub> stub_;
  grpc::CompletionQueue queue_;
  std::array<Slot, kOutstandingMax> slots_;
  std::mutex mutex_;  // Callbacks may come on several threads.
  std::optional<Recorder> recorder_;
  std::promise<Outcome>* ended_ = nullptr;
  int64_t under_way_ = 0;
};

}  // namespace

Status serve_grpc_echo(int in, int out, bool queue) {
  pin_to(0);
  CallbackService callbacks;
  Echo::AsyncService calls;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.SetMaxReceiveMessageSize(-1);
  std::unique_ptr<grpc::ServerCompletionQueue> completions;
  if (queue) {
    builder.RegisterService(&calls);
    completions = builder.AddCompletionQueue();
  } else {
    builder.RegisterService(&callbacks);
  }
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) return base::unavailable("the gRPC server does not start");
  use_cubic();
  std::vector<std::unique_ptr<QueueCall>> waiting;
  std::thread thread;
  if (queue) {
    for (int i = 0; i < 2 * kOutstandingMax; ++i) {
      waiting.push_back(std::make_unique<QueueCall>(&calls, completions.get()));
    }
    thread = std::thread([&completions] {
      void* tag = nullptr;
      bool ok = false;
      while (completions->Next(&tag, &ok)) {
        if (ok) static_cast<QueueCall*>(tag)->proceed();
      }
    });
  }
  const int32_t number = port;
  write_all(out, &number, sizeof(number));
  char ignored = 0;
  (void)read_all(in, &ignored, 1);
  server->Shutdown(std::chrono::system_clock::now());
  if (queue) {
    completions->Shutdown();
    thread.join();
  }
  return {};
}

Status drive_grpc_echo(int in, int out, int port, bool queue) {
  pin_to(1);
  Client client(port, queue);
  const int32_t ready = 0;
  write_all(out, &ready, sizeof(ready));
  Load load;
  while (read_all(in, &load, sizeof(load))) {
    const Outcome outcome = client.run(load);
    write_all(out, &outcome, sizeof(outcome));
  }
  return {};
}

}  // namespace sidereal::bench
