// The peer: the same table and the same kernels behind gRPC unary calls. Messages are used again
// from call to call, ids and rows are written straight into them, one core each for the two ends.
#include <grpcpp/grpcpp.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "bench/ps/peer.grpc.pb.h"
#include "sidereal/base/check.h"
#include "sidereal/kernels/thread.h"
#include "table.h"
#include "work.h"

namespace sidereal::bench {
namespace {

constexpr int kHandlers = 8;  // Calls of one kind that may wait at the server.
constexpr int64_t kCallSeconds = 20;
constexpr int kDescriptorsMax = 1024;

/// Gives every socket of this process the congestion control that ours have; accepted ones inherit
/// it from the listening one.
void use_cubic() {
  for (int fd = 0; fd < kDescriptorsMax; ++fd) {
    int protocol = 0;
    socklen_t size = sizeof(protocol);
    if (getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &size) != 0) continue;
    if (protocol != IPPROTO_TCP) continue;
    for (const std::string name : {"cubic", "reno"}) {
      if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.c_str(), name.size()) == 0) break;
    }
  }
}

grpc::Status to_grpc(const Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return {grpc::StatusCode::INVALID_ARGUMENT, base::message_of(status)};
}

/// The work of both services.
class Work {
 public:
  explicit Work(LocalTable* table) : table_(table) {}

  grpc::Status pull(const PullRequest& request, PullReply* reply) {
    const std::span<const int64_t> rows = rows_of(request.rows());
    reply->mutable_values()->resize(rows.size() * kRowBytes);
    auto* values = reinterpret_cast<float*>(reply->mutable_values()->data());
    return to_grpc(table_->gather(rows, values));
  }
  grpc::Status push(const PushRequest& request) {
    const std::span<const int64_t> rows = rows_of(request.rows());
    if (request.gradients().size() != rows.size() * kRowBytes) {
      return {grpc::StatusCode::INVALID_ARGUMENT, "gradients do not fit the rows"};
    }
    const auto* gradients = reinterpret_cast<const float*>(request.gradients().data());
    return to_grpc(table_->apply(rows, gradients));
  }

 private:
  static std::span<const int64_t> rows_of(const std::string& bytes) {
    return {reinterpret_cast<const int64_t*>(bytes.data()), bytes.size() / sizeof(int64_t)};
  }

  LocalTable* table_;
};

class SyncService final : public Table::Service {
 public:
  explicit SyncService(Work* work) : work_(work) {}
  grpc::Status Pull(grpc::ServerContext*, const PullRequest* request, PullReply* reply) override {
    kernels::prepare_thread();
    return work_->pull(*request, reply);
  }
  grpc::Status Push(grpc::ServerContext*, const PushRequest* request, PushReply*) override {
    kernels::prepare_thread();
    return work_->push(*request);
  }

 private:
  Work* work_;
};

/// Something a completion queue reports on.
class Tag {
 public:
  virtual ~Tag() = default;
  virtual void proceed(bool ok) = 0;
};

/// Serves one call after the other through a completion queue.
template <class Request, class Reply>
class Handler final : public Tag {
 public:
  using Writer = grpc::ServerAsyncResponseWriter<Reply>;
  using Ask = std::function<void(grpc::ServerContext*, Request*, Writer*, void*)>;
  using Run = std::function<grpc::Status(const Request&, Reply*)>;

  Handler(Ask ask, Run run) : ask_(std::move(ask)), run_(std::move(run)) { wait(); }

  void proceed(bool ok) override {
    if (!ok) return;
    if (answering_) return wait();
    answering_ = true;
    const grpc::Status status = run_(request_, &reply_);
    writer_->Finish(reply_, status, this);
  }

 private:
  void wait() {
    answering_ = false;
    writer_.reset();
    context_.emplace();
    writer_.emplace(&*context_);
    ask_(&*context_, &request_, &*writer_, this);
  }

  Ask ask_;
  Run run_;
  std::optional<grpc::ServerContext> context_;
  std::optional<Writer> writer_;
  Request request_;
  Reply reply_;
  bool answering_ = false;
};

/// The next event of a queue; false after its end. Looks all the time when `spin` says so.
bool next_event(grpc::CompletionQueue* queue, const std::atomic<bool>& spin, void** tag, bool* ok) {
  while (spin.load(std::memory_order_relaxed)) {
    switch (queue->AsyncNext(tag, ok, gpr_time_0(GPR_CLOCK_MONOTONIC))) {
      case grpc::CompletionQueue::GOT_EVENT:
        return true;
      case grpc::CompletionQueue::SHUTDOWN:
        return false;
      case grpc::CompletionQueue::TIMEOUT:
        break;
    }
  }
  return queue->Next(tag, ok);
}

