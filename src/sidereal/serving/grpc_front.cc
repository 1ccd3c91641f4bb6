#include "sidereal/serving/grpc_front.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/impl/rpc_service_method.h>
#include <grpcpp/impl/service_type.h>
#include <grpcpp/support/async_unary_call.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <limits>
#include <mutex>
#include <thread>

#include "sidereal/security/listener.h"
#include "sidereal/serving/predict_message.h"
#include "sidereal/sys/address.h"

namespace sidereal::serving {

namespace {

using std::chrono::milliseconds;

enum Method : int { kPredict, kGetModelMetadata, kGetModelStatus };
constexpr std::array kNames = {"Predict", "GetModelMetadata", "GetModelStatus"};
/// Calls of a method that may come before the thread takes one up.
constexpr std::array kAwaited = {64, 2, 2};
/// Calls taken up before what they ask for is computed.
constexpr int kCallsAtOnce = 256;
/// How often deadlines are looked at.
constexpr milliseconds kSweep{50};
/// Calls on one connection.
constexpr int kStreamsMax = 1024;
/// What gRPC's buffers may hold beside one request.
constexpr size_t kBufferBytes = size_t{1} << 30;

/// A service whose methods take and give bytes.
class RawService final : public grpc::Service {
 public:
  RawService(const std::string& name, const std::vector<Method>& methods) {
    for (const Method method : methods) {
      const std::string& path = paths_.emplace_back("/" + name + "/" + kNames[method]);
      AddMethod(new grpc::internal::RpcServiceMethod(
          path.c_str(), grpc::internal::RpcMethod::NORMAL_RPC, nullptr));
      MarkMethodRaw(static_cast<int>(paths_.size()) - 1);
    }
  }

  void request(int index, grpc::ServerContext* context, grpc::ByteBuffer* message,
               grpc::ServerAsyncResponseWriter<grpc::ByteBuffer>* writer,
               grpc::ServerCompletionQueue* queue, void* tag) {
    RequestAsyncUnary(index, context, message, writer, queue, queue, tag);
  }

 private:
  std::deque<std::string> paths_;
};

grpc::Status to_grpc(const Status& status) {
  return {static_cast<grpc::StatusCode>(status.code()), base::message_of(status)};
}

/// Bytes that gRPC takes as they are.
grpc::ByteBuffer buffer_of(std::string bytes) {
  auto* kept = new std::string(std::move(bytes));
  const grpc::Slice slice(
      kept->data(), kept->size(), [](void* held) { delete static_cast<std::string*>(held); }, kept);
  return {&slice, 1};
}

}  // namespace

class GrpcFront::Impl {
 public:
  Impl(const GrpcFrontOptions& options, Others others)
      : options_(options), others_(std::move(others)) {}
  ~Impl() { stop({}); }

  Status start();
  void stop(std::chrono::nanoseconds drain);

  class Call;
  struct Tag {
    enum Event { kCame, kCancelled, kAnswered };
    Call* call;
    Event event;
  };

  RawService* service_of(Method method) {
    return method == kGetModelStatus ? &models_ : &predictions_;
  }
  void await(Method method);
  void came(Call* call);
  void hand_over(Call* call);
  void predict(Call* call);
  Status try_predict(Call* call);
  void run();
  void run_others();
  void flush();
  void sweep();
  void count(Method method, int code, Clock::time_point began);
  std::shared_ptr<const Version> version() const {
    const std::lock_guard lock(mutex_);
    return version_;
  }

  const GrpcFrontOptions options_;
  const Others others_;
  RawService predictions_{"tensorflow.serving.PredictionService", {kPredict, kGetModelMetadata}};
  RawService models_{"tensorflow.serving.ModelService", {kGetModelStatus}};
  std::unique_ptr<security::Listener> listener_;
  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
  Histogram seconds_{seconds_bounds()};
  std::array<std::array<std::atomic<uint64_t>, 17>, kNames.size()> answered_ = {};

  std::thread thread_;
  std::atomic<int> calls_ = 0;  // That have come and are not gone.
  std::atomic<bool> is_stopping_ = false;
  std::atomic<bool> is_down_ = false;  // The server: nothing new comes to the queue.
  bool is_shut_ = false;               // The thread's.
  // Batchers of calls that have come: to be flushed, and with something that waits. The thread's.
  std::vector<std::shared_ptr<const Version>> busy_;
  bool is_flushed_ = true;

