#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "sidereal/base/status.h"

namespace sidereal::sys::posix {

/// What tells the process of a server to end: SIGTERM, SIGINT, or that its launcher is gone.
///
/// For main(): from create() on these signals are blocked in the whole process; call it before any
/// thread is made. SIGPIPE and SIGXFSZ are ignored. With a launcher, SIGINT is ignored as well:
/// Ctrl-C is the launcher's.
class EndSignals {
 public:
  /// `lifeline_fd`: when the other end of it closes, the launcher is gone; -1: there is none.
  static Result<std::unique_ptr<EndSignals>> create(int lifeline_fd);
  ~EndSignals();
  EndSignals(const EndSignals&) = delete;
  EndSignals& operator=(const EndSignals&) = delete;

  enum class End { kNotYet, kSignal, kLauncherGone };
  /// Waits for the first of them, at most for that time (nanoseconds).
  End wait(int64_t timeout_ns);

 private:
  EndSignals(int signals, int lifeline) : signals_(signals), lifeline_(lifeline) {}

  int signals_;
  int lifeline_;
};

/// One line from a launcher, without its end; what follows stays unread. kUnavailable when `fd`
/// ends before the line does, kInvalidArgument for one of more than 4 KiB.
Result<std::string> read_line(int fd);

/// Writes one line to a launcher, and closes `fd`: kUnavailable when it does not take it.
Status report_line(int fd, const std::string& text);

}  // namespace sidereal::sys::posix
