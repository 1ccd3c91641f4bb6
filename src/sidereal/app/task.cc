#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>

#include "sidereal/app/server.h"
#include "sidereal/base/log.h"
#include "sidereal/security/listener.h"

namespace sidereal::app {
namespace {

// Shutdown calls are looked for this often; signals and a lost launcher wake at once.
constexpr int kLookMs = 100;

Status report(int fd, const std::string& address) {
  const std::string line = address + "\n";
  if (write(fd, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
    return base::unavailable("the launcher does not take the address {}", address);
  }
  close(fd);
  return {};
}

/// Waits for the first reason to end: ok, or why it is an error.
Status wait_for_end(Server* server, int signals, int lifeline) {
  while (true) {
    pollfd fds[2] = {{.fd = signals, .events = POLLIN, .revents = 0},
                     {.fd = lifeline, .events = POLLIN, .revents = 0}};
    poll(fds, lifeline >= 0 ? 2 : 1, kLookMs);
    if (fds[0].revents != 0) {
      base::log_info("stopping reason=signal");
      return {};
    }
    if (lifeline >= 0 && fds[1].revents != 0) {
      char byte = 0;
      if (read(lifeline, &byte, 1) <= 0) {
        return base::unavailable("the launcher is gone; {} stops", server->task());
      }
    }
    if (server->wait(0)) return {};
  }
}

}  // namespace

Status run_task(const ServerOptions& options, const TaskHandles& handles) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  if (handles.lifeline_fd >= 0) {
    std::signal(SIGINT, SIG_IGN);
  } else {
    sigaddset(&set, SIGINT);
  }
  // Before any thread is made, so that all inherit it.
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  security::log_less_of_grpc();
  const int signals = signalfd(-1, &set, SFD_CLOEXEC);
  if (signals < 0) return base::internal("signalfd failed");
  SR_ASSIGN_OR_RETURN(const std::unique_ptr<Server> server, Server::create(options));
  base::set_log_name(server->task());
  if (handles.report_fd >= 0) SR_RETURN_IF_ERROR(report(handles.report_fd, server->address()));
  base::log_debug("up address={}", server->address());
  Status status = wait_for_end(server.get(), signals, handles.lifeline_fd);
  server->stop();
  close(signals);
  return status;
}

}  // namespace sidereal::app
