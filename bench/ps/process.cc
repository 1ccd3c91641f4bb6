#include "process.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <string>
#include <utility>

#include "work.h"

namespace sidereal::bench {

Result<std::unique_ptr<Process>> Process::fork(const std::string& name,
                                               const std::function<Status(int in, int out)>& body) {
  std::array<int, 2> to = {};
  std::array<int, 2> from = {};
  if (pipe(to.data()) != 0 || pipe(from.data()) != 0) return base::unavailable("no pipe");
  const pid_t parent = getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return base::unavailable("no process for {}", name);
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    close(to[1]);
    close(from[0]);
    const Status status = body(to[0], from[1]);
    if (!status.ok()) fmt::print(stderr, "bench_ps: {}: {}\n", name, base::message_of(status));
    std::fflush(nullptr);
    _exit(status.ok() ? 0 : 1);
  }
  close(to[0]);
  close(from[1]);
  std::unique_ptr<Process> made(new Process());
  made->name_ = name;
  made->pid_ = pid;
  made->in_ = to[1];
  made->out_ = from[0];
  return made;
}

Process::~Process() {
  ::kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  close(in_);
  close(out_);
}

void Process::pause() { ::kill(pid_, SIGSTOP); }
void Process::resume() { ::kill(pid_, SIGCONT); }

Status Process::send(const void* data, size_t bytes) {
  if (write_all(in_, data, bytes)) return {};
  return base::unavailable("{} has ended", name_);
}

Status Process::receive(void* data, size_t bytes, double seconds) {
  pollfd wait = {.fd = out_, .events = POLLIN, .revents = 0};
  int ready = 0;
  do {
    ready = poll(&wait, 1, static_cast<int>(seconds * 1e3));
  } while (ready < 0 && errno == EINTR);
  if (ready == 0) return base::deadline_exceeded("{} did not answer in {:.0f} s", name_, seconds);
  // What comes is one small write, so the rest of it is there too.
  if (read_all(out_, data, bytes)) return {};
  return base::unavailable("{} has ended", name_);
}

double Process::cpu_seconds() const {
  clockid_t clock = 0;
  timespec time = {};
  if (clock_getcpuclockid(pid_, &clock) != 0 || clock_gettime(clock, &time) != 0) return 0;
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

double machine_busy_seconds() {
  // user nice system idle iowait irq softirq steal, in clock ticks.
  std::ifstream file("/proc/stat");
  std::string cpu;
  std::array<double, 8> ticks = {};
  file >> cpu;
  for (double& t : ticks) file >> t;
  const double busy = ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6] + ticks[7];
  return busy / static_cast<double>(sysconf(_SC_CLK_TCK));
}

}  // namespace sidereal::bench