  mutable std::mutex mutex_;
  std::shared_ptr<const Version> version_;
  std::condition_variable other_came_;
  std::deque<std::unique_ptr<OtherCall>> other_calls_;
  bool is_ended_ = false;
  std::thread others_thread_;
};

/// A call, from before it comes. Two holders: gRPC, until the call has ended, and the thread or
/// batch that answers it.
class GrpcFront::Impl::Call {
 public:
  Call(Impl* front, Method method) : front_(*front), method(method), writer(&context) {
    context.AsyncNotifyWhenDone(&cancelled);
  }

  void begin() {
    began = Clock::now();
    front_.calls_.fetch_add(1, std::memory_order_relaxed);
  }

  /// It never came.
  void drop() { delete this; }

  /// Answers.
  void finish(const Result<std::string>& answer) {
    front_.count(method, static_cast<int>(answer.status().code()), began);
    if (answer.ok()) {
      writer.Finish(buffer_of(*answer), grpc::Status::OK, &answered);
    } else {
      writer.FinishWithError(to_grpc(answer.status()), &answered);
    }
  }

  void release() {
    if (holders_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    Impl& front = front_;
    delete this;
    front.calls_.fetch_sub(1, std::memory_order_release);
  }

  /// gRPC says that it has ended. Who was to answer has, or need not.
  void ended() {
    if (waiting != nullptr && waiting->cancel()) {
      front_.count(method, static_cast<int>(grpc::StatusCode::CANCELLED), began);
      release();
    }
    release();
  }

  /// The request in one piece.
  std::string_view bytes() {
    grpc::Slice slice;
    if (request.TrySingleSlice(&slice).ok()) {
      slice_ = std::move(slice);
    } else if (!request.DumpToSingleSlice(&slice_).ok()) {
      return {};
    }
    return {reinterpret_cast<const char*>(slice_.begin()), slice_.size()};
  }

  [[nodiscard]] Clock::time_point deadline() const {
    const auto left = context.deadline() - std::chrono::system_clock::now();
    return Clock::now() + std::min<std::chrono::nanoseconds>(left, front_.options_.timeout);
  }

  Impl& front_;
  const Method method;
  grpc::ServerContext context;
  grpc::ByteBuffer request;
  grpc::ServerAsyncResponseWriter<grpc::ByteBuffer> writer;
  Tag has_come{this, Tag::kCame};
  Tag cancelled{this, Tag::kCancelled};
  Tag answered{this, Tag::kAnswered};
  Clock::time_point began;
  std::shared_ptr<Waiting> waiting;  // The thread's.

 private:
  ~Call() = default;
  grpc::Slice slice_;
  std::atomic<int> holders_ = 2;
};

namespace {

/// A call of the front that others answer.
template <class Call>
class Handed final : public OtherCall {
 public:
  explicit Handed(Call* call) : call_(call) {}
  ~Handed() override {
    if (call_ != nullptr) call_->finish(base::internal("the call was not answered"));
  }
  Handed(const Handed&) = delete;
  Handed& operator=(const Handed&) = delete;
  [[nodiscard]] std::string_view method() const override { return kNames[call_->method]; }
  [[nodiscard]] std::string request() const override { return std::string(call_->bytes()); }
  void reply(const Result<std::string>& answer) override {
    if (call_ != nullptr) std::exchange(call_, nullptr)->finish(answer);
  }

 private:
  Call* call_;
};

}  // namespace

Status GrpcFront::Impl::start() {
  SR_ASSIGN_OR_RETURN(const std::shared_ptr<const security::Credentials> credentials,
                      security::Credentials::create(options_.security));
  SR_ASSIGN_OR_RETURN(listener_, security::Listener::create(options_.address, credentials));
  SR_ASSIGN_OR_RETURN(const sys::Address listening, sys::Address::parse(listener_->address()));
  port_ = listening.port;
  grpc::EnableDefaultHealthCheckService(true);
  grpc::ServerBuilder builder;
  builder.RegisterService(&predictions_);
  builder.RegisterService(&models_);
  queue_ = builder.AddCompletionQueue();
  builder.SetMaxReceiveMessageSize(
      static_cast<int>(std::min<size_t>(options_.message_bytes, std::numeric_limits<int>::max())));
  builder.SetMaxSendMessageSize(-1);
  grpc::ResourceQuota quota("sidereal serving");
  quota.Resize(kBufferBytes + 2 * options_.message_bytes);
  builder.SetResourceQuota(quota);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kStreamsMax);
  listener_->attach(&builder);
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) {
    return base::unavailable("gRPC cannot serve at {}", options_.address);
  }
  for (const Method method : {kPredict, kGetModelMetadata, kGetModelStatus}) {
    for (int n = 0; n < kAwaited[method]; ++n) await(method);
  }
  thread_ = std::thread([this] { run(); });
  others_thread_ = std::thread([this] { run_others(); });
  return listener_->start();
}

