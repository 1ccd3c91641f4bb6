#include "control.h"

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <deque>
#include <future>
#include <mutex>
#include <utility>

#include "sidereal/security/credentials.h"
#include "sidereal/service/internal/grpc_status.h"
#include "sidereal/service/internal/outbox.h"
#include "sidereal/service/internal/tensor_group_message.h"
#include "sidereal/service/known_cluster.h"
#include "sidereal/service/session.grpc.pb.h"
#include "sidereal/service/worker_service.h"

namespace sidereal::bench {

namespace v1 = session::v1;

namespace {

constexpr auto kPatience = std::chrono::seconds(60);

cluster::ClusterSpec only_ps(const std::string& ps) {
  cluster::ClusterSpec out;
  static_cast<void>(out.add_job("ps", std::vector<std::string>{ps}));
  return out;
}

std::shared_ptr<const security::Credentials> no_credentials() {
  return *security::Credentials::create({});
}

/// Answers one receive request of the ps.
class Tensors final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  explicit Tensors(size_t count) : missing_(count) {}
  void give(size_t index, ports::TensorGroup values) {
    const std::lock_guard lock(mutex_);
    tensor_groups_.emplace_back(static_cast<int32_t>(index), std::move(values));
    --missing_;
    if (!writing_) go_on();
  }
  void OnWriteDone(bool ok) override {
    const std::lock_guard lock(mutex_);
    writing_ = false;
    if (ok) go_on();
  }
  void OnDone() override {
    // Whoever gave the last tensor may still hold the lock.
    { const std::lock_guard lock(mutex_); }
    delete this;
  }

 private:
  void go_on() {
    if (!tensor_groups_.empty()) {
      writing_ = true;
      message_ = tensor_groups_.front().next();
      if (tensor_groups_.front().done()) tensor_groups_.pop_front();
      StartWrite(&message_, writes_.next(tensor_groups_.empty()));
    } else if (missing_ == 0) {
      Finish(grpc::Status::OK);
    }
  }

  std::mutex mutex_;
  size_t missing_;
  bool writing_ = false;
  std::deque<service::TensorGroupCutter> tensor_groups_;
  grpc::ByteBuffer message_;
  service::Writes writes_;
};

}  // namespace

class Control::Impl final
    : public v1::Worker::WithRawCallbackMethod_RecvTensors<v1::Worker::CallbackService> {
 public:
  explicit Impl(size_t count) : workers_(count) {}

  Status start() {
    grpc::ServerBuilder builder;
    ports_.resize(workers_.size());
    for (int& port : ports_) {
      builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    }
    builder.RegisterService(this);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1000);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) return base::unavailable("no gRPC server for the workers");
    for (size_t i = 0; i < ports_.size(); ++i) by_port_[std::to_string(ports_[i])] = i;
    return {};
  }
  void stop() {
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now());
  }

  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* call,
                                      const v1::GetStatusRequest* /*request*/,
                                      v1::TaskStatus* reply) override {
    reply->set_version(service::kSessionVersion);
    const OneWorker* const worker = find(*call);
    if (worker != nullptr) reply->set_data_port(worker->data_port);
    grpc::ServerUnaryReactor* const reactor = call->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  grpc::ServerWriteReactor<grpc::ByteBuffer>* RecvTensors(grpc::CallbackServerContext* call,
                                                          const grpc::ByteBuffer* bytes) override {
    v1::RecvTensorsRequest request;
    grpc::ByteBuffer read = *bytes;
    const grpc::Status taken =
        grpc::SerializationTraits<v1::RecvTensorsRequest>::Deserialize(&read, &request);
    auto* const out = new Tensors(static_cast<size_t>(request.keys_size()));
    const OneWorker* const worker = find(*call);
    if (!taken.ok() || worker == nullptr || worker->answers == nullptr) {
      out->Finish({grpc::StatusCode::NOT_FOUND, "no such worker"});
      return out;
    }
    std::vector<int64_t> edges;
    for (const v1::TensorKey& key : request.keys()) edges.push_back(key.edge());
    worker->answers.load()->asked(edges, [out](size_t index, ports::TensorGroup values) {
      out->give(index, std::move(values));
    });
    return out;
  }

  struct OneWorker {
    std::atomic<int> data_port = 0;
    std::atomic<Answers*> answers = nullptr;
  };
  std::vector<OneWorker> workers_;
  std::vector<int> ports_;

 private:
  /// Whom the caller meant: the port is the end of what it calls the server.
  OneWorker* find(const grpc::CallbackServerContext& call) {
    const grpc::string_ref authority = call.ExperimentalGetAuthority();
    const std::string name(authority.data(), authority.size());
    const auto found = by_port_.find(name.substr(name.rfind(':') + 1));
    return found == by_port_.end() ? nullptr : &workers_[found->second];
  }

  std::map<std::string, size_t> by_port_;
  std::unique_ptr<grpc::Server> server_;
};