class AsyncServer {
 public:
  AsyncServer(Work* work, grpc::ServerBuilder* builder) : work_(work) {
    builder->RegisterService(&service_);
    queue_ = builder->AddCompletionQueue();
  }
  void start() {
    auto* queue = queue_.get();
    for (int i = 0; i < kHandlers; ++i) {
      handlers_.push_back(std::make_unique<Handler<PullRequest, PullReply>>(
          [this, queue](auto* context, auto* request, auto* writer, void* tag) {
            service_.RequestPull(context, request, writer, queue, queue, tag);
          },
          [this](const PullRequest& q, PullReply* reply) { return work_->pull(q, reply); }));
      handlers_.push_back(std::make_unique<Handler<PushRequest, PushReply>>(
          [this, queue](auto* context, auto* request, auto* writer, void* tag) {
            service_.RequestPush(context, request, writer, queue, queue, tag);
          },
          [this](const PushRequest& q, PushReply*) { return work_->push(q); }));
    }
    thread_ = std::thread([this, queue] {
      kernels::prepare_thread();
      void* tag = nullptr;
      bool ok = false;
      while (next_event(queue, spin_, &tag, &ok)) static_cast<Tag*>(tag)->proceed(ok);
    });
  }
  void stop() {
    queue_->Shutdown();
    thread_.join();
  }
  void set_spin(bool spin) { spin_.store(spin, std::memory_order_relaxed); }

 private:
  Work* work_;
  Table::AsyncService service_;
  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  std::vector<std::unique_ptr<Tag>> handlers_;
  std::atomic<bool> spin_ = false;
  std::thread thread_;
};

/// A call of the client and its messages.
struct Call {
  Call() { push.mutable_gradients()->resize(kIdsMax * kRowBytes); }

  /// Fills the request for `ids`; returns the number of rows.
  int64_t prepare(Op op, std::span<const int64_t> batch, Front* front) {
    std::string* out = op == Op::kPull ? pull.mutable_rows() : push.mutable_rows();
    out->resize(batch.size() * sizeof(int64_t));
    rows = front->run(batch, reinterpret_cast<int64_t*>(out->data()));
    ids = static_cast<int64_t>(batch.size());
    out->resize(static_cast<size_t>(rows) * sizeof(int64_t));
    if (op == Op::kPush) push.mutable_gradients()->resize(static_cast<size_t>(rows) * kRowBytes);
    context.emplace();
    context->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(kCallSeconds));
    return rows;
  }
  void check(Op op, const grpc::Status& outcome) const {
    SR_CHECK(outcome.ok(), "{}", outcome.error_message());
    const auto bytes = static_cast<size_t>(rows) * kRowBytes;
    SR_CHECK(op == Op::kPush || pull_reply.values().size() == bytes);
  }

  std::optional<grpc::ClientContext> context;
  PullRequest pull;
  PushRequest push;
  PullReply pull_reply;
  PushReply push_reply;
  grpc::Status status;
  std::unique_ptr<grpc::ClientAsyncResponseReader<PullReply>> pull_reader;
  std::unique_ptr<grpc::ClientAsyncResponseReader<PushReply>> push_reader;
  int64_t ids = 0;
  int64_t rows = 0;
};

class Client {
 public:
  Client(int sync_port, int async_port)
      : sync_(connect(sync_port)), async_(connect(async_port)), fronts_(kOutstanding.back()) {
    for (int i = 0; i < kOutstanding.back(); ++i) calls_.push_back(std::make_unique<Call>());
    use_cubic();
  }

  Figures run(const Window& window) {
    return window.api == Api::kSync ? run_sync(window) : run_async(window);
  }

 private:
  static std::unique_ptr<Table::Stub> connect(int port) {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    const auto channel = grpc::CreateCustomChannel("127.0.0.1:" + std::to_string(port),
                                                   grpc::InsecureChannelCredentials(), arguments);
    const auto deadline = std::chrono::system_clock::now() + std::chrono::seconds(kCallSeconds);
    SR_CHECK(channel->WaitForConnected(deadline), "no gRPC server on port {}", port);
    return Table::NewStub(channel);
  }

