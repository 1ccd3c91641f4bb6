#pragma once

#include <cstdint>
#include <string_view>

#include "sidereal/base/hash.h"

namespace sidereal::base {

/// The id of a category: field * buckets + a bucket chosen by the hash of its text (XXH3 with the
/// field as seed; the bucket is the high part of hash * buckets, which spreads evenly).
inline int64_t category_id(std::string_view text, int64_t field, int64_t buckets) {
  const uint64_t hash = hash64(text, static_cast<uint64_t>(field));
  const auto bucket = static_cast<uint64_t>(
      (static_cast<unsigned __int128>(hash) * static_cast<uint64_t>(buckets)) >> 64);
  return field * buckets + static_cast<int64_t>(bucket);
}

}  // namespace sidereal::base
