#include "sidereal/service/job_commands.h"

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <utility>

#include "sidereal/service/channels.h"
#include "sidereal/service/internal/client_stream.h"
#include "sidereal/service/internal/grpc_status.h"
#include "sidereal/service/internal/heard_commands.h"
#include "sidereal/service/internal/job_command_message.h"
#include "sidereal/service/job.h"
#include "sidereal/service/session.grpc.pb.h"
#include "sidereal/service/worker_service.h"
#include "sidereal/sys/address.h"
#include "sidereal/task/event.h"

namespace sidereal::service {

namespace v1 = session::v1;
using std::chrono::steady_clock;

namespace {

/// From one try to hear of commands to the next one.
constexpr std::chrono::seconds kOpenAgain(1);

/// A HearCommands call.
class HearCall final : public ClientStream<v1::HearCommandsRequest, v1::HearCommandsReply> {
 public:
  void start(v1::Master::Stub* stub, uint64_t lease) {
    stub->async()->HearCommands(&context_, this);
    begin();
    v1::HearCommandsRequest request;
    request.set_lease(lease);
    write(std::move(request));
  }
  /// After what was said before has been written.
  void stop() { close(); }

  std::optional<JobCommand> next() {
    const std::lock_guard lock(state_mutex_);
    return std::exchange(coming_, std::nullopt);
  }
  [[nodiscard]] bool is_cancelled() {
    const std::lock_guard lock(state_mutex_);
    return is_cancelled_ || has_ended_;
  }
  [[nodiscard]] bool has_ended() {
    const std::lock_guard lock(state_mutex_);
    return has_ended_;
  }

  void tell(const JobCommandProgress& progress) {
    const std::lock_guard lock(state_mutex_);
    v1::HearCommandsRequest request;
    request.set_number(number_);
    to_proto(progress, request.mutable_progress());
    // Of those that cannot be written yet the latest is.
    if (is_writing_) {
      later_ = std::move(request);
    } else {
      write(std::move(request));
    }
  }
  void end(const Status& status, const std::string& text) {
    const std::lock_guard lock(state_mutex_);
    later_ = std::nullopt;
    v1::HearCommandsRequest request;
    request.set_number(number_);
    to_proto(status, text, request.mutable_end());
    number_ = 0;
    is_cancelled_ = false;
    write(std::move(request));
  }

 private:
  /// With state_mutex_, or before others know of this.
  void write(v1::HearCommandsRequest request) {
    is_writing_ = true;
    put(std::move(request));
  }
  void wrote() override {
    const std::lock_guard lock(state_mutex_);
    is_writing_ = false;
    if (later_) write(*std::exchange(later_, std::nullopt));
  }

  void take(v1::HearCommandsReply* reply) override {
    const std::lock_guard lock(state_mutex_);
    if (reply->number() == 0) return;
    if (!reply->has_command()) return cancel(reply->number());
    Result<JobCommand> command = from_proto(reply->command());
    if (command.ok() && number_ != 0) {
      command = base::failed_precondition("another command is under way");
    }
    if (!command.ok()) return refuse(reply->number(), command.status());
    number_ = reply->number();
    coming_ = *command;
  }
  /// With state_mutex_, as below.
  void cancel(uint64_t number) {
    if (number != number_) return;
    is_cancelled_ = true;
    if (!coming_) return;
    // Nothing has begun of it, and the holder may not look for long.
    coming_ = std::nullopt;
    number_ = 0;
    is_cancelled_ = false;
    refuse(number, base::cancelled("it was cancelled before it began"));
  }
  void refuse(uint64_t number, const Status& why) {
    v1::HearCommandsRequest request;
    request.set_number(number);
    to_proto(why, {}, request.mutable_end());
    write(std::move(request));
  }
  void ended(const grpc::Status& /*status*/) override {
    const std::lock_guard lock(state_mutex_);
    has_ended_ = true;
    coming_ = std::nullopt;
  }

  std::mutex state_mutex_;
  std::optional<JobCommand> coming_;
  uint64_t number_ = 0;  // Of the one that is coming or under way; 0: none is.
  bool is_cancelled_ = false;
  bool has_ended_ = false;
  bool is_writing_ = false;
  std::optional<v1::HearCommandsRequest> later_;
};

/// See hear_commands(). Thread: one at a time.
class HeardCommands final : public JobCommands {
 public:
  HeardCommands(v1::Master::Stub* stub, uint64_t lease, std::function<bool()> is_held)
      : stub_(stub), lease_(lease), is_held_(std::move(is_held)) {
    open();
  }
  ~HeardCommands() override { call_->stop(); }

  std::optional<JobCommand> next() override {
    if (is_under_way_) return std::nullopt;
    if (call_->has_ended() && steady_clock::now() >= open_at_ && is_held_()) open();
    std::optional<JobCommand> command = call_->next();
    is_under_way_ = command.has_value();
    return command;
  }
  bool is_cancelled() override { return is_under_way_ && call_->is_cancelled(); }
  void tell(const JobCommandProgress& progress) override {
    if (is_under_way_) call_->tell(progress);
  }
  void end(const Status& status, const std::string& text) override {
    if (std::exchange(is_under_way_, false)) call_->end(status, text);
  }