  // One thread per call outstanding.
  Figures run_sync(const Window& window) {
    Stopwatch watch(window);
    std::mutex mutex;
    const auto loop = [&](int i) {
      Call& call = *calls_[i];
      while (true) {
        std::span<const int64_t> batch;
        {
          const std::lock_guard<std::mutex> lock(mutex);
          if (watch.over()) return;
          batch = ids_.next(window);
        }
        call.prepare(window.op, batch, &fronts_[i]);
        call.check(window.op, window.op == Op::kPull
                                  ? sync_->Pull(&*call.context, call.pull, &call.pull_reply)
                                  : sync_->Push(&*call.context, call.push, &call.push_reply));
        const std::lock_guard<std::mutex> lock(mutex);
        watch.count(call.ids, call.rows);
      }
    };
    std::vector<std::thread> threads;
    for (int i = 1; i < window.outstanding; ++i) threads.emplace_back(loop, i);
    loop(0);
    for (std::thread& thread : threads) thread.join();
    return watch.figures();
  }

  void start(const Window& window, Call* call) {
    call->prepare(window.op, ids_.next(window), &fronts_[0]);
    if (window.op == Op::kPull) {
      call->pull_reader = async_->AsyncPull(&*call->context, call->pull, &queue_);
      call->pull_reader->Finish(&call->pull_reply, &call->status, call);
    } else {
      call->push_reader = async_->AsyncPush(&*call->context, call->push, &queue_);
      call->push_reader->Finish(&call->push_reply, &call->status, call);
    }
  }

  Figures run_async(const Window& window) {
    Stopwatch watch(window);
    const std::atomic<bool> spin = window.api == Api::kAsyncSpin;
    int in_flight = 0;
    for (; in_flight < window.outstanding; ++in_flight) start(window, calls_[in_flight].get());
    while (in_flight > 0) {
      void* tag = nullptr;
      bool ok = false;
      SR_CHECK(next_event(&queue_, spin, &tag, &ok) && ok);
      auto* call = static_cast<Call*>(tag);
      call->check(window.op, call->status);
      if (watch.count(call->ids, call->rows)) {
        start(window, call);
      } else {
        --in_flight;
      }
    }
    return watch.figures();
  }

  std::unique_ptr<Table::Stub> sync_;
  std::unique_ptr<Table::Stub> async_;
  grpc::CompletionQueue queue_;
  Ids ids_{1};
  std::vector<Front> fronts_;
  std::vector<std::unique_ptr<Call>> calls_;
};

}  // namespace

Status serve_grpc(int in, int out) {
  SR_ASSIGN_OR_RETURN(const auto table, LocalTable::create());
  pin_to(0);
  Work work(table.get());
  SyncService sync_service(&work);
  std::array<int32_t, 2> ports = {};
  grpc::ServerBuilder sync_builder;
  sync_builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &ports[0]);
  sync_builder.SetMaxReceiveMessageSize(-1);
  sync_builder.RegisterService(&sync_service);
  const std::unique_ptr<grpc::Server> sync_server = sync_builder.BuildAndStart();
  grpc::ServerBuilder async_builder;
  async_builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &ports[1]);
  async_builder.SetMaxReceiveMessageSize(-1);
  AsyncServer async(&work, &async_builder);
  const std::unique_ptr<grpc::Server> async_server = async_builder.BuildAndStart();
  if (sync_server == nullptr || async_server == nullptr) {
    return base::unavailable("the gRPC servers do not start");
  }
  use_cubic();
  async.start();
  write_all(out, ports.data(), sizeof(ports));
  Window window;
  while (read_all(in, &window, sizeof(window))) {
    async.set_spin(window.api == Api::kAsyncSpin);
    const Figures ready;
    write_all(out, &ready, sizeof(ready));
  }
  async.set_spin(false);
  const auto now = std::chrono::system_clock::now();
  sync_server->Shutdown(now);
  async_server->Shutdown(now);
  async.stop();
  return {};
}

Status drive_grpc(int in, int out, int sync_port, int async_port) {
  pin_to(1);
  Client client(sync_port, async_port);
  const int32_t ready = 0;
  write_all(out, &ready, sizeof(ready));
  Window window;
  while (read_all(in, &window, sizeof(window))) {
    const Figures figures = client.run(window);
    write_all(out, &figures, sizeof(figures));
  }
  return {};
}

}  // namespace sidereal::bench
