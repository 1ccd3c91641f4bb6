#pragma once

#include <algorithm>
#include <cstdint>

#include "sidereal/sys/clock.h"

namespace sidereal::lane {

/// Values of LaneOptions::spin_us that are no number of microseconds.
constexpr int64_t kSpinAlways = -1;    ///< Never sleep: a processor for the lane alone.
constexpr int64_t kSpinAdaptive = -2;  ///< Learn whether spinning pays.
constexpr int64_t kSpinBriefly = -3;   ///< The same where lanes must share processors.

/// How long an idle lane looks for work before it sleeps.
///
/// Adaptive: to wake a sleeping thread takes tens of microseconds, so a look of up to `kLook`
/// pays when work comes within it. Looks that found something pay for further ones. Those that
/// ended in sleep are paid from an account, which fills with a 32nd of the time that passes: so
/// an idle lane looks in vain for no more than that, and one that is woken seldom for much less.
/// Who was put off its processor while it looked was in somebody's way: it does not look for a
/// while.
///
/// Times are nanoseconds of the lane's clock. Thread: core-local.
/// Source: the idea of adaptive halt polling in KVM; the account is our own.
class Spin {
 public:
  /// `spin_us`: a number, or one of the constants above.
  explicit Spin(int64_t spin_us)
      : spin_us_(spin_us), look_(spin_us == kSpinBriefly ? kBriefLook : kLook) {}

  /// The lane has found nothing to do at `now`: how long it may look from now on.
  int64_t begin(int64_t now) {
    if (spin_us_ == kSpinAlways) return INT64_MAX;
    if (spin_us_ >= 0) return spin_us_ * sys::kMicrosecond;
    if (last_ != 0) account_ = std::min(account_ + (now - last_) / kShare, kAccountMax);
    last_ = now;
    return account_ >= look_ ? look_ : 0;
  }
  /// Work came after a look of `ns`.
  void found(int64_t ns) { account_ = std::min(account_ + ns, kAccountMax); }
  /// Nothing came in a look of `ns`; the lane sleeps.
  void gave_up(int64_t ns) { account_ -= ns; }
  /// One pass over what there is to look at took `ns` without finding anything.
  void passed(int64_t ns) {
    if (ns > kStolen) account_ = -kPenalty;
  }

 private:
  static constexpr int64_t kLook = 100 * sys::kMicrosecond;
  static constexpr int64_t kBriefLook = 5 * sys::kMicrosecond;
  static constexpr int64_t kShare = 32;
  static constexpr int64_t kAccountMax = sys::kMillisecond;
  /// A pass takes a microsecond: who needs so many was not running.
  static constexpr int64_t kStolen = 200 * sys::kMicrosecond;
  static constexpr int64_t kPenalty = sys::kMillisecond;  // No looks for 32 ms.

  int64_t spin_us_;
  int64_t look_;
  int64_t account_ = kAccountMax;
  int64_t last_ = 0;
};

}  // namespace sidereal::lane
