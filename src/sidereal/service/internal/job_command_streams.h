#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "sidereal/service/internal/server_stream.h"
#include "sidereal/service/job_command_relay.h"
#include "sidereal/service/session.pb.h"

/// For the .cc files of service.
namespace sidereal::service {

/// What streams of commands need of their service. Value type.
struct CommandService {
  std::shared_ptr<JobCommandRelay> relay;
  std::function<Status()> check;     ///< Why nothing begins any more, when the server stops.
  std::function<void()> on_refused;  ///< Of requests that were refused for what they say.
};

/// A CommandJob stream.
class CommandStream final
    : public ServerStream<session::v1::CommandJobRequest, session::v1::CommandJobReply>,
      public CommandCaller {
 public:
  CommandStream(CommandService service, std::string server)
      : service_(std::move(service)), server_(std::move(server)) {}

  void told(const JobCommandProgress& progress) override;
  void told_end(const Status& status, const std::string& text) override;

 private:
  Status take(session::v1::CommandJobRequest* request) override;
  void refused() override { service_.on_refused(); }
  Status half_closed() override;
  void hung_up() override { service_.relay->abandon(number_); }
  void cancelled() override;
  [[nodiscard]] bool said_all() const override { return false; }

  const CommandService service_;
  const std::string server_;  // The task that this is.
  bool has_begun_ = false;    // Of callbacks of requests.
  std::atomic<uint64_t> number_ = 0;
  std::atomic<bool> has_ended_ = false;
};

/// A HearCommands stream.
class HearStream final
    : public ServerStream<session::v1::HearCommandsRequest, session::v1::HearCommandsReply>,
      public CommandHolder {
 public:
  explicit HearStream(CommandService service) : service_(std::move(service)) {}

  void begin(uint64_t number, const JobCommand& command) override;
  void cancel(uint64_t number) override;
  void dismiss() override;

 private:
  Status take(session::v1::HearCommandsRequest* request) override;
  void refused() override { service_.on_refused(); }
  void hung_up() override { service_.relay->leave(lease_, this); }
  void cancelled() override { hung_up(); }
  [[nodiscard]] bool said_all() const override { return true; }

  const CommandService service_;
  std::atomic<uint64_t> lease_ = 0;
};

}  // namespace sidereal::service
