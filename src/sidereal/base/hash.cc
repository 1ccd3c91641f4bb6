#include "sidereal/base/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace sidereal::base {

uint64_t hash64(const void* data, size_t bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(data, bytes, seed);
}

}  // namespace sidereal::base
