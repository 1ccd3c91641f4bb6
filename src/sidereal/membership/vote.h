#pragma once

#include <cstdint>
#include <string>

/// Which start of a task counts is decided by the majority of some voters, each of which gives its
/// vote to one start at a time, for a time. docs/design/0005-replication.md, "Views".
namespace sidereal::membership {

/// A process, as others on its machine find it. Value type.
struct ProcessId {
  std::string machine;  ///< Those with the same name see each other's processes; "": unknown.
  int64_t pid = 0;
  uint64_t started = 0;  ///< When it was, by the machine's own count: a pid is used again.

  bool operator==(const ProcessId&) const = default;
};

/// One start of a task asks for a vote. Views of a task are 1, 2, ...: each has one start at most
/// that counts. Value type.
struct Ask {
  std::string task;
  uint64_t life = 0;  ///< The incarnation of the start.
  ProcessId process = {};
  uint64_t round = 0;      ///< Of its asking: those that come late are no use.
  int64_t lease_ns = 0;    ///< How long it counts with a majority of votes.
  uint64_t view = 0;       ///< That it wants to count in.
  uint64_t held = 0;       ///< The last one in which it has counted; 0: none.
  bool is_second = false;  ///< A majority has promised it the view: it counts with a majority of
                           ///< second votes.
  bool gives_up = false;   ///< It wants the vote no more.
  uint64_t gone = 0;       ///< Another start, whose process has ended; 0: it knows of none.

  bool operator==(const Ask&) const = default;
};

/// What a voter answers. Value type.
struct Vote {
  bool is_granted = false;
  bool is_deposed = false;  ///< Another start counts, or has, in a view after Ask::held.
  uint64_t view = 0;        ///< The highest one that the voter knows of.
  uint64_t life = 0;        ///< Who has its vote; 0: nobody, but it must not give it yet.
  ProcessId process = {};   ///< Of that.
  int64_t wait_ns = 0;      ///< Until it may give it to another one.

  bool operator==(const Vote&) const = default;
};

}  // namespace sidereal::membership
