#include "sidereal/kernels/random.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "sidereal/kernels/internal/hash.h"
#include "sidereal/kernels/internal/vec_math.h"

namespace sidereal::kernels {
namespace {

using internal::CounterHash;

// Elements are made in blocks whose arrays stay in the first-level cache; a block holds pairs of
// elements (2j, 2j + 1), which share one 64-bit draw.
constexpr int kPairs = 256;

// sin and cos of a in [-pi/4, pi/4].
inline float sin_poly(float a) {
  const float z = a * a;
  return internal::horner(z, -1.9515295891e-4F, 8.3321608736e-3F, -1.6666654611e-1F) * z * a + a;
}
inline float cos_poly(float a) {
  const float z = a * a;
  const float p =
      internal::horner(z, 2.443315711809948e-5F, -1.388731625493765e-3F, 4.166664568298827e-2F);
  return internal::mul_add(p * z, z, internal::mul_add(-0.5F, z, 1.0F));
}

// Two independent standard normals from 64 bits, written to even and odd (Box and Muller, 1958).
inline void normal_pair(uint32_t high, uint32_t low, float* even, float* odd) {
  // (0, 1]: the logarithm is finite.
  const float u = (static_cast<float>(static_cast<int32_t>(high >> 8)) + 1.0F) * 0x1p-24F;
  const float radius = std::sqrt(-2.0F * internal::log_of(u));
  // The top two bits choose the quadrant, the others an angle in [-pi/4, pi/4) within it.
  const int32_t quadrant = static_cast<int32_t>(low >> 30);
  const int32_t within = static_cast<int32_t>((low >> 6) & 0xFFFFFF) - 0x800000;
  const float angle = static_cast<float>(within) * (1.57079632679F * 0x1p-24F);
  const float s = sin_poly(angle);
  const float c = cos_poly(angle);
  const bool swap = (quadrant & 1) != 0;
  const float x = swap ? s : c;
  const float y = swap ? c : s;
  *even = radius * ((quadrant == 1 || quadrant == 2) ? -x : x);
  *odd = radius * (quadrant >= 2 ? -y : y);
}

// Calls make(pairs, count, block) for blocks of pairs and copies what was asked for.
template <class Make>
void by_pairs(uint64_t first, const Runs& runs, float* out, int64_t n, Make make) {
  // Elements of a block that follow one another in it and in `out`.
  struct Piece {
    uint32_t from;
    uint32_t size;
  };
  uint64_t pairs[kPairs];
  Piece pieces[kPairs];
  float block[2 * kPairs];
  auto left = static_cast<uint64_t>(n);
  const uint64_t length = runs.length == 0 ? left : runs.length;
  uint64_t run = first;  // Where the current run begins.
  uint64_t at = first;
  while (left > 0) {
    uint64_t count = 0;
    int num_pieces = 0;
    while (count < kPairs && left > 0) {
      const uint64_t pair = at / 2;
      const uint64_t skipped = at - 2 * pair;
      const uint64_t size = std::min(run + length - at, left);
      const uint64_t taken = std::min<uint64_t>(kPairs - count, (skipped + size + 1) / 2);
      for (uint64_t j = 0; j < taken; ++j) pairs[count + j] = pair + j;
      const uint64_t used = std::min(2 * taken - skipped, size);
      pieces[num_pieces++] = {static_cast<uint32_t>(2 * count + skipped),
                              static_cast<uint32_t>(used)};
      count += taken;
      left -= used;
      at += used;
      if (at == run + length) at = run += runs.stride;
    }
    make(pairs, static_cast<int>(count), block);
    for (int i = 0; i < num_pieces; ++i) {
      out = std::copy_n(block + pieces[i].from, pieces[i].size, out);
    }
  }
}

void draw(const CounterHash& hash, const uint64_t* pairs, int count, uint32_t* high,
          uint32_t* low) {
  for (int j = 0; j < count; ++j) {
    const uint64_t bits = hash.bits(pairs[j]);
    high[j] = static_cast<uint32_t>(bits >> 32);
    low[j] = static_cast<uint32_t>(bits);
  }
}

}  // namespace

uint64_t random_bits(uint64_t seed, uint64_t stream, uint64_t index) {
  return CounterHash(seed, stream).bits(index);
}

void fill_uniform(const RandomKey& key, float lo, float hi, float* out, int64_t n) {
  fill_uniform(key, Runs(), lo, hi, out, n);
}

void fill_uniform(const RandomKey& key, const Runs& runs, float lo, float hi, float* out,
                  int64_t n) {
  const CounterHash hash(key.seed, key.stream);
  const float width = hi - lo;
  // lo + width * u may round up to hi, which must not be reached.
  const float top = hi > lo ? std::nextafter(hi, lo) : lo;
  by_pairs(key.first, runs, out, n, [&](const uint64_t* pairs, int count, float* block) {
    uint32_t high[kPairs];
    uint32_t low[kPairs];
    draw(hash, pairs, count, high, low);
    for (int j = 0; j < count; ++j) {
      const float u = static_cast<float>(static_cast<int32_t>(high[j] >> 8)) * 0x1p-24F;
      const float v = static_cast<float>(static_cast<int32_t>(low[j] >> 8)) * 0x1p-24F;
      block[2 * j] = std::min(lo + width * u, top);
      block[2 * j + 1] = std::min(lo + width * v, top);
    }
  });
}

void fill_normal(const RandomKey& key, float mean, float stddev, float* out, int64_t n) {
  fill_normal(key, Runs(), mean, stddev, out, n);
}

void fill_normal(const RandomKey& key, const Runs& runs, float mean, float stddev, float* out,
                 int64_t n) {
  const CounterHash hash(key.seed, key.stream);
  by_pairs(key.first, runs, out, n, [&](const uint64_t* pairs, int count, float* block) {
    uint32_t high[kPairs];
    uint32_t low[kPairs];
    draw(hash, pairs, count, high, low);
    float even[kPairs];
    float odd[kPairs];
    for (int j = 0; j < count; ++j) normal_pair(high[j], low[j], even + j, odd + j);
    for (int j = 0; j < count; ++j) {
      block[2 * j] = mean + stddev * even[j];
      block[2 * j + 1] = mean + stddev * odd[j];
    }
  });
}

void fill_truncated_normal(const RandomKey& key, float mean, float stddev, float* out, int64_t n) {
  fill_truncated_normal(key, Runs(), mean, stddev, out, n);
}

void fill_truncated_normal(const RandomKey& key, const Runs& runs, float mean, float stddev,
                           float* out, int64_t n) {
  fill_normal(key, runs, 0.0F, 1.0F, out, n);
  const uint64_t length = runs.length == 0 ? static_cast<uint64_t>(n) : runs.length;
  uint64_t run = key.first;
  for (int64_t begin = 0; begin < n; begin += static_cast<int64_t>(length), run += runs.stride) {
    const int64_t size = std::min(n - begin, static_cast<int64_t>(length));
    for (int64_t i = 0; i < size; ++i) {
      // One value in 22 is drawn again, from a sequence of its own that starts at its index.
      float& value = out[begin + i];
      uint64_t attempt = 0;
      float spare = 0;
      while (std::fabs(value) > 2.0F) {
        const CounterHash again(key.seed + ++attempt, ~key.stream);
        const uint64_t bits = again.bits(run + static_cast<uint64_t>(i));
        normal_pair(static_cast<uint32_t>(bits >> 32), static_cast<uint32_t>(bits), &value, &spare);
      }
      value = mean + stddev * value;
    }
  }
}

namespace {

/// [0, 1) from the upper 53 bits.
double unit(uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }

/// A standard normal from two draws of element `index`.
double normal_of(const CounterHash& hash, uint64_t index) {
  const double u = 1.0 - unit(hash.bits(2 * index));  // (0, 1]: the logarithm is finite.
  const double angle = 2.0 * std::numbers::pi * unit(hash.bits(2 * index + 1));
  return std::sqrt(-2.0 * std::log(u)) * std::cos(angle);
}

}  // namespace

void fill_uniform(const RandomKey& key, double lo, double hi, double* out, int64_t n) {
  const CounterHash hash(key.seed, key.stream);
  const double top = hi > lo ? std::nextafter(hi, lo) : lo;
  for (int64_t i = 0; i < n; ++i) {
    const double u = unit(hash.bits(key.first + static_cast<uint64_t>(i)));
    out[i] = std::min(lo + (hi - lo) * u, top);
  }
}

void fill_normal(const RandomKey& key, double mean, double stddev, double* out, int64_t n) {
  const CounterHash hash(key.seed, key.stream);
  for (int64_t i = 0; i < n; ++i) {
    out[i] = mean + stddev * normal_of(hash, key.first + static_cast<uint64_t>(i));
  }
}

void fill_truncated_normal(const RandomKey& key, double mean, double stddev, double* out,
                           int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t index = key.first + static_cast<uint64_t>(i);
    double x = normal_of(CounterHash(key.seed, key.stream), index);
    for (uint64_t attempt = 1; std::fabs(x) > 2.0; ++attempt) {
      x = normal_of(CounterHash(key.seed + attempt, ~key.stream), index);
    }
    out[i] = mean + stddev * x;
  }
}

void fill_uniform_integers(const RandomKey& key, int64_t lo, int64_t hi, int64_t* out, int64_t n) {
  const CounterHash hash(key.seed, key.stream);
  const uint64_t width = static_cast<uint64_t>(hi) - static_cast<uint64_t>(lo);
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t bits = hash.bits(key.first + static_cast<uint64_t>(i));
    const auto scaled = static_cast<uint64_t>((static_cast<unsigned __int128>(bits) * width) >> 64);
    out[i] = static_cast<int64_t>(static_cast<uint64_t>(lo) + scaled);
  }
}

}  // namespace sidereal::kernels
