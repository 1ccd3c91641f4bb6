#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace sidereal::base {

/// 64-bit XXH3 of the bytes; the same on every machine and in every run.
uint64_t hash64(const void* data, size_t bytes, uint64_t seed = 0);

/// 64-bit XXH3 of the text.
inline uint64_t hash64(std::string_view text, uint64_t seed = 0) {
  return hash64(text.data(), text.size(), seed);
}

}  // namespace sidereal::base
