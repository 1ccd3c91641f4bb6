#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "sidereal/sys/network.h"

namespace sidereal::sys {

/// The part of a poller that watches what lies in memory. Those that were ready lately are looked
/// at in every wait(); the others, and all when the poller sleeps, have their peers ring.
/// Thread: one.
class MemoryWatch {
 public:
  struct Entry {
    InMemory* memory = nullptr;
    uint64_t token = 0;
    int handle = -1;
    Interest wanted;
    Interest watched;     ///< what handle() is watched for
    int idle = 0;         ///< looks in a row that found nothing
    bool looked = false;  ///< it is among those that are looked at
  };

  /// `what` has in_memory(). The entry is this object's, until remove().
  Entry* add(const Pollable& what, uint64_t token, Interest wanted);
  /// That of `what`, or nullptr.
  Entry* find(const InMemory* memory);
  /// That of `token`, or nullptr.
  Entry* find(uint64_t token);
  void remove(Entry* entry);

  /// Looks at it from now on.
  void look_at(Entry* entry);
  /// Fills `events` with what is ready among those that are looked at; returns how many.
  size_t look(std::span<Event> events);
  /// Before the poller sleeps: for how long it may, in nanoseconds, at most `wanted_ns` (negative:
  /// for ever); 0 when something is ready.
  int64_t close_eyes(int64_t wanted_ns);
  /// After that.
  void open_eyes();
  /// There is something to look at.
  [[nodiscard]] bool looks() const { return !looked_.empty(); }
  [[nodiscard]] bool empty() const { return entries_.empty(); }

 private:
  static constexpr int kIdleLooks = 256;
  static constexpr int64_t kLookNs = 1'000'000;  // where nobody can ring

  void stop_looking(size_t at);

  std::unordered_map<const InMemory*, std::unique_ptr<Entry>> entries_;
  std::unordered_map<uint64_t, Entry*> by_token_;
  std::vector<Entry*> looked_;
  size_t next_ = 0;  // where look() begins: all have their turn
};

}  // namespace sidereal::sys