void GrpcFront::Impl::stop(std::chrono::nanoseconds drain) {
  if (is_stopping_.exchange(true)) return;
  if (listener_ != nullptr) listener_->stop();
  if (server_ != nullptr) {
    server_->Shutdown(std::chrono::system_clock::now() +
                      std::chrono::duration_cast<std::chrono::system_clock::duration>(drain));
    is_down_ = true;
  } else if (queue_ != nullptr) {
    queue_->Shutdown();
    void* tag = nullptr;
    for (bool ok = false; queue_->Next(&tag, &ok);) {
    }
  }
  if (thread_.joinable()) thread_.join();
  {
    const std::lock_guard lock(mutex_);
    is_ended_ = true;
    version_ = nullptr;
    other_came_.notify_all();
  }
  if (others_thread_.joinable()) others_thread_.join();
}

void GrpcFront::Impl::await(Method method) {
  auto* call = new Call(this, method);
  const int index = method == kGetModelMetadata ? 1 : 0;
  service_of(method)->request(index, &call->context, &call->request, &call->writer, queue_.get(),
                              &call->has_come);
}

void GrpcFront::Impl::count(Method method, int code, Clock::time_point began) {
  const int known = code >= 0 && code < 17 ? code : static_cast<int>(grpc::StatusCode::UNKNOWN);
  answered_[method][known].fetch_add(1, std::memory_order_relaxed);
  seconds_.observe(std::chrono::duration<double>(Clock::now() - began).count());
}

void GrpcFront::Impl::came(Call* call) {
  call->begin();
  await(call->method);
  if (calls_.load(std::memory_order_relaxed) > options_.calls) {
    call->finish(base::resource_exhausted(
        "{} calls are answered at a time (--max-connections); ask again later", options_.calls));
    return;
  }
  if (call->method == kPredict) {
    predict(call);
    return;
  }
  hand_over(call);
}

void GrpcFront::Impl::hand_over(Call* call) {
  const std::lock_guard lock(mutex_);
  other_calls_.push_back(std::make_unique<Handed<Call>>(call));
  other_came_.notify_one();
}

void GrpcFront::Impl::predict(Call* call) {
  const Status status = try_predict(call);
  if (!status.ok()) call->finish(status);
}

Status GrpcFront::Impl::try_predict(Call* call) {
  SR_ASSIGN_OR_RETURN(const PredictRequest request, read_predict_request(call->bytes()));
  const std::shared_ptr<const Version> version = this->version();
  const Signature* signature = nullptr;
  if (version != nullptr && (request.model.empty() || request.model == version->model) &&
      (!request.has_version || request.version == version->number) &&
      (!request.has_label || std::find(version->labels.begin(), version->labels.end(),
                                       request.label) != version->labels.end())) {
    const std::string_view name =
        request.signature.empty() ? std::string_view("serving_default") : request.signature;
    const auto found = std::find_if(version->signatures.begin(), version->signatures.end(),
                                    [&](const Signature& one) { return one.name == name; });
    if (found != version->signatures.end()) signature = &*found;
  }
  if (signature == nullptr) {
    hand_over(call);
    return {};
  }
  SR_ASSIGN_OR_RETURN(Columns columns, read_columns(request, *signature, options_.message_bytes));
  SR_ASSIGN_OR_RETURN(std::vector<size_t> wanted, wanted_outputs(request, *signature));
  const int64_t rows = rows_of(columns, *signature);
  auto done = [call, version, signature, wanted = std::move(wanted)](Result<Columns> outputs) {
    if (!outputs.ok()) {
      call->finish(outputs.status());
    } else {
      call->finish(write_predict_response(*version, *signature, wanted, *outputs));
    }
  };
  SR_ASSIGN_OR_RETURN(call->waiting, signature->batcher->submit(std::move(columns), rows,
                                                                call->deadline(), std::move(done)));
  if (std::find(busy_.begin(), busy_.end(), version) == busy_.end()) busy_.push_back(version);
  is_flushed_ = false;
  return {};
}

