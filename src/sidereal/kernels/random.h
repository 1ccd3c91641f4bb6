#pragma once

#include <cstdint>

/// Counter-based random numbers: the value of an element is a function of (seed, stream, index) and
/// of nothing else, so a table gets the same values however it is split.
namespace sidereal::kernels {

/// A sequence of random values. `stream` tells variables of one seed apart; `first` is the index of
/// the first element written.
struct RandomKey {
  uint64_t seed = 0;
  uint64_t stream = 0;
  uint64_t first = 0;
};

/// Which elements of a sequence are written: runs of `length` that follow one another, the first
/// elements of which are `stride` apart. Length 0: a single run.
struct Runs {
  uint64_t length = 0;
  uint64_t stride = 0;
};

/// 64 random bits of element `index` (two rounds of the finalizer of SplitMix64 over a keyed
/// counter; Steele, Lea and Flood, 2014).
uint64_t random_bits(uint64_t seed, uint64_t stream, uint64_t index);

/// out[i] uniform in [lo, hi). 24 random bits per value.
void fill_uniform(const RandomKey& key, float lo, float hi, float* out, int64_t n);

/// out[i] normal (Box-Muller).
void fill_normal(const RandomKey& key, float mean, float stddev, float* out, int64_t n);

/// out[i] normal, redrawn while further than two standard deviations from the mean
/// (tf.random.truncated_normal).
void fill_truncated_normal(const RandomKey& key, float mean, float stddev, float* out, int64_t n);

/// The same for elements that do not all follow one another.
void fill_uniform(const RandomKey& key, const Runs& runs, float lo, float hi, float* out,
                  int64_t n);
void fill_normal(const RandomKey& key, const Runs& runs, float mean, float stddev, float* out,
                 int64_t n);
void fill_truncated_normal(const RandomKey& key, const Runs& runs, float mean, float stddev,
                           float* out, int64_t n);

/// The same in double, with 53 random bits per value.
void fill_uniform(const RandomKey& key, double lo, double hi, double* out, int64_t n);
void fill_normal(const RandomKey& key, double mean, double stddev, double* out, int64_t n);
void fill_truncated_normal(const RandomKey& key, double mean, double stddev, double* out,
                           int64_t n);

/// out[i] uniform among the integers in [lo, hi); lo must be below hi. Each has the same
/// probability up to 2^-64 times the width.
void fill_uniform_integers(const RandomKey& key, int64_t lo, int64_t hi, int64_t* out, int64_t n);

}  // namespace sidereal::kernels
