#pragma once

#include <cstddef>
#include <cstdint>

#include "sidereal/resources/pushers.h"

/// The worker and session of a step, in one number that a step carries for figures: the number of
/// its pusher, and some bits of its session, as steps of several sessions may have one number.
namespace sidereal::resources {

inline constexpr int kPusherBits = 7;
static_assert(Pushers::kMax < (size_t{1} << kPusherBits));

inline int pushed_by(const Pushers::Pusher& pusher, uint64_t session) {
  const uint64_t some = (session * 0xbf58476d1ce4e5b9) >> 40;
  return pusher.number() | static_cast<int>(some << kPusherBits);
}

/// The number of the pusher.
inline int pusher_of(int whose) { return whose & ((1 << kPusherBits) - 1); }

/// What tells step `number` from steps of other sessions.
inline uint64_t step_of(uint64_t number, int whose) {
  return number ^ (static_cast<uint64_t>(whose >> kPusherBits) * 0x9fb21c651e98df25);
}

}  // namespace sidereal::resources
