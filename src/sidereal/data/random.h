#pragma once

#include <cstdint>

namespace sidereal::data {

/// Mixes the bits of `x`: a bijection in which every input bit moves every output bit (the
/// finaliser of SplitMix64: Steele, Lea, Flood, 2014).
constexpr uint64_t mix64(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

constexpr uint64_t kGoldenGamma = 0x9e3779b97f4a7c15ULL;

/// The `index`-th number of stream `key`, without making the ones before it.
constexpr uint64_t counter_random(uint64_t key, uint64_t index) {
  return mix64(key + (index + 1) * kGoldenGamma);
}

/// A stream of 64-bit random numbers, the same on every machine. Value type.
/// Thread: core-local.
class Random {
 public:
  explicit Random(uint64_t key) : key_(key) {}
  uint64_t next() { return counter_random(key_, index_++); }
  /// A number in [0, n), n > 0; the bias is below n / 2^64.
  uint64_t below(uint64_t n) {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(next()) * n) >> 64);
  }

 private:
  uint64_t key_;
  uint64_t index_ = 0;
};

}  // namespace sidereal::data
