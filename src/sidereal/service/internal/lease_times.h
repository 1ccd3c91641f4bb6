#pragma once

#include <chrono>

/// What ending a lease may take: servers give up then; the client of a take-over waits that long.
/// For the .cc files of service.
namespace sidereal::service {

/// What asynchronous pushes get to be done when sessions end that others wait for.
inline constexpr std::chrono::milliseconds kLastCalls(5'000);
/// For lanes to come to the end of what they compute.
inline constexpr std::chrono::milliseconds kLanes(5'000);
/// For a task that is asked to end a lease: each of the two is one call.
inline constexpr std::chrono::milliseconds kEndLeaseThere(10'000);
static_assert(kEndLeaseThere > kLastCalls && kEndLeaseThere > kLanes);
/// All of it: sessions here and elsewhere, then what is attached here and elsewhere.
inline constexpr std::chrono::milliseconds kEndLease =
    kLastCalls + kEndLeaseThere + kLanes + kEndLeaseThere;

}  // namespace sidereal::service
