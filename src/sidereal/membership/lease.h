#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>

#include "sidereal/base/status.h"
#include "sidereal/membership/vote.h"

namespace sidereal::membership {

/// The right of one start of a task to count: it holds while a majority of voters has given it
/// their votes again in time. It sends nothing and waits for nothing: who has it asks voters as it
/// says, and tells of what they answer. Times are nanoseconds of its own clock, in which a lease
/// ends before the votes that it is made of.
/// Thread: one at a time.
class Lease {
 public:
  struct Options {
    std::string task;
    uint64_t life = 0;
    ProcessId process = {};
    int voters = 1;
    int64_t lease_ns = 0;
    std::function<uint64_t()> random;  ///< So that two that want the same do not keep in step.
  };
  explicit Lease(Options options);

  /// When voters are to be asked.
  [[nodiscard]] int64_t due() const { return due_; }
  /// What all voters are to be asked now; answers are of this round.
  Ask begin(int64_t now);
  [[nodiscard]] uint64_t round() const { return round_; }
  /// Ignored when it is of a round before.
  void take(int voter, uint64_t round, const Vote& vote, int64_t now);

  /// It counts up to this instant; 0: it never has.
  [[nodiscard]] int64_t until() const { return until_; }
  [[nodiscard]] bool holds(int64_t now) const { return now < until_; }
  /// The view in which it counts, or did last; 0: none.
  [[nodiscard]] uint64_t view() const { return held_; }
  /// Another start has counted since, says a majority: this one never will.
  [[nodiscard]] bool is_deposed() const { return is_deposed_; }
  [[nodiscard]] uint64_t deposed_by() const { return deposed_by_; }

  /// Another start, which has votes that this one wants.
  struct Other {
    uint64_t life = 0;  ///< 0: there is none.
    ProcessId process = {};
  };
  [[nodiscard]] const Other& other() const { return other_; }
  /// The process of another start has ended, which voters need not wait for.
  void knows_gone(uint64_t life, int64_t now);

  /// Voters that have answered in the round before, of all(); and the longest time that one of
  /// those which refused it must wait yet.
  [[nodiscard]] int answered() const { return answered_before_; }
  [[nodiscard]] int64_t wait_ns() const { return wait_before_; }
  [[nodiscard]] int all() const { return options_.voters; }

 private:
  enum class Does : uint8_t { kAsks, kAsksAgain, kHolds, kGivesUp };
  [[nodiscard]] size_t majority() const { return static_cast<size_t>(options_.voters) / 2 + 1; }
  int64_t some_of(int64_t ns);
  void refused(int64_t now);

  const Options options_;
  Does does_ = Does::kAsks;
  uint64_t round_ = 0;
  int64_t due_ = 0;
  int64_t sent_ = 0;
  int64_t until_ = 0;
  uint64_t view_ = 0;  // That is asked for.
  uint64_t held_ = 0;
  uint64_t seen_ = 0;  // The highest view that voters have for others.
  std::set<int> granted_;
  std::set<int> refused_;
  std::set<int> deposed_;
  int answered_before_ = 0;
  int64_t wait_ = 0;
  int64_t wait_before_ = 0;
  bool is_deposed_ = false;
  uint64_t deposed_by_ = 0;
  Other other_;
  uint64_t gone_ = 0;
};

}  // namespace sidereal::membership
