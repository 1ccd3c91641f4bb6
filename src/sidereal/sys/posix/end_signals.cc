#include "sidereal/sys/posix/end_signals.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "sidereal/sys/clock.h"

namespace sidereal::sys::posix {
namespace {

constexpr size_t kLineBytesMax = 4096;

}  // namespace

Result<std::unique_ptr<EndSignals>> EndSignals::create(int lifeline_fd) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  if (lifeline_fd >= 0) {
    std::signal(SIGINT, SIG_IGN);
  } else {
    sigaddset(&set, SIGINT);
  }
  // Threads that are made from now on inherit it.
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  // A file that may not grow is an error of who writes it, as a full disk is.
  std::signal(SIGXFSZ, SIG_IGN);
  const int signals = signalfd(-1, &set, SFD_CLOEXEC);
  if (signals < 0) return base::internal("signalfd failed");
  return std::unique_ptr<EndSignals>(new EndSignals(signals, lifeline_fd));
}

EndSignals::~EndSignals() { close(signals_); }

EndSignals::End EndSignals::wait(int64_t timeout_ns) {
  pollfd fds[2] = {{.fd = signals_, .events = POLLIN, .revents = 0},
                   {.fd = lifeline_, .events = POLLIN, .revents = 0}};
  poll(fds, lifeline_ >= 0 ? 2 : 1, static_cast<int>(timeout_ns / kMillisecond));
  if (fds[0].revents != 0) return End::kSignal;
  if (lifeline_ >= 0 && fds[1].revents != 0) {
    char byte = 0;
    if (read(lifeline_, &byte, 1) <= 0) return End::kLauncherGone;
  }
  return End::kNotYet;
}

Result<std::string> read_line(int fd) {
  std::string line;
  while (line.size() <= kLineBytesMax) {
    char byte = 0;
    const ssize_t got = read(fd, &byte, 1);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return base::unavailable("the launcher did not write the line it promised");
    if (byte == '\n') return line;
    line += byte;
  }
  return base::invalid_argument("the launcher's line has more than {} bytes", kLineBytesMax);
}

Status report_line(int fd, const std::string& text) {
  const std::string line = text + "\n";
  const ssize_t written = write(fd, line.data(), line.size());
  close(fd);
  if (written == static_cast<ssize_t>(line.size())) return {};
  return base::unavailable("the launcher does not take \"{}\"", text);
}

}  // namespace sidereal::sys::posix
