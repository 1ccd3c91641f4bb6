#pragma once

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "sidereal/app/testing/model.h"
#include "sidereal/security/credentials.h"
#include "sidereal/service/channels.h"
#include "sidereal/service/session.grpc.pb.h"
#include "sidereal/service/session.h"
#include "sidereal/service/worker_service.h"

/// For tests: clusters whose servers are processes, which can be killed, stopped and looked at.
namespace sidereal::app {

/// This program, with its folder.
inline std::string this_program() {
  std::array<char, 4096> name{};
  const ssize_t length = readlink("/proc/self/exe", name.data(), name.size());
  return {name.data(), static_cast<size_t>(std::max<ssize_t>(length, 0))};
}

/// The program `sidereal` of the same build; "" when it was not built.
inline std::string server_program() {
  const std::string self = this_program();
  const std::string program = self.substr(0, self.rfind('/')) + "/../bin/sidereal";
  return access(program.c_str(), X_OK) == 0 ? program : "";
}

/// A process that ends with this one. Not copyable.
class ChildProcess {
 public:
  explicit ChildProcess(const std::vector<std::string>& command,
                        const std::vector<std::string>& environment = {}) {
    std::vector<char*> arguments;
    for (const std::string& one : command) arguments.push_back(const_cast<char*>(one.c_str()));
    arguments.push_back(nullptr);
    std::vector<char*> variables;
    for (char** one = environ; *one != nullptr; ++one) variables.push_back(*one);
    for (const std::string& one : environment) variables.push_back(const_cast<char*>(one.c_str()));
    variables.push_back(nullptr);
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      close(STDOUT_FILENO);
      execve(arguments[0], arguments.data(), variables.data());
      _exit(127);
    }
  }
  ~ChildProcess() {
    if (pid_ <= 0) return;
    signal(SIGKILL);
    wait();
  }
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  void signal(int number) const {
    if (pid_ > 0) ::kill(pid_, number);
  }
  /// Waits for its end: its exit code, or minus the signal that ended it.
  int wait() {
    int status = 0;
    waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  pid_t pid_ = -1;
};

/// Waits until `condition` holds; false when it still does not after `seconds`.
template <class Condition>
bool eventually(Condition condition, double seconds = 15) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    // What is waited for happens in another process, which tells nobody.
    poll(nullptr, 0, 10);
  }
  return true;
}

/// A model on `tasks` tasks of a cluster: there and back, and what waits for a queue on task 1.
class SpreadModel : public Model {
 public:
  explicit SpreadModel(int tasks) {
    const auto on = [tasks](int task) { return "/task:" + std::to_string(task % tasks); };
    const ir::AttrMap dtypes = {{"dtypes", std::vector<std::string>{"float32"}}};
    const ir::Output there = add("Neg", {placeholder("x")}, {}, "there", on(1));
    add("Neg", {there}, {}, "back", on(0));
    add("Add", {there, constant({1, 2}, "", on(2))}, {}, "wants_two", on(2));
    ir::AttrMap attrs = dtypes;
    attrs["shared_name"] = std::string("q");
    const ir::Output queue = add("Queue", {}, attrs, "q", on(1));
    const ir::Output taken = add("QueueDequeue", {queue}, dtypes, "take");
    add("Neg", {taken}, {}, "taken", on(0));
    add("Neg", {taken}, {}, "taken_elsewhere", on(2));
  }
};

/// A value for its placeholder.
inline service::Session::Feed feed_of_x(int64_t count = 1) {
  const std::vector<float> values(static_cast<size_t>(count), 1);
  return {"x", tensor::Tensor::of(tensor::Shape{count}, values)};
}

/// Seconds since it was made.
class Stopwatch {
 public:
  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
  }

 private:
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

