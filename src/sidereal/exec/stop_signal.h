#pragma once

#include <atomic>

#include "sidereal/base/status.h"

namespace sidereal::exec {

/// Tells steps to stop. Steps that were given it look at it between instructions, in the bodies of
/// loops too, and end with its status.
/// Thread: any thread may raise(); the rest may be called from anywhere as well.
class StopSignal {
 public:
  enum class Reason : int { kNone = 0, kCancelled, kDeadline };

  StopSignal() = default;
  /// Counts as raised when `wider` is as well: a signal of many steps, borrowed.
  explicit StopSignal(const StopSignal* wider) : wider_(wider) {}

  /// Stops what looks at the signal; the first reason stays. kNone lowers it again, which is for
  /// when nothing runs.
  void raise(Reason reason) {
    Reason none = Reason::kNone;
    if (reason == Reason::kNone) {
      reason_.store(reason, std::memory_order_relaxed);
    } else {
      reason_.compare_exchange_strong(none, reason, std::memory_order_relaxed);
    }
  }

  [[nodiscard]] bool raised() const {
    return reason_.load(std::memory_order_relaxed) != Reason::kNone ||
           (wider_ != nullptr && wider_->raised());
  }
  /// kCancelled or kDeadlineExceeded once raised, else Ok.
  [[nodiscard]] Status status() const;

 private:
  const StopSignal* wider_ = nullptr;
  std::atomic<Reason> reason_{Reason::kNone};
};

}  // namespace sidereal::exec
