#include "sidereal/app/process.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>

#include "sidereal/base/strings.h"
#include "sidereal/sys/posix/control_groups.h"

extern char** environ;

namespace sidereal::app {
namespace {

using Clock = std::chrono::steady_clock;

int milliseconds_until(Clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
  return left.count() < 0 ? 0 : static_cast<int>(left.count()) + 1;
}

Clock::time_point deadline_after(double seconds) {
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

/// The child's ends of the pipes land on these descriptors.
constexpr int kReportFd = 3;
constexpr int kLifelineFd = 4;

struct Pipe {
  int read = -1;
  int write = -1;
};

Result<Pipe> make_pipe() {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) {
    return base::resource_exhausted("cannot make a pipe: {}", std::strerror(errno));
  }
  // Above the numbers the child uses, so that no dup2 there overwrites another's source.
  Pipe made{fcntl(fds[0], F_DUPFD_CLOEXEC, 10), fcntl(fds[1], F_DUPFD_CLOEXEC, 10)};
  close(fds[0]);
  close(fds[1]);
  return made;
}

}  // namespace

Result<std::unique_ptr<TaskProcess>> TaskProcess::spawn(const std::string& task,
                                                        const std::string& program,
                                                        const std::vector<std::string>& arguments,
                                                        const std::string& secret) {
  std::unique_ptr<TaskProcess> child(new TaskProcess(task));
  child->memory_kills_before_ = sys::posix::memory_kills();
  SR_ASSIGN_OR_RETURN(const Pipe report, make_pipe());
  SR_ASSIGN_OR_RETURN(const Pipe lifeline, make_pipe());
  child->report_fd_ = report.read;
  child->lifeline_fd_ = lifeline.write;

  std::vector<std::string> texts{program};
  texts.insert(texts.end(), arguments.begin(), arguments.end());
  for (const char* extra : {"--report-fd", "3", "--lifeline-fd", "4", "--secret-fd", "4"}) {
    texts.emplace_back(extra);
  }
  std::vector<char*> argv;
  for (std::string& text : texts) argv.push_back(text.data());
  argv.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, report.write, kReportFd);
  posix_spawn_file_actions_adddup2(&actions, lifeline.read, kLifelineFd);
  const int error =
      posix_spawn(&child->pid_, program.c_str(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(report.write);
  // Its other end is still open here, so that a child that ended at once is no SIGPIPE. An empty
  // pipe takes a line without waiting.
  const std::string line = secret + "\n";
  const bool told =
      write(lifeline.write, line.data(), line.size()) == static_cast<ssize_t>(line.size());
  close(lifeline.read);
  if (error != 0) {
    child->pid_ = -1;
    child->ended_ = true;
    return base::not_found("cannot start {} with '{}': {}; is the program installed?", task,
                           program, std::strerror(error));
  }
  if (!told) return base::unavailable("cannot hand the secret of the cluster to {}", task);
  return child;
}

TaskProcess::~TaskProcess() {
  kill();
  if (report_fd_ >= 0) close(report_fd_);
  if (lifeline_fd_ >= 0) close(lifeline_fd_);
}

Result<std::string> TaskProcess::read_report(double deadline_s) {
  const Clock::time_point deadline = deadline_after(deadline_s);
  std::string line;
  while (true) {
    pollfd fd{.fd = report_fd_, .events = POLLIN, .revents = 0};
    if (poll(&fd, 1, milliseconds_until(deadline)) == 0) {
      return base::deadline_exceeded("{} (pid {}) did not come up within {:.0f} s", task_, pid_,
                                     deadline_s);
    }
    char byte = 0;
    const ssize_t got = read(report_fd_, &byte, 1);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      wait(2);
      SR_RETURN_IF_ERROR(check_alive());
      return base::unavailable("{} (pid {}) closed its report before it was up", task_, pid_);
    }
    if (byte == '\n') return line;
    line += byte;
    if (line.size() > 256) return base::internal("{} reports nonsense", task_);
  }
}

bool TaskProcess::reap(bool block) {
  if (ended_) return true;
  int status = 0;
  pid_t got = -1;
  do {
    got = waitpid(pid_, &status, block ? 0 : WNOHANG);
  } while (got < 0 && errno == EINTR);
  if (got == 0) return false;
  ended_ = true;
  wait_status_ = got == pid_ ? status : 0;
  return true;
}

Status TaskProcess::check_alive() {
  if (!reap(false)) return {};
  if (WIFSIGNALED(wait_status_)) {
    const int signal = WTERMSIG(wait_status_);
    if (signal == SIGKILL && sys::posix::memory_kills() > memory_kills_before_) {
      const auto limit = static_cast<double>(sys::posix::memory_limit());
      return base::resource_exhausted(
          "{} (pid {}) was killed by the kernel, most likely because it was out of memory: the "
          "limit of this container or control group is {}; use more parameter servers on other "
          "machines, smaller tables, or an optimizer with fewer slots",
          task_, pid_, limit > 0 ? base::human_bytes(limit) : "the machine's memory");
    }
    return base::unavailable("{} (pid {}) was killed by signal {} ({})", task_, pid_, signal,
                             strsignal(signal));
  }
  return base::unavailable("{} (pid {}) ended with exit code {}; its messages are above", task_,
                           pid_, WEXITSTATUS(wait_status_));
}

int TaskProcess::open_handle() const { return static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)); }

bool TaskProcess::wait(double deadline_s) {
  if (reap(false)) return true;
  const Clock::time_point deadline = deadline_after(deadline_s);
  const int fd = open_handle();
  if (fd < 0) return reap(false);
  pollfd ready{.fd = fd, .events = POLLIN, .revents = 0};
  while (!reap(false) && Clock::now() < deadline) poll(&ready, 1, milliseconds_until(deadline));
  close(fd);
  return reap(false);
}

int TaskProcess::signal() const {
  return ended_ && WIFSIGNALED(wait_status_) ? WTERMSIG(wait_status_) : 0;
}

void TaskProcess::terminate() {
  // Until it is reaped its number is nobody else's.
  if (pid_ >= 0 && !reap(false)) ::kill(pid_, SIGTERM);
}

void TaskProcess::kill() {
  if (pid_ < 0 || ended_) return;
  ::kill(pid_, SIGKILL);
  reap(true);
}

}  // namespace sidereal::app
