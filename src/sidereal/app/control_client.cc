#include "sidereal/app/control_client.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <mutex>
#include <utility>

#include "sidereal/app/cluster.h"
#include "sidereal/app/control.grpc.pb.h"
#include "sidereal/app/internal/grpc_status.h"
#include "sidereal/security/channel.h"

namespace sidereal::app {

namespace v1 = control::v1;

namespace {

/// How often a call that waits is asked whether it is still wanted.
constexpr std::chrono::milliseconds kLook(100);
/// A peer that does not answer is asked after as long whether it refuses the credentials.
constexpr int kLooksBeforeDoubt = 3;
constexpr std::chrono::milliseconds kDoubt(1000);

void set_deadline(grpc::ClientContext* context, double seconds) {
  context->set_wait_for_ready(true);
  context->set_deadline(std::chrono::system_clock::now() +
                        std::chrono::microseconds(static_cast<int64_t>(seconds * 1e6)));
}

std::shared_ptr<grpc::Channel> make_channel(
    const std::string& address, const std::shared_ptr<const security::Credentials>& credentials) {
  // A silent peer is noticed within about 8 s.
  return security::make_channel(address, credentials.get(),
                                {.message_bytes_max = 256 << 20,
                                 .keepalive_ms = 4000,
                                 .keepalive_timeout_ms = 4000,
                                 .keepalive_when_idle = true,
                                 .connect_ms = 50});
}

}  // namespace

class ControlClient::Impl {
 public:
  Impl(const std::string& address, const std::shared_ptr<const security::Credentials>& credentials)
      : credentials(credentials), stub(v1::Control::NewStub(make_channel(address, credentials))) {}

  const std::shared_ptr<const security::Credentials> credentials;

  std::unique_ptr<v1::Control::Stub> stub;
  std::mutex mutex;
  grpc::ClientContext* job_context = nullptr;  // Guarded by mutex: the job running, if any.
};

ControlClient::ControlClient(std::string task, std::string address,
                             const std::shared_ptr<const security::Credentials>& credentials)
    : task_(std::move(task)),
      address_(std::move(address)),
      impl_(std::make_unique<Impl>(address_, credentials)) {}

ControlClient::~ControlClient() = default;

namespace {

/// The status of a call, with the task and its address in front.
Status named(const ControlClient& client, const grpc::Status& status) {
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    return base::unavailable(
        "cannot reach {} at {} in time ({}); check that it runs, that the address is "
        "right and that both have the same secret, or none",
        client.task(), client.address(), status.error_message());
  }
  // A broken connection can look as if the server had cancelled the call.
  return base::with_context(from_grpc(status), client.task() + " at " + client.address());
}

}  // namespace

Result<std::unique_ptr<v1::TaskStatus>> ControlClient::get_status(
    double deadline_s, const std::function<bool()>& cancelled) {
  grpc::ClientContext context;
  set_deadline(&context, deadline_s);
  v1::GetStatusRequest request;
  request.set_version(kControlVersion);
  auto reply = std::make_unique<v1::TaskStatus>();
  grpc::CompletionQueue queue;
  grpc::Status status;
  const auto call = impl_->stub->AsyncGetStatus(&context, request, &queue);
  call->Finish(reply.get(), &status, &status);
  bool is_cancelled = false;
  Status refused;
  int looks = 0;
  void* tag = nullptr;
  bool ok = false;
  while (queue.AsyncNext(&tag, &ok, std::chrono::system_clock::now() + kLook) ==
         grpc::CompletionQueue::TIMEOUT) {
    // gRPC goes on trying, though this never becomes right.
    if (++looks == kLooksBeforeDoubt) {
      refused = security::check_credentials(address_, impl_->credentials.get(), kDoubt);
      if (!refused.ok()) context.TryCancel();
    }
    if (is_cancelled || !cancelled || !cancelled()) continue;
    is_cancelled = true;
    context.TryCancel();
  }
  queue.Shutdown();
  while (queue.Next(&tag, &ok)) {
  }
  if (is_cancelled) return base::cancelled("nobody waits for {} any more", task_);
  if (!status.ok() && !refused.ok()) {
    return base::with_context(refused, task_ + " at " + address_);
  }
  if (!status.ok()) return named(*this, status);
  if (reply->version() != kControlVersion) {
    return base::failed_precondition("{} at {} speaks control version {}, this program {}", task_,
                                     address_, reply->version(), kControlVersion);
  }
  if (reply->task() != task_) {
    return base::failed_precondition(
        "{} was expected at {}, but {} is there; check the cluster's "
        "addresses",
        task_, address_, reply->task());
  }
  return reply;
}

