#pragma once

#include <cstdint>

namespace sidereal::kernels::internal {

/// A bijection of 64 bits in which every input bit reaches every output bit (the finalizer of
/// SplitMix64; Steele, Lea and Flood, Fast Splittable Pseudorandom Number Generators, 2014).
inline uint64_t mix64(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

/// A keyed counter generator: bits(i) is two rounds of mix64 over the key and the counter.
class CounterHash {
 public:
  /// The two keys must not treat stream and index alike, or swapping them would repeat a value.
  CounterHash(uint64_t seed, uint64_t stream)
      : key0_(mix64(mix64(seed + kGolden) ^ mix64(stream + 0x6A09E667F3BCC909ULL))),
        key1_(mix64(key0_ + 0xBB67AE8584CAA73BULL)) {}

  [[nodiscard]] uint64_t bits(uint64_t index) const {
    return mix64(mix64(index * kGolden + key0_) ^ key1_);
  }

 private:
  static constexpr uint64_t kGolden = 0x9E3779B97F4A7C15ULL;
  uint64_t key0_;
  uint64_t key1_;
};

}  // namespace sidereal::kernels::internal
