#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "sidereal/base/status.h"

/// Child processes that stand still unless they are measured, and what else the machine does.
namespace sidereal::bench {

/// A forked child with a pipe each way. Killed when it is destroyed or this process dies.
class Process {
 public:
  /// Runs `body(in, out)` in a child. To be called before this process has threads.
  static Result<std::unique_ptr<Process>> fork(const std::string& name,
                                               const std::function<Status(int in, int out)>& body);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  /// Stops it in its tracks, or lets it go on.
  void pause();
  void resume();
  Status send(const void* data, size_t bytes);
  /// Waits at most `seconds`; an error names the process.
  Status receive(void* data, size_t bytes, double seconds);
  /// Processor time of all its threads so far, in seconds.
  [[nodiscard]] double cpu_seconds() const;

 private:
  Process() = default;

  std::string name_;
  pid_t pid_ = -1;
  int in_ = -1;
  int out_ = -1;
};

/// Processor time of everything on this machine so far, time stolen by the host included, in
/// seconds.
double machine_busy_seconds();

}  // namespace sidereal::bench
