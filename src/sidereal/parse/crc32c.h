#pragma once

#include <cstdint>
#include <string_view>

namespace sidereal::parse {

/// The CRC-32C (Castagnoli) of the bytes: the checksum in files of records. `before` is that of the
/// bytes in front of them, so that many can be taken in pieces.
/// Thread: any.
uint32_t crc32c(std::string_view bytes, uint32_t before = 0);

/// Turned and moved, as TensorFlow and LevelDB store it, so that checksums of bytes with checksums
/// in them differ. Thread: any.
constexpr uint32_t masked_crc(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xa282ead8U; }

}  // namespace sidereal::parse
