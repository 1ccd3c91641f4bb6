#include "sidereal/app/server.h"
#include "sidereal/base/event_log.h"
#include "sidereal/base/log.h"
#include "sidereal/cluster/task_name.h"
#include "sidereal/security/cluster_key.h"
#include "sidereal/security/listener.h"
#include "sidereal/sys/clock.h"
#include "sidereal/sys/posix/end_signals.h"
#include "sidereal/sys/posix/event_file.h"

namespace sidereal::app {

using sys::posix::EndSignals;

Status serve(const ServerOptions& options, double drain_s, const ProcessHandles& handles) {
  SR_ASSIGN_OR_RETURN(const std::unique_ptr<EndSignals> signals,
                      EndSignals::create(handles.lifeline_fd));
  security::log_less_of_grpc();
  ServerOptions complete = options;
  if (handles.secret_fd >= 0) {
    SR_ASSIGN_OR_RETURN(complete.security.secret, sys::posix::read_line(handles.secret_fd));
  }
  base::set_log_name(cluster::task_name(options.job, options.task));
  const std::unique_ptr<base::EventSinkRegistration> events =
      sys::posix::write_events(handles.event_log);
  Result<std::unique_ptr<Server>> made = Server::create(complete);
  security::wipe(&complete.security.secret);
  SR_ASSIGN_OR_RETURN(const std::unique_ptr<Server> server, std::move(made));
  if (handles.report_fd >= 0) {
    SR_RETURN_IF_ERROR(sys::posix::report_line(handles.report_fd, server->address()));
  }
  EndSignals::End end = EndSignals::End::kNotYet;
  // One that has standbys may be deposed.
  const int64_t look = (options.data.replicas > 1 ? 1 : 60) * sys::kSecond;
  while (end == EndSignals::End::kNotYet && !server->join(0)) end = signals->wait(look);
  if (end == EndSignals::End::kNotYet) {
    base::emit(server->source(), base::Event::kTaskStopping, {{"reason", "deposed"}});
    return base::aborted("a later start of {} has taken its place; this one has ended",
                         server->task());
  }
  if (end == EndSignals::End::kSignal) {
    base::emit(server->source(), base::Event::kTaskStopping, {{"reason", "signal"}});
    server->stop(drain_s);
    return {};
  }
  base::emit(server->source(), base::Event::kTaskStopping, {{"reason", "launcher gone"}});
  server->stop();
  return base::unavailable("the launcher is gone; {} stops", server->task());
}

}  // namespace sidereal::app
