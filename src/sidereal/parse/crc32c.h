#pragma once

#include <cstdint>
#include <string_view>

namespace sidereal::parse {

/// The CRC-32C (Castagnoli) of the bytes: the checksum in files of records.
/// Thread: any.
uint32_t crc32c(std::string_view bytes);

}  // namespace sidereal::parse