Control::Control(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Control::~Control() { impl_->stop(); }

Result<std::unique_ptr<Control>> Control::create(size_t count) {
  auto impl = std::make_unique<Impl>(count);
  SR_RETURN_IF_ERROR(impl->start());
  return std::unique_ptr<Control>(new Control(std::move(impl)));
}

const std::vector<int>& Control::ports() const { return impl_->ports_; }
void Control::set_data_port(size_t number, int port) { impl_->workers_[number].data_port = port; }
void Control::set_answers(size_t number, Answers* answers) {
  impl_->workers_[number].answers = answers;
}

Result<sys::Address> find_data_port(const std::string& ps) {
  SR_ASSIGN_OR_RETURN(sys::Address address, sys::Address::parse(ps));
  const auto stub = v1::Worker::NewStub(service::make_channel(ps, *no_credentials()));
  v1::GetStatusRequest request;
  request.set_version(service::kSessionVersion);
  v1::TaskStatus reply;
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  context.set_deadline(std::chrono::system_clock::now() + kPatience);
  const grpc::Status asked = stub->GetStatus(&context, request, &reply);
  if (!asked.ok()) return service::from_grpc(asked, ps);
  address.port = static_cast<uint16_t>(reply.data_port());
  return address;
}

KeepAlive::KeepAlive(const std::string& ps, uint64_t session, cluster::Protocol protocol)
    : channels_(std::make_shared<service::KnownCluster>(only_ps(ps)), no_credentials()),
      tasks_(&channels_),
      link_(*tasks_.link(
          {.task = kPs, .session = session, .protocol = protocol, .on_lost = [](const Status&) {
           }})) {}
KeepAlive::~KeepAlive() { link_->detach(); }

Result<std::vector<uint64_t>> KeepAlive::attach(const std::vector<task::NewProgram>& programs) {
  const auto wait = [](std::future<Result<uint64_t>> future) -> Result<uint64_t> {
    if (future.wait_for(kPatience) == std::future_status::ready) return future.get();
    return base::deadline_exceeded("the ps does not answer");
  };
  auto attached = std::make_shared<std::promise<Result<uint64_t>>>();
  link_->attach([attached](const Result<master::Link::Attached>& got) {
    attached->set_value(got.ok() ? Result<uint64_t>(got->incarnation) : got.status());
  });
  SR_RETURN_IF_ERROR(wait(attached->get_future()).status());
  std::vector<uint64_t> out;
  for (const task::NewProgram& program : programs) {
    auto known = std::make_shared<std::promise<Result<uint64_t>>>();
    link_->register_program(program,
                            [known](Result<uint64_t> got) { known->set_value(std::move(got)); });
    SR_ASSIGN_OR_RETURN(out.emplace_back(), wait(known->get_future()));
  }
  return out;
}

namespace {

class GrpcWorker final : public Worker, public Control::Answers, public task::Peers::Requester {
 public:
  GrpcWorker(Common* common, KeepAlive* keep_alive, WorkerOptions options)
      : common_(common),
        link_(keep_alive->link()),
        peers_(keep_alive->channels()),
        options_(std::move(options)),
        next_step_((options_.session << 24) | (uint64_t{1} << 63)) {}

  void start(std::function<void(Status)> done) override { done({}); }

  void step() override {
    do {
      launch();
    } while (one_is_done());
  }

  Result<tensor::Tensor> allocate(tensor::DType dtype, const tensor::Shape& shape) override {
    return tensor::Tensor::empty(dtype, shape);
  }
  void arrived(uint64_t /*step*/, const ports::RendezvousKey& /*key*/,
               std::span<tensor::Tensor> /*values*/) override {}
  void ended(uint64_t /*step*/, const task::Peers::ReceiveRequest* /*receive_request*/,
             const Status& status) override {
    rows_came(status);
  }

  void asked(const std::vector<int64_t>& edges, Give give) override {
    std::vector<Held> ready;
    {
      const std::lock_guard lock(mutex_);
      for (size_t i = 0; i < edges.size(); ++i) {
        const auto found = options_.plan.received.find(edges[i]);
        if (found == options_.plan.received.end()) continue;
        const bool is_there = !found->second.has_gradients || rows_are_there_;
        (is_there ? ready : held_).push_back({&found->second, i, give});
      }
    }
    for (const Held& one : ready) give_one(one);
  }

 private:
  struct Held {
    const ScaleTensorGroup* tensor_group;
    size_t index;
    Give give;
  };
  void give_one(const Held& one) {
    ports::TensorGroup values;
    for (const Value& value : one.tensor_group->values) {
      values.push_back(value.is_ids ? common_->ids->next() : value.tensor);
    }
    one.give(one.index, std::move(values));
  }

  /// Begins a step, which has ended when this has returned, the ps has run its part and the rows
  /// have come.
  void launch() {
    uint64_t step = 0;
    {
      const std::lock_guard lock(mutex_);
      began_ = steady_ns();
      step = next_step_++;
      rows_are_there_ = false;
      open_ = 3;
    }
    part_ = link_->run({.program = options_.programs[0], .step = step, .feeds = {}},
                       [this](const task::ProgramResult& result) { ended(result.status); });
    std::vector<task::Peers::Wanted> wanted;
    for (const auto& [edge, count] : options_.plan.sent) {
      wanted.push_back({.key = {.edge = edge, .step = step}, .count = count});
    }
    receive_request_ =
        peers_.ask({.device = std::string(kPs) + "/device:CPU:0"}, step, wanted, this);
  }

  /// Whether another step is to begin.
  bool one_is_done() {
    {
      const std::lock_guard lock(mutex_);
      if (--open_ > 0) return false;
    }
    part_->end();
    return common_->tally.count(options_.number, began_);
  }

  void ended(const Status& status) {
    if (!status.ok()) return common_->tally.fail(base::with_context(status, options_.task));
    if (one_is_done()) step();
  }

  void rows_came(const Status& status) {
    std::vector<Held> held;
    if (status.ok()) {
      const std::lock_guard lock(mutex_);
      rows_are_there_ = true;
      held.swap(held_);
    }
    for (const Held& one : held) give_one(one);
    ended(status);
  }

  Common* const common_;
  master::Link* const link_;
  service::RemotePeers peers_;
  const WorkerOptions options_;
  std::mutex mutex_;
  uint64_t next_step_;
  int64_t began_ = 0;
  int open_ = 0;
  bool rows_are_there_ = false;
  std::vector<Held> held_;
  // Of the step: written while it cannot end.
  std::shared_ptr<task::StepPart> part_;
  base::RefPtr<task::Peers::ReceiveRequest> receive_request_;
  // For Requester::weak_from_this(): it outlives its receive requests.
  const std::shared_ptr<Requester> as_requester_{static_cast<Requester*>(this), [](Requester*) {}};
};

}  // namespace

std::unique_ptr<Worker> grpc_worker(Common* common, Control* control, KeepAlive* keep_alive,
                                    WorkerOptions options) {
  const size_t number = options.number;
  auto out = std::make_unique<GrpcWorker>(common, keep_alive, std::move(options));
  control->set_answers(number, out.get());
  return out;
}

}  // namespace sidereal::bench