 private:
  void open() {
    open_at_ = steady_clock::now() + kOpenAgain;
    call_ = std::make_shared<HearCall>();
    call_->start(stub_, lease_);
  }

  v1::Master::Stub* const stub_;
  const uint64_t lease_;
  const std::function<bool()> is_held_;
  std::shared_ptr<HearCall> call_;
  steady_clock::time_point open_at_;
  bool is_under_way_ = false;
};

/// A CommandJob call.
class CommandCall final : public ClientStream<v1::CommandJobRequest, v1::CommandJobReply> {
 public:
  explicit CommandCall(std::string peer) : peer_(std::move(peer)) {}

  void start(v1::Master::Stub* stub, v1::CommandJobRequest request) {
    stub->async()->CommandJob(&context_, this);
    begin();
    put(std::move(request));
  }
  /// Waits for the end: the sentence.
  Result<std::string> wait(const CommandOptions& options) {
    bool has_cancelled = false;
    const auto look = [&] {
      if (const auto progress = take_progress(); progress && options.on_progress) {
        options.on_progress(*progress);
      }
      return options.is_cancelled != nullptr && options.is_cancelled();
    };
    ended_.wait(look, [&] {
      has_cancelled = true;
      close();
    });
    const std::lock_guard lock(state_mutex_);
    if (has_cancelled && status_.code() == StatusCode::kCancelled) {
      return base::cancelled("it was cancelled: nothing has changed");
    }
    SR_RETURN_IF_ERROR(status_);
    return text_;
  }

 private:
  std::optional<JobCommandProgress> take_progress() {
    const std::lock_guard lock(state_mutex_);
    return std::exchange(progress_, std::nullopt);
  }

  void take(v1::CommandJobReply* reply) override {
    {
      const std::lock_guard lock(state_mutex_);
      if (reply->has_progress()) progress_ = from_proto(reply->progress());
      if (!reply->has_end()) return;
      has_end_ = true;
      status_ = status_of(reply->end());
      text_ = text_of(reply->end());
    }
    close();
    ended_.set();
  }
  void ended(const grpc::Status& status) override {
    {
      const std::lock_guard lock(state_mutex_);
      if (!has_end_) {
        status_ = status.ok() ? base::unavailable("{} did not say how it ended", peer_)
                              : from_grpc(status, peer_);
      }
    }
    ended_.set();
  }

  const std::string peer_;
  task::Event ended_;
  std::mutex state_mutex_;
  std::optional<JobCommandProgress> progress_;
  bool has_end_ = false;
  Status status_;
  std::string text_;
};

}  // namespace

std::string to_string(const JobCommand& command) {
  switch (command.kind) {
    case JobCommand::Kind::kScale:
      return fmt::format("scale --ps {}", command.ps);
    case JobCommand::Kind::kDrain:
      return fmt::format("drain ps:{}", command.ps);
    case JobCommand::Kind::kRebalance:
      break;
  }
  return "rebalance";
}

Status check(const JobCommand& command) {
  if (command.kind == JobCommand::Kind::kScale && command.ps < 1) {
    return base::invalid_argument("'{}': a job needs 1 parameter server at least",
                                  to_string(command));
  }
  if (command.kind == JobCommand::Kind::kDrain && command.ps < 0) {
    return base::invalid_argument("'{}': parameter servers are ps:0, ps:1 and so on",
                                  to_string(command));
  }
  return {};
}

std::unique_ptr<JobCommands> hear_commands(v1::Master::Stub* stub, uint64_t lease,
                                           std::function<bool()> is_held) {
  return std::make_unique<HeardCommands>(stub, lease, std::move(is_held));
}

Result<std::string> command_job(const cluster::ClusterSpec& cluster,
                                const security::SecurityOptions& security,
                                const JobCommand& command, const CommandOptions& options) {
  SR_RETURN_IF_ERROR(check(command));
  SR_ASSIGN_OR_RETURN(const LeaseGranter granter, granter_of(cluster));
  SR_RETURN_IF_ERROR(
      base::with_context(sys::Address::parse(granter.address).status(), granter.task));
  SR_ASSIGN_OR_RETURN(const std::shared_ptr<const security::Credentials> credentials,
                      security::Credentials::create(security));
  const auto stub = v1::Master::NewStub(make_channel(granter.address, *credentials));
  v1::CommandJobRequest request;
  request.set_version(kSessionVersion);
  request.set_job(options.job);
  to_proto(command, request.mutable_command());
  const auto call = std::make_shared<CommandCall>(granter.task + " at " + granter.address);
  call->start(stub.get(), std::move(request));
  return call->wait(options);
}

}  // namespace sidereal::service
