#pragma once

#include <cstdint>
#include <vector>

#include "sidereal/base/function.h"
#include "sidereal/base/ids.h"
#include "sidereal/base/slot_map.h"

namespace sidereal::lane {

struct TimerTag;
/// Names one timer; the one that is made by default names none.
using TimerId = base::StrongId<TimerTag, uint64_t>;

/// A heap of deadlines. Equal deadlines fire in the order they were set. Thread: core-local.
class Timers {
 public:
  /// Calls `fn` once `deadline_ns` has passed.
  TimerId add(int64_t deadline_ns, base::Function<void()> fn);
  /// False when it has fired, was cancelled or never was.
  bool cancel(TimerId id);
  /// The earliest deadline, or INT64_MAX.
  [[nodiscard]] int64_t next_deadline();
  /// Fires what is due at `now_ns`, except timers set while this runs; returns how many.
  int fire(int64_t now_ns);
  /// Drops all without firing.
  void clear();

 private:
  struct Entry {
    int64_t deadline;
    uint64_t order;
    uint64_t id;
  };
  static bool later(const Entry& a, const Entry& b);
  void pop();

  std::vector<Entry> heap_;
  base::SlotMap<base::Function<void()>> armed_;
  uint64_t order_ = 0;
};

}  // namespace sidereal::lane
