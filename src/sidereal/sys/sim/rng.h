#pragma once

#include <cstdint>

#include "sidereal/sys/clock.h"

namespace sidereal::sys::sim {

/// Numbers that follow from a seed (SplitMix64: G. Steele, D. Lea, C. Flood, "Fast splittable
/// pseudorandom number generators", 2014). The same on every machine. Thread: one at a time.
class Rng final : public Random {
 public:
  explicit Rng(uint64_t seed) : state_(seed) {}

  uint64_t next() override {
    state_ += 0x9e3779b97f4a7c15;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  /// From 0 to `end` - 1; 0 when `end` is 0.
  uint64_t below(uint64_t end) {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(next()) * end) >> 64);
  }
  /// From `low` to `high`, both included.
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(below(static_cast<uint64_t>(high - low) + 1));
  }
  /// From 0 to 1, without 1.
  double unit() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  /// True with this probability.
  bool chance(double probability) { return unit() < probability; }
  /// A time of this mean: most are shorter, a few much longer (at most 16 times the mean).
  int64_t around(int64_t mean);
  /// A generator of its own.
  Rng fork() { return Rng(next()); }

 private:
  uint64_t state_;
};

}  // namespace sidereal::sys::sim
