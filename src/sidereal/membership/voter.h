#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/membership/vote.h"

namespace sidereal::membership {

/// Gives its vote for a task to one start at a time, which keeps it for a time after each answer.
/// What was decided last is its memory: who owns it keeps records() where they outlive it. After a
/// start it does not know what it had promised, and for that time promises nobody else anything.
/// Source: PaxosLease, Trencseni, Gazso and Reinhardt, 2012; second votes are Paxos's accepts.
/// Times are nanoseconds of its own clock. Thread: one at a time.
class Voter {
 public:
  /// Start `life` may have counted in `view` of the task. Value type.
  struct Record {
    std::string task;
    uint64_t view = 0;
    uint64_t life = 0;

    bool operator==(const Record&) const = default;
  };

  /// `promise_ns`: how long a vote is kept; it must be longer than leases by all that clocks may
  /// differ in, which is 2 %.
  Voter(int64_t promise_ns, int64_t now, std::vector<Record> records = {});

  /// kInvalidArgument for what nobody asks who goes by the rules; kResourceExhausted for too many
  /// tasks. When records_changed() then, the answer must wait for them to be kept.
  Result<Vote> vote(const Ask& ask, int64_t now);

  /// Whether records() are others than when it last said so.
  bool take_records_changed();
  [[nodiscard]] std::vector<Record> records() const;

  /// A start that had the vote and has not asked for all that time.
  struct Silent {
    std::string task;
    uint64_t life = 0;
  };
  /// Each once.
  std::vector<Silent> take_silent(int64_t now);

 private:
  struct State {
    uint64_t view = 0;  ///< Promised, or known.
    uint64_t life = 0;  ///< Who has the vote,
    ProcessId process = {};
    uint64_t round = 0;        ///< and asked for it when,
    int64_t until = 0;         ///< till then;
    bool is_watched = false;   ///< take_silent() has not told of it.
    uint64_t second_view = 0;  ///< The last second vote,
    uint64_t second_life = 0;  ///< and whose it was.
  };
  [[nodiscard]] Status check(const Ask& ask) const;

  int64_t promise_;
  int64_t quiet_until_;
  std::map<std::string, State> tasks_;
  bool records_changed_ = false;
};

}  // namespace sidereal::membership
