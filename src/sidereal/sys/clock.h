#pragma once

#include <cstdint>

namespace sidereal::sys {

inline constexpr int64_t kMicrosecond = 1'000;
inline constexpr int64_t kMillisecond = 1'000'000;
inline constexpr int64_t kSecond = 1'000'000'000;

/// Time that only goes forward. Thread: any.
class Clock {
 public:
  virtual ~Clock() = default;
  /// Nanoseconds since some fixed moment before this object was made.
  virtual int64_t now() = 0;

  /// When somebody last asked; one for each who asks.
  struct Reading {
    int64_t ns = 0;
    uint64_t ticks = 0;
  };
  /// now(), or what it was up to 0.1 ms before; may be cheaper. `last` is the caller's alone.
  virtual int64_t recent(Reading* last) {
    (void)last;
    return now();
  }
};

/// A source of numbers nobody can predict (or, seeded, everybody can). Thread: any.
class Random {
 public:
  virtual ~Random() = default;
  /// 64 uniformly random bits.
  virtual uint64_t next() = 0;
};

}  // namespace sidereal::sys
