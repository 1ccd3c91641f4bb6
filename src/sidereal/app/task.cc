#include "sidereal/app/server.h"
#include "sidereal/base/log.h"
#include "sidereal/security/cluster_key.h"
#include "sidereal/security/listener.h"
#include "sidereal/sys/clock.h"
#include "sidereal/sys/posix/end_signals.h"

namespace sidereal::app {
namespace {

using sys::posix::EndSignals;

// Shutdown calls are looked for this often; signals and a lost launcher wake at once.
constexpr int64_t kLook = 100 * sys::kMillisecond;

/// Waits for the first reason to end: ok, or why it is an error.
Status wait_for_end(Server* server, EndSignals* signals) {
  while (!server->wait(0)) {
    const EndSignals::End end = signals->wait(kLook);
    if (end == EndSignals::End::kSignal) {
      base::log_info("stopping reason=signal");
      return {};
    }
    if (end == EndSignals::End::kLauncherGone) {
      return base::unavailable("the launcher is gone; {} stops", server->task());
    }
  }
  return {};
}

}  // namespace

Status run_task(const ServerOptions& options, const TaskHandles& handles) {
  SR_ASSIGN_OR_RETURN(const std::unique_ptr<EndSignals> signals,
                      EndSignals::create(handles.lifeline_fd));
  security::log_less_of_grpc();
  ServerOptions complete = options;
  if (handles.secret_fd >= 0) {
    SR_ASSIGN_OR_RETURN(complete.security.secret, sys::posix::read_line(handles.secret_fd));
  }
  Result<std::unique_ptr<Server>> made = Server::create(complete);
  security::wipe(&complete.security.secret);
  SR_ASSIGN_OR_RETURN(const std::unique_ptr<Server> server, std::move(made));
  base::set_log_name(server->task());
  if (handles.report_fd >= 0) {
    SR_RETURN_IF_ERROR(sys::posix::report_line(handles.report_fd, server->address()));
  }
  base::log_debug("up address={}", server->address());
  Status status = wait_for_end(server.get(), signals.get());
  server->stop();
  return status;
}

}  // namespace sidereal::app