Status ControlClient::create_variables(const v1::CreateVariablesRequest& request,
                                       double deadline_s) {
  grpc::ClientContext context;
  set_deadline(&context, deadline_s);
  v1::CreateVariablesReply reply;
  return named(*this, impl_->stub->CreateVariables(&context, request, &reply));
}

Status ControlClient::scale_learning_rate(double factor, double deadline_s) {
  grpc::ClientContext context;
  set_deadline(&context, deadline_s);
  v1::ScaleLearningRateRequest request;
  request.set_factor(factor);
  v1::ScaleLearningRateReply reply;
  return named(*this, impl_->stub->ScaleLearningRate(&context, request, &reply));
}

Status ControlClient::read_variable(const v1::ReadVariableRequest& request, double deadline_s,
                                    const std::function<Status(const std::string&)>& take) {
  grpc::ClientContext context;
  set_deadline(&context, deadline_s);
  auto reader = impl_->stub->ReadVariable(&context, request);
  v1::Chunk chunk;
  Status taken;
  while (reader->Read(&chunk)) {
    if (taken.ok()) taken = take(chunk.data());
    if (!taken.ok()) context.TryCancel();
  }
  const grpc::Status status = reader->Finish();
  return taken.ok() ? named(*this, status) : taken;
}

Status ControlClient::start_trace(uint64_t first, uint64_t end, double deadline_s) {
  grpc::ClientContext context;
  set_deadline(&context, deadline_s);
  v1::StartTraceRequest request;
  request.set_first_step(first);
  request.set_end_step(end);
  v1::StartTraceReply reply;
  return named(*this, impl_->stub->StartTrace(&context, request, &reply));
}

Result<std::vector<std::string>> ControlClient::take_trace(int32_t process, int64_t begin_unix_ns,
                                                           double deadline_s) {
  grpc::ClientContext context;
  set_deadline(&context, deadline_s);
  v1::TakeTraceRequest request;
  request.set_process(process);
  request.set_begin_unix_ns(begin_unix_ns);
  auto reader = impl_->stub->TakeTrace(&context, request);
  v1::Chunk chunk;
  std::vector<std::string> traces;
  while (reader->Read(&chunk)) traces.push_back(chunk.data());
  SR_RETURN_IF_ERROR(named(*this, reader->Finish()));
  return traces;
}

Status ControlClient::register_program(int lane, const std::string& bytes, double deadline_s) {
  grpc::ClientContext context;
  set_deadline(&context, deadline_s);
  v1::RegisterProgramRequest request;
  request.set_lane(lane);
  request.set_program(bytes);
  v1::RegisterProgramReply reply;
  return named(*this, impl_->stub->RegisterProgram(&context, request, &reply));
}

Status ControlClient::run_job(const v1::RunJobRequest& request,
                              const std::function<Status(const v1::JobEvent&)>& on_event) {
  grpc::ClientContext context;
  {
    const std::lock_guard lock(impl_->mutex);
    if (impl_->job_context != nullptr) {
      return base::failed_precondition("{} runs a job of this client already", task_);
    }
    impl_->job_context = &context;
  }
  auto reader = impl_->stub->RunJob(&context, request);
  v1::JobEvent event;
  Status taken;
  bool done = false;
  while (reader->Read(&event)) {
    done = done || event.done();
    if (taken.ok()) taken = on_event(event);
    if (!taken.ok()) context.TryCancel();
  }
  const grpc::Status status = reader->Finish();
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->job_context = nullptr;
  }
  if (!taken.ok()) return taken;
  if (status.ok() && !done) {
    return base::unavailable("{} at {} ended the job's events before the job was done", task_,
                             address_);
  }
  return named(*this, status);
}

void ControlClient::cancel_job() {
  const std::lock_guard lock(impl_->mutex);
  if (impl_->job_context != nullptr) impl_->job_context->TryCancel();
}

Status ControlClient::shutdown(double deadline_s) {
  grpc::ClientContext context;
  set_deadline(&context, deadline_s);
  v1::ShutdownReply reply;
  return named(*this, impl_->stub->Shutdown(&context, v1::ShutdownRequest(), &reply));
}

}  // namespace sidereal::app