/// How late this process gets a processor that it asks for. What a test says of time holds on a
/// machine that has other work as well, by as much more as that machine is slow.
class Lateness {
 public:
  Lateness() {
    thread_ = std::thread([this] {
      while (!done_) {
        const Stopwatch watch;
        poll(nullptr, 0, kNapMs);
        worst_s_ = std::max<double>(worst_s_, watch.seconds() - kNapMs / 1e3);
      }
    });
  }
  ~Lateness() {
    done_ = true;
    thread_.join();
  }
  Lateness(const Lateness&) = delete;
  Lateness& operator=(const Lateness&) = delete;

  /// Seconds that may pass here where a machine of its own takes `seconds` at most: processes that
  /// talk to each other wait for a processor some times in a row.
  [[nodiscard]] double allows(double seconds) const { return seconds + 20 * worst_s_; }

 private:
  static constexpr int kNapMs = 10;

  std::atomic<bool> done_ = false;
  std::atomic<double> worst_s_ = 0;
  std::thread thread_;
};

/// Processes of `sidereal serve --cluster`, tasks of job "w".
class ProcessCluster {
 public:
  /// `security` is how status() asks; that of the servers is in their options.
  explicit ProcessCluster(int count, std::vector<std::string> options = {},
                          const security::SecurityOptions& security = {})
      : options_(std::move(options)),
        credentials_(*security::Credentials::create(security)),
        ports_(count),
        addresses_(ports_.addresses()),
        processes_(static_cast<size_t>(count)) {
    for (int i = 0; i < count; ++i) start(i);
    for (int i = 0; i < count; ++i) EXPECT_TRUE(is_up(i)) << target(i);
  }

  void start(int task, const std::vector<std::string>& more_options = {}) {
    std::string cluster;
    for (const std::string& address : addresses_) {
      cluster += (cluster.empty() ? "\"" : ", \"") + address + '"';
    }
    std::vector<std::string> command = {server_program(), "serve",
                                        "--job",          "w",
                                        "--task",         std::to_string(task),
                                        "--cluster",      "{\"w\": [" + cluster + "]}"};
    command.insert(command.end(), options_.begin(), options_.end());
    command.insert(command.end(), more_options.begin(), more_options.end());
    processes_[static_cast<size_t>(task)] = std::make_unique<ChildProcess>(command);
  }
  [[nodiscard]] ChildProcess& process(int task) { return *processes_[static_cast<size_t>(task)]; }
  void kill(int task) {
    process(task).signal(SIGKILL);
    process(task).wait();
  }
  bool is_up(int task) {
    return eventually([&] { return status(task).pid() != 0; }, 30);
  }
  /// Seconds that may pass where `seconds` are promised.
  [[nodiscard]] double allows(double seconds) const { return lateness_.allows(seconds); }
  [[nodiscard]] const std::string& address(int task = 0) const {
    return addresses_[static_cast<size_t>(task)];
  }
  [[nodiscard]] std::string target(int task = 0) const { return "grpc://" + address(task); }

  /// A new connection to a task.
  [[nodiscard]] std::shared_ptr<grpc::Channel> channel(int task = 0) const {
    return service::make_channel(address(task), *credentials_);
  }
  /// What a task says of itself; pid 0 when nobody is there. Who is there and slow is waited for: a
  /// host that floods it gets no answer for a while.
  [[nodiscard]] session::v1::TaskStatus status(int task = 0) const {
    const auto stub = session::v1::Worker::NewStub(channel(task));
    session::v1::GetStatusRequest request;
    request.set_version(service::kSessionVersion);
    session::v1::TaskStatus reply;
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    static_cast<void>(stub->GetStatus(&context, request, &reply));
    return reply;
  }

 private:
  const Lateness lateness_;
  const std::vector<std::string> options_;
  const std::shared_ptr<const security::Credentials> credentials_;
  const ReservedPorts ports_;
  const std::vector<std::string> addresses_;
  std::vector<std::unique_ptr<ChildProcess>> processes_;
};

}  // namespace sidereal::app
