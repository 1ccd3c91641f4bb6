#pragma once

#include <cstddef>

/// What one call of lookup.proto may ask for, and be answered with. For the .cc files of service.
namespace sidereal::service {

inline constexpr size_t kLookUpIdsMax = 65'536;
/// An answer is no longer than what clients of gRPC take unless they are told otherwise.
inline constexpr size_t kLookUpRowBytesMax = 4'000'000;

}  // namespace sidereal::service
