#include "sidereal/wire/checksum.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace sidereal::wire {

struct Checksum::State {
  XXH3_state_t xxh;
};

Checksum::Checksum() : state_(std::make_unique<State>()) { clear(); }
Checksum::~Checksum() = default;

void Checksum::add(const void* data, size_t bytes) {
  if (bytes > 0) XXH3_64bits_update(&state_->xxh, data, bytes);
}

uint64_t Checksum::value() const { return XXH3_64bits_digest(&state_->xxh); }

void Checksum::clear() { XXH3_64bits_reset(&state_->xxh); }

}  // namespace sidereal::wire