void GrpcFront::Impl::flush() {
  is_flushed_ = true;
  for (const auto& version : busy_) {
    for (const Signature& signature : version->signatures) signature.batcher->flush();
  }
}

void GrpcFront::Impl::sweep() {
  const Clock::time_point now = Clock::now();
  std::erase_if(busy_, [&](const auto& version) {
    bool is_busy = false;
    for (const Signature& signature : version->signatures) {
      is_busy |= signature.batcher->sweep(now);
    }
    return !is_busy;
  });
}

void GrpcFront::Impl::run() {
  Clock::time_point swept = Clock::now();
  int taken = 0;
  while (true) {
    void* tag = nullptr;
    bool ok = false;
    const bool looks = !is_flushed_;
    // gRPC rounds up to milliseconds: to look without waiting, the deadline is long past.
    const auto until = std::chrono::system_clock::now() + (looks ? -kSweep : kSweep);
    const auto next = taken < kCallsAtOnce || !looks ? queue_->AsyncNext(&tag, &ok, until)
                                                     : grpc::CompletionQueue::TIMEOUT;
    if (next == grpc::CompletionQueue::SHUTDOWN) return;
    if (next == grpc::CompletionQueue::TIMEOUT) {
      taken = 0;
      if (looks) flush();
    } else {
      ++taken;
      const Tag& what = *static_cast<Tag*>(tag);
      switch (what.event) {
        case Tag::kCame:
          if (ok) {
            came(what.call);
          } else {
            what.call->drop();  // The server ends.
          }
          break;
        case Tag::kCancelled:
          what.call->ended();
          break;
        case Tag::kAnswered:
          what.call->release();
          break;
      }
    }
    if (const Clock::time_point now = Clock::now(); now - swept >= kSweep) {
      swept = now;
      sweep();
    }
    if (!is_shut_ && is_down_ && calls_.load(std::memory_order_acquire) == 0) {
      is_shut_ = true;
      queue_->Shutdown();
    }
  }
}

void GrpcFront::Impl::run_others() {
  std::unique_lock lock(mutex_);
  while (true) {
    other_came_.wait(lock, [this] { return is_ended_ || !other_calls_.empty(); });
    if (other_calls_.empty()) return;
    std::unique_ptr<OtherCall> call = std::move(other_calls_.front());
    other_calls_.pop_front();
    lock.unlock();
    others_(std::move(call));
    lock.lock();
  }
}

GrpcFront::GrpcFront(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GrpcFront::~GrpcFront() = default;

Result<std::unique_ptr<GrpcFront>> GrpcFront::start(const GrpcFrontOptions& options,
                                                    Others others) {
  auto impl = std::make_unique<Impl>(options, std::move(others));
  SR_RETURN_IF_ERROR(impl->start());
  return std::unique_ptr<GrpcFront>(new GrpcFront(std::move(impl)));
}

int GrpcFront::port() const { return impl_->port_; }

void GrpcFront::serve(std::shared_ptr<const Version> version) {
  const std::lock_guard lock(impl_->mutex_);
  impl_->version_.swap(version);
}

void GrpcFront::tell_health(const std::string& service, bool is_serving) {
  impl_->server_->GetHealthCheckService()->SetServingStatus(service, is_serving);
}

void GrpcFront::stop(std::chrono::nanoseconds drain) { impl_->stop(drain); }

std::map<std::pair<std::string, std::string>, uint64_t> GrpcFront::answered() const {
  std::map<std::pair<std::string, std::string>, uint64_t> out;
  for (size_t method = 0; method < kNames.size(); ++method) {
    for (size_t code = 0; code < impl_->answered_[method].size(); ++code) {
      const uint64_t count = impl_->answered_[method][code].load(std::memory_order_relaxed);
      if (count > 0) out[{kNames[method], base::code_name(static_cast<StatusCode>(code))}] = count;
    }
  }
  return out;
}

const Histogram& GrpcFront::seconds() const { return impl_->seconds_; }

}  // namespace sidereal::serving
